"""The view of an Argo Workflow, however its controller stored its nodes: from 1 MiB on it compresses them.

Absent means not known. Times are Unix seconds.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from workflows import labels
from workflows.model.manifest import Json, items, part, seconds
from workflows.wire import GateReport, ResumeChoice, from_json

DONE = ("Succeeded", "Skipped", "Omitted")


@dataclass(frozen=True)
class WorkflowStep:
    """One node of a workflow that is not done well."""

    name: str
    kind: str
    """Argo's type: `Pod`, `Suspend`, `DAG`, …"""
    phase: str
    message: str = ""


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
    """Those that are not done well."""
    gate: tuple[GateReport, ...] = ()
    choice: ResumeChoice | None = None
    run: str = ""

    @property
    def failed_steps(self) -> tuple[tuple[str, str], ...]:
        """(display name, message) of steps that did not succeed."""
        ended = (step for step in self.steps if step.kind == "Pod" and step.phase in ("Failed", "Error"))
        return tuple((step.name, step.message) for step in ended)


def workflow_of(workflow: Json) -> Workflow:
    """A Workflow."""
    metadata, status, nodes = part(workflow, "metadata"), part(workflow, "status"), nodes_of(workflow)
    return Workflow(
        name=metadata.get("name", ""),
        phase=status.get("phase") or "",
        message=status.get("message") or "",
        suspended=bool(part(workflow, "spec").get("suspend")),
        created_at=seconds(metadata.get("creationTimestamp")),
        steps=tuple(_step(node) for node in nodes if node.get("phase") not in DONE),
        gate=tuple(gate_reports(nodes)),
        choice=_choice(nodes),
        run=part(metadata, "labels").get(labels.RUN, ""),
    )


def _step(node: Json) -> WorkflowStep:
    return WorkflowStep(
        name=node.get("displayName") or node.get("name", ""),
        kind=node.get("type", ""),
        phase=node.get("phase") or "Pending",
        message=node.get("message") or "",
    )


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


def nodes_of(workflow: Json) -> list[dict[str, Any]]:
    """The nodes that can be read, in the order of the status; none before there is one."""
    return list(part(unpacked(workflow), "status", "nodes").values())


def parameter_of(node: Json, side: Literal["inputs", "outputs"], name: str) -> str:
    """The value of a parameter of a node; "" where it has none of that name."""
    return next(
        (str(item.get("value", "")) for item in items(node, side, "parameters") if item.get("name") == name), ""
    )


def gate_reports(nodes: Iterable[Json], template: str = "gate") -> list[GateReport]:
    """The reports of pods of `template`; one that was meant for a node and said nothing readable is unknown."""
    found: list[GateReport] = []
    for node in nodes:
        if node.get("type") != "Pod" or node.get("templateName") != template:
            continue
        target = parameter_of(node, "inputs", "node") or node.get("hostNodeName", "")
        try:
            report = from_json(GateReport, parameter_of(node, "outputs", "report"))
            found.append(report if report.node else replace(report, node=target))  # a default names no node
        except ValueError:
            said = node.get("message", "") or node.get("phase", "")
            check = {"check": "answers", "verdict": "unknown", "evidence": f"its pod left no report: {said}"}
            found.append(GateReport(node=target, verdict="unknown", checks=[check]))
    return found


def _choice(nodes: Iterable[Json]) -> ResumeChoice | None:
    for node in nodes:
        if text := parameter_of(node, "outputs", "choice"):
            try:
                return from_json(ResumeChoice, text)
            except ValueError:
                continue
    return None
