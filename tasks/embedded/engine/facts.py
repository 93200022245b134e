"""What the interpreter is told (facts about pods and applied resources) and what it answers (a step)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.embedded.engine.json_values import Json


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
