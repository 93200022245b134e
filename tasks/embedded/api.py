"""The embedded cluster's API: satisfies `tasks.cluster.Cluster` and adds what fault injection needs.

A directory, not a server: every method works on files, any number of processes may hold the same cluster at once, and
nothing is started before something is applied that needs it.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from profiles.errors import Conflict, NotFound, Unavailable, check_all
from tasks.embedded import admission
from tasks.embedded.control import faults
from tasks.embedded.control.nodes import reconcile_nodes
from tasks.embedded.layout import PodFolder
from tasks.embedded.objects import Object, entries, matches
from tasks.embedded.runtime import processes as runtime_processes
from tasks.embedded.schema.validate import refuse_unknown_images, refuse_unreachable_mounts, validate
from tasks.embedded.spec import Spec, write_programs, written_spec
from tasks.embedded.start_keeper import (
    ask_for_keeper,
    ask_to_look,
    demand_keeper,
    probe_namespaces,
    revive_keeper,
    start_keeper,
)
from tasks.embedded.store.changes import newest_version
from tasks.embedded.store.store import Store, write_file
from tasks.embedded.watch import follow, watch

TOKEN_HEADER = "X-Primus-Token"  # noqa: S105 - a header's name
LOCK_TIMEOUT_SECONDS = 10.0
"""A writer holds the store's lock for a millisecond; whoever waits longer than this is told so."""
_WORKING_KINDS = ("Pod", "JobSet", "Workflow")
"""Kinds that need a keeper as soon as one is written."""


