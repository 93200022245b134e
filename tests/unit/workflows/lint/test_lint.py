"""Every rule of the lint finds what it is there for, and nothing in what is right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.support.builders.attempt_plans import a_gpu_plan
from workflows import labels
from workflows.attempt.jobset import jobset
from workflows.attempt.training import manifests
from workflows.lint.lint import RULES, lint
from workflows.lint.pods import SECRET_NAME, SECRET_VALUE

Change = Callable[[dict[str, Any]], None]
PLAN = a_gpu_plan()


def template(workflow: dict[str, Any], name: str) -> dict[str, Any]:
    return next(item for item in workflow["spec"]["templates"] if item["name"] == name)


def steps(workflow: dict[str, Any]) -> list[list[dict[str, Any]]]:
    return template(workflow, "main")["steps"]


def job(manifest: dict[str, Any], role: str = "trainer") -> dict[str, Any]:
    return next(item["template"]["spec"] for item in manifest["spec"]["replicatedJobs"] if item["name"] == role)


def pod(manifest: dict[str, Any], role: str = "trainer") -> dict[str, Any]:
    return job(manifest, role)["template"]["spec"]


def ranks(manifest: dict[str, Any]) -> dict[str, Any]:
    return pod(manifest)["containers"][0]


def put(target: Callable[[dict[str, Any]], dict[str, Any]], key: str, value: Any) -> Change:
    return lambda manifest: target(manifest).__setitem__(key, value)


def drop(target: Callable[[dict[str, Any]], dict[str, Any]], key: str) -> Change:
    return lambda manifest: target(manifest).pop(key)


def add(target: Callable[[dict[str, Any]], list[Any]], item: Any) -> Change:
    return lambda manifest: target(manifest).append(item)


def in_jobset(change: Change) -> Change:
    """The change made to the JobSet inside the workflow's resource step."""

    def apply(workflow: dict[str, Any]) -> None:
        resource = template(workflow, "apply")["resource"]
        inner = yaml.safe_load(resource["manifest"])
        change(inner)
        resource["manifest"] = yaml.safe_dump(inner)

    return apply


EXTRA = {"name": "extra", "activeDeadlineSeconds": 5, "suspend": {}}

WORKFLOW: list[tuple[str, Change]] = [
    ("schema", put(lambda m: m["spec"], "entryPoint", "main")),
    ("size", put(lambda m: m["metadata"]["annotations"], "note", "x" * 1024 * 1024)),
    ("name", put(lambda m: m["metadata"], "name", "a" * 60)),
    ("name", put(lambda m: m["metadata"], "name", "1-a")),
    ("name", put(lambda m: m["metadata"], "name", "Demo_1")),
    ("labels", drop(lambda m: m["metadata"]["labels"], labels.RUN)),
    ("labels", drop(lambda m: m["metadata"]["annotations"], labels.FENCING)),
    ("labels", drop(lambda m: m["spec"]["podMetadata"]["labels"], labels.ATTEMPT)),
    ("labels", put(lambda m: m["metadata"]["labels"], labels.RUN, "no blanks allowed")),
    ("references", put(lambda m: m["spec"], "entrypoint", "nowhere")),
    ("references", put(lambda m: m["spec"], "onExit", "nowhere")),
    ("references", put(lambda m: steps(m)[0][0], "template", "nowhere")),
    ("references", drop(lambda m: steps(m)[0][0], "arguments")),
    ("references", add(lambda m: steps(m)[0][0]["arguments"]["parameters"], {"name": "more", "value": "1"})),
    ("references", put(lambda m: steps(m)[1][0], "when", "{{steps.nobody.outputs.parameters.verdict}} == pass")),
    ("references", put(lambda m: steps(m)[1][0], "when", "{{steps.verify.outputs.parameters.nothing}} == pass")),
    ("references", put(lambda m: steps(m)[0][0], "when", "{{steps.verify.outputs.parameters.verdict}} == pass")),
    ("references", put(lambda m: steps(m)[1][0], "when", "{{item}} == pass")),
    ("references", put(lambda m: template(m, "gate")["nodeSelector"], labels.HOSTNAME, "{{inputs.parameters.n}}")),
    ("unreached", add(lambda m: m["spec"]["templates"], EXTRA)),
    ("command", drop(lambda m: template(m, "gate")["container"], "command")),
    ("deadline", drop(lambda m: template(m, "verify"), "activeDeadlineSeconds")),
    ("deadline", drop(lambda m: m["spec"], "activeDeadlineSeconds")),
    ("deadline", drop(lambda m: m["spec"], "ttlStrategy")),
    ("deadline", put(lambda m: m["spec"]["ttlStrategy"], "secondsAfterCompletion", 86_401)),
    ("deadline", drop(lambda m: m["spec"], "podGC")),
    ("deadline", drop(lambda m: m["spec"], "serviceAccountName")),
    ("default", drop(lambda m: template(m, "verify")["outputs"]["parameters"][0]["valueFrom"], "default")),
    ("resource", put(lambda m: template(m, "apply")["resource"], "setOwnerReference", True)),
    ("resource", put(lambda m: template(m, "apply")["resource"], "successCondition", "status.ready > 0")),
    ("resource", put(lambda m: template(m, "apply")["resource"], "action", "create")),
    ("resource", put(lambda m: template(m, "apply")["resource"], "manifest", "a: [")),
    ("resource", put(lambda m: template(m, "apply")["resource"], "manifest", "only a text")),
    ("limits", drop(lambda m: template(m, "verify")["container"]["resources"], "limits")),
    ("mounts", drop(lambda m: m["spec"], "volumes")),
    ("mounts", add(lambda m: m["spec"]["volumes"], {"name": "idle", "emptyDir": {}})),
    ("gpus", drop(lambda m: template(m, "gate")["container"]["resources"]["limits"], "amd.com/gpu")),
    ("gpus", in_jobset(drop(ranks, "resources"))),
    ("gang", in_jobset(put(lambda m: m["spec"]["failurePolicy"], "maxRestarts", 3))),
    ("schema", in_jobset(put(lambda m: m["spec"], "replicas", 3))),
]

