"""What is not as the ledger says, or what nobody looks after, and what is to be done about it. Pure.

This is the second path to every reaction: whatever should have happened at an event is found here when the event was
lost. What has its own first path (a driver, a runner) gets time to do it. Silence is no proof: where many are silent at
once the observer is suspected, and what could not be read is not judged at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from flows.decisions.reconcile_objects import stray_objects
from flows.decisions.reconcile_words import Expire, Finding, Kind, Leave, MarkAgain, Tell
from flows.decisions.undriven import undriven
from profiles.vocabulary import Mode, RunState
from workflows import labels
from workflows.evidence import Signal
from workflows.reconcile_sight import GangSeen, PodsSeen, Sight

GRACE_SECONDS: Mapping[Kind, float] = {
    Kind.UNDRIVEN: 5.0,  # a runner that lives looks every second
    Kind.UNSEEN_END: 15.0,
    Kind.APPROVAL: 5.0,
    Kind.MARK_MISSING: 15.0,
    Kind.MARK_LEFT: 15.0,
    Kind.SILENT: 10.0,
}
"""How long something must have been seen before it is a finding; 0 for what is not listed."""
HEARD_SECONDS = 30.0
"""An attempt of which nothing was heard for so long is looked at more closely."""
MANY = 3
"""So many silent at once, and more than half of all, speak against the observer."""
GONE = "its JobSet is gone"
"""Rests on something not being there, as a coordinator's silence does."""


@dataclass(frozen=True)
class Reconciled:
    """What one look found."""

    findings: tuple[Finding, ...] = ()
    """Those that have stood their time."""
    young: tuple[Finding, ...] = ()
    """Those that have not."""
    first_seen: Mapping[str, float] = field(default_factory=dict[str, float])
    """Key of each of them -> Unix seconds; to be handed to the next look."""
    ripe_at: float | None = None
    """When the first of the young ones will have stood its time."""


def reconcile(sight: Sight, before: Mapping[str, float], patience_seconds: float = 0.0) -> Reconciled:
    """What is found, and since when.

    Args:
        sight: what was seen.
        before: `first_seen` of the look before; empty at the first.
        patience_seconds: more time for the first path of each kind; for a second observer.
    """
    found = {finding.key: finding for finding in _unsuspicious(list(_everything(sight)), len(sight.gangs))}
    first = {key: min(before.get(key, sight.now), sight.now) for key in found}
    ripe = {key: first[key] + _grace(finding.kind) + patience_seconds for key, finding in found.items()}
    young = {key: at for key, at in ripe.items() if at > sight.now}
    return Reconciled(
        findings=tuple(finding for key, finding in found.items() if key not in young),
        young=tuple(found[key] for key in young),
        first_seen=first,
        ripe_at=min(young.values(), default=None),
    )


def suspicious(gang: GangSeen, sight: Sight) -> bool:
    """Whether the pods of the run's newest attempt are worth a look: they cost a list each."""
    jobset = (sight.jobsets or {}).get(_jobset_name(gang))
    if jobset is None or jobset.state != "Running" or not _watched(gang, sight):
        return False
    return jobset.idle or sight.now - max(gang.heard_at or 0.0, jobset.created_at or 0.0) >= HEARD_SECONDS


def judged(kind: Kind, subject: str, sight: Sight) -> bool:
    """Whether this look would have seen it: only then is it over where it was not found."""
    match kind:
        case Kind.UNDRIVEN | Kind.APPROVAL | Kind.LEASE:
            return True
        case Kind.OBSERVER:
            return sight.jobsets is not None
        case Kind.UNSEEN_END | Kind.SILENT:
            mine = [gang for gang in sight.gangs if _jobset_name(gang) == subject]
            unasked = any(suspicious(gang, sight) and gang.run.name not in sight.suspects for gang in mine)
            return sight.jobsets is not None and not unasked
        case Kind.ORPHAN | Kind.UNKNOWN_ATTEMPT | Kind.FOREIGN:
            parts = {"JobSet": sight.jobsets, "Workflow": sight.others, "Pod": sight.pods}
            own = parts.get(subject.partition("/")[0]) if "/" in subject else None
            return own is not None if "/" in subject else None not in parts.values()
        case Kind.MARK_MISSING | Kind.MARK_LEFT:
            return sight.nodes is not None
        case _:
            assert_never(kind)


@dataclass(frozen=True)
class Hold:
    """What keeps us from acting."""

    mode: Mode
    everything: str | None = None
    """Why everything is paused; None: it is not."""
    runs: frozenset[str] = frozenset()
    """Runs that are paused by themselves."""


def held(finding: Finding, hold: Hold) -> str:
    """Why nothing is done about the finding now; "" where it may be."""
    if isinstance(finding.remedy, Leave):
        return finding.remedy.why
    if hold.everything is not None:
        return f"paused: {hold.everything or 'everything'}"
    if finding.run in hold.runs:
        return f"paused: run {finding.run}"
    return f"mode observe: it would {finding.remedy.words}" if hold.mode is Mode.OBSERVE else ""


