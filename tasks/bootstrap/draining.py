"""Nodes emptied before they are upgraded or leave: runs move first, with their newest save, then what else is there.

A cordon is all that a run needs: its flow saves the gang and begins the next attempt elsewhere. Only pods that are left
after that are evicted, under the disruption budgets of their owners. Our cordons are marked: a node that somebody else
had cordoned is emptied too, and stays cordoned.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from profiles.cluster import ClusterProfile
from profiles.errors import Unavailable
from tasks.bootstrap.access import KUBECTL, run_on
from tasks.bootstrap.site import Tell, pause
from tasks.context import world
from workflows import labels
from workflows.model.manifest import Json

MOVE_SECONDS = 900.0
"""For runs to save and leave; a save of a large model takes minutes."""
DRAIN_SECONDS = 600.0
LOOK_SECONDS = 5.0
ENDED = ("Succeeded", "Failed")
UNSCHEDULABLE = ("--field-selector", "spec.unschedulable=true")
SHOWN = 4
"""Nodes that one line names."""


def empty_nodes(profile: ClusterProfile, anchor: str, names: Sequence[str], tell: Tell) -> None:
    """Cordon these nodes, wait until no run has a living pod on them, and evict what else is there.

    `anchor` is a control plane that serves. A node that the cluster does not know is empty.

    Raises:
        Unavailable: it did not end in time, or the control plane does not answer; nodes stay cordoned.
    """
    known = _nodes(profile, anchor)
    there = [name for name in names if name in known]
    if not there:
        return
    _cordon(profile, anchor, there)
    tell(f"{', '.join(there)}: cordoned; runs save and move first")
    until, told = world().now() + MOVE_SECONDS, ""
    while runs := _runs_on(profile, anchor, there):
        which = f"run {', '.join(runs)}"
        besides = _closed_besides(profile, anchor, there)
        if world().now() >= until:
            raise Unavailable(f"after {MOVE_SECONDS:.0f} s still there: {which}{besides}; no node was changed")
        said = f"waiting for {which} to move{besides}"
        if said != told:
            tell(said)
        told = said
        pause(LOOK_SECONDS)
    flags = ("--ignore-daemonsets", "--delete-emptydir-data", "--force", f"--timeout={DRAIN_SECONDS:.0f}s")
    run_on(profile, anchor, (*KUBECTL, "drain", *there, *flags), DRAIN_SECONDS + LOOK_SECONDS)


def open_nodes(profile: ClusterProfile, anchor: str, names: Sequence[str]) -> None:
    """Let pods come again to those of these nodes that were closed here.

    Raises:
        Unavailable: the control plane does not answer.
    """
    if not names:
        return
    ours = [name for name in _nodes(profile, anchor, "-l", f"{labels.BOOTSTRAP_CORDON}=true") if name in names]
    if ours:
        _patch(profile, anchor, ours, closed=False)


def _closed_besides(profile: ClusterProfile, anchor: str, there: Sequence[str]) -> str:
    """Which other nodes take no pods, for the end of a line: a run may have nowhere to go because of them."""
    names = [name for name in _nodes(profile, anchor, *UNSCHEDULABLE) if name not in there]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f" (cordoned besides: {', '.join(names[:SHOWN])}{more})" if names else ""


def _cordon(profile: ClusterProfile, anchor: str, names: Sequence[str]) -> None:
    """Cordon and mark these, but those that somebody else has cordoned."""
    already = _nodes(profile, anchor, "-l", f"{labels.BOOTSTRAP_CORDON}!=true", *UNSCHEDULABLE)
    ours = [name for name in names if name not in already]
    if ours:
        _patch(profile, anchor, ours, closed=True)


def _patch(profile: ClusterProfile, anchor: str, names: Sequence[str], *, closed: bool) -> None:
    """Cordon and mark in one write: no crash comes between the two."""
    marks = {labels.BOOTSTRAP_CORDON: "true" if closed else None}
    change = {"metadata": {"labels": marks}, "spec": {"unschedulable": closed or None}}
    run_on(profile, anchor, (*KUBECTL, "patch", "nodes", *names, "--type=merge", "-p", json.dumps(change)))


def _nodes(profile: ClusterProfile, anchor: str, *chosen: str) -> list[str]:
    """Names of nodes that the cluster knows."""
    told = run_on(profile, anchor, (*KUBECTL, "get", "nodes", *chosen, "-o", "name"))
    return [word.removeprefix("node/") for word in told.split()]


def _runs_on(profile: ClusterProfile, anchor: str, nodes: Sequence[str]) -> list[str]:
    """Runs with a living pod on one of these nodes."""
    words = (*KUBECTL, "get", "pods", "--all-namespaces", "-l", labels.RUN, "-o", "json")
    told = run_on(profile, anchor, words)
    try:
        return sorted({_run_of(pod) for pod in json.loads(told)["items"] if _lives_on(pod, nodes)})
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"{anchor}: its list of pods cannot be read: {error}") from error


def _lives_on(pod: Json, nodes: Sequence[str]) -> bool:
    return pod["spec"].get("nodeName") in nodes and pod.get("status", {}).get("phase") not in ENDED


def _run_of(pod: Json) -> str:
    return str(pod["metadata"]["labels"][labels.RUN])
