"""A manifest as lint rules see it, a finding about it, and the strict check against the schemas.

The definitions are those that `schemas/README.md` lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from workflows import labels
from workflows.attempt.plan import AttemptPlan

Part = dict[str, Any]
"""An object inside a manifest."""

SCHEMAS = {
    "Workflow": "argo-workflow.json",
    "JobSet": "jobset.json",
    "TrainJob": "trainjob.json",
    "TrainingRuntime": "trainingruntime.json",
    "PyTorchJob": "pytorchjob.json",
    "Job": "job.json",
    "Service": "service.json",
}
RULE = "schema"
MESSAGE_CHARACTERS = 300


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong."""

    path: str
    """Where in the object, e.g. `spec.templates[0].container.command`."""
    rule: str
    """Name of the rule that found it."""
    message: str
    """What is wrong."""


@dataclass(frozen=True)
class PodPart:
    """The part of a manifest that becomes a pod."""

    path: str
    """Where its containers stand."""
    name: str
    """Name of the template or role."""
    pods: int
    """How many; 1 for a template."""
    containers: tuple[tuple[str, Part], ...]
    """Path and content of every container, init containers first."""
    volumes: tuple[str, ...]
    """Names of the volumes that it may mount."""
    marked: tuple[str, Part] | None = None
    """Path and content of its own labels; None for a template of a Workflow, whose labels all pods share."""


@dataclass(frozen=True)
class Subject:
    """A manifest whose structure is right."""

    manifest: Part
    plan: AttemptPlan | None

    @property
    def kind(self) -> str:
        """One of those that `workflows.lint.subject` knows."""
        return self.manifest["kind"]

    @property
    def name(self) -> str:
        """The object's name; one that the API server will end with five letters stands with such letters."""
        metadata = part(self.manifest, "metadata")
        stem = metadata.get("generateName")
        return metadata.get("name") or (f"{stem}xxxxx" if stem else "")

    @property
    def spec(self) -> Part:
        """The object's `spec`."""
        return part(self.manifest, "spec")

    @property
    def jobset(self) -> tuple[str, Part]:
        """Path and content of the specification of a JobSet: its own, or a TrainingRuntime's template."""
        if self.kind == "TrainingRuntime":
            return "spec.template.spec", part(part(self.spec, "template"), "spec")
        return "spec", self.spec if self.kind == "JobSet" else {}

    def pod_parts(self) -> Iterator[PodPart]:
        """Everything that becomes a pod, and the part of one that a TrainJob holds."""
        if self.kind == "Workflow":
            yield from _of_workflow(self.spec)
        elif self.kind == "Job":
            yield _of_job("spec", self.spec)
        elif self.kind == "PyTorchJob":
            yield from _of_pytorchjob(self.spec)
        elif self.kind == "TrainJob":
            trainer = part(self.spec, "trainer")
            yield PodPart("spec.trainer", "trainer", trainer.get("numNodes", 1), (("spec.trainer", trainer),), ())
        else:
            yield from _of_jobset(*self.jobset)


def part(of: Part, key: str) -> Part:
    """The object at `key`; empty where there is none."""
    return of.get(key) or {}


def parts(of: Part, key: str) -> list[Part]:
    """The objects in the list at `key`; empty where there is none."""
    return of.get(key) or []


def at(path: str, key: str, items: list[Part]) -> list[tuple[str, Part]]:
    """Each of `items` with its path."""
    return [(f"{path}.{key}[{index}]", item) for index, item in enumerate(items)]


def _of_workflow(spec: Part) -> Iterator[PodPart]:
    common = [volume["name"] for volume in parts(spec, "volumes")]
    for path, template in at("spec", "templates", parts(spec, "templates")):
        own = [(f"{path}.{key}", template[key]) for key in ("container", "script") if key in template]
        beside = [pair for key in ("initContainers", "sidecars") for pair in at(path, key, parts(template, key))]
        if own:
            volumes = [*common, *(volume["name"] for volume in parts(template, "volumes"))]
            yield PodPart(path, template.get("name", ""), 1, (*beside, *own), tuple(volumes))


def _of_jobset(path: str, spec: Part) -> Iterator[PodPart]:
    for where, job in at(path, "replicatedJobs", parts(spec, "replicatedJobs")):
        yield _of_job(f"{where}.template.spec", part(part(job, "template"), "spec"), job["name"])


def _of_job(path: str, job: Part, name: str = "") -> PodPart:
    return _of_template(f"{path}.template", part(job, "template"), job.get("parallelism", 1), name)


def _of_pytorchjob(spec: Part) -> Iterator[PodPart]:
    for replica, content in part(spec, "pytorchReplicaSpecs").items():
        path = f"spec.pytorchReplicaSpecs.{replica}.template"
        yield _of_template(path, part(content, "template"), content.get("replicas", 1))


def _of_template(path: str, template: Part, pods: int, name: str = "") -> PodPart:
    """`name` empty: the role that its label names."""
    own: Part = part(part(template, "metadata"), "labels")
    spec, where = part(template, "spec"), f"{path}.spec"
    containers = [pair for key in ("initContainers", "containers") for pair in at(where, key, parts(spec, key))]
    volumes = tuple(volume["name"] for volume in parts(spec, "volumes"))
    role = name or own.get(labels.ROLE, "")
    return PodPart(where, role, pods, tuple(containers), volumes, (f"{path}.metadata.labels", own))


def schema_errors(manifest: Mapping[str, Any]) -> list[Finding]:
    """What the API server would refuse: unknown fields, wrong types, missing fields; empty where it takes all."""
    kind = str(manifest.get("kind", ""))
    if kind not in SCHEMAS:
        return [Finding("kind", RULE, f"{kind!r} is not one of {', '.join(SCHEMAS)}")]
    errors: Iterable[ValidationError] = _validator(kind).iter_errors(manifest)  # pyright: ignore[reportUnknownMemberType]
    return [Finding(_path(error), RULE, error.message[:MESSAGE_CHARACTERS]) for error in errors]


@cache
def _validator(kind: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads(files("workflows").joinpath("schemas", SCHEMAS[kind]).read_text()))


def _path(error: ValidationError) -> str:
    """`$.spec.templates[0].name` without its first two characters; the top itself is `.`."""
    return error.json_path[2:] or "."
