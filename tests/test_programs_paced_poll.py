"""Who prints once is heard at once, who prints all the time in bundles, and what is urgent is never waited with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from workflows.programs import paced_poll
from workflows.programs.paced_poll import LONGEST_REST_SECONDS, SHORTEST_REST_SECONDS, WORK_SHARE, PacedPoll


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
    monkeypatch.setattr(paced_poll, "time", one)
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
    poll.worked(flooded=False)
    assert poll.wait(0) == (False, [])
    assert poll.wait(30) == (True, []), "no turn for nothing when the rest is over"


def test_what_is_urgent_is_heard_while_the_reader_rests(clock: Clock, pipes: tuple[int, int, int, int]) -> None:
    output, printing, urgent, telling = pipes
    poll = PacedPoll(output, [urgent])
    poll.worked(flooded=False)
    os.write(printing, b"line\n")
    os.write(telling, b"!")
    assert poll.wait(30) == (False, [urgent])


@pytest.mark.parametrize(
    ("processor_seconds", "rest"),
    [
        (0.0, SHORTEST_REST_SECONDS),
        (0.5 * LONGEST_REST_SECONDS * WORK_SHARE, 0.5 * LONGEST_REST_SECONDS),
        (1.0, LONGEST_REST_SECONDS),
    ],
)
def test_the_rest_is_as_long_as_the_work_of_all_threads_asks_for(
    clock: Clock, pipes: tuple[int, int, int, int], processor_seconds: float, rest: float
) -> None:
    output, printing, urgent, _ = pipes
    poll = PacedPoll(output, [urgent])
    os.write(printing, b"line\n")
    clock.processor = processor_seconds
    poll.worked(flooded=False)
    clock.now += rest * 0.99
    assert poll.wait(0) == (False, [])
    clock.now += rest * 0.02
    assert poll.wait(0) == (True, [])


def test_who_waits_for_the_reader_is_not_held_up(clock: Clock, pipes: tuple[int, int, int, int]) -> None:
    output, printing, urgent, _ = pipes
    poll = PacedPoll(output, [urgent])
    os.write(printing, b"line\n")
    clock.processor = 1.0
    poll.worked(flooded=True)
    assert poll.wait(0) == (True, [])
