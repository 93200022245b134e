"""DAG templates: tasks start when what they depend on is done and their `depends` is met."""

from __future__ import annotations

from functools import lru_cache

from tasks.embedded.engine.argo_names import node_id
from tasks.embedded.engine.calls import Call, Hook
from tasks.embedded.engine.depends import is_met
from tasks.embedded.engine.failure import NodeFailure
from tasks.embedded.engine.fan_out import Calls, instances_of, outbound, skip_reason
from tasks.embedded.engine.hooks import hook_node_name
from tasks.embedded.engine.items import Instance
from tasks.embedded.engine.json_values import Json
from tasks.embedded.engine.outputs import publish, template_outputs
from tasks.embedded.engine.run import COMPLETED, DONE, FAILED, Run
from tasks.embedded.engine.scope import Boundary, call_node_name

_ASKED = {"Succeeded": "Succeeded", "Failed": "Failed", "Errored": "Error", "Skipped": "Skipped", "Omitted": "Omitted"}
"""From a result that `depends` may ask for to the phase that it means."""


def run_dag(run: Run, boundary: Boundary, calls: Calls) -> None:
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
    running = running or _workflow_hooks_run(run, boundary)
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


def _task_id(run: Run, boundary: Boundary, name: str) -> str:
    return run.id_of(call_node_name(boundary, name))


def _workflow_hooks_run(run: Run, boundary: Boundary) -> bool:
    """Whether a hook of the workflow still runs: as a child of the root it keeps a DAG there from ending."""
    return boundary.node_name == run.plan.name and _hook_runs(run, run.plan.name, run.plan.hooks)


def _hook_runs(run: Run, name: str, hooks: tuple[Hook, ...]) -> bool:
    found = (run.find(hook_node_name(name, hook.name)) for hook in hooks)
    return any(node is not None and node["phase"] not in DONE for node in found)


def _run_task(run: Run, boundary: Boundary, task: Call, calls: Calls, settled: set[str]) -> bool:
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


def _hooks_done(run: Run, boundary: Boundary, node: Json, task: Call, calls: Calls) -> bool:
    """Whether no hook of the task holds it up; a hook that cannot be computed makes the task an error."""
    if not task.hooks or node["phase"] not in (*DONE, "Running"):
        return True
    try:
        return calls.hooks_done(boundary, node, task)
    except NodeFailure as error:
        run.mark(run.nodes[node["id"]], "Error", str(error))
        return True


def _may_start(run: Run, boundary: Boundary, task: Call, name: str, settled: set[str]) -> bool:
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


def _answer(run: Run, boundary: Boundary, name: str, result: str) -> bool:
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


def _connect(run: Run, boundary: Boundary, task: Call, key: str) -> None:
    """Hang a task's node under the last nodes of what it depends on."""
    if task.depends is None:
        run.link(boundary.node_id, key)
        return
    for other in task.depends.tasks:
        for last in outbound(run, _task_id(run, boundary, other)):
            run.link(last, key)


def _advance_task(run: Run, boundary: Boundary, task: Call, name: str, calls: Calls) -> Json | None:
    try:
        found = instances_of(run, boundary, task, name)
    except NodeFailure as error:
        return _task_error(run, boundary, task, name, str(error))
    if task.items is None:
        return _run_instance(run, boundary, task, None, found[0], calls)
    group = run.find(name) or _start_group(run, boundary, task, name, empty=not found)
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


def _start_group(run: Run, boundary: Boundary, task: Call, name: str, *, empty: bool) -> Json:
    place = boundary.place(task, name)
    if empty:
        group = run.add(place, "Skipped", task.template, "Skipped", message="Skipped, empty params")
    else:
        group = run.add(place, "TaskGroup", task.template, "Running")
    _connect(run, boundary, task, group["id"])
    return group


def _run_instance(
    run: Run, boundary: Boundary, task: Call, group: Json | None, instance: Instance, calls: Calls
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


def _task_error(run: Run, boundary: Boundary, task: Call, name: str, message: str) -> Json:
    node = run.find(name)
    if node is not None:
        return run.mark(node, "Error", message)
    node = run.add(boundary.place(task, name), "Skipped", task.template, "Error", message=message)
    _connect(run, boundary, task, node["id"])
    return node


def _assess(run: Run, boundary: Boundary, settled: set[str]) -> str:
    """The phase of a DAG in which nothing runs: what its targets say.

    An omitted or skipped target counts as the branch above it does: a failure there makes the DAG fail.
    """
    branches: dict[str, str] = {}
    for name, task in boundary.template.tasks.items():
        if name not in settled:
            continue
        node = run.nodes[_task_id(run, boundary, name)]
        branches[name] = node["phase"] if node["phase"] in COMPLETED else _inherited(task, branches)
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


def _inherited(task: Call, branches: dict[str, str]) -> str:
    above = [branches[name] for name in (task.depends.tasks if task.depends else ()) if name in branches]
    failed = [phase for phase in above if phase in FAILED]
    return failed[0] if failed else "Succeeded"
