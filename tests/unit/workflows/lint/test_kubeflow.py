"""Every rule about what Kubeflow's controllers run finds what it is there for, and nothing in what is right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.builders.attempt_plans import AMD, a_cluster, a_gpu_plan, a_plan, a_run
from workflows import labels
from workflows.attempt.training import gang
from workflows.lint.lint import RULES, lint

Manifest = dict[str, Any]
Change = Callable[[Manifest], Any]

PLAN = a_plan(a_run(roles=(a_gpu_plan().role,)), a_cluster(AMD, engine="kubernetes", queue="team"), AMD)
MANIFESTS = {one["kind"]: one for form in ("trainjob", "pytorchjob") for one in gang(PLAN, form)}


def policy(manifest: Manifest) -> Manifest:
    return manifest["spec"]["runPolicy"]


def worker(manifest: Manifest) -> Manifest:
    return manifest["spec"]["pytorchReplicaSpecs"]["Worker"]


def jobset(runtime: Manifest) -> Manifest:
    return runtime["spec"]["template"]["spec"]


def job(runtime: Manifest) -> Manifest:
    """The template of the ranks' job in a TrainingRuntime."""
    return jobset(runtime)["replicatedJobs"][1]["template"]


def ranks(manifest: Manifest) -> Manifest:
    """The ranks' container, wherever it stands."""
    if manifest["kind"] == "TrainJob":
        return manifest["spec"]["trainer"]
    template = job(manifest)["spec"]["template"] if manifest["kind"] == "TrainingRuntime" else _template(manifest)
    return template["spec"]["containers"][0]


def _template(manifest: Manifest) -> Manifest:
    return worker(manifest)["template"] if manifest["kind"] == "PyTorchJob" else manifest["spec"]["template"]


def put(target: Callable[[Manifest], Manifest], key: str, value: Any) -> Change:
    return lambda manifest: target(manifest).__setitem__(key, value)


def drop(target: Callable[[Manifest], Manifest], key: str) -> Change:
    return lambda manifest: target(manifest).pop(key)


def spec(manifest: Manifest) -> Manifest:
    return manifest["spec"]


def marks(manifest: Manifest) -> Manifest:
    return manifest["metadata"]["labels"]


def metadata(manifest: Manifest) -> Manifest:
    return manifest["metadata"]


HALF = {"limits": {"amd.com/gpu": "4"}, "requests": {"amd.com/gpu": "4"}}
SECRET = [{"name": "WANDB_API_KEY", "value": "0123"}]

