"""A real cluster behind the seam of `tasks.cluster`: Argo Workflows, JobSet and Kueue on Kubernetes.

`reaches` asks whether the kubelet of a pod's node answers the API server: a second path to what node conditions say a
minute later.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from profiles.cluster import ClusterProfile
from profiles.errors import Unavailable
from tasks.cluster import Answered, Kind, Manifest, Seen
from tasks.kubernetes.api_server import ApiServer, Reply, Request, decoded
from tasks.kubernetes.configuration import configuration_of
from tasks.kubernetes.errors import failure, is_other_manager, parse_status
from tasks.kubernetes.logs import LogSource, follow_log, read_log
from tasks.kubernetes.resources import APPLY, MERGE, RESOURCES, objection, resource_of, selector
from tasks.kubernetes.watch import Collection, list_all, watch
from workflows.labels import FIELD_MANAGER
from workflows.model.manifest import items, part

_KUBELET_AWAY = (
    "dial tcp",
    "i/o timeout",
    "connection refused",
    "no route to host",
    "network is unreachable",
    "context deadline exceeded",
    "connection reset by peer",
    "unexpected eof",
    "tls handshake timeout",
)
"""How the API server says, in a Status of code 500 or 502 to 504, that it did not get through to the kubelet."""

TOKEN_HEADER = "X-Primus-Token"  # noqa: S105 - the name of a header
_CONFLICT_TRIES = 4
"""Two writers of one object meet now and then; the API server asks the second to read again."""
_CONFLICT_WAIT_SECONDS = 0.1
_WRITE = {"fieldManager": FIELD_MANAGER, "fieldValidation": "Strict"}
_UNREACHED = "error trying to reach service"
"""How the API server's proxy says that the pod did not answer, as a Status or as bare text."""


