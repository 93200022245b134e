"""Devices measured one by one, and listings of checkpoints that begin anew."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.observers.hardware import measured
from flows.decisions.diagnosis.observers.resume import fallen
from workflows.model.attempt import LogLine


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(text, "file", None, "", None, "x.log", number) for number, text in enumerate(texts, 1)]


def burned(*rates: float, unit: str = "GFlops") -> list[LogLine]:
    return lines(*(f"GEMM [I] (ADAPTER#{index})  Ending with {rate} {unit}" for index, rate in enumerate(rates)))


MEASURED = {
    "one of eight at a third": (burned(6698.4, *[19239.3] * 7), [0]),
    "all alike": (burned(*[19239.3, 19148.1] * 4), []),
    "three devices are too few": (burned(6698.4, 19239.3, 19148.1), []),
    "half of them": (burned(*[6698.4] * 4, *[19239.3] * 4), []),
    "a number that is no rate": (burned(6.7, *[19.2] * 7, unit="GiB"), []),
    "the last measurement counts": (
        [*burned(6698.4, *[19239.3] * 7), *burned(19239.3, *[19239.3] * 7)],
        [],
    ),
}


@pytest.mark.parametrize("name", MEASURED)
def test_a_device_far_below_its_peers_is_slow(name: str) -> None:
    texts, slow = MEASURED[name]
    assert [clue.rank for clue in measured(texts)] == slow


def listing(*files: tuple[str, str]) -> list[LogLine]:
    return lines("total 3G", *(f"-rw-r----- 1 user group 209M {when} '{name}'" for when, name in files))


FAR = (("Nov 28 21:33", "epoch=2808-step=30899.ckpt"), ("Nov 29 02:24", "epoch=4130-step=45441.ckpt"))
ANEW = (("Nov 29 10:59", "epoch=27-step=308.ckpt"), ("Nov 29 11:00", "epoch=36-step=407.ckpt"))
LISTED = {
    "a second series from the beginning": (listing(*FAR, *ANEW), True),
    "in the order of names": (listing(*ANEW, *FAR), True),
    "whole dates": (
        listing(
            ("2024-03-01 10:00", "step_1000"),
            ("2024-03-01 11:00", "step_2000"),
            ("2024-03-02 10:00", "step_10"),
            ("2024-03-02 10:10", "step_20"),
        ),
        True,
    ),
    "a series that only rises": (listing(*FAR), False),
    "one odd file": (listing(*FAR, ANEW[0]), False),
    "an older year": (listing(("Nov 28 2023", "step_900"), ("Nov 29 2023", "step_950"), *FAR), False),
    "the best and the last beside it": (
        listing(*FAR, ("Nov 29 03:00", "best.ckpt"), ("Nov 29 03:01", "last.ckpt")),
        False,
    ),
    "a later start that passed the first one": (
        listing(*FAR, *ANEW, ("Nov 29 12:00", "epoch=9000-step=99000.ckpt")),
        False,
    ),
}


@pytest.mark.parametrize("name", LISTED)
def test_checkpoints_that_were_written_later_and_hold_earlier_steps(name: str) -> None:
    texts, fell = LISTED[name]
    assert [clue.rule for clue in fallen(texts)] == ["checkpoints-fell-back"] * fell
