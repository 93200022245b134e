"""The strict schemas of everything that we send."""

from __future__ import annotations

import copy
from importlib.resources import files
from typing import Any

import pytest

from tests.support.builders.attempt_plans import a_gpu_plan, a_plan
from workflows.attempt.training import gang, manifests
from workflows.lint.subject import SCHEMAS, schema_errors

POD = ("spec", "replicatedJobs", 1, "template", "spec", "template", "spec")

WORKER = ("spec", "pytorchReplicaSpecs", "Worker")

WRONG: list[tuple[str, tuple[str | int, ...], Any, str]] = [
    ("JobSet", ("spec", "maxRestarts"), 0, "spec"),
    ("JobSet", (*POD, "container"), [], "spec.replicatedJobs[1].template.spec.template.spec"),
    ("JobSet", (*POD, "containers", 0, "image"), 5, ".containers[0].image"),
    ("JobSet", (*POD, "terminationGracePeriodSeconds"), "40", ".terminationGracePeriodSeconds"),
    ("JobSet", (*POD, "containers", 0, "resources", "limits", "amd.com/gpu"), "eight", "limits"),
    ("JobSet", ("spec", "successPolicy", "operator"), "Some", "spec.successPolicy.operator"),
    ("JobSet", ("apiVersion",), "jobset.x-k8s.io/v1", "apiVersion"),
    ("Workflow", ("spec", "templates", 0, "retryStrategy", "limits"), 1, "spec.templates[0].retryStrategy"),
    ("Workflow", ("spec", "templates", 0, "container", "gpus"), 1, "spec.templates[0].container"),
    ("Workflow", ("spec", "ttlStrategy", "secondsAfterCompletion"), "day", "spec.ttlStrategy"),
    ("Workflow", ("spec", "templates"), {}, "spec.templates"),
    ("Workflow", ("metadata", "ownerReferences"), [], "metadata"),
    ("Workflow", ("status",), {}, "."),
    ("TrainJob", ("spec", "trainer", "nodes"), 2, "spec.trainer"),
    ("TrainJob", ("spec", "trainer", "numNodes"), "2", "spec.trainer.numNodes"),
    ("TrainJob", ("spec", "trainer", "args"), ["a"] * 129, "spec.trainer.args"),
    ("TrainJob", ("spec", "activeDeadlineSeconds"), 0, "spec.activeDeadlineSeconds"),
    ("TrainJob", ("spec", "runtimeRef"), {}, "spec.runtimeRef"),
    ("TrainingRuntime", ("spec", "mlPolicy", "nodes"), 2, "spec.mlPolicy"),
    ("TrainingRuntime", ("spec", "template", *POD, "containers", 0, "image"), 5, ".containers[0].image"),
    ("PyTorchJob", ("spec", "runPolicy", "cleanpodpolicy"), "All", "spec.runPolicy"),
    ("PyTorchJob", (*WORKER, "replicas"), "2", "Worker.replicas"),
    ("PyTorchJob", (*WORKER, "template", "spec", "container"), [], "Worker.template.spec"),
    ("PyTorchJob", ("apiVersion",), "kubeflow.org/v1beta1", "apiVersion"),
    ("Job", ("spec", "parallelism"), "1", "spec.parallelism"),
    ("Job", ("spec", "template", "spec", "containers", 0, "cmd"), [], ".containers[0]"),
    ("Job", ("spec", "template", "spec", "containers", 0, "resources", "limits", "cpu"), [], "limits.cpu"),
    ("Service", ("spec", "ports", 0, "port"), "29400", "spec.ports[0].port"),
    ("Service", ("spec", "selectors"), {}, "spec"),
]


def built(kind: str) -> dict[str, Any]:
    gpus, plain = a_gpu_plan(), a_plan()
    made = [manifests(gpus)[-1], *gang(gpus), *gang(gpus, "trainjob"), *gang(plain, "pytorchjob")]
    return copy.deepcopy(next(one for one in made if one["kind"] == kind))


@pytest.mark.parametrize("kind", SCHEMAS)
def test_what_we_build_is_accepted(kind: str) -> None:
    assert schema_errors(built(kind)) == []


@pytest.mark.parametrize(("kind", "path", "value", "found_at"), WRONG)
def test_what_the_server_would_refuse_is_found_where_it_is(
    kind: str, path: tuple[str | int, ...], value: Any, found_at: str
) -> None:
    manifest = built(kind)
    target: Any = manifest
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    findings = schema_errors(manifest)
    assert any(found_at in finding.path for finding in findings), findings


def test_numbers_and_texts_are_both_taken_where_kubernetes_takes_both() -> None:
    manifest = built("Workflow")
    template = manifest["spec"]["templates"][0]
    template["retryStrategy"]["limit"] = "2"
    template["activeDeadlineSeconds"] = "120"
    assert schema_errors(manifest) == []


def test_a_port_may_have_a_number_or_a_name_as_its_target() -> None:
    service = built("Service")
    for target in (29400, "primus"):
        service["spec"]["ports"][0]["targetPort"] = target
        assert schema_errors(service) == []


def test_items_may_be_anything() -> None:
    manifest = built("Workflow")
    step = manifest["spec"]["templates"][-1]["steps"][0][0]
    step["withItems"] = ["text", 1, {"key": "value"}, ["list"]]
    assert schema_errors(manifest) == []


def test_another_kind_is_not_ours() -> None:
    assert [finding.path for finding in schema_errors({"kind": "Pod"})] == ["kind"]


@pytest.mark.parametrize("name", SCHEMAS.values())
def test_schemas_are_small_and_say_where_they_come_from(name: str) -> None:
    text = files("workflows").joinpath("schemas", name).read_text()
    assert len(text) < 400_000
    assert "Apache-2.0" in text[:200]
