"""Argo Workflows, interpreted: `validate_workflow` before anything starts, `advance` from facts to the next step.

Pure: no clock, no files, no random numbers. All state of the engine is the workflow's own `.status` in Argo's shape, so
the keeper may be killed at any moment: the same status and facts give the same step again.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping

from tasks.embedded.engine.argo.hooks import exit_hook_done, hooks_done
from tasks.embedded.engine.argo.names import NodeFailure, exit_node_name, pod_name
from tasks.embedded.engine.argo.outputs import argument_artifacts
from tasks.embedded.engine.argo.plan import plan_of
from tasks.embedded.engine.argo.reconcile import (
    end_late,
    end_rest,
    end_unfinished,
    pods_to_end,
    reconcile,
    reconcile_born,
    survey,
)
from tasks.embedded.engine.argo.scope import Values
from tasks.embedded.engine.argo.state import DONE, FAILED, Computation, Place, PodFacts, ResourceFacts, Step
from tasks.embedded.engine.argo.validate import validate_workflow
from tasks.embedded.engine.argo.walk import Walker
from tasks.embedded.engine.json_values import Json, as_map, maps, moment, stamp, text_of, whole_seconds

__all__ = ["PodFacts", "ResourceFacts", "Step", "advance", "validate_workflow"]

_PHASES = {
    "Succeeded": "Succeeded",
    "Skipped": "Succeeded",
    "Omitted": "Succeeded",
    "Failed": "Failed",
    "Error": "Error",
}
"""From the root node's phase to the workflow's."""
_FINISHED = frozenset(("Succeeded", "Failed", "Error"))


def advance(workflow: Json, pods: Mapping[str, PodFacts], resources: Mapping[str, ResourceFacts], now: float) -> Step:
    """The next step of a workflow.

    Args:
        workflow: the whole object; `metadata`, `spec` (one that `validate_workflow` accepts) and `status` are read.
        pods: what is known about its pods, by pod name.
        resources: what became of manifests to apply, by node id.
        now: seconds since 1970.
    """
    status = as_map(workflow.get("status"))
    plan = plan_of(workflow)
    run = Computation(plan, status, pods, resources, now)
    if status.get("phase") in _FINISHED:
        return Step(status=status, delete_pods=pods_to_end(run))
    _prepare(run, workflow, status)
    unfinished = survey(run)
    reconcile(run, unfinished)
    end_unfinished(run, unfinished)
    late = end_late(run, unfinished)
    ended: tuple[str, str] | None = None
    if not as_map(workflow.get("spec")).get("suspend"):
        ended = _walk_until_settled(run)
    if ended:
        end_rest(run)
    elif run.deadline is not None and not run.overdue:
        run.wake(run.deadline)
    return Step(
        status=_status(run, status, ended),
        create_pods=tuple(run.create.values()),
        apply_resources=tuple(run.apply.values()),
        delete_pods=pods_to_end(run) if ended or late or run.shutdown or run.overdue else (),
        wake_at=None if ended else run.wake_at,
    )


def _prepare(run: Computation, workflow: Json, status: Json) -> None:
    started = moment(status.get("startedAt") or run.stamp)
    if run.plan.deadline_seconds is not None:
        run.deadline = started + run.plan.deadline_seconds
    run.shutdown = str(as_map(workflow.get("spec")).get("shutdown") or "")
    run.globals.update(run.plan.constants)
    run.globals["workflow.status"] = "Running"
    run.globals["workflow.duration"] = f"{run.now - math.floor(started):.6f}"
    for parameter in maps(as_map(status.get("outputs")).get("parameters")):
        value = text_of(parameter["value"])
        run.outputs[parameter["name"]] = run.globals[f"workflow.outputs.parameters.{parameter['name']}"] = value
    for artifact in maps(as_map(status.get("outputs")).get("artifacts")):
        run.artifacts[artifact["name"]] = artifact


def _walk_until_settled(run: Computation) -> tuple[str, str] | None:
    """Walk the tree until nothing moves any more; the workflow's final phase and message, or None."""
    while True:
        run.changed = False
        run.memo.clear()
        ended = _walk(run)
        if ended is None:
            reconcile_born(run)
        if ended is not None or not run.changed:
            return ended


