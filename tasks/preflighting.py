"""A preflight's life: its workflow begun, followed and read, its verdicts kept. Decides nothing about nodes.

A test whose flow is killed is begun anew under the next number: what it had measured is lost, its workflow is deleted
an hour after its end, and nothing of it holds a node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from profiles.cluster import ClusterProfile
from profiles.load import load_hardware
from profiles.suite import SuiteProfile
from profiles.suite_words import Depth
from tasks.cluster import Manifest, current
from tasks.embedded.engine.json_values import as_map
from tasks.sights import items
from tasks.sweeping import take_number
from tasks.workflow_nodes import nodes_of
from tasks.workflow_runs import follow_workflow, submit_workflow
from tasks.world import world
from workflows import labels
from workflows.node_pods import racks_by_pool
from workflows.preflight import PREFLIGHT, PROBE, PreflightPlan, preflight_workflow
from workflows.programs.probe import unpacked
from workflows.programs.readings import Parsed
from workflows.records import VerdictRecord


@dataclass(frozen=True)
class Told:
    """What one node's pod told."""

    node: str
    at: float = 0.0
    """Unix seconds by the node's clock; 0: it told nothing."""
    seconds: float = 0.0
    answers: Mapping[int, Sequence[Parsed]] = field(default_factory=dict[int, Sequence[Parsed]])
    """Number of a call -> what each attempt told."""
    why: str = ""
    """Why there is no answer."""


def plan_of(
    profile: ClusterProfile, suite: SuiteProfile, depth: Depth, pools: Mapping[str, str], number: int
) -> PreflightPlan:
    """The test of these nodes (name -> pool), in their order."""
    return PreflightPlan(
        cluster=profile,
        hardware={pool.name: load_hardware(pool.hardware) for pool in profile.pools},
        suite=suite,
        depth=depth,
        name=labels.preflight_name(profile.name, number),
        racks=racks_by_pool(profile, pools),
    )


def count_preflight(cluster: str) -> int:
    """The number of the next test, from now on taken.

    Raises:
        Unavailable: the ledger does not answer.
    """
    return take_number(f"{PREFLIGHT}/{cluster}")


def run_preflight(plan: PreflightPlan, tell: Callable[[str, int], None]) -> list[Told]:
    """Create the workflow, follow it to its end, and read what every node told.

    Args:
        plan: what is tested.
        tell: gets the workflow's phase and how many nodes have told, after each change.

    Raises:
        Unavailable, Refused.
        NotFound: somebody deleted the workflow meanwhile.
    """
    manifest: Manifest = preflight_workflow(plan).to_dict()
    submit_workflow(current(), manifest)
    last: Manifest = manifest
    for last in follow_workflow(current(), plan.name):
        status = last.get("status", {})
        tell(str(status.get("phase", "")), sum(bool(item.at) for item in told_by(last, plan.nodes)))
    return told_by(last, plan.nodes)


def told_by(manifest: Manifest, nodes: Sequence[str]) -> list[Told]:
    """What each of `nodes` told, in their order; a pod that was lost was started again, and the last answer counts."""
    said: dict[str, Told] = {}
    for item in _told(manifest):
        if item.at or item.node not in said:
            said[item.node] = item
    return [said.get(node) or Told(node, why="its pod was never started") for node in nodes]


def keep_verdicts(records: Sequence[VerdictRecord]) -> None:
    """Write verdicts down; keeping again adds nothing.

    Raises:
        Unavailable: what was written stands.
    """
    for record in records:
        world().ledger.add_verdict(record)


def forget_preflight(name: str) -> None:
    """It was read: delete it."""
    current().delete("Workflow", name)


def _told(manifest: Manifest) -> Iterator[Told]:
    for node in nodes_of(manifest):
        if node.get("type") != "Pod" or not str(node.get("templateName", "")).startswith(PROBE):
            continue
        name = _parameter(node.get("inputs"), "node")
        text = _parameter(node.get("outputs"), "report") or "{}"
        ended = f"its pod {str(node.get('phase', '')).lower()}: {node.get('message') or 'it left no report'}"
        try:
            report: dict[str, Any] = json.loads(text)
            answers = unpacked(str(report["answers"]))
            yield Told(name, float(report["at"]), float(report["seconds"]), answers)
        except (ValueError, KeyError, TypeError, AttributeError):
            yield Told(name, why=ended)


def _parameter(part: Any, name: str) -> str:
    listed = items(as_map(part), "parameters")
    return next((str(item.get("value", "")) for item in listed if item.get("name") == name), "")