def _everything(sight: Sight) -> Iterator[Finding]:
    yield from _about_runs(sight)
    yield from stray_objects(sight)
    yield from _about_approvals(sight)
    yield from _about_the_watcher(sight)
    yield from _about_nodes(sight)


def _about_runs(sight: Sight) -> Iterator[Finding]:
    for gang in sight.gangs:
        if why := undriven(gang.run, sight.now):
            yield Finding.undriven(gang.run.name, why)
        elif sight.jobsets is not None and _watched(gang, sight):
            finding = _unseen_end(gang, sight) or _silent(gang, sight.suspects.get(gang.run.name, PodsSeen()))
            if finding is not None:
                yield finding


def _watched(gang: GangSeen, sight: Sight) -> bool:
    """Whether a driver that lives should be watching a gang in the cluster."""
    there = gang.attempt > 0 and gang.submitted_at is not None and gang.ended_at is None
    driven = gang.run.lease is not None and not undriven(gang.run, sight.now)
    return there and driven and not gang.handled and gang.run.state is not RunState.UNKNOWN


def _jobset_name(gang: GangSeen) -> str:
    return labels.attempt_name(gang.run.name, gang.attempt)


def _unseen_end(gang: GangSeen, sight: Sight) -> Finding | None:
    name, run = _jobset_name(gang), gang.run.name
    jobset = (sight.jobsets or {}).get(name)
    if jobset is None:
        if gang.applied_at is None:
            return None  # the gate runs
        return Finding(Kind.UNSEEN_END, name, run, GONE, Tell(run, gang.attempt, Signal.PODS_GONE))
    if jobset.state == "Failed":
        return Finding(
            Kind.UNSEEN_END, name, run, "its JobSet has failed", Tell(run, gang.attempt, Signal.ATTEMPT_FAILED)
        )
    if jobset.state == "Completed":
        return Finding(Kind.UNSEEN_END, name, run, "its JobSet has completed", Tell(run, gang.attempt, None))
    pods = sight.suspects.get(run)
    if pods is None or pods.living or not pods.ended:
        return None
    why = f"all of its {pods.ended} pods have ended, {pods.failed} of them badly; its JobSet does not say so"
    return Finding(Kind.UNSEEN_END, name, run, why, Tell(run, gang.attempt, Signal.POD_FAILED if pods.failed else None))


def _silent(gang: GangSeen, pods: PodsSeen) -> Finding | None:
    if not pods.living or not pods.coordinator or pods.answers is not False:
        return None
    why = f"its coordinator {pods.coordinator} does not answer while {pods.living} pods run"
    return Finding(Kind.SILENT, _jobset_name(gang), gang.run.name, why, Leave("silence is no proof of anything"))


def _unsuspicious(found: list[Finding], runs: int) -> list[Finding]:
    """The same, with the observer suspected where too many are silent at once."""
    quiet = [item for item in found if item.kind is Kind.SILENT or item.why == GONE]
    if len(quiet) < MANY or 2 * len(quiet) <= runs:
        return found
    why = f"{len(quiet)} of {runs} runs are silent at once: rather the observer is at fault than all of them"
    doubt = Finding(Kind.OBSERVER, "observer", "", why, Leave("nothing is concluded from this silence"))
    return [item for item in found if item not in quiet] + [doubt]


def _about_approvals(sight: Sight) -> Iterator[Finding]:
    for asked in sight.approvals:
        if asked.state == "waiting" and sight.now >= asked.expires_at:
            why = f"nobody answered in time: {asked.question}"
            yield Finding(Kind.APPROVAL, asked.id, asked.run, why, Expire(asked.id))


def _about_the_watcher(sight: Sight) -> Iterator[Finding]:
    lease = sight.watcher
    if lease is None:
        return
    holder = f"process {lease.driver.pid} on {lease.driver.host}"
    if sight.watcher_alive is False:
        why = f"the monitor's loop is dead: {holder}"
    elif sight.now >= lease.expires_at:
        why = f"the monitor's loop did not renew its lease: {holder}"
    else:
        return
    yield Finding(Kind.LEASE, lease.run, "", why, Leave("whoever starts the loop takes it over"))


def _about_nodes(sight: Sight) -> Iterator[Finding]:
    seen = sight.nodes
    if seen is None:
        return
    for node in sorted(seen.out.keys() & seen.present - seen.marked):
        why = f"we hold it out of service ({seen.out[node]}), and it carries no mark of ours"
        yield Finding(Kind.MARK_MISSING, node, "", why, MarkAgain(node, seen.out[node]))
    for node in sorted(seen.marked - seen.out.keys()):
        why = "it carries our quarantine mark, and this ledger does not hold it out of service"
        yield Finding(Kind.MARK_LEFT, node, "", why, Leave("another ledger may; `primus nodes release` takes it away"))


def _grace(kind: Kind) -> float:
    return GRACE_SECONDS.get(kind, 0.0)
