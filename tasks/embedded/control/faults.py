"""Causing what real clusters suffer: lost nodes; and the end of everything. From outside, on the real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from profiles.errors import NotFound
from tasks.embedded.control.nodes import power_mark, set_ready
from tasks.embedded.engine.kube.pods import failed_status
from tasks.embedded.layout import PodFolder, remove_tree
from tasks.embedded.objects import Object, entries, is_finished, timestamp
from tasks.embedded.runtime import processes
from tasks.embedded.start_keeper import busy_mark, failures_path, keeper_lock, start_mark
from tasks.embedded.store import locks
from tasks.embedded.store.store import Store, Transaction


def lose_node(store: Store, name: str, *, silent: bool) -> None:
    """Cut the node's power; see `EmbeddedCluster.lose_node`.

    The store is locked meanwhile: a supervisor is either dead or not yet started (and then finds the power off), and
    nobody sees some of the node's pods dead and others not.
    """
    with store.transaction() as change:
        node = change.get("Node", name)
        if node is None:
            raise NotFound(f"there is no Node {name}")
        os.close(os.open(power_mark(store, name), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        pods = [pod for pod in store.list("Pod") if pod["spec"].get("nodeName") == name and not is_finished(pod)]
        _kill_pods(store, pods)
        if not silent:
            _declare_lost(change, node, pods)
    for pod in pods:
        _forget_volumes(store, pod)


def hold(store: Store, seconds: float) -> None:
    """Keep the lock that every change needs."""
    with store.transaction():
        time.sleep(seconds)


def _kill_pods(store: Store, pods: list[Object]) -> None:
    deadline = time.monotonic() + processes.KILL_DEADLINE_SECONDS
    supervisors: list[processes.Process] = []
    for pod in pods:
        lock = PodFolder(store.root, pod["metadata"]["uid"]).lock
        pid = locks.holder(lock)
        start = processes.start_time(pid) if pid else None
        if pid and start is not None and locks.holder(lock) == pid:
            supervisors.append(processes.Process(pid, start, ""))
    # Supervisors first, so that none of them records an end that a power cut would not have left it time for.
    processes.kill_each(supervisors, deadline)
    uids = {pod["metadata"]["uid"] for pod in pods}
    processes.kill(store.root, lambda process: process.pod_uid in uids)


def _declare_lost(change: Transaction, node: Object, pods: list[Object]) -> None:
    message = f"node {node['metadata']['name']} lost its power"
    change.put(set_ready(node, "False", "PowerLost", message))
    for pod in pods:
        stored = change.get("Pod", pod["metadata"]["name"])
        if stored is not None and stored["metadata"]["uid"] == pod["metadata"]["uid"] and not is_finished(stored):
            stored["status"] = failed_status(stored["status"], "NodeLost", message, timestamp())
            change.put(stored)


def _forget_volumes(store: Store, pod: Object) -> None:
    folder = PodFolder(store.root, pod["metadata"]["uid"])
    for volume in entries(pod["spec"], "volumes"):
        if "emptyDir" in volume:
            remove_tree(folder.volume(volume))


def power_cut_at(store: Store, name: str) -> float | None:
    """When the node's power was cut, Unix seconds; None: it has power."""
    try:
        return os.stat(power_mark(store, name)).st_mtime
    except FileNotFoundError:
        return None


def restore_node(store: Store, name: str) -> None:
    """Give the node its power back; see `EmbeddedCluster.restore_node`."""
    with store.transaction() as change:
        node = change.get("Node", name)
        if node is None:
            raise NotFound(f"there is no Node {name}")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(power_mark(store, name))
        change.put(set_ready(node, "True", "KubeletReady", "the node is on"))


def stop(store: Store) -> None:
    """SIGKILL everything that lives of the cluster, the keeper first so that it starts nothing anew."""
    with contextlib.suppress(OSError):
        os.unlink(busy_mark(store.root))
    descriptor = locks.holder_descriptor(keeper_lock(store.root))
    if descriptor is not None:
        processes.send(descriptor, signal.SIGKILL)
        os.close(descriptor)
    processes.kill(store.root, lambda _: True)
    for mark in (busy_mark(store.root), start_mark(store.root), failures_path(store.root)):
        with contextlib.suppress(OSError):
            os.unlink(mark)
