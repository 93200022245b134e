"""The working state of one `advance`: the facts it gets, nodes copied when they change, and the step it answers.

Facts are about pods and applied resources; the step says what is to be done outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tasks.embedded.engine.argo.names import display_name, node_id, pod_name
from tasks.embedded.engine.argo.plan import Plan, Template
from tasks.embedded.engine.json_values import Json, as_map, stamp

DONE = frozenset(("Succeeded", "Failed", "Error", "Skipped", "Omitted"))
"""Phases of a node that will not change any more."""
COMPLETED = frozenset(("Succeeded", "Failed", "Error"))
"""Phases of a node that did run."""
FAILED = frozenset(("Failed", "Error"))
ACTIVE_TYPES = frozenset(("Pod", "DAG", "Steps"))
"""Node types that a template's `parallelism` counts."""


@dataclass(frozen=True)
class PodFacts:
    """One pod of a workflow as it stands; the pod's name is the key under which it is given."""

    phase: str
    """Pending, Running, Succeeded or Failed."""
    exit_code: int | None = None
    """Of the container `main`; None where it never ended by itself (pending, running, node lost, never started)."""
    message: str = ""
    """Pending: why it waits. Failed: the termination message of `main`, or why the pod failed as a whole."""
    started_at: float | None = None
    finished_at: float | None = None
    outputs: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Output parameter to the content of its file; None where the file is absent."""
    too_large: Mapping[str, int] = field(default_factory=dict[str, int])
    """Output parameter to the size in bytes of its file, where that is more than a parameter may hold."""
    artifacts: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """Output artifact to its key in the cluster's folder; None where nothing lies at its path."""
    result: str | None = None
    """Standard output without its last newline; needed where the pod has the annotation `primus-flows.io/result`."""
    reason: str = ""
    """Of the container's end (`Error`, `OOMKilled`, `StartError`), or of the pod's (`NodeLost`, `DeadlineExceeded`)."""
    node: str = ""
    """The node it was placed on; "" while it waits."""


@dataclass(frozen=True)
class ResourceFacts:
    """What became of applying a resource template's manifest; the node's id is the key under which it is given."""

    phase: str
    """Pending, Succeeded or Failed."""
    message: str = ""
    outputs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Output parameters that the keeper read itself; the rest are read from `object`."""
    object: Mapping[str, Any] | None = None
    """The object as the store holds it after applying, for `valueFrom.jsonPath`."""


@dataclass(frozen=True)
class Step:
    """What to do next. All of it may be done again: the same facts give the same step."""

    status: Json
    """The workflow's complete new `.status`."""
    create_pods: tuple[Json, ...] = ()
    """Manifests of pods that do not exist yet."""
    apply_resources: tuple[tuple[str, str, Json], ...] = ()
    """Node id, action (`apply` or `create`) and manifest, until facts about the node id are given."""
    delete_pods: tuple[str, ...] = ()
    """Pods to end now (deadline, stop, terminate); their nodes are finished already."""
    wake_at: float | None = None
    """When to ask again even if nothing happens (backoff, deadline, suspend); seconds since 1970."""


@dataclass(frozen=True)
class Place:
    """Where in the tree a template runs."""

    node_name: str
    call: str = ""
    """Name of the step or task that called it; "" at the root."""
    boundary_id: str = ""
    """Node id of the surrounding DAG or steps template; "" at the root."""
    boundary_name: str = ""
    boundary: Template | None = None
    on_exit: bool = False
    """Whether it belongs to an exit hook, which runs even after a stop."""
    hooked: bool = False
    retried: bool = False
    depth: int = 0
    label: str = ""
    """What the called template knows as `steps.name` or `tasks.name`."""

    def attempt(self, name: str) -> Place:
        """The place of one attempt of a retried template."""
        return replace(self, node_name=name, retried=True)


