"""What ends the watching of an attempt, and what does not."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from flows.decisions.recovery.assess import Case, assess
from flows.decisions.recovery.liveness import broken
from profiles.loading import load
from tests.support.builders.nodes import a_node
from workflows.model.attempt import AttemptView, CoordinatorFacts, Signal
from workflows.model.cluster import Pod
from workflows.model.fleet import NodeCandidate
from workflows.model.gang_status import GangNews
from workflows.model.records import AttemptRecord
from workflows.model.workflow import Workflow
from workflows.programs.coordinator.hang_watch import Watch
from workflows.status import Hang, RestartInPlace
from workflows.wire import GateReport, ResumeChoice


@cache
def case() -> Case:
    resolved = load.resolve(load.load_run("demo"), load.load_cluster("local"))
    return Case(resolved, AttemptRecord("r", 1, 0.0, "first", submitted_at=1.0))


P0 = Pod("r-a1-trainer-0-0-x", "trainer", 0, "node-0", "Running", ranks=(0,))
P1 = Pod("r-a1-trainer-0-1-x", "trainer", 1, "node-1", "Running", ranks=(1,))
CO = Pod("r-a1-coordinator-0-0-x", "coordinator", 0, "node-2", "Running")
N0, N1 = a_node("node-0", True), a_node("node-1", True)
DOWN = a_node("node-1", False, "PowerLost")
HEARD = CoordinatorFacts(at=99.9, step=5, heard=((P0.name, "node-0", 99.8), (P1.name, "node-1", 99.8)))
FREE = (NodeCandidate("node-0"), NodeCandidate("node-1", cordoned=True), NodeCandidate("node-2"))
BUSY = NodeCandidate("node-2", busy="another run")
LEAVE = (N0, replace(N1, cordoned=True))
GOOD = AttemptView("r", 1, 100.0, jobset="Running", pods=(P0, P1, CO), nodes=(N0, N1), coordinator=HEARD)


def view(**changes: object) -> AttemptView:
    return replace(GOOD, **changes)  # pyright: ignore


@pytest.mark.parametrize(
    ("said", "seen", "signal"),
    [
        ("a failed pod", view(pods=(P0, replace(P1, phase="Failed", exit_code=1), CO)), Signal.POD_FAILED),
        (
            "a node not ready whose pod is gone",
            view(nodes=(N0, a_node("node-1", False)), pods=(P0, replace(P1, phase="Failed", reason="NodeLost"), CO)),
            Signal.NODE_NOT_READY,
        ),
        (
            "a silent node whose launcher is silent too",
            view(nodes=(N0, a_node("node-1", None)), coordinator=replace(HEARD, heard=((P0.name, "node-0", 99.8),))),
            Signal.NODE_NOT_READY,
        ),
        (
            "a silent node whose coordinator is silent too, though the cluster answers",
            view(nodes=(N0, a_node("node-1", None)), coordinator=replace(HEARD, at=80.0), unheard_since=90.0),
            Signal.NODE_NOT_READY,
        ),
        (
            "a silent node, and no coordinator that could speak for it",
            view(nodes=(N0, a_node("node-1", None)), coordinator=None, pods=(P0, P1)),
            Signal.NODE_NOT_READY,
        ),
        (
            "a node that says so itself and does not answer, after a rank elsewhere has failed",
            view(nodes=(N0, DOWN), coordinator=replace(HEARD, failed_ranks=(0,)), unreached=("node-1",)),
            Signal.NODE_NOT_READY,
        ),
        (
            "a node that says so itself and does not answer, nor does the coordinator on it",
            view(
                nodes=(N0, DOWN), pods=(P0, P1, replace(CO, node="node-1")), unheard_since=99.9, unreached=("node-1",)
            ),
            Signal.NODE_NOT_READY,
        ),
        ("a deleted pod", view(pods=(P0, replace(P1, phase="Gone"), CO)), Signal.PODS_GONE),
        (
            "everything deleted by somebody",
            view(jobset=None, pods=(), nodes=(), coordinator=None, submitted_at=1.0, vanished="deleted by somebody"),
            Signal.PODS_GONE,
        ),
        ("a failed JobSet", view(jobset="Failed", pods=()), Signal.ATTEMPT_FAILED),
        (
            "a pod that was evicted on purpose",
            view(pods=(P0, replace(P1, phase="Failed", disrupted=True), CO)),
            Signal.PREEMPTION_NOTICE,
        ),
        ("a pod that is told to leave", view(pods=(P0, replace(P1, disrupted=True), CO)), Signal.PREEMPTION_NOTICE),
        ("a node that somebody wants empty, and room elsewhere", view(nodes=LEAVE, pool=FREE), Signal.NODE_CORDONED),
        ("a loss that is no number", view(coordinator=replace(HEARD, first_nan_step=7)), Signal.NUMERIC),
        (
            "an image that cannot be had",
            view(pods=(replace(P0, phase="Pending", reason="ErrImagePull"),)),
            Signal.IMAGE,
        ),
        ("no room for too long", view(pods=(), pending_since=100.0 - 3601), Signal.UNSCHEDULABLE),
        (
            "a gate that did not pass",
            view(
                jobset=None,
                pods=(),
                workflow=Workflow("r-a1", "Failed", gate=(GateReport("node-0", "unknown", []),)),
            ),
            Signal.GATE_FAILED,
        ),
        (
            "checkpoints of which none is usable",
            view(
                jobset=None,
                pods=(),
                workflow=Workflow("r-a1", "Succeeded", choice=ResumeChoice("", None, [], "fail", "all corrupt")),
            ),
            Signal.CHECKPOINT_UNUSABLE,
        ),
        (
            "a workflow that failed before the JobSet",
            view(jobset=None, pods=(), workflow=Workflow("r-a1", "Error", message="exceeded quota")),
            Signal.SUBMIT_REFUSED,
        ),
    ],
)
def test_it_ends_the_watching(said: str, seen: AttemptView, signal: Signal) -> None:
    finding = assess(seen, case())
    assert finding is not None, said
    assert finding.signal is signal, said
    assert finding.why


@pytest.mark.parametrize(
    ("said", "seen"),
    [
        ("all is well", GOOD),
        ("a node's condition is lost but its launcher talks", view(nodes=(N0, a_node("node-1", None)))),
        ("a kubelet that does not answer while all ranks train", view(nodes=(N0, DOWN), unreached=("node-1",))),
        (
            "the same while the coordinator on it answers",
            view(nodes=(N0, DOWN), pods=(P0, P1, replace(CO, node="node-1")), unreached=("node-1",)),
        ),
        (
            "the same while the coordinator that was not heard for a moment is elsewhere",
            view(nodes=(N0, DOWN), unheard_since=99.9, unreached=("node-1",)),
        ),
        (
            "a kubelet that calls itself not ready and answers",
            view(nodes=(N0, DOWN), coordinator=replace(HEARD, failed_ranks=(0,))),
        ),
        ("the coordinator has never answered", view(coordinator=None)),
        (
            "the cluster was away: we were deaf, and its nodes could not renew their leases",
            view(nodes=(a_node("node-0", None), a_node("node-1", None)), coordinator=replace(HEARD, at=40.0)),
        ),
        (
            "the cluster is back, and the coordinator has not been asked for long",
            view(nodes=(N0, a_node("node-1", None)), coordinator=replace(HEARD, at=40.0), unheard_since=97.0),
        ),
        (
            "nobody could ask a coordinator that never answered",
            view(nodes=(N0, a_node("node-1", None)), coordinator=None),
        ),
        ("the coordinator's pod failed", view(pods=(P0, P1, replace(CO, phase="Failed")))),
        ("the coordinator is silent for a minute", view(coordinator=replace(HEARD, at=40.0))),
        ("pods wait for room, not too long yet", view(pods=(), pending_since=90.0)),
        (
            "the workflow has succeeded and the JobSet is not seen yet",
            view(jobset=None, workflow=Workflow("r-a1", "Succeeded")),
        ),
        ("it completed, but how is not heard yet", view(jobset="Completed", pods=(), away="the cluster stands still")),
        ("it completed, but its pods are not all told yet", view(jobset="Completed", pods=(P1,), partial=True)),
        (
            "its workflow has failed, but whether there is a JobSet is not told yet",
            view(jobset=None, pods=(), workflow=Workflow("r-a1", "Failed"), partial=True),
        ),
        ("a node is cordoned, and nobody could say what else there is", view(nodes=LEAVE)),
        ("a node is cordoned, and every other one is in use", view(nodes=LEAVE, pool=(*FREE[:2], BUSY))),
        (
            "a node is cordoned on which nothing of the gang lives any more",
            view(nodes=LEAVE, pool=FREE, pods=(P0, replace(P1, phase="Succeeded"), CO)),
        ),
        (
            "a node is cordoned and its pods leave already",
            view(nodes=LEAVE, pool=FREE, pods=(P0, replace(P1, deleted_at=1.0), CO)),
        ),
        (
            "a node is lost that carried the coordinator alone",
            view(
                nodes=(N0, N1, replace(DOWN, name="node-2")),
                coordinator=replace(HEARD, at=40.0),
                unheard_since=90.0,
                unreached=("node-2",),
            ),
        ),
        (
            "the same with its pod removed, and another one not there yet",
            view(nodes=(N0, N1, replace(DOWN, name="node-2")), pods=(P0, P1, replace(CO, phase="Gone"))),
        ),
        ("the coordinator alone is told to leave", view(pods=(P0, P1, replace(CO, disrupted=True)))),
        (
            "somebody wants the coordinator's node empty",
            view(nodes=(N0, N1, a_node("node-2", True, cordoned=True)), pool=FREE),
        ),
        ("a pod completed before its peers", view(pods=(P0, replace(P1, phase="Succeeded"), CO))),
    ],
)
def test_it_does_not_end_the_watching(said: str, seen: AttemptView) -> None:
    assert assess(seen, case()) is None, said


@pytest.mark.parametrize(("first", "signal"), [(21, None), (1, Signal.STARTED_OVER), (20, Signal.STARTED_OVER)])
def test_a_resume_must_be_proven_by_its_first_step(first: int, signal: Signal | None) -> None:
    resumed = Case(case().resolved, replace(case().attempt, resumed_from_step=20, resume_path="x"))
    finding = assess(view(coordinator=replace(HEARD, first_step=first)), resumed)
    assert (finding.signal if finding else None) is signal


def test_a_person_s_wish_and_the_end_are_no_faults() -> None:
    assert assess(view(stop_requested="enough"), case()) is not None
    done = assess(view(jobset="Completed"), case())
    assert done is not None
    assert done.signal is None


def test_a_program_that_reports_every_tenth_step_has_not_started_over() -> None:
    run = case().resolved.run
    tenth = run.model_copy(update={"progress": run.progress.model_copy(update={"every_steps": 10})})
    resumed = Case(case().resolved.model_copy(update={"run": tenth}), replace(case().attempt, resumed_from_step=25))
    assert assess(view(coordinator=replace(HEARD, first_step=30)), resumed) is None
    late = assess(view(coordinator=replace(HEARD, first_step=10)), resumed)
    assert late is not None
    assert late.signal is Signal.STARTED_OVER


def test_who_wants_to_stay_on_a_cordoned_node_stays() -> None:
    resolved = case().resolved
    recovery = resolved.run.recovery.model_copy(update={"leave_cordoned_nodes": False})
    run = resolved.run.model_copy(update={"recovery": recovery})
    stays = Case(resolved.model_copy(update={"run": run}), case().attempt)
    assert assess(view(nodes=LEAVE, pool=FREE), stays) is None


RESTARTED = RestartInPlace(1, 95.0, 2, "rank-failed", "rank 1 of p ended with signal 9", 1, "node-1", 23, 20)


@pytest.mark.parametrize(
    ("said", "facts", "expected"),
    [
        ("nothing failed", HEARD, False),
        ("no right was lent", replace(HEARD, failed_ranks=(0,), failed_since=99.8), True),
        ("it decides about it now", replace(HEARD, failed_ranks=(0,), failed_since=99.8, news=GangNews(left=1)), False),
        ("nobody said since when", replace(HEARD, failed_ranks=(0,), news=GangNews(left=1)), False),
        ("it was told to stop",
         replace(HEARD, failed_ranks=(0,), failed_since=99.8, news=GangNews(left=1, stopping=True)), True),
        ("nobody has decided for long",
         replace(HEARD, failed_ranks=(0,), failed_since=90.0, news=GangNews(left=1)), True),
        ("the last of the right is at work",
         replace(HEARD, launched_at=None, failed_since=99.0, news=GangNews((RESTARTED,))), False),
        ("a restart that brings nobody up",
         replace(HEARD, launched_at=None, failed_since=89.0, news=GangNews((RESTARTED,), left=1)), True),
        ("a restart that is over", replace(HEARD, launched_at=96.0, news=GangNews((RESTARTED,))), False),
        ("a rank failed after it, and the right is used up",
         replace(HEARD, launched_at=96.0, failed_ranks=(1,), failed_since=99.8, news=GangNews((RESTARTED,))), True),
    ],
    ids=lambda item: item.replace(" ", "-") if isinstance(item, str) else "",
)  # fmt: skip
def test_a_gang_that_may_still_begin_again_in_place_is_not_broken(
    said: str, facts: CoordinatorFacts, expected: bool
) -> None:
    assert broken(facts, 100.0) is expected, said
    lost = view(nodes=(N0, DOWN), coordinator=facts, unreached=("node-1",))
    assert (assess(lost, case()) is not None) is expected, "what it is for: a lost node is believed at once"


def test_what_went_on_from_elsewhere_than_its_checkpoint_has_started_over() -> None:
    well, over = (replace(RESTARTED, first_step=step, first_step_at=96.0) for step in (21, 1))
    again = replace(RESTARTED, number=2)
    facts = replace(HEARD, launched_at=96.0)
    assert assess(view(coordinator=replace(facts, news=GangNews((well, again)))), case()) is None
    found = assess(view(coordinator=replace(facts, news=GangNews((again, over)))), case())
    assert found is not None
    assert (found.signal, found.why.partition(":")[0]) == (Signal.STARTED_OVER, "restart in place 1")
    scratch = replace(over, resume_step=None)
    assert assess(view(coordinator=replace(facts, news=GangNews((scratch,)))), case()) is None, "nothing was resumed"


HUNG = Hang(31.0, "step", "confirmed", why="no progress for 31 s after step 5; 3 ranks wait")


@pytest.mark.parametrize(
    ("said", "news", "expected"),
    [
        ("suspected", GangNews(hang=replace(HUNG, verdict="suspect")), None),
        ("it is the coordinator that does not hear", GangNews(hang=replace(HUNG, verdict="observer")), None),
        ("confirmed, and nobody may do anything", GangNews(hang=HUNG), Signal.HANG),
        ("the coordinator restarts it", GangNews(hang=HUNG, left=1), None),
        ("told to stop because of it", GangNews(stopping=True, stop_why=f"{Watch().why}; not restarted"), Signal.HANG),
        ("told to stop because of something else", GangNews(stopping=True, stop_why="rank 1 ended"), None),
    ],
    ids=lambda item: item.replace(" ", "-") if isinstance(item, str) else "",
)
def test_a_hang_about_which_the_coordinator_does_nothing_more(
    said: str, news: GangNews, expected: Signal | None
) -> None:
    found = assess(view(coordinator=replace(HEARD, news=news)), case())
    assert (None if found is None else found.signal) == expected, said


@pytest.mark.parametrize(
    ("waited_seconds", "late_seconds", "expected"), [(31.0, 1.0, True), (31.0, 2.0, False), (91.0, 60.0, True)]
)
def test_while_a_launcher_is_silent_its_node_may_be_lost(
    waited_seconds: float, late_seconds: float, expected: bool
) -> None:
    heard = ((P0.name, "node-0", 99.8), (P1.name, "node-1", 99.8 - late_seconds))
    news = GangNews(hang=replace(HUNG, waited_seconds=waited_seconds))
    assert (assess(view(coordinator=replace(HEARD, heard=heard, news=news)), case()) is not None) is expected
