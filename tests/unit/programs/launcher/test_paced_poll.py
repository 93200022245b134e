"""Who prints once is heard at once, who prints all the time in bundles, and what is urgent is never waited with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from workflows.programs.launcher import poll as launcher_poll
from workflows.programs.launcher.poll import LONGEST_REST_SECONDS, SHORTEST_REST_SECONDS, WORK_SHARE, PacedPoll


@dataclass
class Clock:
    """In place of the module's `time`."""

    now: float = 100.0
    processor: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def process_time(self) -> float:
        return self.processor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(launcher_poll, "time", one)
    return one


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    fds = (*os.pipe(), *os.pipe())
    yield fds
    for fd in fds:
        os.close(fd)


def test_output_is_heard_at_once_and_after_the_rest_in_the_same_turn(
    clock: Clock, pipes: tuple[int, int, int, int]
) -> None:
    output, printing, urgent, _ = pipes
    poll = PacedPoll(output, [urgent])
    os.write(printing, b"line\n")
    assert poll.wait(30) == (True, [])
    poll.pace(flooded=False)
    assert poll.wait(0) == (False, [])
    assert poll.wait(30) == (True, []), "no turn for nothing when the rest is over"


def test_what_is_urgent_is_heard_while_the_reader_rests(clock: Clock, pipes: tuple[int, int, int, int]) -> None:
    output, printing, urgent, telling = pipes
    poll = PacedPoll(output, [urgent])
    poll.pace(flooded=False)
    os.write(printing, b"line\n")
    os.write(telling, b"!")
    assert poll.wait(30) == (False, [urgent])


def rests(poll: PacedPoll, clock: Clock, seconds: float) -> bool:
    """Whether the reader rests for so long, to a hundredth."""
    clock.now += seconds * 0.99
    before = poll.wait(0)
    clock.now += seconds * 0.02
    return before == (False, []) and poll.wait(0)[0]


def test_who_always_has_more_waits_longer_and_longer(clock: Clock, pipes: tuple[int, int, int, int]) -> None:
    output, printing, urgent, _ = pipes
    poll = PacedPoll(output, [urgent])
    os.write(printing, b"line\n")
    poll.pace(flooded=False)
    seconds = SHORTEST_REST_SECONDS
    while seconds < LONGEST_REST_SECONDS:
        assert rests(poll, clock, seconds)
        clock.processor += 1.0
        poll.pace(flooded=False)
        seconds = min(2 * seconds, LONGEST_REST_SECONDS)
    assert rests(poll, clock, LONGEST_REST_SECONDS)
    clock.processor += 0.5 * LONGEST_REST_SECONDS * WORK_SHARE
    poll.pace(flooded=False)
    assert rests(poll, clock, 0.5 * LONGEST_REST_SECONDS), "no longer than the work of all threads asks for"


def test_who_prints_line_by_line_is_heard_so_whatever_the_work(clock: Clock, pipes: tuple[int, int, int, int]) -> None:
    output, printing, urgent, _ = pipes
    poll = PacedPoll(output, [urgent])
    for _ in range(20):
        assert poll.wait(0) == (False, [])
        os.write(printing, b"step\n")
        assert poll.wait(0)[0]
        os.read(output, 99)
        clock.processor += 1.0
        poll.pace(flooded=False)
        clock.now += 1.01 * SHORTEST_REST_SECONDS


def test_who_waits_for_the_reader_is_not_held_up(clock: Clock, pipes: tuple[int, int, int, int]) -> None:
    output, printing, urgent, _ = pipes
    poll = PacedPoll(output, [urgent])
    os.write(printing, b"line\n")
    clock.processor = 1.0
    poll.pace(flooded=True)
    assert poll.wait(0) == (True, [])
