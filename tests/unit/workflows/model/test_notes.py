"""What is only told of a gang, as incidents: one a fact, decided as nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from profiles.vocabulary import Action, FaultClass
from tests.support.builders.ledgers import an_attempt
from workflows.model.attempt import Signal
from workflows.model.gang_status import GangNews
from workflows.model.incidents import fact_of, note_of_put_aside, notes_of, well_again
from workflows.model.records import TOLD, IncidentRecord
from workflows.status import Jump, Slower, Straggler
from workflows.wire import ResumeChoice

ATTEMPT = an_attempt(2)
SLOW = Straggler(1, "node-1", 1.83, 40, 2.5)


def notes(**news: object) -> tuple[IncidentRecord, ...]:
    return notes_of(ATTEMPT, GangNews(**news), 9.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("news", "signal", "fault_class", "step", "seen"),
    [
        ({"jumps": (Jump(12, "loss", 50.0, 2.0),)}, "loss-jump", FaultClass.NUMERIC, 12,
         "the loss is 50 at step 12, 25 times its recent median of 2"),
        ({"jumps": (Jump(12, "gradient_norm", 8.0, 1.0),)}, "gradient-norm-jump", FaultClass.NUMERIC, 12,
         "the norm of gradients is 8 at step 12, 8 times its recent median of 1"),
        ({"jumps": (Jump(3, "gradient_norm", "inf", None),)}, "gradient-norm-not-finite", FaultClass.NUMERIC, 3,
         "the norm of gradients is inf at step 3"),
        ({"jumps": (Jump(30, "gradient_norm", "nan", 1.25),)}, "gradient-norm-not-finite", FaultClass.NUMERIC, 30,
         "the norm of gradients is nan at step 30; it was 1.25"),
        ({"stragglers": (SLOW,)}, "slow-rank", FaultClass.STRAGGLER, 40,
         "rank 1 on node-1 takes 1.83 times as long as its peers since step 40"),
        ({"slower": Slower(50, 1.4)}, "slow-gang", FaultClass.STRAGGLER, 50,
         "all ranks are slower since step 50: a step takes 1.40 times as long as before; no single rank is the cause"),
        ({"unrecognised": "none of the 2 files in /c, e.g. a.xyz, is a checkpoint that is known"}, "no-checkpoint",
         FaultClass.CONFIG, None, "nothing that was saved can be resumed from: none of the 2 files in /c, e.g. a.xyz, "
         "is a checkpoint that is known"),
    ],
)  # fmt: skip
def test_what_is_told_is_diagnosed_and_nothing_is_done(
    news: dict[str, object], signal: str, fault_class: FaultClass, step: int | None, seen: str
) -> None:
    (found,) = notes(**news)
    assert (found.signal, found.fault_class, found.step, found.seen) == (signal, fault_class, step, seen)
    assert (found.action, found.charged, found.at, found.detected_at) == (Action.NONE, False, 9.0, 9.0)
    assert seen in found.why
    assert found.went_on
    assert found.culprits == ((("node-1", 1),) if signal == "slow-rank" else ())


def test_a_loss_that_is_no_number_is_told_by_the_end_that_it_brings() -> None:
    assert notes(jumps=(Jump(12, "loss", "nan", 2.0),)) == ()
    assert notes(jumps=(Jump(12, "loss", "inf", None),)) == ()


def test_a_figure_that_nobody_knows_is_no_incident() -> None:
    assert notes(jumps=(Jump(12, "learning_rate", 50.0, 2.0),)) == ()


def test_the_same_thing_is_one_fact_however_it_grows_and_another_one_is_another() -> None:
    def fact(**news: object) -> str | None:
        (found,) = notes(**news)
        return found.fact

    assert fact(stragglers=(SLOW,)) == fact(stragglers=(replace(SLOW, ratio=2.5, cost_seconds=90.0),))
    jump = Jump(12, "loss", 50.0, 2.0)
    facts = [
        fact(stragglers=(SLOW,)),
        fact(stragglers=(replace(SLOW, rank=2),)),
        fact(stragglers=(replace(SLOW, node="node-2"),)),
        fact(stragglers=(replace(SLOW, since_step=80),)),
        fact(slower=Slower(40, 1.4)),
        fact(jumps=(jump,)),
        fact(jumps=(replace(jump, step=13),)),
        fact(jumps=(replace(jump, what="gradient_norm"),)),
        fact(jumps=(replace(jump, incarnation=2),)),
    ]
    assert len(set(facts)) == len(facts)
    assert notes_of(an_attempt(1), GangNews(stragglers=(SLOW,)), 9.0)[0].fact not in facts


def test_who_is_called_slow_no_more_is_well_again_and_jumps_never_last() -> None:
    known = notes(stragglers=(SLOW, replace(SLOW, rank=2)), slower=Slower(50, 1.4), jumps=(Jump(1, "loss", 9.0, 1.0),))
    now = GangNews(stragglers=(SLOW,))
    over = well_again(known, now, notes_of(ATTEMPT, now, 10.0))
    assert [(item.signal, item.culprits) for item in over] == [("slow-rank", (("node-1", 2),)), ("slow-gang", ())]
    assert well_again([replace(item, over_at=9.5) for item in known], now, ()) == []
    assert well_again(known, GangNews(), ()) == [], "nobody looks: nothing is known"


def test_a_save_that_can_be_resumed_from_ends_the_note_that_none_can() -> None:
    known = notes(unrecognised="no checkpoint in /c is whole")
    assert well_again(known, GangNews(), ()) == [], "not heard"
    assert well_again(known, GangNews(unrecognised="no checkpoint in /c is whole"), known) == []
    assert [item.signal for item in well_again(known, GangNews(unrecognised=""), ())] == ["no-checkpoint"]


def test_checkpoints_put_aside_are_told_once_and_none_is_no_note() -> None:
    choice = ResumeChoice("/c/step-5", 5, [], "pass", "its header is readable")
    assert note_of_put_aside(ATTEMPT, choice, 9.0) is None
    moved = replace(choice, put_aside=["model_10.pt (model_10.pt is empty) lies in /r/.put-aside now"])
    found = note_of_put_aside(ATTEMPT, moved, 9.0)
    assert found is not None
    assert (found.signal, found.action, found.went_on) == ("put-aside", Action.NONE, True)
    assert "model_10.pt (model_10.pt is empty) lies in /r/.put-aside now" in found.seen
    assert found.why.endswith(f"Training begins from step 5. Next: primus checkpoints {ATTEMPT.run}")
    again = note_of_put_aside(ATTEMPT, moved, 19.0)
    assert again is not None
    assert again.fact == found.fact
    anew = note_of_put_aside(ATTEMPT, replace(moved, resume_from="", resume_step=None), 9.0)
    assert anew is not None
    assert "Training begins from the beginning." in anew.why


def test_an_attempt_ends_once_whatever_it_is_called() -> None:
    ends = {fact_of("demo", 1, signal) for signal in (Signal.POD_FAILED, Signal.ATTEMPT_FAILED, Signal.PODS_GONE)}
    assert len(ends) == 1
    others = {fact_of("demo", 2, Signal.POD_FAILED), fact_of("demo", 1, Signal.HANG), fact_of("other", 1, "pod-failed")}
    assert len(ends | others) == 4
    again = [fact_of("demo", 1, Signal.RANK_FAILED, incarnation=i, number=n) for i, n in ((2, 1), (3, 1), (2, 2))]
    assert len({*ends, *again}) == 4


def test_no_signal_is_both_told_only_and_a_reason_to_act() -> None:
    assert not TOLD & set(Signal)
