"""A command in a container of a pod, by the client's stream, with the rights of the kubeconfig that is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import kubernetes.client
import kubernetes.stream
from kubernetes.client.exceptions import ApiException

from profiles.cluster import ClusterProfile
from profiles.errors import NotFound, Refused, Unavailable
from tasks.kubernetes.configuration import configuration_of

LOOK_SECONDS = 0.5
Write = Callable[[bytes, int], None]


def execute_in(
    cluster: ClusterProfile, pod: str, container: str, command: Sequence[str], seconds: float, write: Write
) -> int:
    """Run a command in a container; its exit status. `write` takes what it printed, and whether on 1 or 2.

    Raises:
        NotFound: the pod is gone.
        Refused: who asks may not do it.
        Unavailable: it did not end in time, or the API server does not answer.
    """
    what = f"exec in pod {pod}"
    try:
        link = _opened(cluster, pod, container, command)
    except ApiException as error:
        raise _refusal(what, str(error), cluster.namespace) from error
    deadline = time.monotonic() + seconds
    try:
        while link.is_open():
            link.update(timeout=LOOK_SECONDS)
            for number in (1, 2):
                if data := link.read_channel(number):
                    write(data, number)
            if time.monotonic() > deadline:
                raise Unavailable(f"{what} did not end within {seconds:g} s; it goes on there: --timeout waits longer")
        return _status(link, what)
    finally:
        link.close()


def _opened(cluster: ClusterProfile, pod: str, container: str, command: Sequence[str]) -> Any:
    client: Any = kubernetes.client
    streams: Any = kubernetes.stream
    asked = client.CoreV1Api(client.ApiClient(configuration_of(cluster.context, kubeconfig=cluster.kubeconfig)))
    return streams.stream(
        asked.connect_get_namespaced_pod_exec,
        pod,
        cluster.namespace,
        container=container,
        command=list(command),
        stdin=False,
        stdout=True,
        stderr=True,
        tty=False,
        binary=True,
        _preload_content=False,
    )


def _status(link: Any, what: str) -> int:
    try:
        return int(link.returncode)
    except (TypeError, ValueError, KeyError, IndexError) as error:
        raise Unavailable(f"{what}: the cluster did not say how it ended") from error


def _refusal(what: str, reason: str, namespace: str) -> NotFound | Refused | Unavailable:
    if "403" in reason:
        return Refused(
            what, f"you need the rights get and create on pods/exec in {namespace}; accounts of ours have none"
        )
    return NotFound(f"{what}: it is gone") if "404" in reason else Unavailable(f"{what}: {reason[:300]}")