class KubernetesCluster:
    """Satisfies `tasks.cluster.Cluster`. Connects at the first call; safe for many threads.

    Without a `server` it is the one that the kubeconfig or the pod's service account names.
    """

    def __init__(self, profile: ClusterProfile, server: ApiServer | None = None) -> None:
        self.name = profile.name
        self._namespace = profile.namespace
        self._server = server or ApiServer(lambda: configuration_of(profile.context, kubeconfig=profile.kubeconfig))

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        """See `Cluster.apply`. A `generateName` creates a new object each time.

        Raises:
            Fenced: a newer driver wrote the object.
            Conflict: it exists and is not ours (Foreign: another ledger's), or somebody else set a field of ours.
            Refused, Unavailable.
        """
        resource = resource_of(manifest, self._namespace)
        # The server refuses its own book-keeping when an object that was read is written back.
        metadata = {key: value for key, value in part(manifest, "metadata").items() if key != "managedFields"}
        if resource.namespaced:
            metadata["namespace"] = self._namespace
        name, what = metadata.get("name", ""), f"apply {resource.kind} {metadata.get('name', '')}".strip()
        query = _WRITE | ({"dryRun": "All"} if dry_run else {})
        body = json.dumps({**manifest, "metadata": metadata}).encode()
        path = resource.path(self._namespace, name)
        if not name:
            return self._server.json(Request("POST", path, what, query, body, repeatable=False))
        existing = None if dry_run else self.get(resource.kind, name)
        problem = None if existing is None else objection(existing, manifest)
        if problem is not None:
            raise problem
        return self._write(Request("PATCH", path, what, query | {"force": "false"}, body, APPLY))

    def get(self, kind: Kind, name: str) -> Manifest | None:
        """See `Cluster.get`.

        Raises:
            NotFound: the cluster does not serve the kind at all.
            Unavailable, Refused.
        """
        request = Request("GET", RESOURCES[kind].path(self._namespace, name), f"get {kind} {name}")
        reply = self._server.ask(request)
        details: dict[str, Any] = parse_status(reply.body).get("details") or {} if reply.status == 404 else {}
        return None if details.get("name") == name else decoded(reply, request.what)

    def list(self, kind: Kind, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        """See `Cluster.list`.

        Raises:
            NotFound: the cluster does not serve the kind.
            Unavailable, Refused.
        """
        return list_all(self._collection(kind, labels))

    def watch(
        self, kind: Kind, labels: Mapping[str, str] | None = None, *, since: str | None = None, timeout_seconds: float
    ) -> Iterator[Seen]:
        """See `Cluster.watch`, and `tasks.kubernetes.watch.watch` for what `since` may be.

        Raises:
            Unavailable: nothing but failures for several seconds.
            NotFound, Refused.
        """
        return watch(self._collection(kind, labels), since, timeout_seconds)

    def patch(self, kind: Kind, name: str, patch: Manifest) -> Manifest:
        """See `Cluster.patch`. With a `metadata.resourceVersion` in it, a change in between is a Conflict.

        Raises:
            NotFound, Conflict, Refused, Unavailable.
        """
        resource = RESOURCES[kind]
        writes = [("", patch)]
        if resource.status_apart and "status" in patch:
            rest = {key: value for key, value in patch.items() if key != "status"}
            # A version alone is no change: it pins the status that is written.
            changes = rest.keys() - {"metadata"} or part(rest, "metadata").keys() - {"resourceVersion"}
            writes = [("", rest), ("status", {"status": patch["status"]})] if changes else [("status", patch)]
        stored: Manifest = {}
        for subresource, write in writes:
            path, body = resource.path(self._namespace, name, subresource), json.dumps(write).encode()
            pinned = "resourceVersion" in part(write, "metadata")
            stored = self._write(Request("PATCH", path, f"patch {kind} {name}", _WRITE, body, MERGE), pinned)
        return stored

    def delete(self, kind: Kind, name: str, *, grace_seconds: int | None = None) -> None:
        """See `Cluster.delete`. A grace period also goes to the pods that the object made, of at least a second.

        Kubernetes itself would give them the one of their own. With a grace of 0 it forgets a pod at once, while its
        processes may still run; that is asked for a pod by its own name, when its node is dead.

        Raises:
            Conflict, Refused, Unavailable.
        """
        resource = RESOURCES[kind]
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        grace = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        body = json.dumps(options | (grace if kind == "Pod" else {})).encode()
        what = f"delete {kind} {name}"
        self._delete(Request("DELETE", resource.path(self._namespace, name), what, body=body))
        if grace and resource.pods_label:
            pods = RESOURCES["Pod"].path(self._namespace)
            body = json.dumps(options | {"gracePeriodSeconds": max(1, grace_seconds or 0)}).encode()
            self._delete(Request("DELETE", pods, f"{what}'s pods", selector({resource.pods_label: name}), body))

    def logs(self, pod: str, container: str = "", *, tail_lines: int | None = None) -> str:
        """See `Cluster.logs`; of a very long log the newest part.

        Raises:
            NotFound, Refused, Unavailable.
        """
        return read_log(LogSource(self._server, self._namespace, pod, container), tail_lines)

    def follow(self, pod: str, container: str = "", *, timeout_seconds: float) -> Iterator[str]:
        """See `Cluster.follow`; each line once, through broken connections.

        Raises:
            NotFound, Refused, Unavailable.
        """
        return follow_log(LogSource(self._server, self._namespace, pod, container), timeout_seconds)

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool | None:
        """See `Cluster.reaches` and `tasks.kubernetes.cluster.reaches`."""
        return reaches(self._server, self._namespace, pod, timeout_seconds)

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
    ) -> Answered:
        """See `Cluster.call`. One try: a caller that asks every 0.2 s needs no second one.

        Raises:
            NotFound: no such pod.
            Unavailable: the cluster or the pod does not answer.
            Refused: we may not use the proxy.
        """
        proxied = RESOURCES["Pod"].path(self._namespace, f"{pod}:{port}", "proxy") + path
        headers = {TOKEN_HEADER: token} if token else {}
        request = Request(method, proxied, f"call {pod}:{port}{path}", body=body, headers=headers, repeatable=False)
        reply = self._server.once(request, timeout_seconds)
        said = parse_status(reply.body) if reply.status >= 400 else {}
        if said and reply.status == 400:
            raise Unavailable(f"{request.what}: the pod has no address yet ({said.get('message')})")
        if said or (reply.status >= 500 and _UNREACHED in reply.body[:500].decode("utf-8", "replace").lower()):
            raise failure(reply.status, reply.headers, reply.body, request.what)
        return Answered(reply.status, reply.body)

    def versions(self) -> Mapping[str, str]:
        """What the cluster runs: Kubernetes' version, and which version of each API it serves (`absent` if none).

        Raises:
            Unavailable, Refused.
        """
        version = self._server.json(Request("GET", "/version", "read the version"))
        answer = self._server.json(Request("GET", "/apis", "read the API groups"))
        served = {group["name"]: group["preferredVersion"]["version"] for group in items(answer, "groups")}
        groups = {"argo": "argoproj.io", "jobset": "jobset.x-k8s.io", "kueue": "kueue.x-k8s.io"}
        found = {word: str(served.get(group, "absent")) for word, group in groups.items()}
        return {"engine": "kubernetes", "kubernetes": str(version.get("gitVersion", "unknown"))} | found

    def close(self) -> None:
        """Close idle connections."""
        self._server.close()

    def _collection(self, kind: Kind, labels: Mapping[str, str] | None) -> Collection:
        return Collection(self._server, RESOURCES[kind], self._namespace, selector(labels))

    def _write(self, request: Request, pinned: bool = False) -> Manifest:
        """Send a write; where two writers met it is sent again, unless it was meant for one version (`pinned`)."""
        for trial in range(1, _CONFLICT_TRIES + 1):
            reply = self._server.ask(request)
            final = trial == _CONFLICT_TRIES or pinned or is_other_manager(reply.body)
            if reply.status == 409 and not final:
                self._server.sleep(_CONFLICT_WAIT_SECONDS * trial)
                continue
            return decoded(reply, request.what)
        raise AssertionError("unreachable")

    def _delete(self, request: Request) -> None:
        reply = self._server.ask(request)
        if reply.status == 404 and parse_status(reply.body):
            return
        if reply.status >= 400:
            raise failure(reply.status, reply.headers, reply.body, request.what)