@dataclass(frozen=True)
class WatchEvent:
    """One line of a watch, as `tasks.cluster.Event`."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "SYNC"]
    object: Object
    resource_version: str


@dataclass(frozen=True)
class PodAnswer:
    """What a pod answered, as `tasks.cluster.Answer`."""

    status: int
    body: bytes


class EmbeddedCluster:
    """One embedded cluster in the directory `root`, created where it is missing; `spec` updates `cluster.json`."""

    def __init__(self, root: Path, spec: Spec) -> None:
        self.name = spec.name
        self.root = Path(os.path.realpath(root))
        self.spec = spec
        self._store = Store(str(self.root), LOCK_TIMEOUT_SECONDS, on_broken=lambda: ask_to_look(str(self.root)))
        self._namespaces: str | None = None
        self._install()

    def _install(self) -> None:
        if self.root.exists() and not os.access(self.root, os.W_OK):
            return  # it is read as it stands; a write says what forbids it
        path, text = self.root / "cluster.json", self.spec.to_json()
        try:
            self._store.prepare()
            if path.exists() and path.read_text(errors="replace") == text:
                return
            with self._store.transaction() as change:
                reconcile_nodes(change, self.spec, written_spec(path))
                write_programs(str(self.root), [vars(image) for image in self.spec.images])
                write_file(str(path), text.encode())
        except OSError as error:
            raise Unavailable(f"the cluster's folder {self.root}: {error.strerror or error}") from error

    # The Protocol.

    def apply(self, manifest: Object, *, dry_run: bool = False) -> Object:
        """Create the object or merge the manifest into it; returns it as stored. Idempotent.

        Raises:
            Refused: a field is unknown, wrong, not run here, or cannot be changed; nothing was written.
            Conflict: it is being deleted, was changed since the version named, or is another ledger's (Foreign).
        """
        checks = [
            partial(refuse_unreachable_mounts, manifest, self._namespaces_mode),
            partial(refuse_unknown_images, manifest, [vars(image) for image in self.spec.images]),
        ]
        # Who only asks is told of everything at once; a write is checked again where it is made.
        check_all([partial(validate, manifest, self.spec.namespace), *checks] if dry_run else checks)
        if not dry_run:
            ask_for_keeper(str(self.root))
        stored = admission.admit(self._store, self.spec.namespace, manifest, dry_run=dry_run)
        if not dry_run:
            self._wake(stored["kind"])
        return stored

    def get(self, kind: str, name: str) -> Object | None:
        """The object, None where it does not exist."""
        ask_for_keeper(str(self.root))
        return self._store.get(kind, name)

    def list(self, kind: str, labels: Mapping[str, str] | None = None) -> list[Object]:
        """Objects whose labels equal all of `labels`, ordered by name."""
        ask_for_keeper(str(self.root))
        return [item for item in self._store.list(kind) if matches(item, labels)]

    def watch(
        self, kind: str, labels: Mapping[str, str] | None = None, *, since: str | None = None, timeout_seconds: float
    ) -> Iterator[WatchEvent]:
        """Changes after `since` (None: first one ADDED for each object that exists) until the time is up."""
        ask_for_keeper(str(self.root))
        yield from (WatchEvent(*line) for line in watch(self._store, kind, labels, since, timeout_seconds))

    def patch(self, kind: str, name: str, patch: Object) -> Object:
        """JSON merge patch; with `metadata.resourceVersion` only if that is still the newest.

        Raises:
            NotFound: no such object.
            Conflict: somebody changed it since the version that the patch names.
        """
        stored = admission.patch(self._store, self.spec.namespace, kind, name, patch)
        self._wake(kind)
        demand_keeper(str(self.root))
        return stored

    def delete(self, kind: str, name: str, *, grace_seconds: int | None = None) -> None:
        """Ask for deletion; absent is fine. Processes get SIGTERM and `grace_seconds`, `0` kills at once."""
        if admission.delete(self._store, kind, name, grace_seconds):
            self._wake(kind)
            demand_keeper(str(self.root))

    def logs(self, pod: str, container: str = "", *, tail_lines: int | None = None) -> str:
        """What the container printed so far.

        Raises:
            NotFound: the pod, or its container of that name, does not exist.
        """
        manifest = self._pod(pod)
        path = self._log_path(manifest, container)
        try:
            with open(path, "rb") as file:
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return text if tail_lines is None else "".join(text.splitlines(keepends=True)[-tail_lines or len(text) :])

    def follow(self, pod: str, container: str = "", *, timeout_seconds: float) -> Iterator[str]:
        """Lines as they come, until the container ended or the time is up."""
        manifest = self._pod(pod)
        name = container or manifest["spec"]["containers"][0]["name"]
        yield from follow(self._store, manifest, name, self._log_path(manifest, container), timeout_seconds)

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool:
        """Always: every node is this machine, and its keeper sees at once which processes live."""
        return bool(self._pod(pod))

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
    ) -> PodAnswer:
        """One HTTP request to a pod's own address.

        Raises:
            NotFound: no such pod.
            Unavailable: the pod has no address yet, or nothing answers there in time.
        """
        address = self._pod(pod)["status"].get("podIP")
        if not address:
            raise Unavailable(f"pod {pod} has no address yet")
        connection = http.client.HTTPConnection(address, port, timeout=timeout_seconds)
        try:
            connection.request(method, path, body=body or None, headers={TOKEN_HEADER: token} if token else {})
            response = connection.getresponse()
            return PodAnswer(response.status, response.read())
        except (OSError, http.client.HTTPException) as error:
            raise Unavailable(f"pod {pod} at {address}:{port}: {error}") from error
        finally:
            connection.close()

    def versions(self) -> Mapping[str, str]:
        """What runs here."""
        return {"engine": "embedded", "argo": "v4.1.4 subset", "jobset": "v0.12 subset"}

    # Fault injection, drills, tests.

    def lose_node(self, name: str, *, silent: bool = False) -> None:
        """A power cut: SIGKILL to every process of the node's pods, their emptyDirs gone.

        Unless `silent` the node becomes not ready (reason `PowerLost`) and its pods Failed (reason `NodeLost`).

        Raises:
            NotFound: no such node.
        """
        faults.lose_node(self._store, name, silent=silent)
        if not silent:
            self._wake("Node")

    def hold(self, seconds: float) -> None:
        """Block all changes for so long, as an API server that hangs does."""
        faults.hold(self._store, seconds)

    def restore_node(self, name: str) -> None:
        """Power again: the node is ready and empty.

        Raises:
            NotFound: no such node.
        """
        faults.restore_node(self._store, name)
        self._wake("Node")

    def power_cut_at(self, name: str) -> float | None:
        """When the node's power was cut, Unix seconds; None: it has power."""
        return faults.power_cut_at(self._store, name)

    def pod_processes(self, pod: str) -> list[int]:
        """Pids of the pod's containers, oldest first."""
        uid = self._pod(pod)["metadata"]["uid"]
        found = [process for process in runtime_processes.find(str(self.root)) if process.pod_uid == uid]
        return [process.pid for process in sorted(found, key=lambda process: (process.start, process.pid))]

    def processes(self) -> list[int]:
        """Pids of everything alive of this cluster: keeper, supervisors, containers."""
        return sorted(process.pid for process in runtime_processes.find(str(self.root)))

    def stop(self) -> None:
        """End everything, the keeper too; objects stay as they are."""
        faults.stop(self._store)

    def volume_path(self, pod: str, volume: str) -> Path:
        """The real folder of a pod's volume.

        Raises:
            NotFound: no such pod, or it has no such volume.
        """
        manifest = self._pod(pod)
        found = next((item for item in entries(manifest["spec"], "volumes") if item["name"] == volume), None)
        if found is None:
            raise NotFound(f"pod {pod} has no volume {volume}")
        return Path(PodFolder(str(self.root), manifest["metadata"]["uid"]).volume(found))

    def wait(
        self, kind: str, name: str, done: Callable[[Object | None], bool], timeout_seconds: float
    ) -> Object | None:
        """The object as soon as `done` says so.

        Raises:
            Conflict: the time is up; says what the object's status was.
        """
        since = newest_version(self._store.log_path)  # before the first look, so that what happens after it is told
        current = self.get(kind, name)
        if done(current):
            return current
        for event in self.watch(kind, since=since, timeout_seconds=timeout_seconds):
            if event.type == "SYNC":
                current = self.get(kind, name)
            elif event.object["metadata"]["name"] == name:
                current = None if event.type == "DELETED" else event.object
            if done(current):
                return current
        status = "gone" if current is None else current.get("status")
        raise Conflict(f"{kind} {name} is not as wished after {timeout_seconds:g} s: {status}")

    def _pod(self, name: str) -> Object:
        manifest = self._store.get("Pod", name)
        if manifest is None:
            raise NotFound(f"there is no Pod {name}")
        return manifest

    def _log_path(self, pod: Object, container: str) -> str:
        spec = pod["spec"]
        names = [item["name"] for item in [*spec["containers"], *entries(spec, "initContainers")]]
        if container and container not in names:
            raise NotFound(f"pod {pod['metadata']['name']} has no container {container}; it has {', '.join(names)}")
        return PodFolder(str(self.root), pod["metadata"]["uid"]).log(container or names[0])

    def _wake(self, kind: str) -> None:
        if kind in _WORKING_KINDS:
            start_keeper(str(self.root))
        else:
            revive_keeper(str(self.root))

    def _namespaces_mode(self) -> str:
        if self._namespaces is None:
            self._namespaces = probe_namespaces(self.spec.namespaces)
        return self._namespaces