JOBSET: list[tuple[str, Change]] = [
    ("name", put(lambda m: m["metadata"], "name", "a" * 42)),
    ("labels", drop(lambda m: job(m)["template"]["metadata"]["labels"], labels.ROLE)),
    ("labels", drop(lambda m: m["spec"]["replicatedJobs"][0]["template"], "metadata")),
    ("command", drop(ranks, "command")),
    ("limits", drop(lambda m: pod(m)["initContainers"][0], "resources")),
    ("limits", put(lambda m: ranks(m)["resources"]["requests"], "rdma/hca", "4")),
    ("mounts", add(lambda m: ranks(m)["volumeMounts"], {"name": "nowhere", "mountPath": "/x"})),
    ("mounts", put(lambda m: ranks(m)["env"][0], "name", "OTHER")),
    ("secret", add(lambda m: ranks(m)["env"], {"name": "WANDB_API_KEY", "value": "0123"})),
    ("secret", add(lambda m: ranks(m)["env"], {"name": "X", "value": "postgresql://me:word@db/x"})),
    ("secret", add(lambda m: ranks(m)["command"], "--key=AKIA" + "A" * 16)),
    ("gang", put(lambda m: m["spec"]["successPolicy"], "targetReplicatedJobs", [])),
    ("gang", put(lambda m: m["spec"]["successPolicy"], "targetReplicatedJobs", ["nobody"])),
    ("gang", put(job, "parallelism", 1)),
    ("gang", put(job, "completionMode", "NonIndexed")),
    ("gang", put(job, "backoffLimit", 6)),
    ("gang", put(pod, "restartPolicy", "OnFailure")),
    ("gang", put(lambda m: pod(m, "feeder"), "restartPolicy", "Always")),
    ("gpus", put(ranks, "resources", {"limits": {"amd.com/gpu": "4"}, "requests": {"amd.com/gpu": "4"}})),
]


def found(manifest: dict[str, Any], change: Change) -> set[str]:
    changed = copy.deepcopy(manifest)
    change(changed)
    return {finding.rule for finding in lint(changed, PLAN)}


@pytest.mark.parametrize(("rule", "change"), WORKFLOW, ids=[f"{i}-{rule}" for i, (rule, _) in enumerate(WORKFLOW)])
def test_a_wrong_workflow_is_found_by_its_rule(rule: str, change: Change) -> None:
    assert rule in found(manifests(PLAN)[-1], change)


@pytest.mark.parametrize(("rule", "change"), JOBSET, ids=[f"{i}-{rule}" for i, (rule, _) in enumerate(JOBSET)])
def test_a_wrong_jobset_is_found_by_its_rule(rule: str, change: Change) -> None:
    assert rule in found(jobset(PLAN), change)


def test_every_rule_is_shown_to_find_something() -> None:
    assert {rule.name for rule in RULES} | {"schema"} == {rule for rule, _ in (*WORKFLOW, *JOBSET)}


def test_what_is_inside_a_resource_step_is_found_by_its_path() -> None:
    workflow = copy.deepcopy(manifests(PLAN)[-1])
    in_jobset(put(lambda m: m["spec"]["failurePolicy"], "maxRestarts", 3))(workflow)
    (finding,) = lint(workflow, PLAN)
    assert finding.path.endswith("resource.manifest:spec.failurePolicy.maxRestarts")


def test_a_dag_may_read_only_what_it_waits_for() -> None:
    workflow = copy.deepcopy(manifests(PLAN)[-1])
    main = template(workflow, "main")
    (gate, verify), (apply,) = main.pop("steps")
    apply["when"] = apply["when"].replace("steps.", "tasks.")
    for item in apply["arguments"]["parameters"]:
        item["value"] = item["value"].replace("steps.", "tasks.")
    main["dag"] = {"tasks": [gate, verify, apply | {"depends": "gate && verify"}]}
    assert lint(workflow, PLAN) == []
    main["dag"]["tasks"][2]["depends"] = "gate"
    assert {finding.rule for finding in lint(workflow, PLAN)} == {"references"}


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "TOKEN"])
def test_names_of_secrets_are_known(name: str) -> None:
    assert SECRET_NAME.search(name)


@pytest.mark.parametrize("name", ["MAX_TOKENS", "TOKENIZERS_PARALLELISM", "EOS_TOKEN", "KEY_SIZE", "PRIMUS_RUN"])
def test_ordinary_names_are_no_secrets(name: str) -> None:
    assert not SECRET_NAME.search(name)


@pytest.mark.parametrize("value", ["ghp_" + "a" * 36, "hf_" + "a" * 34, "-----BEGIN RSA PRIVATE KEY", "x://u:p@h"])
def test_values_that_are_secrets_are_known(value: str) -> None:
    assert SECRET_VALUE.search(value)


@pytest.mark.parametrize("value", ["http://host:29400", "$(PRIMUS_FOLDER_STORAGE_0)/runs", "git@host:a/b", "1:2@3"])
def test_ordinary_values_are_no_secrets(value: str) -> None:
    assert not SECRET_VALUE.search(value)