def reaches(server: ApiServer, namespace: str, pod: str, timeout_seconds: float) -> bool | None:
    """Whether the pod's kubelet answers: one line of its log is asked for, and what it says does not matter.

    A second question with the same limit tells a slow kubelet from a slow API server.

    Returns:
        False: the API server says or shows that the kubelet does not answer it. None: nothing can be said, because the
        API server itself does not answer, refuses the question, or the pod is on no node.
    """
    path = RESOURCES["Pod"].path(namespace, pod, "log")
    query = {"tailLines": "1", "limitBytes": "64"}
    question = Request("GET", path, f"reach the node of {pod}", query, headers={"Accept": "*/*"})
    try:
        return _understood(server.once(question, timeout_seconds))
    except Unavailable:
        return False if _answers(server, namespace, pod, timeout_seconds) else None


def _understood(reply: Reply) -> bool | None:
    if reply.status < 400:
        return True
    said = str(parse_status(reply.body).get("message", "")).lower()
    if reply.status in (500, 502, 503, 504):
        return False if any(words in said for words in _KUBELET_AWAY) else None
    # The kubelet itself says that a container has not started yet; refusals and absent pods say nothing of it.
    return True if reply.status == 400 and "container" in said else None


def _answers(server: ApiServer, namespace: str, pod: str, timeout_seconds: float) -> bool:
    """The API server answers at once what needs no kubelet: then it was the kubelet that kept us waiting."""
    try:
        server.once(Request("GET", RESOURCES["Pod"].path(namespace, pod), f"get Pod {pod}"), timeout_seconds)
    except Unavailable:
        return False
    return True
