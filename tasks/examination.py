"""Examining suspects: the gate program on nodes that may be to blame, while the attempt's remains are still there.

Nothing here can stop a recovery. An examination that is refused, fails, takes too long or says nothing readable is
`unknown`, and unknown blames nobody.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from profiles.errors import Fenced, Foreign, Permanent, PrimusError, Transient, Unavailable
from profiles.resolve import Resolved
from tasks.attempts import plan_of
from tasks.cluster import Cluster, Manifest, current
from tasks.facts import gate_reports
from tasks.nodes import keep_verdicts
from tasks.ownership import our_ledger
from tasks.workflow_nodes import nodes_of
from tasks.world import touch, world
from workflows import labels
from workflows.failover import EXAMINE, examination_workflow
from workflows.ownership import refuse_foreign
from workflows.records import AttemptRecord
from workflows.reports import GateReport

SLACK_SECONDS = 30.0
"""Beyond the workflow's own deadline: time for the engine to say that it has passed."""
LOOK_SECONDS = 2.0
"""Between two looks at whether another driver took over or a person asked for the end."""
ENDED = ("Succeeded", "Failed", "Error")


@dataclass(frozen=True)
class Look:
    """One examination, as the ledger determines it."""

    nodes: tuple[str, ...]
    number: int
    """Of the incident within its attempt, from 1."""
    since: float
    """Unix seconds: what the nodes' kernels said before is left out."""

    @property
    def names(self) -> str:
        """The nodes, for people."""
        return ", ".join(self.nodes)


@touch("examines {look.names}")
def examine(resolved: Resolved, attempt: AttemptRecord, look: Look) -> tuple[GateReport, ...]:
    """What the examination found, one report a node in their order; `unknown` where it found nothing out.

    The workflow is created, or adopted where an earlier life of this flow created it. Ended, it stays until the attempt
    is cleared away, so that a driver that is started again reads it instead of looking twice.

    Raises:
        Fenced: another driver has taken over.
    """
    here, cluster = world(), current()
    plan = plan_of(resolved, attempt, here.fencing, our_ledger())
    manifest: Manifest = examination_workflow(plan, look.nodes, look.number, look.since).to_dict()
    name = manifest["metadata"]["name"]
    try:
        ended = _ended(cluster, manifest, attempt.run)
    except Fenced:
        raise
    except Foreign as error:
        return unexamined(look.nodes, str(error))
    except PrimusError as error:
        with suppress(PrimusError):  # its pods end by their own deadline
            cluster.delete("Workflow", name, grace_seconds=0)
        return unexamined(look.nodes, f"the examination did not come to its end: {error}")
    reports = _reports(ended, look.nodes)
    keep_verdicts(resolved, tuple(report for report in reports if report.at), name)
    return reports


def unexamined(nodes: Iterable[str], why: str) -> tuple[GateReport, ...]:
    """Reports of nodes about which nothing was found out."""
    return tuple(
        GateReport(node, "unknown", [{"check": "examination", "verdict": "unknown", "evidence": why}]) for node in nodes
    )


def _ended(cluster: Cluster, manifest: Manifest, run: str) -> Manifest:
    """The examination's workflow after its end.

    Raises:
        PrimusError: it was refused, went away, or is not wanted any more.
        Unavailable: it did not end in time.
    """
    here = world()
    limit = manifest["spec"]["activeDeadlineSeconds"] + SLACK_SECONDS
    deadline = here.now() + limit
    created = False
    while here.now() < deadline:
        here.fencing  # noqa: B018 - raises Fenced when another driver took over meanwhile
        try:
            found = _submitted(cluster, manifest, created=created)
            created = True
            if _is_ended(found) or (found := _watched(cluster, manifest["metadata"]["name"], run)) is not None:
                return found
        except Transient as error:
            threading.Event().wait(error.retry_after_seconds)
        if _stop_asked(run):
            raise Permanent("a person asked for the end")
    raise Unavailable(f"no end within {limit:g} s")


def _submitted(cluster: Cluster, manifest: Manifest, *, created: bool) -> Manifest:
    found = cluster.get("Workflow", manifest["metadata"]["name"])
    if found is None and created:
        raise Permanent("somebody deleted it")
    refuse_foreign(found, our_ledger())
    return found or cluster.apply(manifest)


def _watched(cluster: Cluster, name: str, run: str) -> Manifest | None:
    for event in cluster.watch("Workflow", {labels.RUN: run}, timeout_seconds=LOOK_SECONDS):
        if event.object.get("metadata", {}).get("name") == name and _is_ended(event.object):
            return event.object
    return None


def _is_ended(workflow: Manifest) -> bool:
    return workflow.get("status", {}).get("phase") in ENDED


def _stop_asked(run: str) -> bool:
    try:
        return any(item.kind == "stop" for item in world().ledger.requests(run, open_only=True))
    except Unavailable:
        return False


def _reports(workflow: Manifest, nodes: tuple[str, ...]) -> tuple[GateReport, ...]:
    """One report a node. A pod that was lost was started again: what any of them found out counts."""
    said: dict[str, GateReport] = {}
    for report in gate_reports(nodes_of(workflow), EXAMINE):
        if report.node not in said or said[report.node].verdict == "unknown":
            said[report.node] = report
    why = workflow.get("status", {}).get("message") or "the examination says nothing about this node"
    missing = {report.node: report for report in unexamined(nodes, why)}
    return tuple(said.get(node) or missing[node] for node in nodes)
