"""Parameters, outputs and fan-outs of workflows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tasks.embedded.engine.argo.names import fnv32a
from tasks.embedded.engine.argo.state import PodFacts
from tasks.embedded.layout import PARAMETER_LIMIT_BYTES, output_values
from tests.support.fakes.workflow_simulator import (
    World,
    arguments,
    container,
    dag,
    node_of,
    steps,
    task,
    with_value,
    workflow,
)


def test_parameters_travel() -> None:
    templates = [
        steps(
            [task("make", template="make")],
            [
                task(
                    "use",
                    template="use",
                    arguments=arguments(
                        a="{{steps.make.outputs.parameters.value}}",
                        b="{{ workflow.parameters.given }}",
                        c="{{steps.make.outputs.result}}",
                        d="{{steps.make.status}} {{steps.make.exitCode}}",
                    ),
                )
            ],
        ),
        container("make", outputs={"parameters": [{"name": "value", "valueFrom": {"path": "/out/v"}}]}),
        {
            **container("use", "{{inputs.parameters.a}}", "{{inputs.parameters.b}}{{inputs.parameters.e}}"),
            "inputs": {"parameters": [{"name": n} for n in "abcd"] + [{"name": "e", "default": "-{{workflow.name}}"}]},
        },
    ]
    templates[2]["container"]["args"] += ["{{inputs.parameters.c}}", "{{inputs.parameters.d}}", "{{pod.name}}"]
    made = PodFacts("Succeeded", exit_code=0, outputs={"value": "one\ntwo\n\n"}, result="printed", node="n0")
    world = World(
        workflow(templates=templates, arguments=arguments(given=7)),
        lambda pod: made if node_of(pod).endswith("make") else 0,
    )
    world.run()
    (make,) = [pod for pod in world.manifests.values() if node_of(pod).endswith("make")]
    assert make["metadata"]["annotations"]["primus-flows.io/result"] == "true"
    assert json.loads(make["metadata"]["annotations"]["primus-flows.io/outputs"]) == {"value": "/out/v"}
    used = world.args()["wf[1].use"]
    assert used == ["one\ntwo\n", "7-wf", "printed", "Succeeded 0", f"wf-use-{fnv32a('wf[1].use')}"]
    assert world.nodes["wf[1].use"]["inputs"]["parameters"][0] == {"name": "a", "value": "one\ntwo\n"}


def test_a_missing_output_is_an_error_unless_it_has_a_default() -> None:
    def template(**source: str) -> dict[str, Any]:
        return container("t", outputs={"parameters": [{"name": "v", "valueFrom": {"path": "/v", **source}}]})

    ends: Any = lambda pod: PodFacts("Succeeded", exit_code=0, outputs={"v": None})  # noqa: E731
    world = World(workflow("t", templates=[template()]), ends)
    world.run()
    assert world.phase == "Error"
    assert "the file /v was not written" in world.message
    world = World(workflow("t", templates=[template(default="d")]), ends)
    world.run()
    assert world.nodes["wf"]["outputs"]["parameters"] == [{"name": "v", "value": "d"}]


def test_a_file_that_no_parameter_can_hold_is_an_error_and_never_cut(tmp_path: Path) -> None:
    (tmp_path / "v").write_text("x" * (PARAMETER_LIMIT_BYTES + 1))
    left = json.loads(output_values('{"o": "v", "none": "x"}', lambda path: str(tmp_path / path), None))
    assert left == {"outputs": {"o": None, "none": None}, "result": None, "too_large": {"o": PARAMETER_LIMIT_BYTES + 1}}
    outputs = {"parameters": [{"name": "o", "valueFrom": {"path": "/v", "default": "none"}}]}
    facts = PodFacts("Succeeded", exit_code=0, outputs=left["outputs"], too_large=left["too_large"])
    world = World(workflow("t", templates=[container("t", outputs=outputs)]), lambda pod: facts)
    world.run()
    assert (world.phase, "the file /v holds 1048577 bytes" in world.message) == ("Error", True)


def test_outputs_of_nested_templates_come_from_their_steps() -> None:
    output = {"parameters": [{"name": "v", "valueFrom": {"path": "/v"}}]}
    inner = {
        **steps([task("a")], name="inner"),
        "outputs": {
            "parameters": [
                {"name": "w", "valueFrom": {"parameter": "{{steps.a.outputs.parameters.v}}"}, "globalName": "g"}
            ]
        },
    }
    outer = dag(
        task("x", template="inner"),
        task("y", "x", template="use", arguments=arguments(m="{{tasks.x.outputs.parameters.w}}")),
        task("z", "x", template="use", arguments=arguments(m="{{workflow.outputs.parameters.g}}")),
    )
    templates = [
        outer,
        inner,
        container("t", outputs=output),
        container("use", "{{inputs.parameters.m}}", inputs=("m",)),
    ]
    world = World(workflow(templates=templates), with_value(v="deep\n"))
    status = world.run()
    assert world.args()["wf.y"] == world.args()["wf.z"] == ["deep"]
    assert status["outputs"]["parameters"] == [{"name": "g", "value": "deep"}]
    assert world.nodes["wf.x"]["outboundNodes"] == [world.nodes["wf.x[0].a"]["id"]]


def test_outputs_of_a_skipped_step_are_its_defaults() -> None:
    def run(**source: str) -> World:
        make = container("make", outputs={"parameters": [{"name": "v", "valueFrom": {"path": "/v", **source}}]})
        use = task("use", template="use", arguments=arguments(m="{{steps.make.outputs.parameters.v}}"))
        templates = [
            steps([task("make", template="make", when="a == b")], [use]),
            make,
            container("use", "{{inputs.parameters.m}}", inputs=("m",)),
        ]
        world = World(workflow(templates=templates))
        world.run()
        return world

    world = run(default="none")
    assert (world.phase, world.args()["wf[1].use"]) == ("Succeeded", ["none"])
    world = run()
    assert world.phase == "Failed"
    assert "inputs.parameters.m: argument references an absent optional" in world.message


FAN_OUT = [
    ({"withItems": ["a", "b"]}, ["(0:a)", "(1:b)"]),
    ({"withParam": '["a", 1]'}, ["(0:a)", "(1:1)"]),
    ({"withParam": "{{workflow.parameters.list}}"}, ["(0:x)", "(1:y)"]),
    ({"withSequence": {"count": "2", "format": "n%02d"}}, ["(0:n00)", "(1:n01)"]),
    ({"withItems": [{"k": "v", "a": 1}]}, ["(0:a:1,k:v)"]),
]


@pytest.mark.parametrize(("source", "names"), FAN_OUT)
@pytest.mark.parametrize("kind", ["dag", "steps"])
def test_a_fan_out_runs_one_instance_an_item(kind: str, source: dict[str, Any], names: list[str]) -> None:
    each = task("s", template="e", arguments=arguments(m="{{item}}"), **source)
    main = dag(each, task("after", "s")) if kind == "dag" else steps([each], [task("after")])
    templates = [main, container("e", "{{inputs.parameters.m}}", inputs=("m",)), container("t")]
    world = World(workflow(templates=templates, arguments=arguments(list='["x","y"]')))
    world.step()
    assert len(world.pods) == len(names), "all at once"
    world.run()
    prefix = "wf.s" if kind == "dag" else "wf[0].s"
    made = [name for name in world.nodes if name.startswith(f"{prefix}(")]
    assert made == [prefix + name for name in names]
    assert (prefix in world.nodes) == (kind == "dag"), "only a DAG has a node for the group"
    if kind == "dag":
        group = world.nodes[prefix]
        assert (group["type"], group["phase"], len(group["children"])) == ("TaskGroup", "Succeeded", len(names))
        assert world.nodes["wf"]["children"] == [group["id"]]


def test_aggregated_outputs() -> None:
    make = container(
        "make",
        inputs=("m",),
        outputs={
            "parameters": [{"name": "v", "valueFrom": {"path": "/v"}}, {"name": "j", "valueFrom": {"path": "/j"}}]
        },
    )
    names = ["outputs.parameters.v", "outputs.parameters.j", "outputs.parameters", "outputs.result"]
    use = container("use", *(f"{{{{inputs.parameters.p{i}}}}}" for i in range(4)), inputs=("p0", "p1", "p2", "p3"))
    loop = task(
        "make", template="make", arguments=arguments(m="{{item}}"), withItems=["a", "b<", "c"], when="{{item}} != c"
    )
    given = arguments(**{f"p{i}": f"{{{{steps.make.{name}}}}}" for i, name in enumerate(names)})
    world = World(
        workflow(templates=[steps([loop], [task("use", template="use", arguments=given)]), make, use]),
        lambda pod: PodFacts(
            "Succeeded",
            exit_code=0,
            outputs={"v": f"v{node_of(pod)[-2]}\n", "j": '{"k": [1]}'},
            result='{"n": 1}' if node_of(pod).endswith("(0:a)") else '"text"',
        ),
    )
    # A bare word with < in it is no word: quote it as a user must.
    world.manifest["spec"]["templates"][0]["steps"][0][0]["when"] = "'{{item}}' != c"
    world.run()
    assert world.phases()["wf[0].make(2:c)"] == "Skipped"
    assert world.args()["wf[1].use"] == [
        '["va","v\\u003c"]',
        '[{"k":[1]},{"k":[1]}]',
        '[{"j":"{\\"k\\": [1]}","v":"va"},{"j":"{\\"k\\": [1]}","v":"v\\u003c"}]',
        '[{"n":1},"text"]',
    ]


def test_an_empty_list_is_no_error() -> None:
    world = World(workflow(templates=[steps([task("a", withParam="[]")], [task("b")]), container("t")]))
    world.run()
    assert world.phases()["wf[0].a"] == "Skipped"
    assert world.phases()["wf[1].b"] == world.phase == "Succeeded"
    world = World(workflow(templates=[dag(task("a", withParam="[]"), task("b", "a")), container("t")]))
    world.run()
    assert (world.nodes["wf.a"]["type"], world.phases()["wf.a"], world.phase) == ("Skipped", "Skipped", "Succeeded")


def test_any_succeeded_and_all_failed_look_at_the_items() -> None:
    loop = task("a", template="e", withItems=[0, 1], arguments=arguments(m="{{item}}"))
    templates = [
        dag(loop, task("any", depends="a.AnySucceeded"), task("all", depends="a.AllFailed")),
        container("e", "{{inputs.parameters.m}}", inputs=("m",)),
        container("t"),
    ]
    world = World(workflow(templates=templates), lambda pod: int("(1:1)" in node_of(pod)))
    world.run()
    assert (world.phases()["wf.a"], world.phases()["wf.any"], world.phases()["wf.all"]) == (
        "Failed",
        "Succeeded",
        "Omitted",
    )


def test_a_list_that_is_none_fails_its_step() -> None:
    loop = task("a", withParam="{{workflow.parameters.list}}")
    world = World(workflow(templates=[dag(loop), container("t")], arguments=arguments(list="nope")))
    world.run()
    assert world.phase == "Error"
    assert world.nodes["wf.a"]["message"].startswith("withParam value could not be parsed as a JSON list: nope: ")
