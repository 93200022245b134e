"""Workflows run to their end in a world without processes: DAGs, steps, conditions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks.embedded.engine.argo.names import fnv32a
from tasks.embedded.engine.argo.state import PodFacts
from tests.support.cases.rows import rows
from tests.support.fakes.workflow_simulator import (
    World,
    container,
    dag,
    ending,
    steps,
    task,
    workflow,
)


def test_a_diamond_runs_in_order_and_side_by_side() -> None:
    world = World(
        workflow(templates=[dag(task("a"), task("b", "a"), task("c", "a"), task("d", "b", "c")), container("t")])
    )
    world.run()
    assert list(world.phases()) == ["wf", "wf.a", "wf.b", "wf.c", "wf.d"]
    assert set(world.phases().values()) == {"Succeeded"}
    nodes = world.nodes
    assert nodes["wf"]["children"] == [nodes["wf.a"]["id"]]
    assert nodes["wf.a"]["children"] == [nodes["wf.b"]["id"], nodes["wf.c"]["id"]]
    assert nodes["wf.b"]["children"] == nodes["wf.c"]["children"] == [nodes["wf.d"]["id"]]
    assert nodes["wf"]["outboundNodes"] == [nodes["wf.d"]["id"]]
    assert nodes["wf.d"]["boundaryID"] == "wf"
    assert nodes["wf.d"]["displayName"] == "d"
    assert nodes["wf.d"]["id"] == f"wf-{fnv32a('wf.d')}"


def test_what_follows_a_failure_is_omitted_and_the_rest_runs() -> None:
    templates = [dag(task("a"), task("b", "a"), task("c", "b"), task("x"), task("y", "x")), container("t")]
    world = World(workflow(templates=templates), ending(a=1))
    world.run()
    assert world.phases() == {
        "wf": "Failed",
        "wf.a": "Failed",
        "wf.b": "Omitted",
        "wf.c": "Omitted",
        "wf.x": "Succeeded",
        "wf.y": "Succeeded",
    }
    assert world.nodes["wf.b"]["type"] == "Skipped"
    assert world.nodes["wf.b"]["message"] == "omitted: depends condition not met"
    assert world.message == "", "a failed DAG says nothing"


@rows("embedded/engine/argo/runs")
def test_depends_decides(depends: str, exits: dict[str, int], phase: str, whole: str) -> None:
    templates = [dag(task("a"), task("b"), task("c", depends=depends)), container("t")]
    world = World(workflow(templates=templates), ending(**exits))
    world.run()
    assert world.phases()["wf.c"] == phase
    # Tasks that something depends on do not decide: only the leaves do.
    assert world.phase == whole


def test_a_false_when_skips_and_what_follows_runs() -> None:
    templates = [dag(task("a", when="1 == 2"), task("b", depends="a"), task("c", depends="a.Skipped")), container("t")]
    world = World(workflow(templates=templates))
    world.run()
    assert world.phases() == {"wf": "Succeeded", "wf.a": "Skipped", "wf.b": "Succeeded", "wf.c": "Succeeded"}
    assert world.nodes["wf.a"]["message"] == "when '1 == 2' evaluated false"


def test_a_target_leaves_the_rest_out() -> None:
    world = World(workflow(templates=[dag(task("a"), task("b", "a"), task("c", "a"), target="b"), container("t")]))
    world.run()
    assert list(world.phases()) == ["wf", "wf.a", "wf.b"]


def test_continue_on_turns_a_failure_into_an_allowed_one() -> None:
    allowed: Any = {"continueOn": {"failed": True}}
    world = World(workflow(templates=[dag(task("a", **allowed), task("b", "a")), container("t")]), ending(a=1))
    world.run()
    assert (world.phase, world.phases()["wf.b"]) == ("Succeeded", "Succeeded")
    world = World(workflow(templates=[steps([task("a", **allowed)], [task("b")]), container("t")]), ending(a=1))
    world.run()
    assert (world.phase, world.phases()["wf[0]"], world.phases()["wf[1].b"]) == ("Succeeded",) * 3


def test_steps_run_group_after_group() -> None:
    world = World(workflow(templates=[steps([task("a"), task("b")], [task("c")]), container("t")]))
    world.step()
    assert len(world.pods) == 2
    world.run()
    nodes = world.nodes
    assert {name: node["type"] for name, node in nodes.items()} == {
        "wf": "Steps",
        "wf[0]": "StepGroup",
        "wf[0].a": "Pod",
        "wf[0].b": "Pod",
        "wf[1]": "StepGroup",
        "wf[1].c": "Pod",
    }
    assert nodes["wf[0].a"]["children"] == nodes["wf[0].b"]["children"] == [nodes["wf[1]"]["id"]]
    assert nodes["wf[0]"]["displayName"] == "[0]"
    assert nodes["wf[0].a"]["displayName"] == "a"


def test_a_failed_step_ends_the_steps_after_its_group() -> None:
    world = World(workflow(templates=[steps([task("a"), task("b")], [task("c")]), container("t")]), ending(a=1))
    world.run()
    message = f"child 'wf-{fnv32a('wf[0].a')}' failed"
    assert world.phases() == {"wf": "Failed", "wf[0]": "Failed", "wf[0].a": "Failed", "wf[0].b": "Succeeded"}
    assert world.nodes["wf"]["message"] == world.nodes["wf[0]"]["message"] == world.message == message


def test_a_recursion_under_a_condition_ends() -> None:
    flip = steps(
        [task("flip", template="flip")],
        [task("again", template="main", when="{{steps.flip.outputs.result}} == tails")],
    )
    ends = iter(["tails", "tails", "heads"])
    world = World(
        workflow(templates=[flip, container("flip")]), lambda pod: PodFacts("Succeeded", exit_code=0, result=next(ends))
    )
    world.run()
    assert world.phase == "Succeeded"
    assert world.phases()["wf[1].again[1].again[1].again"] == "Skipped"


def test_a_recursion_without_end_is_stopped() -> None:
    deep = steps([task("again", template="main", when="1 == 1")])
    world = World(workflow(templates=[deep]))
    world.run()
    assert world.phase == "Failed"
    deepest = max(world.nodes.values(), key=lambda node: len(node["name"]))
    assert "Maximum recursion depth exceeded" in deepest["message"]


def test_the_status_may_be_patched_to_resume_a_suspended_node() -> None:
    templates: list[dict[str, Any]] = [
        steps([task("wait", template="w")], [task("b")]),
        {"name": "w", "suspend": {}},
        container("t"),
    ]
    world = World(workflow(templates=templates))
    found = world.step()
    assert found.wake_at is None
    assert world.nodes["wf[0].wait"]["type"] == "Suspend"
    world.manifest["status"]["nodes"][world.nodes["wf[0].wait"]["id"]]["phase"] = "Succeeded"
    world.run()
    assert world.phase == "Succeeded"


def test_a_suspended_workflow_starts_nothing() -> None:
    world = World(workflow("t", templates=[container("t")], suspend=True))
    assert not world.step().create_pods
    world.manifest["spec"]["suspend"] = False
    assert world.step().create_pods


def test_stamps_that_a_workflow_reads_are_whole_seconds() -> None:
    given = {"parameters": [{"name": "v", "value": "{{steps.a.startedAt}} {{steps.a.finishedAt}}"}]}
    calls = steps([{"name": "a", "template": "t"}], [{"name": "b", "template": "u", "arguments": given}])
    told = container("told", "{{workflow.failures}}")
    templates = [calls, container("t"), container("u", "{{inputs.parameters.v}}", inputs=("v",)), told]
    world = World(workflow(templates=templates, onExit="told"), ending(b=1), now=1_000_000.75)
    world.run()
    assert world.args()["wf[1].b"] == ["1970-01-12T13:46:40Z 1970-01-12T13:46:41Z"]
    assert '\\"finishedAt\\":\\"1970-01-12T13:46:42Z\\"' in world.args()["wf.onExit"][0]


@pytest.mark.parametrize("kind", ["steps", "dag"])
@rows("embedded/engine/argo/runs")
def test_a_when_that_is_false_is_looked_at_before_the_items(
    kind: str, loop: dict[str, Any], when: str, nodes: dict[str, str]
) -> None:
    skipped = {"name": "a", "template": "t", "when": "1 == 2"}
    given = {"parameters": [{"name": "v", "value": "{{steps.a.outputs.result}}"}]}
    call: dict[str, Any] = {"name": "f", "template": "u", "when": when, "arguments": given, **loop}
    if "''" in "".join(nodes.values()):
        del given["parameters"]
        call["template"] = "t"
    main: dict[str, Any] = steps([skipped], [call])
    if kind == "dag":
        main = json.loads(json.dumps(dag(skipped, {**call, "dependencies": ["a"]})).replace("{{steps.", "{{tasks."))
    before = "wf[1]." if kind == "steps" else "wf."
    world = World(workflow(templates=[main, container("t"), container("u", inputs=("v",))]))
    world.run()
    names = {
        f"{before}{name.replace('steps.', 'tasks.') if kind == 'dag' else name}": text for name, text in nodes.items()
    }
    assert {name: world.nodes[name].get("message", "") for name in names} == names
    assert world.phase == "Succeeded"
