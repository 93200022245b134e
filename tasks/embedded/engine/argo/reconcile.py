"""Bringing the nodes in line with the world before the tree is walked: pods, resources, stops, the deadline."""

from __future__ import annotations

from tasks.embedded.engine.argo.names import NodeFailure
from tasks.embedded.engine.argo.pods import OVERDUE, timeout_of, update_pod_node
from tasks.embedded.engine.argo.resources import end_resource_node
from tasks.embedded.engine.argo.scope import input_tags, stored_inputs
from tasks.embedded.engine.argo.state import DONE, Computation
from tasks.embedded.engine.json_values import Json, as_map


def survey(run: Computation) -> list[Json]:
    """Count what is active; the unfinished nodes, in the order in which they were made."""
    unfinished = [node for node in run.nodes.values() if node["phase"] not in DONE]
    for node in unfinished:
        run.count(node, 1)
    return unfinished


def reconcile(run: Computation, unfinished: list[Json]) -> None:
    """Bring the unfinished nodes in line with what is known about their pods and resources."""
    for node in unfinished:
        if node["type"] != "Pod":
            continue
        template = run.template_of(node)
        if template is not None and template.kind == "resource":
            applied = run.resources.get(node["id"])
            if applied is None:
                run.missing.add(node["id"])
            elif applied.phase in ("Succeeded", "Failed"):
                end_resource_node(run, node, applied, template)
            continue
        facts = run.pods.get(run.pod_of(node))
        if facts is not None and template is not None:
            update_pod_node(run, node, facts, template)
        elif node["phase"] == "Running" or node.get("hostNodeName"):
            run.mark(node, "Error", "pod deleted")
        else:
            run.missing.add(node["id"])


def reconcile_born(run: Computation) -> None:
    """Bring new nodes in line whose pods are known already: the keeper died before it wrote the status."""
    born, run.born = [run.nodes[key] for key in run.born], []
    known = [node for node in born if node["id"] in run.resources or run.pod_of(node) in run.pods]
    reconcile(run, [node for node in known if node["phase"] not in DONE])


def end_unfinished(run: Computation, unfinished: list[Json]) -> None:
    """On a stop or past the deadline: fail what is pending, running or suspended outside of exit hooks."""
    if not run.shutdown and not run.overdue:
        return
    for node in unfinished:
        if node["type"] not in ("Pod", "Suspend") or run.nodes[node["id"]]["phase"] in DONE:
            continue
        on_exit = in_exit_hook(run, node)
        current = run.nodes[node["id"]]
        if run.stops(on_exit):
            pod = node["type"] == "Pod"  # the two blanks in a pod's sentence are Argo's
            text = "workflow shutdown with strategy:  {}" if pod else "Stopped with strategy '{}'"
            run.mark(current, "Failed", text.format(run.shutdown))
        elif run.overdue and not on_exit:
            run.mark(current, "Failed", OVERDUE)


def end_late(run: Computation, unfinished: list[Json]) -> bool:
    """Fail what still waits for its pod to start after its template's timeout; whether anything did."""
    late = False
    for node in unfinished:
        template = run.template_of(node)
        current = run.nodes[node["id"]]
        if (
            template is None
            or not template.spec.get("timeout")
            or (node["type"], current["phase"]) != ("Pod", "Pending")
        ):
            continue
        try:
            until = timeout_of(run, node, template, input_tags(stored_inputs(node)))
        except NodeFailure:
            continue  # its pod was made with the same text, so it cannot be
        if until is not None and run.now >= until:
            run.mark(current, "Failed", "timeout")
            late = True
        elif until is not None:
            run.wake(until)
    return late


def end_rest(run: Computation) -> None:
    """Fail what still runs when the workflow has ended: after an error beside it nothing waited for it."""
    for node in list(run.nodes.values()):
        if node["phase"] not in DONE:
            run.mark(node, "Failed", "the workflow ended before")


def in_exit_hook(run: Computation, node: Json) -> bool:
    """Whether a node belongs to an exit hook."""
    current: Json | None = node
    while current is not None:
        if as_map(current.get("nodeFlag")).get("hooked") and current["name"].endswith(".onExit"):
            return True
        current = run.nodes.get(current.get("boundaryID", ""))
    return False


def pods_to_end(run: Computation) -> tuple[str, ...]:
    """Pods that live although no unfinished node wants them: a stop, a deadline or the workflow's end left them over.

    A pod may even have no node: made just before a stop, by a keeper that died before it wrote the status.
    """
    living = [name for name, facts in run.pods.items() if facts.phase in ("Pending", "Running")]
    if not living:
        return ()
    nodes = (node for node in run.nodes.values() if node["type"] == "Pod" and node["phase"] not in DONE)
    wanted = {run.pod_of(node) for node in nodes}
    return tuple(name for name in living if name not in wanted)
