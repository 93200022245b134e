"""The keeper's knowledge of supervisors: which live, which vanished, and what becomes of a vanished one's pod."""

from __future__ import annotations

import os
import time

from tasks.embedded import locks, processes
from tasks.embedded.cache import Cache
from tasks.embedded.engine.pod import failed_status
from tasks.embedded.layout import PodFolder
from tasks.embedded.nodes import node_facts, power_mark, set_ready
from tasks.embedded.objects import Object, finished, timestamp
from tasks.embedded.zygote import Zygote

TOGETHER_SECONDS = 0.1
"""Supervisors of one node that vanish within this time vanished together."""


class Life:
    """A supervisor that is waited for."""

    __slots__ = ("descriptor", "name", "node", "uid")

    def __init__(self, descriptor: int, name: str, uid: str, node: str) -> None:
        self.descriptor = descriptor
        self.name = name
        self.uid = uid
        self.node = node


class Lives:
    """All supervisors of unfinished pods.

    Args:
        cache: the keeper's picture.
        zygote: forks new ones.
    """

    def __init__(self, cache: Cache, zygote: Zygote) -> None:
        self._cache = cache
        self._zygote = zygote
        self._by_uid: dict[str, Life] = {}
        self._asked: dict[str, tuple[str, str]] = {}
        self._lost: dict[str, tuple[float, str, str]] = {}
        self.signalled: dict[str, str] = {}

    @property
    def descriptors(self) -> list[int]:
        """Descriptors that become readable when a supervisor ends."""
        return [life.descriptor for life in self._by_uid.values()]

    @property
    def wake_at(self) -> float | None:
        """Monotonic time at which lost supervisors must be judged."""
        return min((since for since, _, _ in self._lost.values()), default=None)

    def alive(self, uid: str) -> bool:
        """Whether the pod's supervisor lives, is being started, or is about to be judged."""
        return uid in self._by_uid or uid in self._asked or uid in self._lost

    def ensure(self, pod: Object) -> None:
        """See to it that the bound, unfinished pod has a supervisor, once."""
        uid, name, node = pod["metadata"]["uid"], pod["metadata"]["name"], pod["spec"]["nodeName"]
        if self.alive(uid) or self._track(name, uid, node):
            return
        if os.path.exists(PodFolder(self._cache.store.root, uid).started):
            self._lose(name, uid, node)
            return
        self._asked[uid] = (name, node)
        self._zygote.start(name, uid)

    def answers(self) -> bool:
        """Take over what the zygote started; False when the zygote is gone."""
        found = self._zygote.started()
        for uid, pid, start in found or ():
            name, node = self._asked.pop(uid, ("", ""))
            if not name:
                continue
            descriptor = processes.open_verified(processes.Process(pid, start, uid))
            # Its pod may have changed before there was somebody to signal.
            self._cache.changed.add(("Pod", name))
            if descriptor is None:
                self._vanished(name, uid, node)
            else:
                self._by_uid[uid] = Life(descriptor, name, uid, node)
        return found is not None

    def _track(self, name: str, uid: str, node: str) -> bool:
        descriptor = locks.holder_descriptor(PodFolder(self._cache.store.root, uid).lock)
        if descriptor is None:
            return False
        self._by_uid[uid] = Life(descriptor, name, uid, node)
        return True

    def ended(self, descriptor: int) -> None:
        """The supervisor behind the descriptor has ended."""
        life = next((life for life in self._by_uid.values() if life.descriptor == descriptor), None)
        if life is not None:
            del self._by_uid[life.uid]
            os.close(descriptor)
            self._vanished(life.name, life.uid, life.node)

    def _vanished(self, name: str, uid: str, node: str) -> None:
        self.signalled.pop(uid, None)
        self._cache.changed.add(("Pod", name))
        stored = self._cache.store.get("Pod", name)
        if stored is None or stored["metadata"]["uid"] != uid or finished(stored):
            return
        if not self._track(name, uid, node):
            self._lose(name, uid, node)

    def _lose(self, name: str, uid: str, node: str) -> None:
        self._lost[uid] = (time.monotonic() + TOGETHER_SECONDS, name, node)

    def signal(self, pod: Object, number: int, reason: str) -> None:
        """Signal the pod's supervisor, once for each reason."""
        uid = pod["metadata"]["uid"]
        life = self._by_uid.get(uid)
        if life is not None and self.signalled.get(uid) != reason and processes.send(life.descriptor, number):
            self.signalled[uid] = reason

    def judge(self) -> None:
        """Decide about supervisors that vanished: one pod lost, or a whole node."""
        now = time.monotonic()
        for node in sorted({node for _, _, node in self._lost.values()}):
            victims = {uid: name for uid, (_, name, of) in self._lost.items() if of == node}
            due = any(self._lost[uid][0] <= now for uid in victims)
            others = any(life.node == node for life in self._by_uid.values())
            power_off = os.path.exists(power_mark(self._cache.store, node))
            if not due and others and not power_off:
                continue
            for uid in victims:
                del self._lost[uid]
            processes.kill(self._cache.store.root, lambda process, uids=frozenset(victims): process.pod_uid in uids)
            self._declare(node, victims, node_lost=power_off or (not others and len(victims) > 1))

    def _declare(self, node: str, victims: dict[str, str], *, node_lost: bool) -> None:
        reason = "NodeLost" if node_lost else "SupervisorLost"
        message = (
            f"every supervisor of {node} vanished: the node is lost" if node_lost else "the pod's supervisor vanished"
        )
        with self._cache.store.transaction() as change:
            # Somebody may have declared them lost while we waited for the lock, and the node too.
            stored = {name: change.get("Pod", name) for name in victims.values()}
            lost = [
                pod
                for uid, name in victims.items()
                if (pod := stored[name]) is not None and pod["metadata"]["uid"] == uid and not finished(pod)
            ]
            found = change.get("Node", node)
            if lost and node_lost and found is not None and node_facts(found).ready == "True":
                self._cache.wrote(change.put(set_ready(found, "Unknown", "NodeStatusUnknown", message)))
            for pod in lost:
                pod["status"] = failed_status(pod["status"], reason, message, timestamp())
                self._cache.wrote(change.put(pod))
