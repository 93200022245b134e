"""Does the kubelet of a pod's node answer the API server? A second path to what conditions say a minute later."""

from __future__ import annotations

from profiles.errors import Unavailable
from tasks.kubernetes_errors import parse_status
from tasks.kubernetes_resources import RESOURCES
from tasks.kubernetes_server import ApiServer, Reply, Request

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


def reaches(server: ApiServer, namespace: str, pod: str, timeout_seconds: float) -> bool | None:
    """Whether the pod's kubelet answers: one line of its log is asked for, and what it says does not matter.

    Args:
        server: the API server.
        namespace: the pod's.
        pod: its name.
        timeout_seconds: of the question; a second one of the same limit tells a slow kubelet from a slow API server.

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
