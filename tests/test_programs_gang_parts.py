"""The parts of a member of a group: doors and keys, cards, the ring's sums and hops, reports, GPUs' processes."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.node_tests.fabric.groups import read_group
from tests.damaged import damaged, reaches
from tests.waiting import patience
from workflows.programs.fabric import group_member
from workflows.programs.fabric.group_member import bus_bandwidth
from workflows.programs.fabric.meeting import (
    STALE_SECONDS,
    CardSummary,
    MemberCard,
    Options,
    RendezvousFolder,
    address_of,
    machine_id,
    rail_addresses,
    ranks_on_shared_machines,
    remove_stale_rounds,
)
from workflows.programs.fabric.report import SOCKETS, GangReport, parse_report
from workflows.programs.fabric.ring import RingMember, waited_seconds
from workflows.programs.fabric.transport import HELLO, NONCE_BYTES, MemberLostError, RailConnections
from workflows.programs.runtime import flags

MAIN = Path(group_member.__file__).parents[1] / "main.py"
PATIENCE_SECONDS = patience(60.0)


@given(st.integers(0, 9), st.integers(2, 99), st.floats(0.5, 1e4), st.integers(0, 8))
def test_options_become_flags_and_come_back(group: int, ranks: int, seconds: float, gpus: int) -> None:
    options = Options("/a b", group, ranks - 1, ranks, seconds, 2 * seconds, gpus=gpus)
    assert flags.from_argv(Options, options.argv()) == options


texts = st.text(max_size=30)


@given(
    st.builds(
        GangReport,
        node=texts, group=st.integers(0, 99), rank=st.integers(0, 99), at=st.floats(0, 1e10), by=texts,
        rails=st.none() | st.lists(st.floats(0, 1e4), min_size=1, max_size=8).map(tuple),
        wrong=st.integers(0, 9), missed=st.lists(st.integers(0, 99), max_size=16).map(tuple), why=texts, notes=texts,
    )
)  # fmt: skip
def test_a_report_comes_back_as_it_was(report: GangReport) -> None:
    assert parse_report(report.text()) == report


OTHER_REPORTS = damaged(
    [
        GangReport("a", 0, 1, 5.0, "sockets", rails=(1.0, 2.0), missed=(3,), why="w").text(),
        GangReport("b", 1, 0, 2.0).text(),
    ],
    ["null", "[]", "{}", '"', "NaN", "1e999", "-1", '"rails":', '"missed":', ","],
)


@given(
    st.text()
    | st.recursive(st.none() | st.integers() | texts, lambda some: st.dictionaries(texts, some)).map(json.dumps)
)
def test_whatever_else_is_no_report(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of json as well
        parse_report(text)


@given(OTHER_REPORTS)
def test_a_damaged_report_is_one_or_is_refused(text: str) -> None:
    if _is_report(text):
        found = parse_report(text)
        assert repr(parse_report(found.text())) == repr(found)


def test_some_damaged_reports_are_reports_and_others_are_json_alone() -> None:
    assert reaches(OTHER_REPORTS, _is_report)
    assert reaches(OTHER_REPORTS, lambda text: _is_json(text) and not _is_report(text))


def _is_report(text: str) -> bool:
    try:
        parse_report(text)
    except ValueError:
        return False
    return True


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_bus_bandwidth_is_that_of_the_collective_libraries() -> None:
    assert bus_bandwidth(8_000_000_000, 4, 1.0, 2.0) == pytest.approx(12.0)  # 2 * 3 / 4 * 8 GB/s
    assert bus_bandwidth(8_000_000_000, 4, 1.0, 1.0) == pytest.approx(6.0)


@contextmanager
def doors_of(folder: Path, ranks: int, seconds: float = 10.0) -> Iterator[list[RailConnections]]:
    """The doors of all ranks of a group in this process, with their cards laid."""
    until, made = time.monotonic() + seconds, list[RailConnections]()
    for rank in range(ranks):
        place = RendezvousFolder(str(folder), rank, ranks)
        one = RailConnections(rank, place, ["127.0.0.1"], until)
        place.publish(MemberCard(rank, f"node-{rank}", one.addresses, one.key.hex()), CardSummary("m", SOCKETS))
        made.append(one)
    try:
        yield made
    finally:
        for one in made:
            one.close()


def test_nobody_comes_in_without_the_key(tmp_path: Path) -> None:
    with doors_of(tmp_path, 2) as (door, other):
        for proof in (bytes(32), hmac.new(b"guess", bytes(NONCE_BYTES), hashlib.sha256).digest()):
            with socket.create_connection(door.addresses[0], 5) as guest:
                guest.recv(NONCE_BYTES)
                guest.sendall(HELLO.pack(1, proof))
                assert guest.recv(2) == b"", "it is sent away"
        with socket.create_connection(door.addresses[0], 5) as guest:  # an old proof is of no use
            nonce = guest.recv(NONCE_BYTES)
            guest.sendall(HELLO.pack(1, hmac.new(door.key, nonce + struct.pack(">I", 0), hashlib.sha256).digest()))
            assert guest.recv(2) == b"", "the proof names who it is"
        assert other.connection_to(0, 0).getpeername() == door.addresses[0]
        assert door.connection_from(1, 0) is not None


def test_cards_are_for_their_owner_only_and_whole_at_once(tmp_path: Path) -> None:
    with doors_of(tmp_path / "group-0", 2) as (door, _):
        [one, other] = sorted((tmp_path / "group-0").iterdir())
        assert {path.stat().st_mode & 0o777 for path in (one, other)} == {0o600}
        assert (tmp_path / "group-0").stat().st_mode & 0o777 == 0o700
        assert door.folder.card(0).addresses == door.addresses
        one.write_text("{}")
        with pytest.raises(ValueError, match="no card of a member"):
            door.folder.card(0)
        with pytest.raises(MemberLostError, match="rank 0 cannot be reached"):
            door.connection_to(0, 0)


def test_a_value_that_changes_on_the_way_is_counted(tmp_path: Path) -> None:
    class Liar(RingMember):
        def exchange(self, to: int, source: int, data: bytes, size: int) -> bytes:
            changed = bytes([data[0] ^ 1]) + data[1:] if len(data) > 1 else data
            return super().exchange(to, source, changed, size)

    with doors_of(tmp_path, 3) as doors:
        until = time.monotonic() + 10
        rings = [(Liar if rank == 1 else RingMember)(rank, 3, doors[rank], 0, until) for rank in range(3)]
        wrong = together([lambda ring=ring: ring.all_reduce(3000)[1] for ring in rings])
        assert sum(wrong) > 0
        wrong = together([lambda ring=ring: ring.all_to_all(3000)[1] for ring in rings])
        assert (wrong[0], wrong[2]) == (1, 1), "each got one from the liar"


def together(works: list[Any]) -> list[Any]:
    """Results of functions that need each other, each in a thread."""
    found: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda number=number, work=work: found.__setitem__(number, work()))
        for number, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    return [found[number] for number in range(len(works))]


def test_a_hop_is_slow_where_its_receiver_reads_slowly(tmp_path: Path) -> None:
    size, pause = 4 << 20, 0.25

    class Sleepy(RingMember):
        """Does not look at what comes for a while."""

        def exchange(self, to: int, source: int, data: bytes, size: int) -> bytes:
            if size > 1:
                pauses.wait(pause)
            return super().exchange(to, source, data, size)

    pauses = threading.Event()
    with doors_of(tmp_path, 4, 30.0) as doors:
        rings = [
            (Sleepy if rank == 2 else RingMember)(rank, 4, doors[rank], 0, time.monotonic() + 30) for rank in range(4)
        ]
        took = together([lambda ring=ring: ring.hops(size, 2) for ring in rings])
    assert took[1] == max(took)
    assert took[1] > pause / 2
    assert waited_seconds() >= 0


def test_members_of_one_machine_know_it() -> None:
    assert ranks_on_shared_machines(
        {0: CardSummary("a", SOCKETS), 1: CardSummary("b", SOCKETS), 2: CardSummary("a", SOCKETS)}
    ) == {0, 2}
    assert ranks_on_shared_machines({0: CardSummary("a", SOCKETS), 1: CardSummary("b", SOCKETS)}) == set()
    assert machine_id() == machine_id()
    assert machine_id("/no/such/file").isalnum()


def test_what_killed_members_left_is_removed_a_day_later(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name / "group-0").mkdir(parents=True)
        (tmp_path / name / "group-0" / "0.m.sockets.card").write_text("{}")
    old = time.time() - STALE_SECONDS - 60
    os.utime(tmp_path / "old", (old, old))
    remove_stale_rounds(str(tmp_path), time.time())
    assert [path.name for path in tmp_path.iterdir()] == ["new"]
    remove_stale_rounds(str(tmp_path / "nosuch"), time.time())


def test_rails_are_the_nics_that_have_an_address_here(tmp_path: Path) -> None:
    for nic, interface in (("mlx5_1", "lo"), ("mlx5_0", "nosuch0"), ("mlx5_2", "lo")):
        (tmp_path / nic / "device" / "net" / interface).mkdir(parents=True)
    assert rail_addresses("10.0.0.1", str(tmp_path)) == ("127.0.0.1",)
    assert rail_addresses("10.0.0.1", str(tmp_path / "nosuch")) == ("10.0.0.1",)
    assert rail_addresses("", str(tmp_path / "nosuch")) == ("127.0.0.1",)
    assert address_of("nosuch0") is None


REPORT = GangReport("n", 0, 0, 1.0)
good = replace(REPORT, rails=(2.0, 3.0), all_to_all=1.0)


@pytest.mark.parametrize(
    ("reports", "rails", "why"),
    [
        ([good, replace(good, rails=(1.0, 9.0))], (1.0, 3.0), ""),
        ([good, replace(good, rails=(1.0,))], None, "its members report different rails"),
        ([good, replace(good, wrong=2)], (0.0, 0.0), ""),
        ([good, replace(good, rails=None, why="it crashed", node="b")], None, "b: it crashed"),
        ([good], None, "b: gone"),
        ([], None, "b: gone"),
    ],
)
def test_a_group_is_as_good_as_its_slowest_member(
    reports: list[GangReport], rails: tuple[float, ...] | None, why: str
) -> None:
    told = dict(zip("ab", reports, strict=False))
    found = read_group(("a", "b"), told, {} if len(reports) == 2 else {"b": "gone"})
    assert (found.measurement.gigabytes_per_second, found.why) == (rails, why)
    assert asdict(found)["wrong"] == sum(one.wrong for one in reports)
