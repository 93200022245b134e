"""Who hears of what a launcher finds out, and what happens to it while nobody listens."""

from __future__ import annotations

from typing import Any

from workflows.programs.outbox import BATCH, Outbox
from workflows.programs.reporting import StepFilter
from workflows.reports import StepSeen


def test_who_hears_of_which_step() -> None:
    choose = StepFilter()
    heard = [choose.take(StepSeen(n, at=n / 100, rank=1)) for n in range(1, 401)]
    assert heard[0].urgent
    assert not heard[1].urgent
    assert [n for n, a in enumerate(heard, 1) if a.log] == [*range(1, 21), 120, 220, 320]
    assert all(a.coordinator and a.record for a in heard)
    other = [choose.take(StepSeen(n, at=n / 100, rank=2)) for n in range(1, 401)]
    assert sum(a.coordinator for a in other) == 23
    assert not any(a.record for a in other)
    assert (choose.reporting_rank, choose.last_step) == (1, 400)


def test_every_measured_step_of_every_rank_is_heard_but_not_a_thousand_a_second() -> None:
    choose = StepFilter()
    choose.take(StepSeen(1, at=0.0, rank=0))
    slow = [choose.take(StepSeen(n, at=n / 10, rank=1, compute_seconds=0.1)) for n in range(1, 101)]
    assert all(audience.coordinator for audience in slow)
    fast = [choose.take(StepSeen(n, at=20 + n / 1000, rank=2, compute_seconds=0.001)) for n in range(1, 1001)]
    assert 20 <= sum(audience.coordinator for audience in fast) <= 41


def test_the_first_loss_that_is_no_number_is_told_to_everybody_once() -> None:
    choose = StepFilter()
    losses = [1.0] * 30 + [float("nan"), float("inf")]
    heard = [choose.take(StepSeen(n, at=n / 100, loss=loss)) for n, loss in enumerate(losses, 1)]
    assert [n for n, a in enumerate(heard, 1) if a.prover] == [31]
    assert heard[30].log
    assert choose.first_nan_step == 31


def data(number: int, kind: str = "StepSeen") -> dict[str, Any]:
    return {"report": kind, "step": number}


def test_reports_are_sent_in_order_and_again_until_they_arrive() -> None:
    box = Outbox()
    for number in range(BATCH + 5):
        box.add(data(number))
    box.say("running", pids={"0": 5})
    first = box.begin()
    box.add(data(9999))
    assert box.begin() == first
    assert (len(first.reports), first.sequence, first.state) == (BATCH, 1, "")
    box.done(first)
    second = box.begin()
    assert [report["step"] for report in second.reports] == [*range(BATCH, BATCH + 5), 9999]
    assert (second.sequence, second.state, second.pids) == (2, "running", {"0": 5})
    assert not box.empty
    box.done(second)
    assert box.empty


def test_every_state_is_told_in_order_after_what_was_reported_before() -> None:
    box = Outbox()
    box.say("leaving", "SIGTERM")
    box.add(data(1, "RankEnd"))
    box.say("ended", "signalled")
    told: list[tuple[str, int, int]] = []
    while not box.empty:
        batch = box.begin()
        told.append((batch.state, len(batch.reports), batch.sequence))
        box.done(batch)
    assert told == [("leaving", 1, 1), ("ended", 0, 2)]


def test_while_nobody_listens_memory_is_bounded_and_what_matters_is_kept() -> None:
    box = Outbox(limit=100)
    for number in range(5000):
        box.add(data(number))
        if number % 500 == 0:
            box.add(data(number, "RankEnd"))
    sent = box.begin().reports
    assert len(sent) <= 100
    assert [report["step"] for report in sent if report["report"] == "RankEnd"] == list(range(0, 5000, 500))
    assert sent[-1] == data(4999)
    numbers = [report["step"] for report in sent]
    assert numbers == sorted(numbers)


def test_after_a_coordinator_lost_its_memory_numbers_go_on() -> None:
    box = Outbox()
    box.add(data(1))
    batch = box.begin()
    box.resume_after(7)
    assert box.begin() == batch._replace(sequence=8)
