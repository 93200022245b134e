"""What reconciling finds: each kind once, nothing too early, nothing because the observer failed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.monitoring.reconcile import (
    GRACE_SECONDS,
    DriveAgain,
    Expire,
    Leave,
    MarkAgain,
    ReconcileFault,
    ReconcileFinding,
    Remove,
    Restraint,
    Tell,
    judged,
    reconcile,
    restrained_because,
    suspicious,
)
from profiles.vocabulary import Mode, RunState
from tests.support.cases.rows import rows
from workflows.model.attempt import Signal
from workflows.model.records import ApprovalRecord, Driver, Lease
from workflows.model.runs import Fate, GangSeen, NodesSeen, ObjectSeen, OpenRun, PodsSeen, Sight

NOW = 10_000.0
HOLDER = Driver("host-1", 7, 3.0)


def lease(run: str = "demo", left: float = 10.0) -> Lease:
    return Lease(run, 4, HOLDER, NOW + left)


def gang(name: str = "demo", **changes: Any) -> GangSeen:
    """A run that is driven and trains."""
    run = OpenRun(
        name, RunState.RUNNING, "big", NOW - 3600, changes.pop("lease", lease(name)), changes.pop("alive", True)
    )
    usual: dict[str, Any] = {"submitted_at": NOW - 600, "applied_at": NOW - 590, "heard_at": NOW - 1, "attempt": 1}
    return GangSeen(run, Mode.ACT, **usual | changes)


def jobset(run: str = "demo", attempt: int = 1, **changes: Any) -> ObjectSeen:
    usual: dict[str, Any] = {"pipeline": "train", "created_at": NOW - 595}
    return ObjectSeen("JobSet", f"{run}-a{attempt}", run, attempt, **usual | changes)


def sight(*gangs: GangSeen, **changes: Any) -> Sight:
    """Everything is as it should be, but for the changes."""
    usual: dict[str, Any] = {
        "jobsets": {f"{one.run.name}-a{one.attempt}": jobset(one.run.name, one.attempt) for one in gangs},
        "others": (),
        "pods": (),
        "fates": {one.run.name: Fate("big", None, {one.attempt: None}) for one in gangs},
    }
    return Sight(NOW, "big", gangs, **usual | changes)


def ripe(seen: Sight) -> list[ReconcileFinding]:
    """What is found once everything has stood its time."""
    begun = reconcile(replace(seen, now=seen.now), {}).first_seen
    return list(reconcile(seen, {key: NOW - 1000 for key in begun}).findings)


def one(seen: Sight) -> ReconcileFinding:
    [found] = ripe(seen)
    return found


DEAD = gang(lease=None)
GONE: dict[str, Any] = {"jobsets": {}}
APPROVAL = ApprovalRecord("demo-a1-i1-approval", "demo", "demo-a1-i1", "go on?", "waiting", NOW - 99, NOW - 9)
ENDED = {"demo": Fate("big", NOW - 100, {1: NOW - 120})}
OPENED_LATER = {"demo": Fate("big", NOW - 100, {1: NOW - 120}, opened_at=NOW - 300)}
"""A run of the same name in another ledger made the object before."""


@pytest.mark.parametrize(
    ("seen", "kind", "subject", "remedy"),
    [
        (sight(DEAD), ReconcileFault.UNDRIVEN, "demo", DriveAgain("demo")),
        (sight(gang(), **GONE), ReconcileFault.UNSEEN_END, "demo-a1", Tell("demo", 1, Signal.PODS_GONE)),
        (
            sight(gang(), jobsets={"demo-a1": jobset(state="Failed")}),
            ReconcileFault.UNSEEN_END,
            "demo-a1",
            Tell("demo", 1, Signal.ATTEMPT_FAILED),
        ),
        (
            sight(gang(), jobsets={"demo-a1": jobset(state="Completed")}),
            ReconcileFault.UNSEEN_END,
            "demo-a1",
            Tell("demo", 1, None),
        ),
        (
            sight(gang(), suspects={"demo": PodsSeen(0, 4, 1)}),
            ReconcileFault.UNSEEN_END,
            "demo-a1",
            Tell("demo", 1, Signal.POD_FAILED),
        ),
        (sight(gang(), suspects={"demo": PodsSeen(0, 4)}), ReconcileFault.UNSEEN_END, "demo-a1", Tell("demo", 1, None)),
        (
            sight(jobsets={"demo-a1": jobset()}, fates=ENDED),
            ReconcileFault.ORPHAN,
            "JobSet/demo-a1",
            Remove(jobset()),
        ),
        (sight(approvals=(APPROVAL,)), ReconcileFault.APPROVAL, APPROVAL.id, Expire(APPROVAL.id)),
        (
            sight(nodes=NodesSeen(frozenset({"n1"}), frozenset(), {"n1": "fabric: bad"})),
            ReconcileFault.MARK_MISSING,
            "n1",
            MarkAgain("n1", "fabric: bad"),
        ),
    ],
)
def test_what_is_done(seen: Sight, kind: ReconcileFault, subject: str, remedy: object) -> None:
    found = one(seen)
    assert (found.kind, found.subject, found.remedy) == (kind, subject, remedy)
    assert restrained_because(found, Restraint(Mode.ACT)) == ""


MANY = [gang(f"r{number}") for number in range(4)]
SILENT = PodsSeen(living=4, coordinator="demo-c", answers=False)


@pytest.mark.parametrize(
    ("seen", "kind", "subject"),
    [
        (sight(gang(), suspects={"demo": SILENT}), ReconcileFault.SILENT, "demo-a1"),
        (sight(jobsets={"x-a1": jobset("x")}, fates={}), ReconcileFault.FOREIGN, "x"),
        (sight(jobsets={"x-a1": jobset("x")}, fates={"x": Fate("other")}), ReconcileFault.FOREIGN, "x"),
        (
            sight(jobsets={"demo-a1": jobset(ledger="theirs")}, fates=ENDED, ledger="ours"),
            ReconcileFault.FOREIGN,
            "demo",
        ),
        (
            sight(jobsets={"demo-a1": jobset(created_at=NOW - 5)}, fates=ENDED),
            ReconcileFault.FOREIGN,
            "JobSet/demo-a1",
        ),
        (
            sight(jobsets={"demo-a1": jobset(created_at=NOW - 900)}, fates=OPENED_LATER),
            ReconcileFault.FOREIGN,
            "JobSet/demo-a1",
        ),
        (
            sight(jobsets={"demo-a9": jobset(attempt=9)}, fates={"demo": Fate("big", None, {1: None})}),
            ReconcileFault.UNKNOWN_ATTEMPT,
            "JobSet/demo-a9",
        ),
        (sight(jobsets={"demo-a9": jobset(attempt=9)}, fates=ENDED), ReconcileFault.UNKNOWN_ATTEMPT, "JobSet/demo-a9"),
        (sight(watcher=lease("monitor/big", -1.0)), ReconcileFault.LEASE, "monitor/big"),
        (sight(watcher=lease("monitor/big"), watcher_alive=False), ReconcileFault.LEASE, "monitor/big"),
        (sight(nodes=NodesSeen(frozenset({"n1"}), frozenset({"n1"}), {})), ReconcileFault.MARK_LEFT, "n1"),
        (sight(*MANY, **GONE), ReconcileFault.OBSERVER, "observer"),
    ],
)
def test_what_is_only_noted(seen: Sight, kind: ReconcileFault, subject: str) -> None:
    found = one(seen)
    assert (found.kind, found.subject) == (kind, subject)
    assert isinstance(found.remedy, Leave)
    assert restrained_because(found, Restraint(Mode.ACT)) != ""


@pytest.mark.parametrize(
    "seen",
    [
        sight(gang()),
        sight(gang(), jobsets=None),
        sight(gang(applied_at=None), **GONE),
        sight(gang(handled=True), **GONE),
        sight(gang(ended_at=NOW - 1), **GONE),
        sight(gang(attempt=0), **GONE),
        sight(gang(), suspects={"demo": PodsSeen(living=4, coordinator="demo-c", answers=None)}),
        sight(gang(), suspects={"demo": PodsSeen(living=4, coordinator="", answers=None)}),
        sight(gang(), suspects={"demo": PodsSeen()}),
        sight(jobsets={"demo-a1": jobset(state="Completed")}, fates=ENDED),
        sight(jobsets={"demo-a1": jobset(leaving=True)}, fates=ENDED),
        sight(jobsets={"demo-a1": jobset()}, fates={"demo": Fate("big", NOW - 30, {1: NOW - 31})}),
        sight(others=(ObjectSeen("Workflow", "demo-a1-post", "demo", 1, "post-flight"),), fates=ENDED),
        sight(approvals=(replace(APPROVAL, expires_at=NOW + 1),)),
        sight(nodes=NodesSeen(frozenset(), frozenset(), {"n1": "it left the cluster"})),
        sight(watcher=lease("monitor/big"), watcher_alive=None),
    ],
)
def test_what_is_no_finding(seen: Sight) -> None:
    assert ripe(seen) == []


def test_an_attempt_that_ended_may_not_live_beside_the_next() -> None:
    both = {"demo-a1": jobset(), "demo-a2": jobset(attempt=2)}
    found = one(sight(gang(attempt=2), jobsets=both, fates={"demo": Fate("big", None, {1: NOW - 61, 2: None})}))
    assert (found.kind, found.subject) == (ReconcileFault.ORPHAN, "JobSet/demo-a1")


def test_a_post_flight_may_outlive_its_run_for_a_while() -> None:
    late = {"demo": Fate("big", NOW - 601, {1: NOW - 700})}
    post = ObjectSeen("Workflow", "demo-a1-post", "demo", 1, "post-flight", created_at=NOW - 650)
    assert one(sight(others=(post,), fates=late)).remedy == Remove(post)


@pytest.mark.parametrize(("alive", "found"), [(False, ReconcileFault.UNDRIVEN), (True, ReconcileFault.UNSEEN_END)])
def test_a_gang_without_its_pods_is_its_drivers_business_or_needs_one(alive: bool, found: ReconcileFault) -> None:
    assert one(sight(gang(alive=alive), **GONE)).kind is found


def test_the_first_path_has_its_time_and_a_second_observer_waits_longer() -> None:
    seen = sight(DEAD)
    first = reconcile(seen, {})
    assert (first.findings, first.ripe_at) == ((), NOW + GRACE_SECONDS[ReconcileFault.UNDRIVEN])
    later = replace(seen, now=NOW + 5.0)
    assert len(reconcile(later, first.first_seen).findings) == 1
    assert reconcile(later, first.first_seen, 30.0).ripe_at == NOW + 35.0
    back = reconcile(replace(sight(gang()), now=NOW + 5.0), first.first_seen)
    assert (back.findings, back.first_seen) == ((), {})


def test_few_silent_ones_are_not_the_observer() -> None:
    two_of_three = sight(*MANY[:3], jobsets={"r2-a1": jobset("r2")})
    assert {item.kind for item in ripe(two_of_three)} == {ReconcileFault.UNSEEN_END}
    told = {f"r{number}-a1": jobset(f"r{number}", state="Failed") for number in range(4)}
    assert len(ripe(sight(*MANY, jobsets=told))) == 4, "told, not silent"


def test_only_what_looks_wrong_is_looked_at_closely() -> None:
    fresh, old = gang(), gang(heard_at=NOW - 31)
    assert not suspicious(fresh, sight(fresh))
    assert suspicious(old, sight(old))
    assert suspicious(fresh, sight(fresh, jobsets={"demo-a1": jobset(idle=True)}))
    assert not suspicious(old, sight(old, **GONE))
    assert not suspicious(old, sight(old, jobsets=None))


@rows("monitoring/reconcile")
def test_modes_and_pauses(hold: Restraint, said: str) -> None:
    assert restrained_because(one(sight(DEAD)), hold) == said


def test_what_was_not_looked_at_is_not_over() -> None:
    narrow = sight(gang(), others=None, pods=None, nodes=None)
    assert not judged(ReconcileFault.ORPHAN, "Workflow/x", narrow)
    assert judged(ReconcileFault.ORPHAN, "JobSet/x", narrow)
    assert not judged(ReconcileFault.FOREIGN, "x", narrow)
    assert not judged(ReconcileFault.MARK_LEFT, "n1", narrow)
    assert judged(ReconcileFault.FOREIGN, "x", sight())
    old = gang(heard_at=NOW - 31)
    assert not judged(ReconcileFault.SILENT, "demo-a1", sight(old))
    assert judged(ReconcileFault.SILENT, "demo-a1", sight(old, suspects={"demo": SILENT}))
    blind = sight(gang(), jobsets=None, others=None, pods=None)
    assert {kind for kind in ReconcileFault if judged(kind, "x", blind)} == {
        ReconcileFault.UNDRIVEN,
        ReconcileFault.APPROVAL,
        ReconcileFault.LEASE,
    }


names = st.sampled_from(["a", "b", "c", "d", "e"])
objects = st.builds(
    ObjectSeen,
    kind=st.sampled_from(["JobSet", "Workflow", "Pod"]),
    name=names,
    run=names,
    attempt=st.integers(0, 2),
    pipeline=st.sampled_from(["train", "post-flight"]),
    state=st.sampled_from(["Running", "Completed", "Failed"]),
    created_at=st.sampled_from([None, NOW - 9000, NOW - 50, NOW]),
    leaving=st.booleans(),
    idle=st.booleans(),
)
moments = st.sampled_from([None, NOW - 9000, NOW - 61, NOW - 5])
fates = st.builds(Fate, st.sampled_from(["big", "other"]), moments, st.dictionaries(st.integers(0, 2), moments))
gangs = st.lists(
    st.builds(
        gang,
        name=names,
        lease=st.sampled_from([None, lease(), lease(left=-60.0)]),
        alive=st.sampled_from([True, False, None]),
        attempt=st.integers(0, 2),
        handled=st.booleans(),
        heard_at=moments,
    ),
    unique_by=lambda made: made.run.name,
)


@given(gangs, st.none() | st.lists(objects), st.none() | st.lists(objects), st.dictionaries(names, fates))
def test_only_what_the_ledger_knows_as_ended_is_ever_removed(
    runs: list[GangSeen], jobsets: list[ObjectSeen] | None, others: list[ObjectSeen] | None, known: Mapping[str, Fate]
) -> None:
    listed = None if jobsets is None else {item.name: item for item in jobsets}
    seen = sight(*runs, jobsets=listed, others=None if others is None else tuple(others), fates=known)
    everything = [*reconcile(seen, {}).findings, *reconcile(seen, {}).young]
    assert {item.key for item in ripe(seen)} == {item.key for item in everything}
    assert len({item.key for item in everything}) == len(everything)
    for finding in ripe(seen):
        if isinstance(finding.remedy, Remove):
            fate, thing = known[finding.remedy.thing.run], finding.remedy.thing
            assert fate.cluster == "big"
            assert fate.ended_at is not None or fate.attempts[thing.attempt] is not None
            assert (thing.state, thing.leaving) == ("Running", False)
        if isinstance(finding.remedy, Tell):
            assert listed is not None
            assert next(one for one in runs if one.run.name == finding.run).run.lease is not None
