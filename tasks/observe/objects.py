"""From the cluster's objects to facts: pure readings of JSON, tolerant of everything that may be missing.

The nodes of a Workflow's status, however its controller stored them: from 1 MiB on Argo compresses them.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from tasks.cluster import Manifest
from tasks.embedded.engine.json_values import as_map
from tasks.observe.gang_status import gang_news
from workflows import labels
from workflows.model.attempt import NEVER_STARTED, CoordinatorFacts, NodeFacts, PodFacts, WorkflowFacts
from workflows.model.fleet import NodeCandidate
from workflows.model.gang_status import PROGRAM_MARKS
from workflows.model.records import MarkRecord
from workflows.status import CoordinatorStatus
from workflows.wire import GateReport, ResumeChoice, Termination, from_json


def unpacked(manifest: Manifest) -> Manifest:
    """The object with `status.nodes` in it, also where the controller stored them compressed.

    Nodes that were offloaded to a database, or compressed by something newer than gzip, stay away.
    """
    status = dict(as_map(manifest.get("status")))
    packed = status.get("compressedNodes")
    if packed and not status.get("nodes"):
        try:
            status["nodes"] = json.loads(gzip.decompress(base64.b64decode(packed)))
        except (OSError, ValueError, EOFError, binascii.Error):
            return manifest
        del status["compressedNodes"]
    return {**manifest, "status": status}


def nodes_of(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The nodes that can be read, in the order of the status; none before there is one."""
    return list(as_map(as_map(unpacked(dict(manifest))["status"]).get("nodes")).values())


def parameter_of(part: object, name: str) -> str:
    """The value of a parameter in the `inputs` or `outputs` of a node; "" where it has none of that name."""
    listed: list[Any] = as_map(part).get("parameters") or []
    return next((str(item.get("value", "")) for item in listed if item.get("name") == name), "")


Json = Mapping[str, Any]
Names = Mapping[str, str]
LIVE = ("Pending", "Running")  # phases of pods that hold their node


def seconds(timestamp: str | None) -> float | None:
    """Unix seconds of an RFC 3339 time, None where it is absent or unreadable."""
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def pod_facts(pod: Json, processes_per_node: int, deciding_role: str) -> PodFacts:
    """What a Pod object says. The first container that went wrong speaks for the pod."""
    metadata, status = pod.get("metadata", {}), pod.get("status", {})
    marks: Json = metadata.get("labels", {})
    role = marks.get(labels.ROLE, "")
    index = int(marks.get("batch.kubernetes.io/job-completion-index", "0") or 0)
    state = _container_state(status)
    waiting, ended = state.get("waiting", {}), state.get("terminated", {})
    conditions = {item["type"]: item for item in status.get("conditions", [])}
    unplaced = conditions.get("PodScheduled", {})
    code = ended.get("exitCode")
    first = index * processes_per_node
    return PodFacts(
        name=metadata.get("name", ""),
        role=role,
        index=index,
        node=pod.get("spec", {}).get("nodeName", "") or "",
        phase=status.get("phase", "Pending"),
        reason=status.get("reason") or ended.get("reason") or waiting.get("reason") or "",
        message=status.get("message") or waiting.get("message") or _runtime_said(ended),
        exit_code=code,
        signal=ended.get("signal") or (code - 128 if isinstance(code, int) and code > 128 else None),
        finished_at=seconds(ended.get("finishedAt")),
        ranks=tuple(range(first, first + processes_per_node)) if role == deciding_role else (),
        disrupted=conditions.get("DisruptionTarget", {}).get("status") == "True",
        unschedulable=unplaced.get("message", "") if unplaced.get("status") == "False" else "",
        deleted="deletionTimestamp" in metadata,
    )


def _runtime_said(ended: Json) -> str:
    """Why a container never started. A message of one that did is the launcher's own: see `termination`."""
    return str(ended.get("message") or "") if ended.get("reason") in NEVER_STARTED else ""


