"""One source for what holds about checkpoints: the last finding about each."""

from __future__ import annotations

from dataclasses import replace

from profiles.vocabulary import VerdictWord
from workflows.model.checkpoints import corrections, durable_step, removed, standing
from workflows.model.checkpoints import seen as seen_before_removal
from workflows.model.records import CheckpointRecord
from workflows.wire import REMOVED, CheckpointState, ResumeChoice

PASS, FAIL = VerdictWord.PASS, VerdictWord.FAIL
FIRST = CheckpointRecord("r", 20, "/c/step-20", 1, 10.0, PASS)
SECOND = replace(FIRST, step=40, path="/c/step-40", at=20.0)


def test_what_was_withdrawn_is_durable_no_more() -> None:
    assert durable_step([]) is None
    assert durable_step([SECOND, FIRST]) == 40
    withdrawn = replace(SECOND, verdict=FAIL, at=30.0)
    assert durable_step([withdrawn, FIRST, SECOND]) == 20
    assert standing([withdrawn, FIRST, SECOND]) == [FIRST, withdrawn]


def test_a_file_that_is_overwritten_is_one_checkpoint_a_step() -> None:
    one = [replace(FIRST, path="/c/ckpt.pt"), replace(SECOND, path="/c/ckpt.pt")]
    assert standing(one) == one
    assert durable_step([*one, replace(one[1], verdict=FAIL, at=30.0)]) == 20


def test_what_was_removed_stands_no_more_and_was_seen_all_the_same() -> None:
    gone = replace(FIRST, verdict=VerdictWord.UNKNOWN, at=30.0, format=REMOVED)
    assert standing([FIRST, SECOND, gone]) == [SECOND]
    assert removed([FIRST, SECOND, gone]) == [gone]
    assert seen_before_removal([FIRST, SECOND, gone]) == [FIRST, SECOND]
    assert standing([FIRST, gone, replace(FIRST, at=40.0)]) == [replace(FIRST, at=40.0)], "it was saved again"


def test_a_look_before_an_attempt_corrects_what_was_proven_and_has_broken_since() -> None:
    def seen(item: CheckpointRecord, complete: bool, why: str = "") -> CheckpointState:
        return CheckpointState(item.step, item.path, "durable", "dcp", 5, complete, "bad", False, why)

    looked_at = [seen(SECOND, False, "it was cut off"), seen(FIRST, True), seen(replace(FIRST, step=10), False)]
    choice = ResumeChoice("", None, looked_at, "fail", "")
    [found] = corrections("r", 2, 50.0, choice, [FIRST, SECOND])
    assert found == CheckpointRecord("r", 40, "/c/step-40", 2, 50.0, FAIL, "it was cut off", 5, "dcp")
    assert corrections("r", 2, 50.0, choice, [FIRST, SECOND, found]) == []
