"""The view of an Argo Workflow, however its controller stored its nodes: from 1 MiB on it compresses them.

Absent means not known. Times are Unix seconds.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from workflows import labels
from workflows.model.manifest import Json, items, part, seconds
from workflows.wire import GateReport, ResumeChoice, from_json

DONE = ("Succeeded", "Skipped", "Omitted")
_TRY = re.compile(r"\(\d+\)$")
"""End of the name of one try of a step: `apply(3)`."""


@dataclass(frozen=True)
class WorkflowStep:
    """One node of a workflow's status."""

    name: str
    kind: str
    """Argo's type: `Pod`, `Suspend`, `DAG`, …"""
    phase: str
    message: str = ""
    template: str = ""
    host: str = ""
    """The node that its pod was placed on."""
    started_at: float | None = None
    finished_at: float | None = None
    inputs: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)
    """Values of its parameters."""
    outputs: Mapping[str, str] = field(default_factory=dict[str, str], hash=False)

    @property
    def without_report(self) -> str:
        """What is said of a pod that left none."""
        return f"its pod {self.phase.lower()}: {self.message or 'it left no report'}"


@dataclass(frozen=True)
class Workflow:
    """A Workflow, with what the steps of an attempt report; the default: one that does not exist."""

    name: str = ""
    phase: str = ""
    """`Pending`, `Running`, `Succeeded`, `Failed`, `Error`; "" while no controller has looked at it."""
    message: str = ""
    suspended: bool = False
    created_at: float | None = None
    steps: tuple[WorkflowStep, ...] = ()
    """Those that are not done well, and no later try of them was either."""
    gate: tuple[GateReport, ...] = ()
    choice: ResumeChoice | None = None
    run: str = ""

    @property
    def failed_steps(self) -> tuple[tuple[str, str], ...]:
        """(display name, message) of steps that did not succeed; of tries of one step with the same words one."""
        told: dict[tuple[str | int, str], str] = {}
        for at, step in enumerate(self.steps):
            if step.kind == "Pod" and step.phase in ("Failed", "Error"):
                whole = _TRY.sub("", step.name)
                told.setdefault((whole if whole != step.name else at, step.message), step.name)
        return tuple((name, message) for (_, message), name in told.items())


def workflow_of(workflow: Json) -> Workflow:
    """A Workflow."""
    metadata, status, nodes = part(workflow, "metadata"), part(workflow, "status"), _nodes_of(workflow)
    steps, overcome = {name: _step(part(nodes, name)) for name in nodes if part(nodes, name)}, _overcome(nodes)
    return Workflow(
        name=metadata.get("name", ""),
        phase=status.get("phase") or "",
        message=status.get("message") or "",
        suspended=bool(part(workflow, "spec").get("suspend")),
        created_at=seconds(metadata.get("creationTimestamp")),
        steps=tuple(step for name, step in steps.items() if step.phase not in DONE and name not in overcome),
        gate=tuple(gate_reports(step for step in steps.values() if step.kind == "Pod" and step.template == "gate")),
        choice=_choice([*steps.values()]),
        run=part(metadata, "labels").get(labels.RUN, ""),
    )


def steps_of(workflow: Json) -> list[WorkflowStep]:
    """The nodes that can be read, in the order of the status; none before there is one."""
    nodes = _nodes_of(workflow)
    return [_step(part(nodes, name)) for name in nodes if part(nodes, name)]


def _nodes_of(workflow: Json) -> Json:
    return part(unpacked(workflow), "status", "nodes")


def _overcome(nodes: Json) -> set[str]:
    """Ids of tries that failed before another one of the same step succeeded: they are nobody's failure."""
    retried = [part(nodes, name) for name in nodes if part(nodes, name).get("type") == "Retry"]
    return {str(one) for node in retried if node.get("phase") in DONE for one in node.get("children") or ()}


def workflow_pods(workflow: Json, template: str = "") -> list[WorkflowStep]:
    """The pods among them whose template's name begins so."""
    return [step for step in steps_of(workflow) if step.kind == "Pod" and step.template.startswith(template)]


def _step(node: Json) -> WorkflowStep:
    return WorkflowStep(
        name=node.get("displayName") or node.get("name", ""),
        kind=node.get("type", ""),
        phase=node.get("phase") or "Pending",
        message=node.get("message") or "",
        template=node.get("templateName") or "",
        host=node.get("hostNodeName") or "",
        started_at=seconds(node.get("startedAt")),
        finished_at=seconds(node.get("finishedAt")),
        inputs=_parameters(node, "inputs"),
        outputs=_parameters(node, "outputs"),
    )


def _parameters(node: Json, side: str) -> dict[str, str]:
    listed = items(node, side, "parameters")
    return {str(item.get("name", "")): str(item["value"]) for item in listed if "value" in item}


def unpacked(manifest: Json) -> dict[str, Any]:
    """The object with `status.nodes` in it, also where the controller stored them compressed.

    Nodes that were offloaded to a database, or compressed by something newer than gzip, stay away.
    """
    status = dict(part(manifest, "status"))
    packed = status.get("compressedNodes")
    if packed and not status.get("nodes"):
        try:
            status["nodes"] = json.loads(gzip.decompress(base64.b64decode(packed)))
        except (OSError, ValueError, EOFError, binascii.Error):
            return dict(manifest)
        del status["compressedNodes"]
    return {**manifest, "status": status}


def gate_reports(pods: Iterable[WorkflowStep]) -> list[GateReport]:
    """The reports of these pods; one that was meant for a node and said nothing readable is unknown."""
    found: list[GateReport] = []
    for pod in pods:
        target = pod.inputs.get("node") or pod.host
        try:
            report = from_json(GateReport, pod.outputs.get("report", ""))
            found.append(report if report.node else replace(report, node=target))  # a default names no node
        except ValueError:
            evidence = f"its pod left no report: {pod.message or pod.phase}"
            check = {"check": "answers", "verdict": "unknown", "evidence": evidence}
            found.append(GateReport(node=target, verdict="unknown", checks=[check]))
    return found


def reports_by_node(pods: Iterable[WorkflowStep]) -> dict[str, GateReport]:
    """One report a node. A pod that was lost was started again: what any of them found out counts."""
    reports: dict[str, GateReport] = {}
    for report in gate_reports(pods):
        if report.node not in reports or reports[report.node].verdict == "unknown":
            reports[report.node] = report
    return reports


def _choice(steps: Iterable[WorkflowStep]) -> ResumeChoice | None:
    for text in (step.outputs.get("choice") for step in steps):
        if text:
            with suppress(ValueError):
                return from_json(ResumeChoice, text)
    return None
