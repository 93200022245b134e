"""Steps templates (groups one after the other, the steps of a group side by side) and DAG templates.

A DAG's task starts when what it depends on is done and its `depends` is met.
"""

from __future__ import annotations

from functools import lru_cache

from tasks.embedded.engine.argo.calls import Hook, Instance, TemplateCall, is_met
from tasks.embedded.engine.argo.fan_out import Calls, instances_of, is_ruled_out, outbound, skip_reason
from tasks.embedded.engine.argo.hooks import hook_node_name
from tasks.embedded.engine.argo.names import NodeFailure, node_id
from tasks.embedded.engine.argo.outputs import publish, template_outputs
from tasks.embedded.engine.argo.scope import Boundary, argument_values, call_node_name, call_value, lookup_of
from tasks.embedded.engine.argo.state import COMPLETED, DONE, FAILED, Computation
from tasks.embedded.engine.json_values import Json

_WAITING = "waiting"

_ASKED = {"Succeeded": "Succeeded", "Failed": "Failed", "Errored": "Error", "Skipped": "Skipped", "Omitted": "Omitted"}
"""From a result that `depends` may ask for to the phase that it means."""


def run_steps(run: Computation, boundary: Boundary, calls: Calls) -> None:
    """Go on with a steps template as far as it goes now."""
    key = boundary.node_id
    before: Json | None = None
    for index, group in enumerate(boundary.template.groups):
        name = f"{boundary.node_name}[{index}]"
        node = run.find(name) or _start_step_group(run, boundary, name, before)
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


def _results_fit(run: Computation, boundary: Boundary, group: tuple[TemplateCall, ...]) -> bool:
    """Whether the results of the group's fan-outs make lists; on Argo the template is an error where they do not."""
    for call in group:
        if call.items is not None and call.name in boundary.template.wants_result:
            try:
                call_value(run, boundary, call.name, "outputs.result")
            except NodeFailure as error:
                run.mark(run.nodes[boundary.node_id], "Error", str(error))
                return False
    return True


def _succeed(run: Computation, boundary: Boundary) -> None:
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


def _set_outbound(run: Computation, key: str, group: Json) -> None:
    run.edit(key)["outboundNodes"] = [last for child in group.get("children", ()) for last in outbound(run, child)]


def _start_step_group(run: Computation, boundary: Boundary, name: str, before: Json | None) -> Json:
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


_GROUP = TemplateCall("")
"""A step group is nobody's call; only its place in the tree is used."""


def _run_group(run: Computation, boundary: Boundary, node: Json, group: tuple[TemplateCall, ...], calls: Calls) -> Json:
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


def _resolve(run: Computation, boundary: Boundary, call: TemplateCall) -> None:
    """Look whether all that a step refers to is there: Argo does so for a whole group before it starts any of it.

    Raises:
        NodeFailure: something never was, or cannot be computed.
    """
    if is_ruled_out(run, boundary, call):
        return
    lookup = lookup_of(run, boundary)
    known = tuple(pair for pair in call.arguments if call.items is None or "item" not in pair[1])
    argument_values(run, boundary, known, lookup)


def _ends_of(run: Computation, boundary: Boundary, node: Json, call: TemplateCall, calls: Calls) -> list[str]:
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


class _InstanceError(NodeFailure):
    """One instance of a step cannot run."""

    def __init__(self, instance: Instance, text: str) -> None:
        super().__init__(text)
        self.instance = instance


def _instance_end(
    run: Computation, boundary: Boundary, key: str, call: TemplateCall, instance: Instance, calls: Calls
) -> str:
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


def _run_step(
    run: Computation, boundary: Boundary, key: str, call: TemplateCall, instance: Instance, calls: Calls
) -> Json | None:
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


def _skip_empty(run: Computation, boundary: Boundary, key: str, call: TemplateCall, name: str) -> None:
    if run.find(name) is None:
        place = boundary.place(call, name)
        child = run.add(place, "Skipped", call.template, "Skipped", message="Skipped, empty params")
        run.link(key, child["id"])


def _group_error(
    run: Computation, key: str, instance: Instance, call: TemplateCall, boundary: Boundary, message: str
) -> Json:
    child = run.find(instance.node_name)
    if child is None:
        place = boundary.place(call, instance.node_name)
        child = run.add(place, "Skipped", call.template, "Error", message=message)
    else:
        run.mark(child, "Error", message)
    run.link(key, child["id"])
    text = f"step group deemed errored due to child {instance.node_name} error: {message}"
    return run.mark(run.nodes[key], "Error", text)


