"""Conditions put on nodes as a problem detector does it, and the embedded cluster they are put on."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from flows.monitor import keep_watch
from flows.watching.nodes import NodeNotice
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster
from profiles.vocabulary import Mode
from tasks.cluster import Manifest, using
from tasks.context import at_hand
from tasks.observe.reflector import Bell
from tasks.settings import Settings
from tests.support.running.waiting import patience
from workflows import labels

END_SECONDS = patience(60.0)


def stamp(ago_seconds: float = 0.0) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ago_seconds))


def entry(kind: str, status: str = "True", stood: float = 0.0, message: str = "it hangs") -> Manifest:
    """One condition, heard of just now."""
    times = {"lastHeartbeatTime": stamp(), "lastTransitionTime": stamp(stood)}
    return {"type": kind, "status": status, "reason": "Detected", "message": message, **times}


def inject(cluster: Any, node: str, *conditions: Manifest) -> None:
    """Set conditions of a node beside those that it has."""
    found = cluster.get("Node", node)
    new = {item["type"] for item in conditions}
    kept = [item for item in found["status"]["conditions"] if item["type"] not in new]
    cluster.patch("Node", node, {"status": {"conditions": [*kept, *conditions]}})


def quarantined(cluster: Any) -> dict[str, str]:
    """Nodes that carry our taint, with its value."""
    return {
        node["metadata"]["name"]: taint["value"]
        for node in cluster.list("Node")
        for taint in node["spec"].get("taints") or ()
        if taint["key"] == labels.QUARANTINE_TAINT
    }


def local(**changes: object) -> ClusterProfile:
    """The embedded cluster of six nodes, with fields of its own."""
    return load_cluster("local").model_copy(update=changes)


@contextmanager
def loop(
    settings: Settings,
    cluster: Any,
    profile: ClusterProfile,
    mode: Mode = Mode.ACT,
    hooks: Sequence[Callable[[], object]] = (),
) -> Generator[list[NodeNotice]]:
    """The monitor's loop in a thread; the lines that it tells. It must end well."""
    ended, bell, lines, errors = threading.Event(), Bell(), list[NodeNotice](), list[BaseException]()

    def work() -> None:
        try:
            with at_hand(settings), using(cluster):
                keep_watch(profile, mode, lines.append, ended.is_set, bell, hooks)
        except BaseException as error:  # the test looks at it
            errors.append(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,))
    thread.start()
    try:
        yield lines
    finally:
        ended.set()
        bell.ring()
        thread.join(END_SECONDS)
        assert not thread.is_alive()
    assert errors == []
