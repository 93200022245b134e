"""Objects in the cluster that no living run of the ledger wants: ours are removed, others' are left alone. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from flows.decisions.reconcile_words import Finding, Kind, Leave, Remove
from workflows.failover import POST_FLIGHT
from workflows.labels import is_trial
from workflows.reconcile_sight import Fate, ObjectSeen, Sight

GRACE_SECONDS = 60.0
"""After the end of an attempt or a run its driver still clears away."""
SKEW_SECONDS = 60.0
"""By which the cluster's clock may be behind the ledger's."""
POST_FLIGHT_SECONDS = 600.0
"""A post-flight may outlive its run; its workflow has a deadline of its own, of half of this."""


def stray_objects(sight: Sight) -> Iterator[Finding]:
    """Findings about JobSets, workflows and pods that still run; trials are no runs, and end by themselves."""
    foreign: dict[str, list[ObjectSeen]] = {}
    for thing in _living(sight):
        fate = sight.fates.get(thing.run)
        if fate is None or fate.cluster != sight.cluster or thing.ledger not in ("", sight.ledger):
            foreign.setdefault(thing.run, []).append(thing)
        elif (finding := _about(thing, fate, sight.now)) is not None:
            yield finding
    for run, things in sorted(foreign.items()):
        yield _foreign(run, things, sight.ledger)


def _living(sight: Sight) -> Iterator[ObjectSeen]:
    for thing in (*(sight.jobsets or {}).values(), *(sight.others or ()), *(sight.pods or ())):
        if thing.state == "Running" and not thing.leaving and not is_trial(thing.run):
            yield thing


def _about(thing: ObjectSeen, fate: Fate, now: float) -> Finding | None:
    if thing.attempt and thing.attempt not in fate.attempts:
        return _unknown_attempt(thing)  # attempts are written before anything is made of them
    if thing.created_at is not None and fate.opened_at is not None and thing.created_at < fate.opened_at - SKEW_SECONDS:
        why = f"{thing.subject} was made before run {thing.run} was opened here"
        return Finding(Kind.FOREIGN, thing.subject, thing.run, why, Leave("another ledger may own it"))
    ended = [at for at in (fate.ended_at, fate.attempts.get(thing.attempt)) if at is not None]
    if not ended:
        return None
    grace = POST_FLIGHT_SECONDS if thing.pipeline == POST_FLIGHT else GRACE_SECONDS
    end = fate.ended_at if thing.pipeline == POST_FLIGHT else min(ended)
    if end is None or now - end < grace:
        return None
    if thing.created_at is not None and thing.created_at > end + grace:
        why = f"{thing.subject} was made after run {thing.run} had ended here"
        return Finding(Kind.FOREIGN, thing.subject, thing.run, why, Leave("another ledger may own it"))
    which = f"attempt {thing.attempt} of {thing.run}" if fate.ended_at is None else f"run {thing.run}"
    why = f"it lives, and {which} ended {now - end:.0f} s ago"
    return Finding(Kind.ORPHAN, thing.subject, thing.run, why, Remove(thing))


def _unknown_attempt(thing: ObjectSeen) -> Finding:
    why = f"run {thing.run} has no attempt {thing.attempt} in this ledger"
    return Finding(Kind.UNKNOWN_ATTEMPT, thing.subject, thing.run, why, Leave("another ledger may own it"))


def _foreign(run: str, things: list[ObjectSeen], ledger: str) -> Finding:
    named = ", ".join(thing.subject for thing in things[:4]) + (f" and {len(things) - 4} more" if things[4:] else "")
    sure = any(thing.ledger not in ("", ledger) for thing in things)
    whose = f"another ledger has a run {run}" if sure else f"this ledger knows no run {run}"
    leave = Leave("another ledger owns it" if sure else "another ledger may own it")
    return Finding(Kind.FOREIGN, run, "", f"{whose} on this cluster: {named}", leave)