def run_dag(run: Computation, boundary: Boundary, calls: Calls) -> None:
    """Go on with a DAG as far as it goes now."""
    settled: set[str] = set()
    running = False
    for name, key in _node_ids(run.plan.name, boundary.node_name, tuple(boundary.template.tasks)):
        node, task = run.nodes.get(key), boundary.template.tasks[name]
        if node is not None and not task.hooks and node["phase"] not in DONE and run.idle(node):
            running = True
        elif _run_task(run, boundary, task, calls, settled):
            settled.add(name)
        else:
            running = running or key in run.nodes
    running = running or (boundary.node_name == run.plan.name and _hook_runs(run, run.plan.name, run.plan.hooks))
    phase = "Running" if running else _assess(run, boundary, settled)
    if phase == "Running":
        return
    key = boundary.node_id
    ends = [_task_id(run, boundary, target) for target in boundary.template.targets]
    run.edit(key)["outboundNodes"] = [last for end in ends if end in run.nodes for last in outbound(run, end)]
    if phase in FAILED:
        run.mark(run.nodes[key], phase)
        return
    try:
        outputs = template_outputs(run, boundary)
    except NodeFailure as error:
        run.mark(run.nodes[key], "Error", str(error))
        return
    if outputs:
        run.edit(key)["outputs"] = outputs
        publish(run, outputs)
    run.mark(run.nodes[key], "Succeeded")