def _container_state(status: Json) -> Json:
    statuses = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
    states: list[Json] = [item.get("state", {}) for item in statuses]
    for state in states:
        if state.get("terminated", {}).get("exitCode", 0) != 0 or state.get("waiting", {}).get("reason"):
            return state
    return states[-1] if states else {}


def termination(pod: Json) -> Termination | None:
    """The launcher's summary from the container's termination message; None where there is none or it is unreadable."""
    for item in pod.get("status", {}).get("containerStatuses", []):
        for state in (item.get("state", {}), item.get("lastState", {})):
            message = state.get("terminated", {}).get("message")
            if message:
                try:
                    return from_json(Termination, message)
                except ValueError:
                    continue
    return None


def node_facts(node: Json) -> NodeFacts:
    """What a Node object says. A Ready condition that is neither True nor False is None: the cluster does not know."""
    conditions = {item["type"]: item for item in node.get("status", {}).get("conditions", [])}
    ready, spec = conditions.get("Ready", {}), node.get("spec", {})
    return NodeFacts(
        name=node.get("metadata", {}).get("name", ""),
        ready={"True": True, "False": False}.get(ready.get("status", "Unknown")),
        reason=ready.get("reason", ""),
        unschedulable=bool(spec.get("unschedulable", False)),
        taints=tuple(
            f"{item.get('key', '')}={item.get('value', '')}:{item.get('effect', '')}" for item in spec.get("taints", [])
        ),
    )


def jobset_state(jobset: Json) -> str:
    """`Completed`, `Failed` or `Running`."""
    status = jobset.get("status", {})
    if status.get("terminalState") in ("Completed", "Failed"):
        return str(status["terminalState"])
    for item in status.get("conditions", []):
        if item.get("type") in ("Completed", "Failed") and item.get("status") == "True":
            return str(item["type"])
    return "Running"


def workflow_facts(workflow: Json) -> WorkflowFacts:
    """What a Workflow object says, with the reports its steps put out."""
    status = workflow.get("status", {})
    nodes = nodes_of(workflow)
    return WorkflowFacts(
        phase=status.get("phase", "Pending"),
        message=status.get("message", ""),
        gate=tuple(gate_reports(nodes)),
        choice=_choice(nodes),
        failed_steps=tuple(
            (node.get("displayName", ""), node.get("message", ""))
            for node in nodes
            if node.get("phase") in ("Failed", "Error") and node.get("type") == "Pod"
        ),
    )


def outputs(node: Json) -> dict[str, str]:
    """Output parameters of a workflow's node by name."""
    parameters: list[Json] = node.get("outputs", {}).get("parameters") or []
    return {item["name"]: item.get("value", "") for item in parameters if "value" in item}


def gate_reports(nodes: Iterable[Json], template: str = "gate") -> list[GateReport]:
    """The reports of pods of `template`; one that was meant for a node and said nothing readable is unknown."""
    found: list[GateReport] = []
    for node in nodes:
        text = outputs(node).get("report")
        if node.get("type") != "Pod" or node.get("templateName") != template:
            continue
        target = _input(node, "node") or node.get("hostNodeName", "")
        try:
            report = from_json(GateReport, text or "")
            found.append(report if report.node else replace(report, node=target))  # a default names no node
        except ValueError:
            said = node.get("message", "") or node.get("phase", "")
            check = {"check": "answers", "verdict": "unknown", "evidence": f"its pod left no report: {said}"}
            found.append(GateReport(node=target, verdict="unknown", checks=[check]))
    return found


def _input(node: Json, name: str) -> str:
    parameters: list[Json] = node.get("inputs", {}).get("parameters") or []
    for item in parameters:
        if item.get("name") == name:
            return str(item.get("value", ""))
    return ""


def _choice(nodes: Iterable[Json]) -> ResumeChoice | None:
    for node in nodes:
        text = outputs(node).get("choice")
        if text:
            try:
                return from_json(ResumeChoice, text)
            except ValueError:
                continue
    return None


