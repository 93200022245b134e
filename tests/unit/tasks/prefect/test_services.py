"""What is started again where it died: held back longer each time, with a reason, and by all who look together."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from profiles.errors import Unavailable
from tasks.prefect import services
from tasks.prefect.services import STARTS, Service, Tries, Wish, pause_after, revive


@dataclass
class World:
    """A home in which nothing lives for long, and a clock."""

    home: Path
    now: float = 1_000_000.0
    starts: list[float] = field(default_factory=list[float])
    refused: str = ""

    def begin(self, _home: Path) -> str:
        if self.refused:
            raise Unavailable(self.refused)
        self.starts.append(self.now)
        return "http://127.0.0.1:1/api"

    def tries(self) -> Tries:
        return Tries(self.home, lambda: self.now)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    services._write_wish(tmp_path, Wish("local"))  # pyright: ignore[reportPrivateUsage] - as `primus up` does
    for service in (Service.RUNNER, Service.MONITOR):
        services.record(tmp_path / f"{service}.json", services.os.getpid())
    monkeypatch.setattr(services, "begin_own_server", made.begin)
    return made


def seconds(world: World, count: int, *lookers: Tries) -> list[str]:
    """What all lookers tell in so many seconds, in each of which each looks once."""
    told = list[str]()
    for _ in range(count):
        for looker in lookers:
            told += revive(world.home, looker)
        world.now += 1.0
    return told


def test_what_dies_at_once_is_started_ever_more_rarely_and_told_why(world: World) -> None:
    (world.home / "logs").mkdir()
    (world.home / "logs" / "server.log").write_text("RuntimeError: no luck\n")
    told = seconds(world, 1500, world.tries())
    gaps = [after - before for before, after in zip(world.starts, world.starts[1:], strict=False)]
    assert gaps[:9] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert gaps[9:] == [600, 600], "its budget is spent"
    assert told[0] == (
        "server ended (RuntimeError: no luck), started again; start 1 in a row, the next one after 1 s at the soonest"
    )
    assert len(told) == len(world.starts)


def test_two_who_look_share_what_was_tried(world: World) -> None:
    seconds(world, 100, world.tries(), world.tries())
    assert len(world.starts) == 7, "as many as of one"


def test_a_start_that_fails_counts_as_well(world: World) -> None:
    world.refused = "server is not started: disk full"
    told = seconds(world, 100, world.tries())
    assert len(told) == 7
    assert told[6].startswith("server: server is not started: disk full; start 7 in a row, the next one after 60 s")


def test_who_cannot_write_it_down_remembers_it(world: World) -> None:
    (world.home / STARTS).mkdir()
    seconds(world, 100, world.tries())
    assert len(world.starts) == 7


def test_what_lived_begins_anew_and_so_does_who_says_up(world: World) -> None:
    tries = world.tries()
    seconds(world, 20, tries)
    tries.forget([Service.SERVER])
    assert tries.may(Service.SERVER)
    seconds(world, 20, tries)
    services._write_wish(world.home, Wish("local"))  # pyright: ignore[reportPrivateUsage] - as `primus up` does
    assert world.tries().may(Service.SERVER)


def test_a_clock_that_was_set_back_keeps_nobody_waiting(world: World) -> None:
    tries = world.tries()
    seconds(world, 20, tries)
    world.now -= 86_400
    assert tries.may(Service.SERVER)


def test_pauses_have_an_end() -> None:
    assert max(map(pause_after, range(1, 2000))) == 600.0
