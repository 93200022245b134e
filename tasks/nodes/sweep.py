"""A sweep's life: its workflow begun, its reports read and kept, its workflow deleted. Decides nothing about nodes.

A workflow that exists was not read yet: the process that finds it ended reads it, keeps its reports, and deletes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profiles.cluster import ClusterProfile
from profiles.loading.load import load_hardware
from profiles.vocabulary import VerdictWord
from tasks.cluster import Manifest, current
from tasks.context import world
from tasks.lease import our_ledger
from workflows import labels
from workflows.model.manifest import items, part, seconds
from workflows.model.nodes import Node
from workflows.model.ownership import is_foreign, refuse_foreign, signed
from workflows.model.records import VerdictRecord
from workflows.model.workflow import reports_by_node, workflow_pods
from workflows.node_tests.pods import racks_by_pool
from workflows.node_tests.sweep import LOOK, SWEEP, SweepPlan, sweep_workflow
from workflows.wire import GateReport

ENDED = ("Succeeded", "Failed", "Error")
SLACK_SECONDS = 120.0
"""Beyond the workflow's own deadline: time for the engine to say that it has passed."""
DAY_SECONDS = 86400.0
"""A node that passes is written down once a day; what changes, at once."""


@dataclass(frozen=True)
class SweepSeen:
    """One sweep in the cluster."""

    name: str
    ended: bool
    late: bool
    """It should have ended long ago."""
    reports: tuple[GateReport, ...] = ()
    """Of those pods that said something, each node once."""
    nodes: tuple[str, ...] = ()
    """All that it is about."""
    message: str = ""


def begin_sweep(profile: ClusterProfile, nodes: Sequence[Node], number: int, since: float) -> str:
    """Create the workflow, or adopt the one of this number; its name.

    Raises:
        Foreign: the one of this number is another ledger's; the next number may be free.
        Unavailable, Refused.
    """
    plan = plan_of(profile, {node.name: node.pool for node in nodes}, number, world().now(), since, our_ledger())
    manifest: Manifest = sweep_workflow(plan).to_dict()
    name = str(manifest["metadata"]["name"])
    found = current().get("Workflow", name)
    refuse_foreign(found, our_ledger())
    if found is None:
        current().apply(signed(manifest, our_ledger()))
    return name


def plan_of(
    profile: ClusterProfile, pools: Mapping[str, str], number: int, asked_at: float, since: float, ledger: str = ""
) -> SweepPlan:
    """The sweep of these nodes (name -> pool), in their order."""
    hardware = {pool.name: load_hardware(pool.hardware) for pool in profile.pools}
    racks = racks_by_pool(profile, pools)
    return SweepPlan(profile, hardware, number, racks, round(asked_at, 3), round(since, 3), ledger)


def sweeps() -> list[SweepSeen]:
    """Every sweep of ours that was not read to its end.

    Raises:
        Unavailable, Refused.
    """
    found = current().list("Workflow", {labels.PIPELINE: SWEEP})
    return [_seen(item) for item in found if not is_foreign(item, our_ledger())]


def forget_sweep(name: str) -> None:
    """It was read: delete it."""
    current().delete("Workflow", name)


def keep_reports(cluster: str, reports: Sequence[GateReport], source: str) -> None:
    """Verdicts of depth `sweep`, and when each node was looked at.

    Raises:
        Unavailable: what was written stands; keeping again adds nothing.
    """
    ledger, now = world().ledger, world().now()
    before = ledger.last_verdicts(cluster, SWEEP, [report.node for report in reports])
    for report in reports:
        at = report.at or now
        word, last_at = before.get(report.node, ("", 0.0))
        if report.verdict != word or report.verdict != VerdictWord.PASS or at - last_at >= DAY_SECONDS:
            verdict, reasons = VerdictWord(report.verdict), tuple(report.checks)
            ledger.add_verdict(VerdictRecord(cluster, report.node, verdict, SWEEP, at, reasons, source))
        if report.at:
            ledger.move_cursor(f"{cursor_of(cluster)}/{report.node}", int(at), at)


def cursor_of(cluster: str) -> str:
    """Name of the cursor that counts a cluster's sweeps; those of its nodes follow after a slash."""
    return f"{SWEEP}/{cluster}"


def last_looks(cluster: str) -> dict[str, float]:
    """When each node was looked at, Unix seconds."""
    return {node: item.at for node, item in world().ledger.cursors(f"{cursor_of(cluster)}/").items()}


def looked_at(cluster: str, nodes: Sequence[str], since: float) -> dict[str, str]:
    """The word of each node's newest verdict, of those that were looked at since then."""
    looks, words = last_looks(cluster), world().ledger.last_verdicts(cluster, SWEEP, nodes)
    return {node: words[node][0] for node in nodes if node in words and looks.get(node, 0.0) >= since - 1.0}


def count_sweep(cluster: str) -> int:
    """The number of the next sweep, from now on taken."""
    return take_number(cursor_of(cluster))


def take_number(name: str) -> int:
    """The next number of a cursor, from now on taken.

    Raises:
        Unavailable: the ledger does not answer.
    """
    ledger = world().ledger
    found = ledger.cursor(name)
    number = 1 if found is None else found.position + 1
    ledger.move_cursor(name, number, world().now())
    return number


def begun_at(cluster: str) -> float | None:
    """When the last sweep was begun; None: never."""
    found = world().ledger.cursor(cursor_of(cluster))
    return None if found is None else found.at


def _seen(manifest: Manifest) -> SweepSeen:
    spec, status, metadata = part(manifest, "spec"), part(manifest, "status"), part(manifest, "metadata")
    created = seconds(metadata.get("creationTimestamp")) or world().now()
    limit = float(spec.get("activeDeadlineSeconds") or 0) + SLACK_SECONDS
    return SweepSeen(
        name=str(metadata.get("name", "")),
        ended=str(status.get("phase", "")) in ENDED,
        late=world().now() - created > limit,
        reports=tuple(reports_by_node(sorted(workflow_pods(manifest, LOOK), key=lambda pod: pod.template)).values()),
        nodes=tuple(_nodes(manifest)),
        message=str(status.get("message") or ""),
    )


def _nodes(manifest: Manifest) -> Iterator[str]:
    for template in items(manifest, "spec", "templates"):
        groups: list[list[dict[str, Any]]] = template.get("steps") or []
        for step in (step for group in groups for step in group):
            yield from (str(node) for node in step.get("withItems") or ())
