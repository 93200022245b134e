"""Where cluster and ledger disagree, what no process looks after, and what is to be done about it. Pure.

This is the second path to every reaction: what should have happened at an event is found here when the event was lost.
What has its own first path (a driver, a runner) gets time for it. Silence is no proof: where many are silent at once
the observer is suspected, and what could not be read is not judged. Stray objects of ours are removed; others' are
left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from flows.decisions.monitoring.flow_runs import undriven
from flows.decisions.text import first_names
from profiles.vocabulary import Mode, RunState
from workflows import labels
from workflows.attempt.examination import POST_FLIGHT
from workflows.labels import is_trial
from workflows.model.attempt import Signal
from workflows.model.runs import Fate, GangSeen, ObjectSeen, PodsSeen, Sight


class ReconcileFault(StrEnum):
    """What is not as it should be. The words stand in the ledger and in documents."""

    UNDRIVEN = "undriven"
    UNSEEN_END = "unseen-end"
    SILENT = "silent-coordinator"
    LEASE = "lease"
    ORPHAN = "orphan"
    FOREIGN = "foreign"
    UNKNOWN_ATTEMPT = "unknown-attempt"
    APPROVAL = "approval"
    MARK_MISSING = "mark-missing"
    MARK_LEFT = "mark-left"
    OBSERVER = "observer"


@dataclass(frozen=True)
class DriveAgain:
    """Give the run a driver, by a run of its train flow, which adopts what is there."""

    run: str

    @property
    def words(self) -> str:
        """For people, after "it would"."""
        return "start its train flow again"


@dataclass(frozen=True)
class Tell:
    """Ask the living driver to look anew, at an incident where there is a signal."""

    run: str
    attempt: int
    signal: Signal | None
    """None: nothing went wrong, the end was only not seen."""

    @property
    def words(self) -> str:
        """For people."""
        return f"open an incident ({self.signal}) for its driver" if self.signal else "have its driver look again"


@dataclass(frozen=True)
class Remove:
    """Delete an object that is no longer needed."""

    thing: ObjectSeen

    @property
    def words(self) -> str:
        """For people."""
        return "delete it"


@dataclass(frozen=True)
class Expire:
    """Let a question lapse: the safe default holds."""

    approval: str

    @property
    def words(self) -> str:
        """For people."""
        return "let the question lapse"


@dataclass(frozen=True)
class MarkAgain:
    """Put our mark on the node once more."""

    node: str
    why: str

    @property
    def words(self) -> str:
        """For people."""
        return "mark it again"


@dataclass(frozen=True)
class Leave:
    """Nothing is done."""

    why: str

    @property
    def words(self) -> str:
        """For people."""
        return f"none: {self.why}"


Remedy = DriveAgain | Tell | Remove | Expire | MarkAgain | Leave


@dataclass(frozen=True)
class ReconcileFinding:
    """One thing that was found."""

    kind: ReconcileFault
    subject: str
    """A run, an attempt, `Kind/name` of an object, a node, an approval, a lease."""
    run: str
    """"" where it belongs to no run that the ledger knows."""
    why: str
    remedy: Remedy

    @property
    def key(self) -> str:
        """The same for the same thing, however often it is seen."""
        return f"{self.kind}/{self.subject}"

    @classmethod
    def undriven(cls, run: str, why: str) -> ReconcileFinding:
        """A run without a living driver."""
        return cls(ReconcileFault.UNDRIVEN, run, run, why, DriveAgain(run))


OBJECT_GRACE_SECONDS = 60.0
"""After the end of an attempt or a run its driver still clears away."""
SKEW_SECONDS = 60.0
"""By which the cluster's clock may be behind the ledger's."""
POST_FLIGHT_SECONDS = 600.0
"""A post-flight may outlive its run; its workflow has a deadline of its own, of half of this."""


def stray_objects(view: Sight) -> Iterator[ReconcileFinding]:
    """Findings about JobSets, workflows and pods that still run; trials are no runs, and end by themselves."""
    foreign: dict[str, list[ObjectSeen]] = {}
    for thing in _living(view):
        fate = view.fates.get(thing.run)
        if fate is None or fate.cluster != view.cluster or thing.ledger not in ("", view.ledger):
            foreign.setdefault(thing.run, []).append(thing)
        elif (finding := _about(thing, fate, view.now)) is not None:
            yield finding
    for run, things in sorted(foreign.items()):
        yield _foreign(run, things, view.ledger)


def _living(view: Sight) -> Iterator[ObjectSeen]:
    for thing in (*(view.jobsets or {}).values(), *(view.others or ()), *(view.pods or ())):
        if thing.state == "Running" and not thing.leaving and not is_trial(thing.run):
            yield thing


def _about(thing: ObjectSeen, fate: Fate, now: float) -> ReconcileFinding | None:
    if thing.attempt and thing.attempt not in fate.attempts:
        return _unknown_attempt(thing)  # attempts are written before anything is made of them
    if thing.created_at is not None and fate.opened_at is not None and thing.created_at < fate.opened_at - SKEW_SECONDS:
        why = f"{thing.subject} was made before run {thing.run} was opened here"
        return ReconcileFinding(
            ReconcileFault.FOREIGN, thing.subject, thing.run, why, Leave("another ledger may own it")
        )
    ended = [at for at in (fate.ended_at, fate.attempts.get(thing.attempt)) if at is not None]
    if not ended:
        return None
    grace = POST_FLIGHT_SECONDS if thing.pipeline == POST_FLIGHT else OBJECT_GRACE_SECONDS
    end = fate.ended_at if thing.pipeline == POST_FLIGHT else min(ended)
    if end is None or now - end < grace:
        return None
    if thing.created_at is not None and thing.created_at > end + grace:
        why = f"{thing.subject} was made after run {thing.run} had ended here"
        return ReconcileFinding(
            ReconcileFault.FOREIGN, thing.subject, thing.run, why, Leave("another ledger may own it")
        )
    which = f"attempt {thing.attempt} of {thing.run}" if fate.ended_at is None else f"run {thing.run}"
    why = f"it still exists, but {which} ended {now - end:.0f} s ago"
    return ReconcileFinding(ReconcileFault.ORPHAN, thing.subject, thing.run, why, Remove(thing))


def _unknown_attempt(thing: ObjectSeen) -> ReconcileFinding:
    why = f"run {thing.run} has no attempt {thing.attempt} in this ledger"
    return ReconcileFinding(
        ReconcileFault.UNKNOWN_ATTEMPT, thing.subject, thing.run, why, Leave("another ledger may own it")
    )


def _foreign(run: str, things: list[ObjectSeen], ledger: str) -> ReconcileFinding:
    named = first_names([thing.subject for thing in things], 4)
    sure = any(thing.ledger not in ("", ledger) for thing in things)
    whose = f"another ledger has a run {run}" if sure else f"this ledger knows no run {run}"
    leave = Leave("another ledger owns it" if sure else "another ledger may own it")
    return ReconcileFinding(ReconcileFault.FOREIGN, run, "", f"{whose} on this cluster: {named}", leave)


GRACE_SECONDS: Mapping[ReconcileFault, float] = {
    ReconcileFault.UNDRIVEN: 5.0,  # a runner that lives looks every second
    ReconcileFault.UNSEEN_END: 15.0,
    ReconcileFault.APPROVAL: 5.0,
    ReconcileFault.MARK_MISSING: 15.0,
    ReconcileFault.MARK_LEFT: 15.0,
    ReconcileFault.SILENT: 10.0,
}
"""How long something must have been seen before it is a finding; 0 for what is not listed."""
HEARD_SECONDS = 30.0
"""An attempt without news for so long is looked at more closely."""
MANY = 3
"""So many silent at once, and more than half of all, speak against the observer."""
GONE = "its JobSet is gone"
"""Rests on something not being there, as a coordinator's silence does."""


