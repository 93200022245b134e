"""What becomes of a gang whose coordinator is not heard."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.recovery.assess import Case, assess
from flows.decisions.recovery.liveness import (
    Hung,
    LivenessVerdict,
    Progressing,
    Undecided,
    judge,
    limit_seconds,
)
from profiles.loading import load
from profiles.recovery import HangLimits
from profiles.run import RunProfile
from profiles.vocabulary import FaultClass
from tests.support.builders.ledgers import a_run
from tests.support.builders.nodes import a_node
from workflows.model.attempt import AttemptView, Evidence, LogSign, SecondSight, Signal
from workflows.model.cluster import Pod
from workflows.model.liveness import runs, sample
from workflows.model.records import AttemptRecord, waiting_words

LIMIT = 1.5 * 1800 + 30
"""With the limits of the default profile: the longest phase, its second window, and the silence."""
NOW = 10_000.0
PODS = tuple(Pod(f"t-{index}", "trainer", index, f"node-{index}", "Running", ranks=(index,)) for index in range(2))
CO = Pod("c-0", "coordinator", 0, "node-9", "Running")
NODES = (a_node("node-0", True), a_node("node-1", True), a_node("node-9", None))
AT = LogSign(0, 120, 5000.0)


@cache
def run() -> RunProfile:
    demo = load.load_run("demo")
    recovery = demo.recovery.model_copy(update={"hang": HangLimits(), "observer_silence_seconds": 30.0})
    return demo.model_copy(update={"recovery": recovery})


def sight(still_seconds: float, *, moved: bool = False, sign: LogSign | None = AT, **changes: object) -> SecondSight:
    """Not heard for an hour, and still for so long."""
    told = SecondSight(
        unheard_since=NOW - 3600.0,
        looks=9,
        signs=() if sign is None else (("t-0", sign),),
        still_since=None if sign is None else NOW - still_seconds,
        ever_moved=moved,
    )
    return replace(told, **changes)  # pyright: ignore[reportArgumentType]


def view(second: SecondSight | None, **changes: object) -> AttemptView:
    seen = AttemptView("r", 1, NOW, jobset="Running", pods=(*PODS, CO), nodes=NODES, submitted_at=1.0, second=second)
    return replace(seen, **changes)  # pyright: ignore[reportArgumentType]


def judged(second: SecondSight | None, **changes: object) -> LivenessVerdict:
    return judge(view(second, **changes), run())


SAVES = replace(AT, phase="evaluation")
INIT = LogSign(0, None, 5000.0, 1, "init")
ALL_STARTED = (("t-0", INIT), ("t-1", replace(INIT, rank=1)))


@pytest.mark.parametrize(
    ("said", "found", "expected", "words"),
    [
        ("steps are made", judged(sight(5.0, moved=True)), Progressing,
         "the coordinator has not been heard for 3600 s; rank 0 is at step 120 by its own log: training continues"),
        ("a deaf coordinator's too", judged(sight(5.0, moved=True, deaf=True)), Progressing,
         "the coordinator has heard no launcher for 3600 s; rank 0"),
        ("though a node is not ready", judged(sight(5.0, moved=True), nodes=(a_node("node-1", False),)),
         Progressing, ""),
        ("between two slow steps", judged(sight(89.0, moved=True)), Progressing, ""),
        ("steps are long", judged(sight(500.0, moved=True, longest_seconds=100.0)), Progressing, ""),
        ("not for a while", judged(sight(91.0, moved=True)), Undecided, "for 91 s; it counts as a hang after 2730 s"),
        ("it stood still from the beginning", judged(sight(99.0)), Undecided, "is at step 120 by its own log, for 99"),
        ("not for long: a step may be about to be told", judged(sight(89.0)), None, ""),
        ("just before the limit", judged(sight(LIMIT - 1)), Undecided, "it counts as a hang after"),
        ("at the limit", judged(sight(LIMIT)), Hung, "no progress by either path: the coordinator has not been heard"),
        ("it had gone on before", judged(sight(LIMIT, moved=True)), Hung, "step 120 by its own log, for 2730 s"),
        ("a deaf coordinator", judged(sight(LIMIT, deaf=True)), Hung, "has heard no launcher for 3600 s"),
        ("evaluations last longer", judged(sight(LIMIT, sign=SAVES)), Undecided, "after 5430 s"),
        ("it once paused for long", judged(sight(LIMIT, longest_seconds=400.0)), Undecided, "after 3030 s"),
        ("a node is not ready", judged(sight(9e3), nodes=(a_node("node-1", False),)), Undecided,
         "node-1 is not ready or not reachable: first it must be known whether the node is lost"),
        ("nothing is known of a node", judged(sight(9e3), nodes=(a_node("node-1", None),)), Undecided, "node-1"),
        ("a kubelet is not reached", judged(sight(9e3, unreached=("node-0",))), Undecided,
         "node-0 is not ready or not"),
        ("a log cannot be read", judged(sight(9e3, unread=(("t-1", "no answer"),))), Undecided,
         "the log of t-1 shows no step: no answer"),
        ("no log tells of steps", judged(sight(9e3, sign=None)), Undecided, "no log read so far shows a step"),
        ("nor of more than a start: steps may be posted", judged(sight(9e3, signs=ALL_STARTED)), Undecided,
         "no log read so far"),
        ("nobody was asked twice yet", judged(sight(9e3, looks=1)), None, ""),
        ("the coordinator is heard", judged(None), None, ""),
    ],
    ids=lambda item: item.replace(" ", "-") if isinstance(item, str) else "",
)  # fmt: skip
def test_the_table(said: str, found: LivenessVerdict, expected: type[LivenessVerdict] | None, words: str) -> None:
    if expected is None:
        assert not isinstance(found, Progressing | Undecided | Hung), said
        return
    assert isinstance(found, expected), (said, found)
    assert words in found.why  # pyright: ignore[reportAttributeAccessIssue]


def test_a_program_that_tells_no_steps_never_hangs_by_their_absence() -> None:
    silent = run().model_copy(update={"progress": run().progress.model_copy(update={"framework": "none"})})
    found = judge(view(sight(9e6)), silent)
    assert isinstance(found, Undecided)
    assert "prints no steps" in found.why


def test_the_limit_is_never_shorter_than_the_coordinator_s_own() -> None:
    hang = HangLimits(init_seconds=100, checkpoint_seconds=20, step_floor_seconds=6, step_factor=5)
    recovery = run().recovery.model_copy(update={"hang": hang, "observer_silence_seconds": 7.0})
    short = run().model_copy(update={"recovery": recovery})
    assert limit_seconds(sight(0.0), short) == 157.0
    assert limit_seconds(sight(0.0, sign=replace(AT, phase="a phase of tomorrow")), short) == 157.0
    assert limit_seconds(sight(0.0, sign=replace(AT, phase="restore")), short) == 1.5 * 1800 + 7
    assert limit_seconds(sight(0.0, longest_seconds=30.0), short) == 1.5 * 150 + 7
    assert limit_seconds(sight(0.0, sign=None), short) == 157.0


def test_what_is_said_stays_the_same_thing_while_its_numbers_grow() -> None:
    one, other = judged(sight(5.0, moved=True)), judge(view(sight(2.0, moved=True), now=NOW + 50.0), run())
    assert isinstance(one, Progressing)
    assert isinstance(other, Progressing)
    assert one.about == other.about
    assert one.why != other.why
    again = judged(sight(5.0, moved=True, unheard_since=NOW - 31.0))
    assert isinstance(again, Progressing)
    assert again.about != one.about, "another silence is told anew"
    held, hold = judged(sight(100.0)), judge(view(replace(sight(100.0)), now=NOW + 50.0), run())
    assert isinstance(held, Undecided)
    assert isinstance(hold, Undecided)
    assert held.about == hold.about


@pytest.mark.parametrize(
    ("waits_for", "goes_on", "why"),
    [
        ("", False, "steps"),
        ("the cluster stands still", False, "steps [waits, training is left alone: the cluster stands still]"),
        ("rank 0 [of 4] is at step 5", True, "steps [by the second path: rank 0 [of 4] is at step 5]"),
    ],
)
def test_the_reason_of_a_run_is_its_why_without_what_it_waits_for(waits_for: str, goes_on: bool, why: str) -> None:
    assert f"steps{waiting_words(waits_for, goes_on=goes_on)}" == why
    assert replace(a_run(), why=why, waits_for=waits_for, goes_on=goes_on).reason == "steps"


def case() -> Case:
    resolved = load.resolve(load.load_run("demo"), load.load_cluster("local"))
    attempt = AttemptRecord("r", 1, 0.0, "first", submitted_at=1.0)
    return Case(resolved.model_copy(update={"run": run()}), attempt)


def test_a_hang_by_two_paths_is_an_incident_that_blames_nobody() -> None:
    found = assess(view(sight(LIMIT)), case())
    assert found is not None
    assert (found.signal, found.nodes) == (Signal.HANG, ())
    told = diagnose(Evidence(Signal.HANG, "r", 1, NOW, pods=PODS, detail=found.why))
    assert (told.fault_class, told.culprits, told.node_suspect) == (FaultClass.HANG, (), False)
    lost = assess(view(sight(LIMIT), nodes=(a_node("node-0", False),), unheard_since=NOW - 60.0), case())
    assert lost is not None
    assert lost.signal is Signal.NODE_NOT_READY, "a lost node explains it: one incident, and that one"
    failed = assess(view(sight(LIMIT), pods=(PODS[0], replace(PODS[1], phase="Failed", exit_code=1), CO)), case())
    assert failed is not None
    assert failed.signal is Signal.POD_FAILED


SIGHTS = st.builds(
    sight,
    st.floats(0, 1e5),
    moved=st.booleans(),
    sign=st.none() | st.builds(LogSign, st.just(0), st.none() | st.integers(1, 9), st.just(1.0)),
    longest_seconds=st.floats(0, 1e4),
    looks=st.integers(0, 3),
    deaf=st.booleans(),
    unread=st.sampled_from([(), (("t-0", "away"),)]),
    unreached=st.sampled_from([(), ("node-0",)]),
)


@given(SIGHTS, st.sampled_from([True, False, None]))
def test_only_what_was_read_and_stood_still_for_long_is_a_hang(second: SecondSight, ready: bool | None) -> None:
    seen = view(second, nodes=(a_node("node-0", ready), NODES[1]))
    found = judge(seen, run())
    if not isinstance(found, Hung):
        assert not isinstance(assess(seen, case()), Hung)
        return
    assert second.still_since is not None
    assert NOW - second.still_since >= LIMIT
    assert ready is True
    assert (second.unread, second.unreached) == ((), ())
    assert second.step is not None
    assert second.looks >= 2


def test_the_logs_of_those_who_still_train_are_read() -> None:
    pods = [Pod(f"p{n}", "trainer", n, f"n{n}", "Succeeded" if n < 3 else "Running", ranks=(n,)) for n in range(4)]
    assert [pod.name for pod in sample(pods, SecondSight(0.0))] == ["p3"]
    assert len(sample(pods[:3], SecondSight(0.0))) == 3


@pytest.mark.parametrize(
    ("phases", "expected"),
    [("RR", True), ("RS", True), ("SS", False), ("RP", False), ("RF", False), ("SF", False), ("", False)],
)
def test_a_gang_runs_as_long_as_one_of_its_pods_does(phases: str, expected: bool) -> None:
    words = {"R": "Running", "S": "Succeeded", "P": "Pending", "F": "Failed"}
    pods = tuple(Pod(f"p{n}", "trainer", n, f"n{n}", words[one], ranks=(n,)) for n, one in enumerate(phases))
    assert runs(AttemptView("r", 1, 9.0, jobset="Running", pods=pods)) is expected