def coordinator_facts(status: CoordinatorStatus, now: float) -> CoordinatorFacts:
    """What a flow takes from the coordinator's `/status`."""
    first = status.first_step
    return CoordinatorFacts(
        at=now,
        told_at=status.now,
        incarnation=status.incarnation,
        step=status.step,
        loss=None if status.loss is None else float(status.loss),
        first_step=None if first is None else first.step,
        first_step_at=None if first is None else first.at,
        first_nan_step=status.first_nan_step,
        last_checkpoint_step=status.last_checkpoint_step,
        steps_per_second=status.steps_per_second,
        phase=status.phase,
        heard=tuple((item.pod, item.node, item.last_heard_at or 0.0) for item in status.members),
        ranks=tuple((item.pod, tuple(item.ranks)) for item in status.members),
        launched_at=status.launched_at,
        failed_ranks=tuple(sorted(end.rank for end in status.ended if not end.requested and end.exit_code != 0)),
        news=gang_news(status),
    )


def moments(run: str, attempt: int, told: object) -> list[MarkRecord]:
    """When the ranks loaded and saved checkpoints, from `[[kind, at, detail], ...]` as programs tell it.

    What is unreadable or of another kind is left out: only the driver says what became of an attempt.
    """
    found: list[MarkRecord] = []
    for item in cast("list[Any]", told) if isinstance(told, list) else []:
        try:
            kind, at, detail = item
            if kind in PROGRAM_MARKS and math.isfinite(float(at)):
                found.append(MarkRecord(run, attempt, str(kind), float(at), str(detail)))
        except (ValueError, TypeError):
            continue
    return found


def is_ours(manifest: Manifest, run: str) -> bool:
    """The run label, not the name, decides what is ours."""
    return manifest.get("metadata", {}).get("labels", {}).get(labels.RUN) == run


def users_of(pods: Iterable[Json], run: str, attempt: int) -> dict[str, str]:
    """Nodes on which training pods of other runs or attempts live, with the name of that run."""
    found: dict[str, str] = {}
    for pod in pods:
        marks: Json = pod["metadata"].get("labels", {})
        owner = marks.get(labels.RUN, "")
        ours = owner == run and marks.get(labels.ATTEMPT) == str(attempt)
        training = marks.get(labels.ROLE, "") not in ("", labels.COORDINATOR_ROLE)
        node = pod.get("spec", {}).get("nodeName")
        if node and training and not ours and pod.get("status", {}).get("phase") in LIVE:
            found[node] = owner
    return found


def pool_selector(resolved: Resolved) -> Mapping[str, str]:
    """Labels of the nodes of the run's pool."""
    return resolved.pool.labels if resolved.cluster.engine == "kubernetes" else {labels.POOL: resolved.pool.name}


def node_candidate(node: Json, resolved: Resolved, busy: Names, out: Names, run: str = "") -> NodeCandidate:
    """A Node object as decisions see it, with who uses which (`busy`) and why we took which out (`out`).

    Taints that the run's pool names are tolerated; holds for tests of nodes for this `run` keep it from nothing.
    """
    facts = node_facts(node)
    marks: Json = node["metadata"].get("labels", {})
    keeps_away = tuple(
        taint
        for taint in facts.taints
        if taint not in resolved.pool.taints
        and not taint.endswith(":PreferNoSchedule")
        and not taint.startswith((labels.QUARANTINE_TAINT, "node.kubernetes.io/"))
        and taint != f"{labels.HOLD_TAINT}={labels.hold_owner(run)}:NoSchedule"
    )
    tainted = any(taint.startswith(labels.QUARANTINE_TAINT) for taint in facts.taints)
    word = marks.get(labels.VERDICT, "")
    return NodeCandidate(
        name=facts.name,
        pool=resolved.pool.name,
        ready=facts.ready,
        cordoned=facts.unschedulable,
        quarantined=out.get(facts.name, "tainted by us" if tainted else ""),
        taints=keeps_away,
        verdict=VerdictWord(word) if word in tuple(VerdictWord) else VerdictWord.UNKNOWN,
        busy=busy.get(facts.name, ""),
        spare=marks.get(labels.SPARE) == "true",
        rack=marks.get(labels.RACK, ""),
        block=marks.get(labels.BLOCK, ""),
    )