class Computation:
    """One computation of the next step."""

    def __init__(
        self,
        plan: Plan,
        status: Json,
        pods: Mapping[str, PodFacts],
        resources: Mapping[str, ResourceFacts],
        now: float,
    ) -> None:
        self.plan = plan
        self.pods = pods
        self.resources = resources
        self.now = now
        self.stamp = stamp(now)
        self.nodes: dict[str, Json] = dict(as_map(status.get("nodes")))
        self.globals: dict[str, str] = {}
        self.outputs: dict[str, str] = {}
        """Parameters with a `globalName`."""
        self.artifacts: dict[str, Json] = {}
        """Artifacts with a `globalName`."""
        self.shutdown = ""
        self.deadline: float | None = None
        self.create: dict[str, Json] = {}
        self.apply: dict[str, tuple[str, str, Json]] = {}
        self.missing: set[str] = set()
        """Unfinished Pod nodes that the world knows nothing about yet."""
        self.born: list[str] = []
        """Pod nodes made by this computation."""
        self.wake_at: float | None = None
        self.changed = False
        self.active_pods = 0
        self.active_children: dict[str, int] = {}
        self.memo: dict[tuple[str, str], str] = {}
        self._fresh: set[str] = set()

    def id_of(self, node_name: str) -> str:
        """The id of a node by its full name."""
        return node_id(self.plan.name, node_name)

    def find(self, node_name: str) -> Json | None:
        """The node of that full name, if it exists."""
        return self.nodes.get(node_id(self.plan.name, node_name))

    def template_of(self, node: Json) -> Template | None:
        """The template that a node runs."""
        return self.plan.templates.get(str(node.get("templateName")))

    def pod_of(self, node: Json) -> str:
        """The name of a node's pod."""
        return pod_name(self.plan.name, node["name"], node["templateName"])

    @property
    def overdue(self) -> bool:
        """Whether the workflow's deadline has passed."""
        return self.deadline is not None and self.now >= self.deadline

    def stops(self, on_exit: bool) -> bool:
        """Whether a shutdown keeps this from running: Stop spares exit hooks, Terminate nothing."""
        return self.shutdown == "Terminate" or (self.shutdown == "Stop" and not on_exit)

    def idle(self, node: Json) -> bool:
        """Whether nothing but the world outside can move this unfinished node: its pod lives."""
        if node["type"] == "Retry" and node.get("children"):
            node = self.nodes[node["children"][-1]]
        return node["type"] == "Pod" and node["phase"] not in DONE and node["id"] not in self.missing

    def wake(self, at: float) -> None:
        """Ask to be called again at that moment, at the latest."""
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)

    def edit(self, key: str) -> Json:
        """The node, as a copy that may be changed."""
        if key not in self._fresh:
            self._fresh.add(key)
            node = dict(self.nodes[key])
            if "children" in node:
                node["children"] = list(node["children"])
            self.nodes[key] = node
        self.changed = True
        return self.nodes[key]

    def add(self, place: Place, kind: str, template: str, phase: str, **more: Any) -> Json:
        """Add a node; fields in `more` (`message`, `inputs`, `progress`, …) that are None are left out."""
        key = self.id_of(place.node_name)
        node: Json = {
            "id": key,
            "name": place.node_name,
            "displayName": display_name(place.node_name, place.boundary_name),
            "type": kind,
            "templateName": template,
            "templateScope": f"local/{self.plan.name}",
            "phase": phase,
            "startedAt": self.stamp,
            "finishedAt": self.stamp if phase in DONE else None,
        }
        if place.boundary_id:
            node["boundaryID"] = place.boundary_id
        flag = {name: True for name, given in (("hooked", place.hooked), ("retried", place.retried)) if given}
        if flag:
            node["nodeFlag"] = flag
        node |= {name: value for name, value in more.items() if value is not None}
        self.nodes[key] = node
        self._fresh.add(key)
        self.changed = True
        if phase not in DONE:
            self.count(node, 1)
        if kind == "Pod":
            self.born.append(key)
        return node

    def count(self, node: Json, by: int) -> None:
        """Keep the numbers that `parallelism` is held against."""
        if node["type"] == "Pod":
            self.active_pods += by
        if node["type"] in ACTIVE_TYPES:
            boundary = node.get("boundaryID", "")
            self.active_children[boundary] = self.active_children.get(boundary, 0) + by

    def mark(self, node: Json, phase: str, message: str | None = None, finished_at: float | None = None) -> Json:
        """The node with a new phase and message (None keeps the old one), changed only where it differs."""
        if node["phase"] == phase and (message is None or node.get("message", "") == message):
            return node
        changed = self.edit(node["id"])
        if phase in DONE and changed["phase"] not in DONE:
            self.count(changed, -1)
            changed["finishedAt"] = self.stamp if finished_at is None else stamp(finished_at)
        changed["phase"] = phase
        if message is not None:
            changed["message"] = message
            if not message:
                del changed["message"]
        return changed

    def link(self, parent_id: str, child_id: str) -> None:
        """Make one node the child of another in the tree that users see."""
        if child_id not in self.nodes[parent_id].get("children", ()):
            self.edit(parent_id).setdefault("children", []).append(child_id)