@dataclass(frozen=True)
class Reconciled:
    """What one look found."""

    findings: tuple[ReconcileFinding, ...] = ()
    """Those that have stood their time."""
    young: tuple[ReconcileFinding, ...] = ()
    """Those that have not."""
    first_seen: Mapping[str, float] = field(default_factory=dict[str, float])
    """Key of each of them -> Unix seconds; to be handed to the next look."""
    ripe_at: float | None = None
    """When the first of the young ones will have stood its time."""


def reconcile(view: Sight, before: Mapping[str, float], patience_seconds: float = 0.0) -> Reconciled:
    """What is found, and since when.

    `before`: `first_seen` of the look before; empty at the first. `patience_seconds`: more time for the first path of
    each kind; for a second observer.
    """
    found = {finding.key: finding for finding in _unsuspicious(list(_everything(view)), len(view.gangs))}
    first = {key: min(before.get(key, view.now), view.now) for key in found}
    ripe = {key: first[key] + GRACE_SECONDS.get(finding.kind, 0.0) + patience_seconds for key, finding in found.items()}
    young = {key: at for key, at in ripe.items() if at > view.now}
    return Reconciled(
        findings=tuple(finding for key, finding in found.items() if key not in young),
        young=tuple(found[key] for key in young),
        first_seen=first,
        ripe_at=min(young.values(), default=None),
    )