WRONG: list[tuple[str, str, Change]] = [
    *((kind, "name", put(metadata, "name", "a" * 64)) for kind in MANIFESTS),
    *((kind, "name", put(metadata, "name", "1-a")) for kind in MANIFESTS),
    *((kind, "labels", drop(marks, labels.RUN)) for kind in MANIFESTS),
    *((kind, "labels", drop(lambda m: m["metadata"]["annotations"], labels.FENCING)) for kind in MANIFESTS),
    *((kind, "size", put(lambda m: m["metadata"]["annotations"], "x", "x" * 2**20)) for kind in MANIFESTS),
    *((kind, "schema", put(spec, "unknown", 1)) for kind in MANIFESTS),
    ("TrainJob", "command", drop(ranks, "image")),
    ("TrainJob", "command", drop(ranks, "command")),
    ("TrainJob", "secret", put(ranks, "env", SECRET)),
    ("TrainJob", "secret", put(ranks, "args", ["--key=AKIA" + "A" * 16])),
    ("TrainJob", "deadline", put(spec, "activeDeadlineSeconds", 60)),
    ("TrainJob", "gang", put(ranks, "numNodes", 3)),
    ("TrainJob", "gang", drop(lambda m: m["spec"]["runtimeRef"], "kind")),
    ("TrainJob", "gang", put(lambda m: m["spec"]["runtimeRef"], "name", "torch-distributed")),
    ("TrainJob", "gang", put(spec, "suspend", True)),
    ("TrainingRuntime", "name", put(lambda m: jobset(m)["replicatedJobs"][0], "name", "c" * 50)),
    ("TrainingRuntime", "labels", drop(lambda m: m["spec"]["template"], "metadata")),
    ("TrainingRuntime", "labels", drop(lambda m: job(m)["metadata"]["labels"], labels.ROLE)),
    ("TrainingRuntime", "labels", drop(lambda m: job(m)["spec"]["template"]["metadata"]["labels"], labels.ROLE)),
    ("TrainingRuntime", "command", drop(lambda m: job(m)["spec"]["template"]["spec"]["initContainers"][0], "command")),
    ("TrainingRuntime", "limits", put(lambda m: ranks(m)["resources"]["requests"], "rdma/hca", "4")),
    ("TrainingRuntime", "mounts", drop(lambda m: job(m)["spec"]["template"]["spec"], "volumes")),
    ("TrainingRuntime", "secret", put(ranks, "env", SECRET)),
    ("TrainingRuntime", "gpus", put(ranks, "resources", HALF)),
    ("TrainingRuntime", "gang", put(jobset, "ttlSecondsAfterFinished", 60)),
    ("TrainingRuntime", "gang", put(lambda m: jobset(m)["failurePolicy"], "maxRestarts", 3)),
    ("TrainingRuntime", "gang", put(lambda m: m["spec"]["mlPolicy"], "torch", {})),
    ("TrainingRuntime", "gang", drop(spec, "mlPolicy")),
    ("TrainingRuntime", "gang", put(ranks, "name", "trainer")),
    (
        "TrainingRuntime",
        "gang",
        drop(lambda m: job(m)["metadata"]["labels"], "trainer.kubeflow.org/trainjob-ancestor-step"),
    ),
    ("PyTorchJob", "labels", drop(lambda m: worker(m)["template"]["metadata"]["labels"], labels.ROLE)),
    ("PyTorchJob", "command", drop(ranks, "command")),
    ("PyTorchJob", "deadline", put(policy, "activeDeadlineSeconds", 60)),
    ("PyTorchJob", "deadline", drop(policy, "ttlSecondsAfterFinished")),
    ("PyTorchJob", "limits", drop(lambda m: worker(m)["template"]["spec"]["initContainers"][0], "resources")),
    ("PyTorchJob", "mounts", drop(lambda m: worker(m)["template"]["spec"], "volumes")),
    ("PyTorchJob", "secret", put(ranks, "env", SECRET)),
    ("PyTorchJob", "gpus", put(ranks, "resources", HALF)),
    ("PyTorchJob", "gang", put(worker, "restartPolicy", "OnFailure")),
    ("PyTorchJob", "gang", put(lambda m: worker(m)["template"]["spec"], "restartPolicy", "Never")),
    ("PyTorchJob", "gang", put(worker, "replicas", 3)),
    ("PyTorchJob", "gang", put(ranks, "name", "trainer")),
    ("PyTorchJob", "gang", put(lambda m: m["spec"]["pytorchReplicaSpecs"], "Master", {})),
    ("PyTorchJob", "gang", put(spec, "elasticPolicy", {})),
    ("PyTorchJob", "gang", put(policy, "backoffLimit", 0)),
    ("PyTorchJob", "gang", put(policy, "cleanPodPolicy", "All")),
    ("PyTorchJob", "gang", put(policy, "schedulingPolicy", {"minAvailable": 1})),
    ("PyTorchJob", "gang", put(policy, "suspend", True)),
    ("Job", "command", drop(ranks, "command")),
    ("Job", "limits", drop(ranks, "resources")),
    ("Job", "mounts", drop(lambda m: m["spec"]["template"]["spec"], "volumes")),
    ("Job", "secret", put(ranks, "env", SECRET)),
    ("Job", "gang", put(lambda m: m["spec"]["template"]["spec"], "restartPolicy", "Never")),
    ("Job", "gang", put(marks, "kueue.x-k8s.io/queue-name", "team")),
    ("Service", "labels", drop(lambda m: m["spec"]["selector"], labels.ROLE)),
]


@pytest.mark.parametrize("kind", MANIFESTS)
def test_what_is_right_is_left_alone(kind: str) -> None:
    assert lint(MANIFESTS[kind], PLAN) == []


@pytest.mark.parametrize(("kind", "rule", "change"), WRONG, ids=[f"{i}-{w[0]}-{w[1]}" for i, w in enumerate(WRONG)])
def test_what_is_wrong_is_found_by_its_rule(kind: str, rule: str, change: Change) -> None:
    manifest = copy.deepcopy(MANIFESTS[kind])
    change(manifest)
    assert rule in {finding.rule for finding in lint(manifest, PLAN)}


def test_every_rule_is_shown_to_find_something_in_every_kind() -> None:
    wanted = {(kind, rule.name) for rule in RULES for kind in rule.kinds if kind in MANIFESTS}
    assert wanted <= {(kind, rule) for kind, rule, _ in WRONG}


def test_without_a_plan_sizes_and_deadlines_are_not_compared() -> None:
    manifests = copy.deepcopy(MANIFESTS)
    manifests["TrainJob"]["spec"]["trainer"]["numNodes"] = 3
    manifests["TrainJob"]["spec"]["activeDeadlineSeconds"] = 60
    assert [finding for one in manifests.values() for finding in lint(one)] == []


def test_helping_roles_in_a_runtime_are_left_alone() -> None:
    plan = a_gpu_plan()
    assert [finding for one in gang(plan, "trainjob") for finding in lint(one, plan)] == []
