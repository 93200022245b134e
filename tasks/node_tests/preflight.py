"""A preflight's life: its workflow begun, followed and read, its verdicts kept. Decides nothing about nodes.

A test is known by what it tests: its number is written down before anything is submitted and closed when its verdicts
stand in the ledger. After a kill in between, the next process finds it open, adopts its workflow, and reads what it had
measured.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from profiles.checks.catalogue import Depth, Launcher
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from tasks.cluster import Manifest, current
from tasks.context import world
from tasks.lease import is_taken, our_ledger, ours
from tasks.node_tests.volumes import Claims
from tasks.nodes.sweep import take_number
from tasks.observe.nodes import unready
from tasks.workflow_runs import follow_workflow, submit_workflow
from workflows.model.node_results import NodeResult
from workflows.model.nodes import told_by_node_object
from workflows.model.ownership import signed
from workflows.model.records import VerdictRecord
from workflows.model.workflow import workflow_pods
from workflows.node_tests.preflight import PREFLIGHT, PROBE, PreflightPlan, planned, preflight_workflow
from workflows.node_tests.volumes import claim_readings, volume_seconds
from workflows.programs.probes.run import unpack_answers

LOOK_SECONDS = 10.0
"""Between two looks at the nodes that have not reported yet: a large cluster lists many."""
AWAY_SECONDS = 30.0
"""A kubelet that starts anew is not ready for a moment."""


@dataclass(frozen=True)
class Opened:
    """A test that was begun."""

    key: str
    """What it tests, as one word."""
    plan: PreflightPlan

    @property
    def number(self) -> int:
        """Its number."""
        return int(self.plan.name.rpartition("-")[2])


@dataclass(frozen=True)
class Wanted:
    """What is tested, before it has a number."""

    cluster: ClusterProfile
    suite: SuiteProfile
    depth: Depth
    pools: Mapping[str, str]
    """Nodes in the order in which they are tested, with their pool."""
    launcher: Launcher = "kubernetes"
    turn: int = 1
    """2: what failed once is measured again."""

    @property
    def key(self) -> str:
        """The same for the same test, in any process."""
        asked = [self.suite.model_dump_json(), self.depth, self.launcher, self.turn, list(self.pools.items())]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def plan_of(wanted: Wanted, number: int, ledger: str = "") -> PreflightPlan:
    """The test as it is carried out, number `number` of this ledger."""
    return planned(wanted.cluster, wanted.suite, wanted.depth, wanted.pools, number, wanted.launcher, ledger)


def open_preflight(wanted: Wanted) -> Opened:
    """Begin the test, or go on with the one that was begun and never read to its end.

    Raises:
        Unavailable: ledger or cluster do not answer.
    """
    ledger, own, identity = world().ledger, _cursor(wanted.cluster.name, wanted.key), our_ledger()
    begun, read = ledger.cursor(own), ledger.cursor(f"{own}/read")
    if begun is not None and (read is None or read.position < begun.position):
        plan = plan_of(wanted, begun.position, identity)
        if not _is_taken(plan):
            return Opened(wanted.key, plan)
    while _is_taken(plan := plan_of(wanted, take_number(f"{PREFLIGHT}/{wanted.cluster.name}"), identity)):
        continue  # another ledger's, whose identity begins as ours
    opened = Opened(wanted.key, plan)
    ledger.move_cursor(own, opened.number, world().now())
    return opened


def close_preflight(opened: Opened) -> None:
    """Its verdicts stand: the number is closed and its workflow deleted.

    Raises:
        Unavailable: it is closed; a workflow that stays is deleted by its time to live.
    """
    cluster, plan = opened.plan.cluster.name, opened.plan
    world().ledger.move_cursor(f"{_cursor(cluster, opened.key)}/read", opened.number, world().now())
    if plan.launcher == "kubernetes" and ours("Workflow", plan.name) is not None:
        current().delete("Workflow", plan.name)


def _is_taken(plan: PreflightPlan) -> bool:
    return plan.launcher == "kubernetes" and is_taken("Workflow", plan.name)


def _cursor(cluster: str, key: str) -> str:
    return f"{PREFLIGHT}/{cluster}/{key}"


def run_preflight(plan: PreflightPlan, tell: Callable[[str, int], None]) -> list[NodeResult]:
    """Create the workflow, follow it to its end, and read what every node reported.

    `tell` gets the workflow's phase and how many nodes have told, after each change.

    Raises:
        Foreign: the workflow of that name is another ledger's.
        Unavailable, Refused.
        NotFound: somebody deleted the workflow meanwhile.
    """
    manifest: Manifest = preflight_workflow(plan).to_dict()
    submit_workflow(current(), signed(manifest, our_ledger()))
    last: Manifest = manifest
    claims = Claims(plan.name, world().now) if plan.volume_calls else None
    departed, gone = Departed(plan.cluster), dict[str, str]()
    for last in follow_workflow(current(), plan.name):
        if claims is not None:
            claims.look(last)
        status, told = last.get("status", {}), told_by(last, plan.nodes)
        tell(str(status.get("phase", "")), sum(bool(item.at) for item in told))
        if gone := departed.look([item.node for item in told if not item.at]):
            break
    told = [item if item.at else replace(item, why=gone.get(item.node, item.why)) for item in told_by(last, plan.nodes)]
    return with_volumes(plan, told, claims) if claims is not None else told


class Departed:
    """Whether all that is still waited for are nodes that cannot report: their pods can start nowhere else."""

    def __init__(self, cluster: ClusterProfile) -> None:
        self._cluster = cluster
        self._looked_at = self._since = 0.0

    def look(self, silent: Sequence[str]) -> dict[str, str]:
        """Why each silent node cannot report, where that holds for all of them since `AWAY_SECONDS`; else empty."""
        now = world().now()
        if not silent or now - self._looked_at < LOOK_SECONDS:
            return {}
        self._looked_at, away = now, unready(self._cluster, silent)
        if len(away) < len(silent):
            self._since = 0.0
            return {}
        self._since = self._since or now
        return away if now - self._since >= AWAY_SECONDS else {}


def with_volumes(plan: PreflightPlan, told: Sequence[NodeResult], claims: Claims) -> list[NodeResult]:
    """The observed volumes, beside what the pods reported; waits until the volumes that can go are gone."""
    claims.await_gone()
    volumes, of_class = plan.volume_calls, plan.cluster.admission.storage_class
    pool_of = {node: rack.pool for rack in plan.racks for node in rack.nodes}
    found: list[NodeResult] = []
    for item in told:
        calls = volumes.get(pool_of[item.node], ()) if item.at else ()
        limit = volume_seconds(calls)
        own = {one.number: (claim_readings(claims.sight(item.node, one.number), of_class, limit),) for one in calls}
        found.append(replace(item, answers={**item.answers, **own}))
    return found


def told_by(manifest: Manifest, nodes: Sequence[str]) -> list[NodeResult]:
    """What each of `nodes` reported, in their order; a pod that was lost was restarted, and its last answer counts."""
    said: dict[str, NodeResult] = {}
    for item in _told(manifest):
        if item.at or item.node not in said:
            said[item.node] = item
    return [said.get(node) or NodeResult(node, why="its pod was never started") for node in nodes]


def with_node_objects(plan: PreflightPlan, told: Sequence[NodeResult]) -> list[NodeResult]:
    """What the Node objects say, beside what the pods reported; a node that is gone says nothing.

    Raises:
        Unavailable, Refused.
    """
    numbers = {pool: plan.calls(pool).by_api for pool in plan.pools}
    if plan.launcher != "kubernetes" or not any(numbers.values()):
        return list(told)
    pool_of = {node: rack.pool for rack in plan.racks for node in rack.nodes}
    return [_with_object(plan, item, pool_of[item.node], numbers[pool_of[item.node]]) for item in told]


def _with_object(plan: PreflightPlan, told: NodeResult, pool: str, numbers: Sequence[int]) -> NodeResult:
    found = current().get("Node", told.node) if told.at and numbers else None
    if found is None:
        return told
    hardware = plan.hardware[pool]
    own = next(item for item in plan.cluster.pools if item.name == pool)
    nics = own.nic_resource_name or hardware.nic_resource_name
    said = told_by_node_object(found, hardware.resource_name, nics)
    return replace(told, answers={**told.answers, **{number: (said,) for number in numbers}})


def keep_verdicts(records: Sequence[VerdictRecord]) -> None:
    """Write verdicts down; keeping again adds nothing.

    Raises:
        Unavailable: what was written stands.
    """
    world().ledger.add_verdicts(records)


def _told(manifest: Manifest) -> Iterator[NodeResult]:
    for pod in workflow_pods(manifest, PROBE):
        name = pod.inputs.get("node", "")
        try:
            report: dict[str, Any] = json.loads(pod.outputs.get("report") or "{}")
            answers = unpack_answers(str(report["answers"]))
            yield NodeResult(name, float(report["at"]), float(report["seconds"]), answers)
        except (ValueError, KeyError, TypeError, AttributeError):
            yield NodeResult(name, why=pod.without_report)