def suspicious(gang: GangSeen, view: Sight) -> bool:
    """Whether the pods of the run's newest attempt are worth a look: they cost a list each."""
    jobset = (view.jobsets or {}).get(_jobset_name(gang))
    if jobset is None or jobset.state != "Running" or not _watched(gang, view):
        return False
    return jobset.idle or view.now - max(gang.heard_at or 0.0, jobset.created_at or 0.0) >= HEARD_SECONDS


def judged(kind: ReconcileFault, subject: str, view: Sight) -> bool:
    """Whether this look would have seen it: only then is it over where it was not found."""
    match kind:
        case ReconcileFault.UNDRIVEN | ReconcileFault.APPROVAL | ReconcileFault.LEASE:
            return True
        case ReconcileFault.OBSERVER:
            return view.jobsets is not None
        case ReconcileFault.UNSEEN_END | ReconcileFault.SILENT:
            mine = [gang for gang in view.gangs if _jobset_name(gang) == subject]
            unasked = any(suspicious(gang, view) and gang.run.name not in view.suspects for gang in mine)
            return view.jobsets is not None and not unasked
        case ReconcileFault.ORPHAN | ReconcileFault.UNKNOWN_ATTEMPT | ReconcileFault.FOREIGN:
            parts = {"JobSet": view.jobsets, "Workflow": view.others, "Pod": view.pods}
            own = parts.get(subject.partition("/")[0]) if "/" in subject else None
            return own is not None if "/" in subject else None not in parts.values()
        case ReconcileFault.MARK_MISSING | ReconcileFault.MARK_LEFT:
            return view.nodes is not None
        case _:
            assert_never(kind)


@dataclass(frozen=True)
class Restraint:
    """What keeps us from acting."""

    mode: Mode
    everything: str | None = None
    """Why everything is paused; None: it is not."""
    runs: frozenset[str] = frozenset()
    """Runs that are paused by themselves."""


def restrained_because(finding: ReconcileFinding, hold: Restraint) -> str:
    """Why nothing is done about the finding now; "" where it may be."""
    if isinstance(finding.remedy, Leave):
        return finding.remedy.why
    if hold.everything is not None:
        return f"paused: {hold.everything or 'everything'}"
    if finding.run in hold.runs:
        return f"paused: run {finding.run}"
    return f"mode observe: it would {finding.remedy.words}" if hold.mode is Mode.OBSERVE else ""


def _everything(view: Sight) -> Iterator[ReconcileFinding]:
    yield from _about_runs(view)
    yield from stray_objects(view)
    yield from _about_approvals(view)
    yield from _about_the_watcher(view)
    yield from _about_nodes(view)


def _about_runs(view: Sight) -> Iterator[ReconcileFinding]:
    for gang in view.gangs:
        if why := undriven(gang.run, view.now):
            yield ReconcileFinding.undriven(gang.run.name, why)
        elif view.jobsets is not None and _watched(gang, view):
            finding = _unseen_end(gang, view) or _silent(gang, view.suspects.get(gang.run.name, PodsSeen()))
            if finding is not None:
                yield finding


def _watched(gang: GangSeen, view: Sight) -> bool:
    """Whether a driver that lives should be watching a gang in the cluster."""
    there = gang.attempt > 0 and gang.submitted_at is not None and gang.ended_at is None
    driven = gang.run.lease is not None and not undriven(gang.run, view.now)
    return there and driven and not gang.handled and gang.run.state is not RunState.UNKNOWN


