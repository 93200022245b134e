"""What is asked of a keeper while it is busy is done before it sleeps."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from tasks.embedded.control.keeper import Keeper
from tasks.embedded.start_keeper import look_mark


@dataclass
class Ready:
    """A descriptor that a sleeper wakes from at once."""

    reader: int
    writer: int

    @property
    def answers(self) -> int:
        return self.reader


@dataclass
class Lives:
    """No process to watch; an answer of the zygote says that it is gone, which ends the keeper."""

    descriptors: tuple[int, ...] = ()

    def answers(self) -> bool:
        return False


@dataclass
class Rounds:
    """A reconciler whose first round is disturbed: somebody asks while it has taken up all changes already."""

    root: Path
    silent: int
    looks: list[int] = field(default_factory=list[int])
    number: int = 0
    lives: Lives = field(default_factory=Lives)

    @property
    def cache(self) -> Rounds:
        return self

    @property
    def reader(self) -> Rounds:
        return self

    @property
    def notifier(self) -> int:
        """Nothing is heard of the wish: its event was read with the others of this round."""
        return self.silent

    def look_again(self) -> None:
        self.looks.append(self.number)

    def run(self) -> None:
        self.number += 1
        if self.number == 1:
            Path(look_mark(str(self.root))).touch()

    def pending(self) -> bool:
        return True

    def wake_at(self) -> float | None:
        return None


@pytest.fixture
def ready() -> Iterator[Ready]:
    reader, writer = os.pipe()
    os.write(writer, b"x")
    yield Ready(reader, writer)
    os.close(reader)
    os.close(writer)


@pytest.fixture
def silent() -> Iterator[int]:
    reader, writer = os.pipe()
    yield reader
    os.close(reader)
    os.close(writer)


def test_a_wish_of_a_busy_moment_is_not_slept_over(tmp_path: Path, ready: Ready, silent: int) -> None:
    (tmp_path / "changes").mkdir()
    rounds = Rounds(tmp_path, silent)
    before = signal.getsignal(signal.SIGTERM)
    try:
        Keeper(str(tmp_path), cast(Any, ready), cast(Any, rounds), 60.0).run(-1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert rounds.looks == [1]
    assert rounds.number == 2
