"""Steps templates: groups one after the other, the steps of a group side by side."""

from __future__ import annotations

from tasks.embedded.engine.calls import Call
from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.fan_out import Calls, instances_of, outbound, skip_reason
from tasks.embedded.engine.items import Instance
from tasks.embedded.engine.json_values import Json
from tasks.embedded.engine.outputs import publish, template_outputs
from tasks.embedded.engine.run import DONE, FAILED, Run
from tasks.embedded.engine.scope import Boundary, argument_values, call_value, lookup_of


def run_steps(run: Run, boundary: Boundary, calls: Calls) -> None:
    """Go on with a steps template as far as it goes now."""
    key = boundary.node_id
    before: Json | None = None
    for index, group in enumerate(boundary.template.groups):
        name = f"{boundary.node_name}[{index}]"
        node = run.find(name) or _start_group(run, boundary, name, before)
        if node["phase"] not in DONE:
            node = _run_group(run, boundary, node, group, calls)
        if node["phase"] not in DONE:
            return
        before = node
        if node["phase"] == "Succeeded" and not _results_fit(run, boundary, group):
            return
        if node["phase"] in FAILED:
            _set_outbound(run, key, node)
            run.mark(run.nodes[key], "Failed", node.get("message", ""))
            return
    if before is not None:
        _set_outbound(run, key, before)
    _succeed(run, boundary)


def _results_fit(run: Run, boundary: Boundary, group: tuple[Call, ...]) -> bool:
    """Whether the results of the group's fan-outs make lists; on Argo the template is an error where they do not."""
    for call in group:
        if call.items is not None and call.name in boundary.template.wants_result:
            try:
                call_value(run, boundary, call.name, "outputs.result")
            except NodeFailure as error:
                run.mark(run.nodes[boundary.node_id], "Error", str(error))
                return False
    return True


def _succeed(run: Run, boundary: Boundary) -> None:
    key = boundary.node_id
    try:
        outputs = template_outputs(run, boundary)
    except NodeFailure as error:
        run.mark(run.nodes[key], "Error", str(error))
        return
    if outputs:
        run.edit(key)["outputs"] = outputs
        publish(run, outputs)
    run.mark(run.nodes[key], "Succeeded")


def _set_outbound(run: Run, key: str, group: Json) -> None:
    run.edit(key)["outboundNodes"] = [last for child in group.get("children", ()) for last in outbound(run, child)]


def _start_group(run: Run, boundary: Boundary, name: str, before: Json | None) -> Json:
    place = boundary.place(_GROUP, name)
    node = run.add(place, "StepGroup", "", "Running")
    del node["templateName"]
    if before is None:
        run.link(boundary.node_id, node["id"])
        return node
    children: list[str] = before.get("children", [])
    ends = [last for child in children for last in outbound(run, child)] or [before["id"]]
    for end in ends:
        run.link(end, node["id"])
    return node


_GROUP = Call("")
"""A step group is nobody's call; only its place in the tree is used."""


def _run_group(run: Run, boundary: Boundary, node: Json, group: tuple[Call, ...], calls: Calls) -> Json:
    key = node["id"]
    ends: list[str] = []
    try:
        for call in group if not node.get("children") else ():
            _resolve(run, boundary, call)
    except NodeFailure as error:
        return run.mark(run.nodes[key], "Error", f"failed to resolve references: {error}")
    for call in group:
        try:
            ends += _ends_of(run, boundary, node, call, calls)
        except _InstanceError as error:
            return _group_error(run, key, error.instance, call, boundary, str(error))
        except NodeFailure as error:
            return run.mark(run.nodes[key], "Error", str(error))
    if _WAITING in ends:
        return run.nodes[key]
    failed = next((end for end in ends if end), "")
    return run.mark(run.nodes[key], "Failed" if failed else "Succeeded", failed or None)


def _resolve(run: Run, boundary: Boundary, call: Call) -> None:
    """Look whether all that a step refers to is there: Argo does so for a whole group before it starts any of it.

    Raises:
        NodeFailure: something never was, or cannot be computed.
    """
    try:
        if skip_reason(run, boundary, call, {}):
            return
    except NodeFailure:
        # The `when` of a fan-out may speak of its item, which is not there yet.
        if call.items is None:
            raise
    lookup = lookup_of(run, boundary)
    known = tuple(pair for pair in call.arguments if call.items is None or "item" not in pair[1])
    argument_values(run, boundary, known, lookup)


def _ends_of(run: Run, boundary: Boundary, node: Json, call: Call, calls: Calls) -> list[str]:
    """How the instances of one step stand.

    Raises:
        NodeFailure: its list of items cannot be made, or a hook of it cannot run.
    """
    name = f"{node['name']}.{call.name}"
    found = instances_of(run, boundary, call, name)
    if not found:
        _skip_empty(run, boundary, node["id"], call, name)
    ends: list[str] = []
    held = False
    for instance in found:
        # Instances start in order: where one has no room, those after it have none either.
        if held and instance.node_id not in run.nodes:
            continue
        ends.append(_instance_end(run, boundary, node["id"], call, instance, calls))
        held = held or instance.node_id not in run.nodes
    return ends


_WAITING = "waiting"


class _InstanceError(NodeFailure):
    """One instance of a step cannot run."""

    def __init__(self, instance: Instance, text: str) -> None:
        super().__init__(text)
        self.instance = instance


def _instance_end(run: Run, boundary: Boundary, key: str, call: Call, instance: Instance, calls: Calls) -> str:
    """How one step of a group stands: `_WAITING`, "" (good, skipped or allowed to fail), or the group's message."""
    try:
        child = _run_step(run, boundary, key, call, instance, calls)
    except NodeFailure as error:
        raise _InstanceError(instance, str(error)) from error
    if child is not None and call.hooks and not calls.hooks_done(boundary, child, call):
        return _WAITING
    if child is None or child["phase"] not in DONE or not calls.hook_done(boundary, child, call):
        return _WAITING
    if child["phase"] in FAILED and child["phase"] not in call.continue_on:
        return f"child '{child['id']}' failed"
    return ""


def _run_step(run: Run, boundary: Boundary, key: str, call: Call, instance: Instance, calls: Calls) -> Json | None:
    child = run.nodes.get(instance.node_id)
    if child is not None and (child["phase"] in DONE or run.idle(child)):
        return child
    if child is None:
        reason = skip_reason(run, boundary, call, instance.item)
        if reason:
            place = boundary.place(call, instance.node_name)
            child = run.add(place, "Skipped", call.template, "Skipped", message=reason)
            run.link(key, child["id"])
            return child
    started = calls.call(boundary, call, instance.node_name, instance.item)
    if child is None and started is not None:
        run.link(key, started["id"])
    return started


def _skip_empty(run: Run, boundary: Boundary, key: str, call: Call, name: str) -> None:
    if run.find(name) is None:
        place = boundary.place(call, name)
        child = run.add(place, "Skipped", call.template, "Skipped", message="Skipped, empty params")
        run.link(key, child["id"])


def _group_error(run: Run, key: str, instance: Instance, call: Call, boundary: Boundary, message: str) -> Json:
    child = run.find(instance.node_name)
    if child is None:
        place = boundary.place(call, instance.node_name)
        child = run.add(place, "Skipped", call.template, "Error", message=message)
    else:
        run.mark(child, "Error", message)
    run.link(key, child["id"])
    text = f"step group deemed errored due to child {instance.node_name} error: {message}"
    return run.mark(run.nodes[key], "Error", text)
