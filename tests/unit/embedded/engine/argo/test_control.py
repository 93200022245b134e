"""Hooks, limits, deadlines and stops of workflows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.embedded.engine.argo.names import fnv32a
from tasks.embedded.engine.argo.state import PodFacts
from tasks.embedded.engine.argo.workflow import advance
from tests.support.fakes.workflow_simulator import (
    World,
    arguments,
    container,
    node_of,
    workflow,
)


def test_the_exit_hook_of_a_workflow_runs_after_a_failure_too() -> None:
    report = container(
        "report", "{{workflow.status}}", "{{workflow.failures}}", "{{workflow.duration}}", "{{inputs.parameters.p}}"
    )
    report["inputs"] = {"parameters": [{"name": "p"}]}
    world = World(
        workflow(templates=[container("main"), report], onExit="report", arguments=arguments(p="given")),
        lambda pod: int(node_of(pod) == "wf"),
    )
    world.run()
    assert (world.phase, world.message) == ("Failed", "main: Error (exit code 1)")
    status, failures, duration, given = world.args()["wf.onExit"]
    assert (status, given) == ("Failed", "given")
    assert float(duration) == pytest.approx(1.0)
    (failed,) = json.loads(json.loads(failures))
    assert failed["displayName"] == "wf"
    assert failed["message"] == "main: Error (exit code 1)"
    (pod,) = [pod for pod in world.manifests.values() if node_of(pod) == "wf.onExit"]
    assert pod["metadata"]["labels"]["workflows.argoproj.io/on-exit"] == "true"
    assert world.nodes["wf.onExit"]["nodeFlag"] == {"hooked": True}


def test_a_failed_exit_hook_fails_a_good_workflow() -> None:
    world = World(
        workflow(templates=[container("main"), container("bye")], hooks={"exit": {"template": "bye"}}),
        lambda pod: int("onExit" in node_of(pod)) * 4,
    )
    world.run()
    assert (world.phase, world.message) == ("Failed", "main: Error (exit code 4)")


def test_nothing_failed_gives_null() -> None:
    world = World(workflow(templates=[container("main"), container("bye", "{{workflow.failures}}")], onExit="bye"))
    world.run()
    assert world.args()["wf.onExit"] == ['"null"']


@pytest.mark.parametrize("kind", ["dag", "steps"])
def test_the_exit_hook_of_a_step_holds_up_what_follows(kind: str) -> None:
    hook = {
        "exit": {
            "template": "bye",
            "arguments": arguments(m=f"{{{{{'tasks' if kind == 'dag' else 'steps'}.a.status}}}}"),
        }
    }
    first: dict[str, Any] = {"name": "a", "template": "t", "hooks": hook}
    second: dict[str, Any] = {"name": "b", "template": "t"}
    main: dict[str, Any] = (
        {"name": "main", "dag": {"tasks": [first, {**second, "dependencies": ["a"]}]}}
        if kind == "dag"
        else {"name": "main", "steps": [[first], [second]]}
    )
    templates = [main, container("t"), container("bye", "{{inputs.parameters.m}}", inputs=("m",))]
    world = World(workflow(templates=templates), lambda pod: int("onExit" in node_of(pod)))
    name = "wf.a" if kind == "dag" else "wf[0].a"
    world.step()
    world.end(world.living()[0], 0)
    found = world.step()
    assert [node_of(pod) for pod in found.create_pods] == [f"{name}.onExit"]
    world.run()
    assert list(world.args()) == [name, f"{name}.onExit", "wf.b" if kind == "dag" else "wf[1].b"]
    assert world.args()[f"{name}.onExit"] == ["Succeeded"]
    assert world.nodes[f"{name}.onExit"]["id"] in world.nodes[name]["children"]
    assert world.phase == "Succeeded", "a failed hook of a step is nobody's failure"


def fan_out(count: int, **spec: Any) -> dict[str, Any]:
    main = {
        "name": "main",
        "dag": {
            "tasks": [
                {
                    "name": "s",
                    "template": "e",
                    "withSequence": {"count": str(count)},
                    "arguments": arguments(m="{{item}}"),
                }
            ]
        },
    }
    limit = spec.pop("template_parallelism", None)
    if limit:
        main["parallelism"] = limit
    return workflow(templates=[main, container("e", "{{inputs.parameters.m}}", inputs=("m",))], **spec)


@pytest.mark.parametrize("where", ["parallelism", "template_parallelism"])
def test_parallelism_limits_what_runs_at_once(where: str) -> None:
    world = World(fan_out(7, **{where: 2}))
    world.run()
    assert (world.phase, world.most_at_once, len(world.manifests)) == ("Succeeded", 2, 7)
    assert list(world.args().values()) == [[str(index)] for index in range(7)]


def test_a_templates_parallelism_counts_its_children_not_pods() -> None:
    inner = {"name": "inner", "steps": [[{"name": "x", "template": "t"}, {"name": "y", "template": "t"}]]}
    outer = {
        "name": "main",
        "parallelism": 1,
        "steps": [[{"name": "a", "template": "inner"}, {"name": "b", "template": "inner"}]],
    }
    world = World(workflow(templates=[outer, inner, container("t")]))
    world.run()
    assert (world.phase, world.most_at_once) == ("Succeeded", 2)
    assert [name.split("]")[1] for name in world.args()] == [".a[0", ".a[0", ".b[0", ".b[0"]


def test_the_deadline_of_a_workflow_ends_what_runs() -> None:
    manifest = fan_out(2, activeDeadlineSeconds=30, parallelism=1, onExit="bye")
    manifest["spec"]["templates"].append(container("bye"))
    world = World(manifest)
    found = world.step()
    assert found.wake_at == world.now + 30
    world.now += 29
    assert not world.step().delete_pods
    world.now += 1
    found = world.step()
    assert found.delete_pods == (f"wf-e-{fnv32a('wf.s(0:0)')}",)
    assert world.nodes["wf.s(0:0)"]["message"] == "Step exceeded its deadline"
    world.run()
    assert world.phase == "Failed"
    assert world.phases()["wf.onExit"] == "Succeeded", "exit hooks have no deadline"
    assert world.phases()["wf.s(1:1)"] == "Failed"
    assert len(world.manifests) == 2


@pytest.mark.parametrize(("strategy", "hook"), [("Stop", True), ("Terminate", False)])
def test_a_stop_ends_what_runs_and_spares_exit_hooks(strategy: str, hook: bool) -> None:
    templates = [
        {"name": "main", "steps": [[{"name": "a", "template": "t"}, {"name": "w", "template": "wait"}]]},
        container("t", retryStrategy={"limit": 3}),
        {"name": "wait", "suspend": {}},
        container("bye"),
    ]
    world = World(workflow(templates=templates, onExit="bye"))
    world.step()
    world.pods = {name: PodFacts("Running", node="n0") for name in world.pods}
    world.step()
    world.manifest["spec"]["shutdown"] = strategy
    found = world.step()
    assert found.delete_pods == (f"wf-t-{fnv32a('wf[0].a(0)')}",)
    world.run()
    assert (world.phase, world.message) == ("Failed", f"Stopped with strategy '{strategy}'")
    assert world.nodes["wf[0].a(0)"]["message"] == f"workflow shutdown with strategy:  {strategy}"
    assert world.nodes["wf[0].w"]["message"] == f"Stopped with strategy '{strategy}'"
    assert "exitCode" not in world.nodes["wf[0].a(0)"].get("outputs", {})
    assert ("wf.onExit" in world.nodes) == hook


def test_terminate_ends_a_running_exit_hook_too() -> None:
    world = World(workflow(templates=[container("main"), container("bye")], onExit="bye"))
    world.step()
    world.end("wf", 0)
    world.step()
    world.manifest["spec"]["shutdown"] = "Terminate"
    world.run()
    assert world.phases()["wf.onExit"] == "Failed"
    assert world.phase == "Failed"


def test_suspend_waits_its_time() -> None:
    world = World(
        workflow(
            templates=[
                {"name": "main", "steps": [[{"name": "w", "template": "wait", "arguments": arguments(s="1m")}]]},
                {
                    "name": "wait",
                    "inputs": {"parameters": [{"name": "s"}]},
                    "suspend": {"duration": "{{inputs.parameters.s}}"},
                },
            ]
        )
    )
    start = world.now
    assert world.step().wake_at == start + 60
    world.run()
    assert (world.phase, world.now) == ("Succeeded", start + 60)


def test_pending_pods_say_why() -> None:
    world = World(workflow("t", templates=[container("t")]))
    world.step()
    world.pods["wf"] = PodFacts("Pending", reason="Unschedulable", message="0/4 nodes are available")
    world.step()
    assert world.nodes["wf"]["message"] == "Unschedulable: 0/4 nodes are available"
    world.pods["wf"] = PodFacts("Running", node="n0")
    world.step()
    assert "message" not in world.nodes["wf"]
    assert world.manifest["status"]["conditions"] == [{"type": "PodRunning", "status": "True"}]


def test_an_error_in_one_step_leaves_nothing_running() -> None:
    bad = {"name": "b", "template": "t", "when": "{{steps.a.outputs.result}} == {{item}}", "withItems": [1]}
    templates = [
        {"name": "main", "steps": [[{"name": "a", "template": "t"}], [{"name": "c", "template": "t"}, bad]]},
        container("t"),
    ]
    world = World(workflow(templates=templates), lambda pod: PodFacts("Succeeded", exit_code=0, result="a b"))
    world.run()
    assert world.phase == "Failed"
    assert "Invalid 'when' expression 'a b == 1'" in world.message
    assert world.phases()["wf[1].c"] == "Failed"
    assert all(node["phase"] not in ("Pending", "Running") for node in world.nodes.values())


def test_nothing_of_a_group_starts_where_a_step_of_it_cannot_be_resolved() -> None:
    bad = {"name": "b", "template": "t", "when": "{{steps.a.outputs.result}} == 1"}
    templates = [
        {"name": "main", "steps": [[{"name": "a", "template": "t"}], [{"name": "c", "template": "t"}, bad]]},
        container("t"),
    ]
    world = World(workflow(templates=templates), lambda pod: PodFacts("Succeeded", exit_code=0, result="a b"))
    world.run()
    assert world.message.startswith("failed to resolve references: Invalid 'when' expression 'a b == 1'")
    assert world.phases() == {"wf": "Failed", "wf[0]": "Succeeded", "wf[0].a": "Succeeded", "wf[1]": "Error"}


def test_a_workflow_of_a_thousand_nodes_is_cheap_to_move() -> None:
    world = World(fan_out(1000), strict=False)
    world.step()
    assert len(world.pods) == 1000
    # One event among a thousand unchanged nodes: nothing may be written anew but what moved.
    before = world.manifest["status"]["nodes"]
    name = next(iter(world.pods))
    world.end(name, 0)
    found = advance(world.manifest, world.pods, {}, world.now)
    moved = [key for key, node in found.status["nodes"].items() if node is not before[key]]
    assert moved == [world.nodes["wf.s(0:0)"]["id"]]
