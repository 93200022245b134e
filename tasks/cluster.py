"""The seam: the only way anything of ours touches a cluster.

Two classes satisfy `Cluster`: `tasks.kubernetes.cluster.KubernetesCluster` (the official client) and
`tasks.embedded.api.EmbeddedCluster` (a directory on this machine). Objects are plain dictionaries in Kubernetes' own
JSON form. The current cluster lives in a context variable, because Prefect records every parameter of a task and a
client must never be one.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from profiles.errors import Permanent, PrimusError

Manifest = dict[str, Any]
"""One Kubernetes object as JSON: `apiVersion`, `kind`, `metadata`, …"""

Kind = Literal[
    "Workflow",
    "JobSet",
    "Pod",
    "Node",
    "Secret",
    "ConfigMap",
    "Event",
    "Workload",
    "LocalQueue",
    "ClusterQueue",
    "ResourceFlavor",
    "PersistentVolumeClaim",
    "Job",
    "Namespace",
    "Topology",
    "WorkloadPriorityClass",
    "PriorityClass",
    "StorageClass",
    "Service",
]
"""The kinds we read or write. Those from Namespace on, and Kueue's, are only read; Services over all namespaces."""

_current: ContextVar[Cluster | None] = ContextVar("primus_cluster", default=None)


class Event(Protocol):
    """One line of a watch."""

    @property
    def type(self) -> Literal["ADDED", "MODIFIED", "DELETED", "SYNC"]:
        """SYNC carries no object: the list was read anew, so a caller that keeps state must read everything again."""
        ...

    @property
    def object(self) -> Manifest:
        """The object after the change (the last known one for DELETED); empty for SYNC."""
        ...

    @property
    def resource_version(self) -> str:
        """Give it as `since` to go on after this event."""
        ...


class Answer(Protocol):
    """What a pod answered to an HTTP request."""

    @property
    def status(self) -> int:
        """HTTP status."""
        ...

    @property
    def body(self) -> bytes:
        """The whole body."""
        ...


@dataclass(frozen=True)
class Seen:
    """An `Event`."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "SYNC"]
    object: Manifest
    resource_version: str


@dataclass(frozen=True)
class Answered:
    """An `Answer`."""

    status: int
    body: bytes


class Cluster(Protocol):
    """Everything we ever do to a cluster. Every method has a bounded time and raises only errors of `profiles.errors`.

    Raises (all methods):
        Unavailable: no answer; worth retrying.
        NotFound, Conflict, Refused: as their names say.
    """

    name: str
    """Name of the cluster profile."""

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """Create the object or update ours (server-side apply, strict fields); returns it as stored. Idempotent."""
        ...

    def get(self, kind: Kind, name: str) -> Manifest | None:
        """The object, or None where it does not exist."""
        ...

    def list(self, kind: Kind, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """Objects whose labels equal all of `labels`, ordered by name."""
        ...

    def watch(
        self, kind: Kind, labels: Mapping[str, str] | None = None, *, since: str | None = None, timeout_seconds: float
    ) -> Iterator[Event]:
        """Changes after `since` (None: first one ADDED for each object that exists), until `timeout_seconds` passed.

        Survives disconnects and expired versions: then one SYNC is followed by one ADDED for each object that exists.
        """
        ...

    def patch(self, kind: Kind, name: str, patch: Manifest) -> Manifest:
        """JSON merge patch (a null deletes a key; lists are replaced)."""
        ...

    def delete(self, kind: Kind, name: str, *, grace_seconds: int | None = None) -> None:
        """Ask for deletion; absent is fine. Dependants (a JobSet's pods) go with it; `0` kills at once."""
        ...

    def logs(self, pod: str, container: str = "", *, tail_lines: int | None = None) -> str:
        """What the container printed so far (stdout and stderr together); "" where there is nothing.

        Raises NotFound where the pod is gone.
        """
        ...

    def follow(self, pod: str, container: str = "", *, timeout_seconds: float) -> Iterator[str]:
        """Lines as they come, without their newline, until the container ended or the time is up."""
        ...

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool | None:
        """Whether the pod's node answers the cluster; None where nothing can be said. Takes at most twice the time."""
        ...

    def call(
        self,
        pod: str,
        port: int,
        method: Literal["GET", "POST"],
        path: str,
        *,
        token: str = "",
        body: bytes = b"",
        timeout_seconds: float = 2.0,
    ) -> Answer:
        """Answer of one HTTP request to a pod.

        The token travels as header `X-Primus-Token`: the API server's proxy eats `Authorization`.
        """
        ...

    def versions(self) -> Mapping[str, str]:
        """What answers there, e.g. `{"engine": "embedded", "argo": "v4.1.4 subset"}`."""
        ...


def current() -> Cluster:
    """The cluster that `using` chose.

    Raises:
        Permanent: no cluster was chosen; that is a mistake in our code, not the user's.
    """
    cluster = _current.get()
    if cluster is None:
        raise Permanent("no cluster is in use here: wrap the call in `with using(cluster)`")
    return cluster


@contextmanager
def using(cluster: Cluster) -> Generator[Cluster]:
    """Make `cluster` the current one inside the block."""
    token = _current.set(cluster)
    try:
        yield cluster
    finally:
        _current.reset(token)


def cluster_answers(cluster: Cluster, pod: str) -> bool:
    """Whether the cluster itself answers now: only then is a coordinator that did not answer silent itself."""
    try:
        cluster.get("Pod", pod)
    except PrimusError:
        return False
    return True


def each(cluster: Cluster, kind: Kind, labels: Mapping[str, str] | None = None) -> Iterator[Manifest]:
    """Every object that exists; in any order, and some of them twice where the list has to be begun anew.

    Raises:
        Unavailable: also in the middle; what was told until then is not all there is.
        NotFound, Refused.
    """
    for event in cluster.watch(kind, labels, timeout_seconds=0.0):
        if event.type in ("ADDED", "MODIFIED"):
            yield event.object
