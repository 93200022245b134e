"""The pods and resources of workflows: what they carry, and how their ends are told."""

from __future__ import annotations

from tasks.embedded.engine.argo.state import PodFacts
from tasks.embedded.engine.argo.workflow import advance
from tests.support.cases.rows import rows
from tests.support.fakes.workflow_simulator import (
    World,
    arguments,
    container,
    steps,
    task,
    workflow,
)


def test_a_single_container() -> None:
    world = World(workflow("t", templates=[container("t", "hello")]))
    status = world.run()
    assert (world.phase, status["progress"]) == ("Succeeded", "1/1")
    (pod,) = world.manifests.values()
    assert pod["metadata"]["name"] == "wf"
    assert pod["metadata"]["labels"] == {"workflows.argoproj.io/workflow": "wf"}
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["containers"] == [{"image": "busybox", "command": ["echo"], "args": ["hello"], "name": "main"}]
    assert status["nodes"]["wf"]["type"] == "Pod"
    assert status["nodes"]["wf"]["hostNodeName"] == "n0"
    assert status["nodes"]["wf"]["outputs"]["exitCode"] == "0"


def test_a_failed_container_says_what_argo_says() -> None:
    world = World(workflow("t", templates=[container("t")]), lambda pod: 3)
    world.run()
    assert (world.phase, world.message) == ("Failed", "main: Error (exit code 3)")


@rows("embedded/engine/argo/pods")
def test_the_end_of_a_pod_in_words(facts: PodFacts, message: str) -> None:
    world = World(workflow("t", templates=[container("t")]), lambda pod: facts)
    world.run()
    assert (world.phase, world.message) == ("Failed", message)


def test_a_resource_is_applied_once_and_read() -> None:
    manifest = "kind: JobSet\napiVersion: x/v1\nmetadata:\n  name: '{{inputs.parameters.n}}'\n"
    apply = {
        "name": "apply",
        "inputs": {"parameters": [{"name": "n"}]},
        "resource": {"action": "apply", "manifest": manifest, "flags": ["--server-side"]},
        "outputs": {"parameters": [{"name": "name", "valueFrom": {"jsonPath": "{.metadata.name}"}}]},
    }
    use = task("use", template="use", arguments=arguments(m="{{steps.a.outputs.parameters.name}}"))
    templates = [
        steps([task("a", template="apply", arguments=arguments(n="job-1"))], [use]),
        apply,
        container("use", "{{inputs.parameters.m}}", inputs=("m",)),
    ]
    world = World(workflow(templates=templates))
    world.run()
    assert world.applied == [("apply", {"kind": "JobSet", "apiVersion": "x/v1", "metadata": {"name": "job-1"}})]
    assert (world.phase, world.args()["wf[1].use"]) == ("Succeeded", ["job-1"])
    assert world.nodes["wf[0].a"]["type"] == "Pod"


def test_a_script_is_a_file_whose_path_is_the_last_argument() -> None:
    script = {
        "name": "t",
        "inputs": {"parameters": [{"name": "n", "value": "5"}]},
        "script": {"image": "i", "command": ["sh", "-c"], "args": ["-x"], "source": "echo {{inputs.parameters.n}}\n"},
    }
    world = World(workflow("t", templates=[script]))
    world.run()
    (pod,) = world.manifests.values()
    assert pod["spec"]["containers"][0]["args"] == ["-x", "/argo/staging/script"]
    assert "source" not in pod["spec"]["containers"][0]
    assert pod["metadata"]["annotations"]["primus-flows.io/script-source"] == "echo 5\n"
    assert pod["metadata"]["annotations"]["primus-flows.io/private-tmp"] == "true"


def test_pods_carry_what_workflow_and_template_say() -> None:
    templates = [
        container(
            "t",
            nodeSelector={"b": "{{workflow.parameters.p}}"},
            volumes=[{"name": "own", "emptyDir": {}}],
            metadata={"labels": {"l": "{{workflow.parameters.p}}"}, "annotations": {"a": "1"}},
            initContainers=[{"name": "i", "image": "x", "command": ["c"], "mirrorVolumeMounts": True}],
            activeDeadlineSeconds="{{workflow.parameters.seconds}}",
            priorityClassName="high",
        )
    ]
    templates[0]["container"]["volumeMounts"] = [{"name": "shared", "mountPath": "/s"}]
    world = World(
        workflow(
            "t",
            templates=templates,
            arguments=arguments(p="v", seconds=30),
            nodeSelector={"a": "1", "b": "2"},
            tolerations=[{"key": "k", "operator": "Exists"}],
            serviceAccountName="sa",
            podMetadata={"labels": {"common": "yes"}},
            volumes=[
                {"name": "shared", "hostPath": {"path": "/x/{{workflow.name}}"}},
                {"name": "unused", "emptyDir": {}},
            ],
            templateDefaults={"container": {"env": [{"name": "E", "value": "1"}]}, "securityContext": {"runAsUser": 5}},
        )
    )
    world.run()
    (pod,) = world.manifests.values()
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"a": "1", "b": "v"}
    assert spec["volumes"] == [{"name": "shared", "hostPath": {"path": "/x/wf"}}, {"name": "own", "emptyDir": {}}]
    assert spec["initContainers"][0]["volumeMounts"] == [{"name": "shared", "mountPath": "/s"}]
    assert (spec["serviceAccountName"], spec["priorityClassName"], spec["activeDeadlineSeconds"]) == ("sa", "high", 30)
    assert spec["tolerations"] == [{"key": "k", "operator": "Exists"}]
    assert spec["securityContext"] == {"runAsUser": 5}
    assert spec["containers"][0]["env"] == [{"name": "E", "value": "1"}]
    assert pod["metadata"]["labels"] == {"common": "yes", "l": "v", "workflows.argoproj.io/workflow": "wf"}
    assert pod["metadata"]["annotations"]["a"] == "1"


def test_a_finished_workflow_stays_as_it_is() -> None:
    world = World(workflow("t", templates=[container("t")]))
    status = world.run()
    again = advance(world.manifest, world.pods, {}, world.now + 100)
    assert again.status == status
    assert (again.create_pods, again.apply_resources, again.delete_pods, again.wake_at) == ((), (), (), None)


def test_a_pod_is_made_again_only_while_nobody_saw_it() -> None:
    world = World(workflow("t", templates=[container("t")]))
    world.step()
    world.pods.clear()
    (again,) = advance(world.manifest, {}, {}, world.now).create_pods
    assert again == world.manifests["wf"], "the keeper died between status and pod"
    world.pods["wf"] = PodFacts("Running", node="n0")
    world.step()
    world.pods.clear()
    world.step()
    assert (world.phase, world.message) == ("Error", "pod deleted")