def _jobset_name(gang: GangSeen) -> str:
    return labels.attempt_name(gang.run.name, gang.attempt)


def _unseen_end(gang: GangSeen, view: Sight) -> ReconcileFinding | None:
    name, run = _jobset_name(gang), gang.run.name
    jobset = (view.jobsets or {}).get(name)
    if jobset is None:
        if gang.applied_at is None:
            return None  # the gate runs
        return ReconcileFinding(ReconcileFault.UNSEEN_END, name, run, GONE, Tell(run, gang.attempt, Signal.PODS_GONE))
    if jobset.state == "Failed":
        return ReconcileFinding(
            ReconcileFault.UNSEEN_END,
            name,
            run,
            "its JobSet has failed",
            Tell(run, gang.attempt, Signal.ATTEMPT_FAILED),
        )
    if jobset.state == "Completed":
        return ReconcileFinding(
            ReconcileFault.UNSEEN_END, name, run, "its JobSet has completed", Tell(run, gang.attempt, None)
        )
    pods = view.suspects.get(run)
    if pods is None or pods.living or not pods.ended:
        return None
    why = f"all of its {pods.ended} pods have ended, {pods.failed} of them badly; its JobSet does not say so"
    return ReconcileFinding(
        ReconcileFault.UNSEEN_END, name, run, why, Tell(run, gang.attempt, Signal.POD_FAILED if pods.failed else None)
    )


def _silent(gang: GangSeen, pods: PodsSeen) -> ReconcileFinding | None:
    if not pods.living or not pods.coordinator or pods.answers is not False:
        return None
    why = f"its coordinator {pods.coordinator} does not answer while {pods.living} pods run"
    return ReconcileFinding(
        ReconcileFault.SILENT, _jobset_name(gang), gang.run.name, why, Leave("silence is no proof of anything")
    )


def _unsuspicious(found: list[ReconcileFinding], runs: int) -> list[ReconcileFinding]:
    """The same, with the observer suspected where too many are silent at once."""
    quiet = [item for item in found if item.kind is ReconcileFault.SILENT or item.why == GONE]
    if len(quiet) < MANY or 2 * len(quiet) <= runs:
        return found
    why = f"{len(quiet)} of {runs} runs are silent at once: more likely the observer is at fault than all of them"
    doubt = ReconcileFinding(
        ReconcileFault.OBSERVER, "observer", "", why, Leave("nothing is concluded from this silence")
    )
    return [item for item in found if item not in quiet] + [doubt]


def _about_approvals(view: Sight) -> Iterator[ReconcileFinding]:
    for approval in view.approvals:
        if approval.state == "waiting" and view.now >= approval.expires_at:
            why = f"nobody answered in time: {approval.question}"
            yield ReconcileFinding(ReconcileFault.APPROVAL, approval.id, approval.run, why, Expire(approval.id))


def _about_the_watcher(view: Sight) -> Iterator[ReconcileFinding]:
    lease = view.watcher
    if lease is None:
        return
    holder = f"process {lease.driver.pid} on {lease.driver.host}"
    if view.watcher_alive is False:
        why = f"the monitor's loop is dead: {holder}"
    elif view.now >= lease.expires_at:
        why = f"the monitor's loop did not renew its lease: {holder}"
    else:
        return
    yield ReconcileFinding(ReconcileFault.LEASE, lease.run, "", why, Leave("whoever starts the loop takes it over"))


def _about_nodes(view: Sight) -> Iterator[ReconcileFinding]:
    seen = view.nodes
    if seen is None:
        return
    for node in sorted(seen.out.keys() & seen.present - seen.marked):
        why = f"the ledger holds it out of service ({seen.out[node]}), but it carries no mark of ours"
        yield ReconcileFinding(ReconcileFault.MARK_MISSING, node, "", why, MarkAgain(node, seen.out[node]))
    for node in sorted(seen.marked - seen.out.keys()):
        why = "it carries our quarantine mark, and this ledger does not hold it out of service"
        remedy = Leave("another ledger may hold it; `primus nodes release` takes it away")
        yield ReconcileFinding(ReconcileFault.MARK_LEFT, node, "", why, remedy)