@lru_cache(maxsize=256)
def _node_ids(workflow: str, boundary: str, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The node ids of a DAG's tasks: a thousand tasks are looked at with every event."""
    return tuple((name, node_id(workflow, f"{boundary}.{name}")) for name in names)


def _task_id(run: Computation, boundary: Boundary, name: str) -> str:
    return run.id_of(call_node_name(boundary, name))


def _hook_runs(run: Computation, name: str, hooks: tuple[Hook, ...]) -> bool:
    found = (run.find(hook_node_name(name, hook.name)) for hook in hooks)
    return any(node is not None and node["phase"] not in DONE for node in found)


def _run_task(run: Computation, boundary: Boundary, task: TemplateCall, calls: Calls, settled: set[str]) -> bool:
    """Start a task or go on with it; whether it and its hooks are done."""
    name = call_node_name(boundary, task.name)
    node = run.find(name)
    # While a hook runs, Argo goes on with nothing below its task. One that finds no room holds nothing up.
    if node is not None and not _hooks_done(run, boundary, node, task, calls) and _hook_runs(run, name, task.hooks):
        return False
    if node is None or node["phase"] not in DONE:
        if node is None and not _may_start(run, boundary, task, name, settled):
            node = run.find(name)
            return node is not None and node["phase"] in DONE
        node = _advance_task(run, boundary, task, name, calls)
    if node is not None and not _hooks_done(run, boundary, run.nodes[node["id"]], task, calls):
        return False
    return node is not None and node["phase"] in DONE and calls.hook_done(boundary, run.nodes[node["id"]], task)


def _hooks_done(run: Computation, boundary: Boundary, node: Json, task: TemplateCall, calls: Calls) -> bool:
    """Whether no hook of the task holds it up; a hook that cannot be computed makes the task an error."""
    if not task.hooks or node["phase"] not in (*DONE, "Running"):
        return True
    try:
        return calls.hooks_done(boundary, node, task)
    except NodeFailure as error:
        run.mark(run.nodes[node["id"]], "Error", str(error))
        return True


def _may_start(run: Computation, boundary: Boundary, task: TemplateCall, name: str, settled: set[str]) -> bool:
    if task.depends is None:
        return True
    if any(other not in settled for other in task.depends.tasks):
        return False
    if is_met(task.depends.tree, lambda other, result: _answer(run, boundary, other, result)):
        return True
    node = run.add(
        boundary.place(task, name),
        "Skipped",
        task.template,
        "Omitted",
        message="omitted: depends condition not met",
    )
    _connect(run, boundary, task, node["id"])
    return False


def _answer(run: Computation, boundary: Boundary, name: str, result: str) -> bool:
    node = run.nodes[_task_id(run, boundary, name)]
    if result == "":
        return node["phase"] in ("Succeeded", "Skipped") or node["phase"] in boundary.template.tasks[name].continue_on
    if result in ("AnySucceeded", "AllFailed"):
        prefix = node["name"] + "("
        children = [run.nodes[key] for key in node.get("children", ()) if run.nodes[key]["name"].startswith(prefix)]
        if result == "AnySucceeded":
            return any(child["phase"] == "Succeeded" for child in children)
        return bool(children) and all(child["phase"] == "Failed" for child in children)
    return node["phase"] == _ASKED.get(result)


def _connect(run: Computation, boundary: Boundary, task: TemplateCall, key: str) -> None:
    """Hang a task's node under the last nodes of what it depends on."""
    if task.depends is None:
        run.link(boundary.node_id, key)
        return
    for other in task.depends.tasks:
        for last in outbound(run, _task_id(run, boundary, other)):
            run.link(last, key)


def _advance_task(run: Computation, boundary: Boundary, task: TemplateCall, name: str, calls: Calls) -> Json | None:
    try:
        found = instances_of(run, boundary, task, name)
    except NodeFailure as error:
        return _task_error(run, boundary, task, name, str(error))
    if task.items is None:
        return _run_instance(run, boundary, task, None, found[0], calls)
    group = run.find(name) or _start_dag_group(run, boundary, task, name, empty=not found)
    if group["phase"] in DONE:
        return group
    phase = "Succeeded"
    held = False
    for instance in found:
        if held and instance.node_id not in run.nodes:
            continue
        node = _run_instance(run, boundary, task, group, instance, calls)
        # Instances start in order: where one has no room, those after it have none either.
        held = held or node is None
        # On Argo the items of a fan-out run the exit hook, and their group runs it again.
        if node is None or node["phase"] not in DONE or not calls.hook_done(boundary, node, task):
            phase = "Running"
        elif node["phase"] in FAILED and phase != "Running":
            phase = node["phase"]
    return run.mark(run.nodes[group["id"]], phase)


def _start_dag_group(run: Computation, boundary: Boundary, task: TemplateCall, name: str, *, empty: bool) -> Json:
    place = boundary.place(task, name)
    if empty:
        group = run.add(place, "Skipped", task.template, "Skipped", message="Skipped, empty params")
    else:
        group = run.add(place, "TaskGroup", task.template, "Running")
    _connect(run, boundary, task, group["id"])
    return group


def _run_instance(
    run: Computation, boundary: Boundary, task: TemplateCall, group: Json | None, instance: Instance, calls: Calls
) -> Json | None:
    node = run.nodes.get(instance.node_id)
    if node is not None and (node["phase"] in DONE or run.idle(node)):
        return node
    new = node is None
    try:
        reason = skip_reason(run, boundary, task, instance.item) if new else ""
        if reason:
            place = boundary.place(task, instance.node_name)
            node = run.add(place, "Skipped", task.template, "Skipped", message=reason)
        else:
            node = calls.call(boundary, task, instance.node_name, instance.item)
    except NodeFailure as error:
        node = run.find(instance.node_name)
        # Argo says less of a `when` than of all else.
        message = str(error) if "'when' expres" in str(error) else f"task '{instance.node_name}' errored: {error}"
        if node is None:
            node = run.add(boundary.place(task, instance.node_name), "Skipped", task.template, "Error", message=message)
        else:
            node = run.mark(node, "Error", message)
    if new and node is not None:
        if group is None:
            _connect(run, boundary, task, node["id"])
        else:
            run.link(group["id"], node["id"])
    return node


def _task_error(run: Computation, boundary: Boundary, task: TemplateCall, name: str, message: str) -> Json:
    node = run.find(name)
    if node is not None:
        return run.mark(node, "Error", message)
    node = run.add(boundary.place(task, name), "Skipped", task.template, "Error", message=message)
    _connect(run, boundary, task, node["id"])
    return node


def _assess(run: Computation, boundary: Boundary, settled: set[str]) -> str:
    """The phase of a DAG in which nothing runs: what its targets say.

    An omitted or skipped target counts as the branch above it does: a failure there makes the DAG fail.
    """
    branches: dict[str, str] = {}
    for name, task in boundary.template.tasks.items():
        if name not in settled:
            continue
        node = run.nodes[_task_id(run, boundary, name)]
        branches[name] = node["phase"] if node["phase"] in COMPLETED else _inherited_result(task, branches)
    return _verdict(boundary, [(target, branches.get(target, "")) for target in boundary.template.targets])


def _verdict(boundary: Boundary, ends: list[tuple[str, str]]) -> str:
    """What the targets' phases ("" where one has not started) make of the DAG."""
    failed = [
        phase for target, phase in ends if phase in FAILED and phase not in boundary.template.tasks[target].continue_on
    ]
    waiting = any(not phase for _, phase in ends)
    if waiting and not (failed and boundary.template.fail_fast):
        return "Running"
    if not failed:
        return "Succeeded"
    return failed[0] if boundary.template.fail_fast else failed[-1]


def _inherited_result(task: TemplateCall, branches: dict[str, str]) -> str:
    above = [branches[name] for name in (task.depends.tasks if task.depends else ()) if name in branches]
    failed = [phase for phase in above if phase in FAILED]
    return failed[0] if failed else "Succeeded"
