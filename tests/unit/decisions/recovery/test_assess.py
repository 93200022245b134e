"""What ends the watching of an attempt, and what does not."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

import pytest

from flows.decisions.recovery.assess import Case, assess, settled
from flows.decisions.recovery.liveness import broken
from profiles.loading import load
from profiles.vocabulary import FaultClass
from tests.support.builders.nodes import a_node
from tests.support.cases.rows import rows
from workflows.model.attempt import AttemptView, CoordinatorFacts, Signal
from workflows.model.cluster import Pod
from workflows.model.fleet import NodeCandidate
from workflows.model.gang_status import GangNews
from workflows.model.records import AttemptRecord, IncidentRecord
from workflows.model.workflow import Workflow
from workflows.programs.coordinator.hang_watch import Watch
from workflows.status import Hang, RestartInPlace, Straggler
from workflows.wire import RankEnd, Termination


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
LEAVE = (N0, replace(N1, cordoned=True))
GOOD = AttemptView("r", 1, 100.0, jobset="Running", pods=(P0, P1, CO), nodes=(N0, N1), coordinator=HEARD)


def view(**changes: object) -> AttemptView:
    return replace(GOOD, **changes)  # pyright: ignore


PODS = {"rank-0": P0, "rank-1": P1, "coordinator": CO}


@dataclass(frozen=True)
class Gang:
    """What a table says of a gang; what it leaves out is as in `GOOD`."""

    pods: tuple[str | dict[str, dict[str, Any]], ...] = ("rank-0", "rank-1", "coordinator")
    """Names of `PODS`, or of one in what it differs."""
    nodes: tuple[dict[str, Any], ...] = ({"name": "node-0"}, {"name": "node-1"})
    coordinator: dict[str, Any] | None = field(default_factory=dict[str, Any])
    """In what it differs from `HEARD`; None: it has never answered."""
    jobset: str | None = "Running"
    workflow: Workflow = field(default_factory=Workflow)
    pool: tuple[NodeCandidate, ...] | None = None
    unreached: tuple[str, ...] = ()
    unheard_since: float | None = None
    submitted_at: float | None = None
    pending_since: float | None = None
    away: str = ""
    vanished: str = ""
    partial: bool = False

    def view(self) -> AttemptView:
        facts = {one.name: getattr(self, one.name) for one in fields(self)}
        facts["pods"] = tuple(_pod(one) for one in self.pods)
        facts["nodes"] = tuple(a_node(**one) for one in self.nodes)
        if self.coordinator is not None:
            facts["coordinator"] = replace(HEARD, **{name: _frozen(value) for name, value in self.coordinator.items()})
        return replace(GOOD, **facts)


def _pod(told: str | dict[str, dict[str, Any]]) -> Pod:
    if isinstance(told, str):
        return PODS[told]
    ((name, changes),) = told.items()
    return replace(PODS[name], **changes)


def _frozen(value: Any) -> Any:
    known: Any = value
    return tuple(_frozen(one) for one in known) if isinstance(value, list) else known


@rows("recovery/assess")
def test_it_ends_the_watching(seen: Gang, signal: Signal) -> None:
    finding = assess(seen.view(), case())
    assert finding is not None
    assert finding.signal is signal
    assert finding.why


@rows("recovery/assess")
def test_it_does_not_end_the_watching(seen: Gang) -> None:
    assert assess(seen.view(), case()) is None


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


def test_whoever_failed_first_is_named_first_with_its_rank_and_exception() -> None:
    def failed(pod: Pod, at: float, said: str) -> Pod:
        ranks = [RankEnd(pod.index, 0, at, 1)]
        record = Termination("r", 1, pod.role, pod.node, pod.name, "rank-failed", ranks, pod.index, 8, 99.0, said)
        return replace(pod, phase="Failed", reason="Error", exit_code=1, finished_at=99.0, termination=record)

    first = "rank 1 exited with 1 after step 8: ValueError: expected 3 channels"
    pods = (failed(P0, 98.2, "rank 0 exited with 1 after step 8: connection closed"), failed(P1, 98.1, first), CO)
    found = assess(view(pods=pods), case())
    assert found is not None
    assert found.why.startswith(f"failed: {P1.name} ({first}), {P0.name} (rank 0 exited with 1")
    unheard = replace(P1, phase="Failed", reason="OOMKilled", exit_code=137)
    silent = assess(view(pods=(P0, unheard, CO)), case())
    assert silent is not None
    assert silent.why == f"failed: {P1.name} (OOMKilled)"
    stopped = "rank 1 of worker ended with exit code 7, after it printed: worker leaves"
    told = Termination("r", 1, "ps", "node-0", P0.name, "told-to-stop", [], None, 8, 99.0, stopped)
    suffered = assess(view(pods=(replace(P0, phase="Failed", reason="Error", termination=told), P1, CO)), case())
    assert suffered is not None
    assert suffered.why == f"failed: {P0.name} ({stopped})"


ASKED = IncidentRecord("r-a1-i1", "r", 1, 95.0, 96.0, Signal.HANG, FaultClass.HANG, 0.9, (("node-1", 1),), step=12)
FURTHER = {"last_step": 13, "last_step_at": 97.0}
SLOW = Straggler(1, "node-1", 1.4)
KILLED = replace(P1, phase="Failed", reason="Error", exit_code=137)
WANTED = (N0, replace(N1, cordoned=True))


def by(signal: Signal) -> IncidentRecord:
    return replace(ASKED, signal=signal)


@pytest.mark.parametrize(
    ("said", "asked", "steps", "seen", "why"),
    [
        ("a hang that lasts", ASKED, {"last_step": 12, "last_step_at": 94.0}, {}, ""),
        ("a step that was made before", ASKED, {"last_step": 13, "last_step_at": 95.9}, {}, ""),
        ("the same step again, by another clock", ASKED, {"last_step": 12, "last_step_at": 97.0}, {}, ""),
        ("steps are made again", ASKED, FURTHER, {}, "it trains again by itself, step 13 was made"),
        ("it hangs anew", ASKED, FURTHER, {"coordinator": replace(HEARD, news=GangNews(hang=HUNG))}, ""),
        ("the cluster does not answer", ASKED, FURTHER, {"away": "no route"}, ""),
        ("not all is read", ASKED, FURTHER, {"partial": True}, ""),
        ("a rank dies", ASKED, {}, {"pods": (P0, KILLED, CO)}, f"failed: {P1.name} (Error)"),
        ("the gang was told to stop for it", ASKED, {},
         {"pods": (P0, KILLED, CO), "coordinator": replace(HEARD, news=GangNews(stopping=True, stop_why="no"))}, ""),
        ("a person stops the run", ASKED, {}, {"stop_requested": "enough"}, ""),
        ("it comes to its end", ASKED, {}, {"jobset": "Completed"}, "all pods of the deciding role completed"),
        ("numbers do not come back", by(Signal.NUMERIC), FURTHER, {}, ""),
        ("an announced end stays", by(Signal.PREEMPTION_NOTICE), FURTHER, {}, ""),
        ("room is found", by(Signal.UNSCHEDULABLE), {}, {}, "all its pods have found a node"),
        ("room for some", by(Signal.UNSCHEDULABLE), {},
         {"pods": (P0, replace(P1, phase="Pending", node=""), CO), "pending_since": 99.0}, ""),
        ("it is cordoned still", by(Signal.NODE_CORDONED), {}, {"nodes": WANTED}, ""),
        ("it is given back", by(Signal.NODE_CORDONED), {}, {}, "none of its nodes is cordoned any more"),
        ("it is slow still", by(Signal.STRAGGLER), {},
         {"coordinator": replace(HEARD, news=GangNews(stragglers=(SLOW,)))}, ""),
        ("nobody looks how fast it is", by(Signal.STRAGGLER), {}, {}, ""),
        ("it is fast again", by(Signal.STRAGGLER), {}, {"coordinator": replace(HEARD, news=GangNews(stragglers=()))},
         "node-1 is as fast as the others again"),
    ],
    ids=lambda item: item.replace(" ", "-") if isinstance(item, str) else "",
)  # fmt: skip
def test_a_question_about_a_living_gang_stands_until_what_it_asks_about_is_over(
    said: str, asked: IncidentRecord, steps: dict[str, Any], seen: dict[str, Any], why: str
) -> None:
    assert settled(view(**seen), replace(case().attempt, **steps), asked, case()) == why, said