def _walk(run: Computation) -> tuple[str, str] | None:
    plan, walker = run.plan, Walker(run)
    try:
        artifacts = argument_artifacts(run, None, plan.artifacts, run.globals.get)
        root = walker.template(Place(plan.name), plan.entrypoint, Values(plan.arguments, artifacts))
    except NodeFailure as error:
        left = run.find(plan.name)
        if left is not None and left["phase"] not in DONE:
            run.mark(left, "Error", str(error))
        return "Error", f"error in entry template execution: {error}"
    if root is None:
        return None
    run.globals["workflow.status"] = _PHASES.get(root["phase"]) or str(root["phase"])
    if plan.hooks or root["phase"] in DONE:
        run.globals["workflow.failures"] = _failures(run)
    if not _hooks_done(run, walker, root) or root["phase"] not in DONE:
        return None
    return _final_phase(run, walker, run.nodes[root["id"]])


def _final_phase(run: Computation, walker: Walker, root: Json) -> tuple[str, str] | None:
    """The workflow's phase and message once its root and its exit hook are done; None before."""
    plan, phase = run.plan, _PHASES[root["phase"]]
    if plan.hook is not None and not exit_hook_done(run, walker, None, root, "", plan.hook):
        return None
    if phase in FAILED:
        return phase, f"Stopped with strategy '{run.shutdown}'" if run.shutdown else root.get("message", "")
    left = run.find(exit_node_name(plan.name)) if plan.hook else None
    if left is not None and left["phase"] in FAILED:
        return _PHASES[left["phase"]], left.get("message", "")
    return phase, ""


def _hooks_done(run: Computation, walker: Walker, root: Json) -> bool:
    """Whether no hook of the workflow holds its end up; one that cannot be computed makes the root an error."""
    try:
        return hooks_done(run, walker, None, root, "", run.plan.hooks)
    except NodeFailure as error:
        run.mark(run.nodes[root["id"]], "Error", str(error))
        return True


def _failures(run: Computation) -> str:
    """`workflow.failures`: the failed nodes as JSON inside quotes, so that it survives a shell."""
    found = [
        {
            "displayName": node["displayName"],
            "message": node.get("message", ""),
            "templateName": node.get("templateName", ""),
            "phase": node["phase"],
            "podName": pod_name(run.plan.name, node["name"], node.get("templateName", "")),
            "finishedAt": whole_seconds(node["finishedAt"]) if node.get("finishedAt") else None,
        }
        for node in run.nodes.values()
        if node["phase"] in FAILED
    ]
    return json.dumps(json.dumps(found or None, separators=(",", ":")))


def _status(run: Computation, before: Json, ended: tuple[str, str] | None) -> Json:
    phase, message = ended or ("Running", "")
    pods = Counter(node["phase"] for node in run.nodes.values() if node["type"] == "Pod")
    status: Json = {
        **before,
        "phase": phase,
        "startedAt": before.get("startedAt") or run.stamp,
        "finishedAt": stamp(run.now) if ended else None,
        "progress": f"{pods['Succeeded']}/{pods.total()}",
        "nodes": run.nodes,
    }
    status.pop("message", None)
    if message:
        status["message"] = message
    outputs: Json = {}
    if run.outputs:
        outputs["parameters"] = [{"name": name, "value": value} for name, value in run.outputs.items()]
    if run.artifacts:
        outputs["artifacts"] = list(run.artifacts.values())
    if outputs:
        status["outputs"] = outputs
    status["conditions"] = [{"type": "PodRunning", "status": "True" if pods["Running"] else "False"}]
    if ended:
        status["conditions"].append({"type": "Completed", "status": "True"})
    return status
