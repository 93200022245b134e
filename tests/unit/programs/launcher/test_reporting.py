"""Who hears of what a launcher finds out, and what happens to it while nobody listens."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workflows.programs.launcher import outbox
from workflows.programs.launcher.outbox import BATCH_REPORTS, Outbox, thin_reports
from workflows.programs.launcher.reporting import StepFilter
from workflows.wire import StepSeen


def test_who_hears_of_which_step() -> None:
    choose = StepFilter()
    heard = [choose.choose(StepSeen(n, at=n / 100, rank=1)) for n in range(1, 401)]
    assert heard[0].urgent
    assert not heard[1].urgent
    assert [n for n, a in enumerate(heard, 1) if a.log] == [*range(1, 21), 120, 220, 320]
    assert all(a.coordinator and a.record for a in heard)
    other = [choose.choose(StepSeen(n, at=n / 100, rank=2)) for n in range(1, 401)]
    assert sum(a.coordinator for a in other) == 23
    assert not any(a.record for a in other)
    assert (choose.reporting_rank, choose.last_step) == (1, 400)


def test_where_the_lowest_rank_ends_first_the_next_one_tells_the_rest() -> None:
    choose = StepFilter()
    for number in (1, 2, 3):
        choose.choose(StepSeen(number, at=number / 100, rank=1))
    choose.end_rank(1)
    heard = {number: choose.choose(StepSeen(number, at=1 + number / 100, rank=2)).record for number in (2, 3, 4, 5)}
    assert heard == {2: False, 3: False, 4: True, 5: True}
    assert (choose.reporting_rank, choose.last_step) == (2, 5)


def test_every_measured_step_of_every_rank_is_heard_but_not_a_thousand_a_second() -> None:
    choose = StepFilter()
    choose.choose(StepSeen(1, at=0.0, rank=0))
    slow = [choose.choose(StepSeen(n, at=n / 10, rank=1, compute_seconds=0.1)) for n in range(1, 101)]
    assert all(audience.coordinator for audience in slow)
    fast = [choose.choose(StepSeen(n, at=20 + n / 1000, rank=2, compute_seconds=0.001)) for n in range(1, 1001)]
    assert 20 <= sum(audience.coordinator for audience in fast) <= 41


def test_the_first_loss_that_is_no_number_is_told_to_everybody_once() -> None:
    choose = StepFilter()
    losses = [1.0] * 30 + [float("nan"), float("inf")]
    heard = [choose.choose(StepSeen(n, at=n / 100, loss=loss)) for n, loss in enumerate(losses, 1)]
    assert [n for n, a in enumerate(heard, 1) if a.prover] == [31]
    assert heard[30].log
    assert choose.first_nan_step == 31


def data(number: int, kind: str = "StepSeen") -> dict[str, Any]:
    return {"report": kind, "step": number}


def test_reports_are_sent_in_order_and_again_until_they_arrive() -> None:
    box = Outbox()
    for number in range(BATCH_REPORTS + 5):
        box.add(data(number))
    box.add_state("running", pids={"0": 5})
    first = box.next_batch()
    box.add(data(9999))
    assert box.next_batch() == first
    assert (len(first.reports), first.sequence, first.state) == (BATCH_REPORTS, 1, "")
    box.confirm(first)
    second = box.next_batch()
    assert [report["step"] for report in second.reports] == [*range(BATCH_REPORTS, BATCH_REPORTS + 5), 9999]
    assert (second.sequence, second.state, second.pids) == (2, "running", {"0": 5})
    assert not box.is_empty
    box.confirm(second)
    assert box.is_empty


def test_every_state_is_told_in_order_after_what_was_reported_before() -> None:
    box = Outbox()
    box.add_state("leaving", "SIGTERM")
    box.add(data(1, "RankEnd"))
    box.add_state("ended", "signalled")
    told: list[tuple[str, int, int]] = []
    while not box.is_empty:
        batch = box.next_batch()
        told.append((batch.state, len(batch.reports), batch.sequence))
        box.confirm(batch)
    assert told == [("leaving", 1, 1), ("ended", 0, 2)]


def test_while_nobody_listens_memory_is_bounded_and_what_matters_is_kept() -> None:
    box = Outbox(limit=100)
    for number in range(5000):
        box.add(data(number))
        if number % 500 == 0:
            box.add(data(number, "RankEnd"))
    sent = box.next_batch().reports
    assert len(sent) <= 100
    assert [report["step"] for report in sent if report["report"] == "RankEnd"] == list(range(0, 5000, 500))
    assert sent[-1] == data(4999)
    numbers = [report["step"] for report in sent]
    assert numbers == sorted(numbers)


def test_a_training_told_by_a_growing_file_alone_leaves_the_newest_and_the_changes() -> None:
    box = Outbox(limit=100)
    for second in range(5000):
        phase = "checkpoint" if second in (1000, 4000) else "step"
        box.add({"report": "PhaseSeen", "phase": phase, "at": second, "rank": 0, "incarnation": 1})
    sent = box.next_batch().reports
    assert len(sent) <= 100
    assert sent[-1]["at"] == 4999
    changes = [one["at"] for one in sent if one["at"] in (1000, 1001, 4000, 4001)]
    assert changes == [1000, 1001, 4000, 4001]


def test_of_checkpoints_the_newest_word_on_each_is_kept_until_there_are_too_many() -> None:
    box = Outbox(limit=100)
    for number in range(3000):
        path = f"/c/{number % 7}" if number < 2000 else f"/c/{number}"
        box.add({"report": "CheckpointSeen", "path": path, "step": number})
        if number == 1999:
            sent = box.next_batch().reports
            assert [one["step"] for one in sent[-7:]] == list(range(1993, 2000))
            box.resume_after(0)
    sent = box.next_batch().reports
    assert len(sent) <= 100
    assert [one["step"] for one in sent[-50:]] == list(range(2950, 3000))


def test_ends_of_ranks_are_kept_however_many_and_losses_that_are_no_number() -> None:
    box = Outbox(limit=1200)
    box.add({"report": "StepSeen", "step": 1, "loss": "nan", "rank": 0})
    for number in range(500):
        box.add(data(number))
        box.add(data(number, "RankEnd"))
        box.add(data(number))
    reports: list[dict[str, Any]] = []
    while not box.is_empty:
        batch = box.next_batch()
        reports += batch.reports
        box.confirm(batch)
    assert [one["step"] for one in reports if one["report"] == "RankEnd"] == list(range(500))
    assert reports[0]["loss"] == "nan"
    assert len(reports) <= 1200


KINDS = st.sampled_from(["StepSeen", "PhaseSeen", "CheckpointSeen", "RankEnd"])


@given(
    st.lists(st.tuples(KINDS, st.integers(0, 2), st.sampled_from(["step", "checkpoint"])), max_size=200),
    st.integers(4, 40),
)
def test_what_is_left_is_in_order_bounded_and_holds_what_matters(parts: list[tuple[str, int, str]], limit: int) -> None:
    reports: list[dict[str, Any]] = [
        {"report": kind, "rank": rank, "phase": phase, "path": str(rank), "number": number}
        for number, (kind, rank, phase) in enumerate(parts)
    ]
    kept = thin_reports(reports, limit)
    numbers = [one["number"] for one in kept]
    assert numbers == sorted(set(numbers))
    ends = [one for one in reports if one["report"] == "RankEnd"]
    assert [one for one in kept if one["report"] == "RankEnd"] == ends
    assert len(kept) <= max(limit, len(ends))
    if len(ends) + 9 <= limit:
        newest = {(one["report"], one["rank"]): one for one in reports if one["report"] != "RankEnd"}
        assert all(one in kept for one in newest.values())


@pytest.mark.parametrize("kind", ["StepSeen", "PhaseSeen", "CheckpointSeen", "RankEnd"])
def test_a_report_more_costs_the_same_however_long_nobody_listens(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    def counted(reports: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
        looked_at.append(len(reports))
        return thin_reports(reports, room)

    monkeypatch.setattr(outbox, "thin_reports", counted)
    box = Outbox(limit=100)
    for number in range(20_000):
        box.add({"report": kind, "rank": number % 3, "phase": str(number), "path": str(number), "number": number})
    assert looked_at
    assert sum(looked_at) <= 3 * 20_000


def test_what_is_left_out_is_said_once_and_counted_when_all_has_arrived() -> None:
    box = Outbox(limit=100)
    said: list[str] = []
    for number in range(1000):
        box.add(data(number))
        said.append(box.take_notice())
    told = 0
    while not box.is_empty:
        batch = box.next_batch()
        told += len(batch.reports)
        box.confirm(batch)
        said.append(box.take_notice())
    first, last = [words for words in said if words]
    assert first == "more than 100 reports wait for the coordinator: of steps and phases some are left out"
    assert last == f"the coordinator has all reports but {1000 - told}, which were left out while it took none"


def test_after_a_coordinator_lost_its_memory_numbers_go_on() -> None:
    box = Outbox()
    box.add(data(1))
    batch = box.next_batch()
    box.resume_after(7)
    assert box.next_batch() == batch._replace(sequence=8)


def test_what_a_higher_rank_was_first_to_say_is_recorded_once() -> None:
    filter_, recorded = StepFilter(), list[int]()
    for rank, steps in ((1, range(1, 4)), (0, range(1, 6)), (1, range(4, 6))):
        recorded += [step for step in steps if filter_.choose(StepSeen(step, 10.0 + step, rank)).record]
    assert recorded == [1, 2, 3, 4, 5]
