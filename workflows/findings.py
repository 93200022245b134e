"""What is wrong with a manifest, and what the rules that find it look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from workflows.plan import AttemptPlan

Part = dict[str, Any]
"""An object inside a manifest."""


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
    name: str
    """Name of the template or role."""
    pods: int
    """How many; 1 for a template."""
    containers: tuple[tuple[str, Part], ...]
    """Path and content of every container, init containers first."""
    volumes: tuple[str, ...]
    """Names of the volumes that it may mount."""


@dataclass(frozen=True)
class Subject:
    """A manifest whose structure is right."""

    manifest: Part
    plan: AttemptPlan | None

    @property
    def kind(self) -> str:
        """`Workflow` or `JobSet`."""
        return self.manifest["kind"]

    @property
    def name(self) -> str:
        """The object's name."""
        return part(self.manifest, "metadata").get("name", "")

    @property
    def spec(self) -> Part:
        """The object's `spec`."""
        return part(self.manifest, "spec")

    def pod_parts(self) -> Iterator[PodPart]:
        """Everything that becomes a pod."""
        return _of_workflow(self.spec) if self.kind == "Workflow" else _of_jobset(self.spec)


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


def _of_jobset(spec: Part) -> Iterator[PodPart]:
    for path, job in at("spec", "replicatedJobs", parts(spec, "replicatedJobs")):
        inner = part(part(job, "template"), "spec")
        pod = part(part(inner, "template"), "spec")
        where = f"{path}.template.spec.template.spec"
        containers = [pair for key in ("initContainers", "containers") for pair in at(where, key, parts(pod, key))]
        volumes = tuple(volume["name"] for volume in parts(pod, "volumes"))
        yield PodPart(where, job["name"], inner.get("parallelism", 1), tuple(containers), volumes)
