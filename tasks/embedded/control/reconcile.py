"""One round of the keeper: bring the world closer to what the objects say. Every step may be repeated.

`Supervisors` knows which supervisors live, which vanished, and what becomes of the pod of one that vanished.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import Any

from tasks.embedded.control.nodes import node_facts, power_mark, set_ready
from tasks.embedded.control.pods import deleting, earlier, end_reason
from tasks.embedded.control.scheduler import Scheduler
from tasks.embedded.engine.kube.pods import failed_status
from tasks.embedded.layout import PodFolder, remove_tree
from tasks.embedded.objects import (
    END_ANNOTATION,
    JOBSET_LABEL,
    WORKFLOW_LABEL,
    Object,
    entries,
    is_finished,
    mark_deleted,
    section,
    timestamp,
)
from tasks.embedded.runtime import processes
from tasks.embedded.runtime.supervisor import Zygote
from tasks.embedded.store import locks
from tasks.embedded.store.cache import Cache
from tasks.embedded.store.store import BrokenObjectError, Store, Transaction

TOGETHER_SECONDS = 0.1
"""Supervisors of one node that vanish within this time vanished together."""

OWNERS = {"JobSet": JOBSET_LABEL, "Workflow": WORKFLOW_LABEL}


class Reconciler:
    """The keeper's work after something happened; `settings` is the content of `cluster.json`."""

    def __init__(self, store: Store, zygote: Zygote, settings: Object) -> None:
        self._store = store
        self._settings = settings
        self.cache = Cache(store, self._put_aside)
        self.lives = Supervisors(self.cache, zygote)
        self._scheduler = Scheduler(self.cache, section(settings, "priority_classes"))
        self._drivers: dict[str, Any] = {}
        self._swept = False

    def run(self) -> None:
        """Go on until nothing more can be done now."""
        if not self._swept:
            self._sweep()
            self._swept = True
        self.lives.answers()
        self.lives.judge()
        self.cache.refresh()
        for _ in range(100):
            changed = self.cache.take_changed()
            due = self._due()
            if not changed and not due:
                return
            self._drive(changed | due)
            self._pods(changed)
            self._schedule(changed)
            self._remove(changed)
            self.cache.refresh()

    def pending(self) -> bool:
        """Whether anything may still happen by itself."""
        pods = any(not is_finished(pod) or deleting(pod) for pod in self.cache["Pod"].values())
        return pods or any(driver.pending() for driver in self._drivers.values()) or self._owners_going()

    def wake_at(self) -> float | None:
        """Monotonic time of the next timer, None for none."""
        if self.cache.changed:
            return time.monotonic()
        moments = [self.lives.wake_at, *(driver.wake_at() for driver in self._drivers.values())]
        return min((moment for moment in moments if moment is not None), default=None)

    def _owners_going(self) -> bool:
        return any(deleting(owner) for kind in OWNERS for owner in self.cache[kind].values())

    def _due(self) -> set[tuple[str, str]]:
        now = time.monotonic()
        return {(kind, name) for kind, driver in self._drivers.items() for name in driver.due(now)}

    def _drive(self, changed: set[tuple[str, str]]) -> None:
        for kind in OWNERS:
            names = sorted(name for of, name in changed if of == kind)
            present = [name for name in names if name in self.cache[kind]]
            if names and (present or kind in self._drivers):
                self._driver(kind).run(names)

    def _driver(self, kind: str) -> Any:
        if kind not in self._drivers:
            self._drivers[kind] = _make_driver(kind, self.cache, self._settings)
        return self._drivers[kind]

    # Pods.

    def _pods(self, changed: set[tuple[str, str]]) -> None:
        for kind, name in changed:
            pod = self.cache["Pod"].get(name) if kind == "Pod" else None
            if pod is None or is_finished(pod):
                continue
            if pod["spec"].get("nodeName"):
                self.lives.ensure(pod)
            reason = end_reason(pod)
            if reason and pod["spec"].get("nodeName"):
                self.lives.signal(pod, signal.SIGTERM, reason)
            elif reason:
                self._end_unstarted(pod)

    def _end_unstarted(self, pod: Object) -> None:
        with self._store.transaction() as change:
            stored = _same(change, pod)
            if stored is None or stored["spec"].get("nodeName") or is_finished(stored):
                return
            wish: Object = json.loads(section(stored["metadata"], "annotations").get(END_ANNOTATION, "{}"))
            stored["status"] |= {"phase": "Failed", "reason": wish.get("reason") or "Deleted"}
            stored["status"]["message"] = wish.get("message") or "ended before it was placed"
            self.cache.wrote(change.put(stored))

    def _schedule(self, changed: set[tuple[str, str]]) -> None:
        if any(kind in ("Pod", "Node", "PersistentVolumeClaim") for kind, _ in changed):
            for pod in self._scheduler.run():
                self.lives.ensure(pod)

    # Broken objects.

    def look_again(self) -> None:
        """Read every object anew: one was found broken, or a file was changed behind our back."""
        self.cache.reload()
        self._swept = False

    def pass_over(self, error: Exception) -> None:
        """Put aside what broke a round, so that the next one comes through.

        Raises:
            Exception: the very error, where no object is to blame.
        """
        from tasks.embedded.control.broken import find_broken  # noqa: PLC0415 - only where something broke

        if isinstance(error, BrokenObjectError):
            broken = [error]
        else:
            traceback.print_exception(error)
            found = find_broken(self.cache, self._settings)
            broken = [BrokenObjectError(kind, name, self._store.path(kind, name), why) for kind, name, why in found]
        if not broken:
            raise error
        for one in broken:
            self._put_aside(one)
        self.look_again()

    def _put_aside(self, broken: BrokenObjectError) -> None:
        from tasks.embedded.control.broken import put_aside  # noqa: PLC0415 - only where something broke

        sys.stderr.write(f"{timestamp()} {broken}\n")
        sys.stderr.flush()
        put_aside(self._store, broken.kind, broken.name, broken.problem, self._settings)

    # Deletion.

    def _remove(self, changed: set[tuple[str, str]]) -> None:
        del changed
        for pod in [pod for pod in self.cache["Pod"].values() if deleting(pod)]:
            uid = pod["metadata"]["uid"]
            if is_finished(pod) and not self.lives.alive(uid) and not self._owner_must_see(pod):
                self._remove_object(pod)
                remove_tree(os.path.join(self._store.root, "pods", uid))
        for kind, label in OWNERS.items():
            for owner in [owner for owner in self.cache[kind].values() if deleting(owner)]:
                pods = self.cache.pods(label, owner["metadata"]["name"])
                self._delete_pods(pods, owner["metadata"].get("deletionGracePeriodSeconds"))
                if not pods:
                    self._remove_object(owner)

    def _owner_must_see(self, pod: Object) -> bool:
        """A workflow must see how its pod ended before the pod's object goes."""
        labels = section(pod["metadata"], "labels")
        for kind, label in OWNERS.items():
            if label not in labels:
                continue
            driver = self._drivers.get(kind)
            if (kind, labels[label]) in self.cache.changed or (driver is not None and driver.resting(labels[label])):
                return True
        return False

    def _delete_pods(self, pods: list[Object], grace_seconds: int | None) -> None:
        fresh = [pod for pod in pods if earlier(pod, grace_seconds)]
        if not fresh:
            return
        with self._store.transaction() as change:
            for pod in fresh:
                stored = _same(change, pod)
                if stored is not None:
                    self.cache.wrote(change.put(mark_deleted(stored, grace_seconds)))

    def _remove_object(self, manifest: Object) -> None:
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        with self._store.transaction() as change:
            if _same(change, manifest) is not None:
                change.remove(kind, name)
        self.cache.note_removed(kind, name)
        if kind != "Pod":
            remove_tree(os.path.join(self._store.root, "owners", manifest["metadata"]["uid"]))

    def _sweep(self) -> None:
        """After a crash: end what belongs to pods that are gone or finished, and forget their folders.

        A pod whose owner is gone goes too: somebody removed the owner's file.
        """
        owners = {owner["metadata"]["uid"] for kind in OWNERS for owner in self.cache[kind].values()}
        self._delete_pods([pod for pod in self.cache["Pod"].values() if _owners(pod) - owners], None)
        pods = {pod["metadata"]["uid"]: pod for pod in self.cache["Pod"].values()}
        living = {uid for uid, pod in pods.items() if not is_finished(pod)}
        processes.kill(self._store.root, lambda found: found.pod_uid not in living and bool(found.pod_uid))
        folder = os.path.join(self._store.root, "pods")
        for uid in set(os.listdir(folder)) - pods.keys():
            remove_tree(os.path.join(folder, uid))


def _make_driver(kind: str, cache: Cache, settings: Object) -> Any:
    if kind == "Workflow":
        from tasks.embedded.control.workflows import WorkflowDriver  # noqa: PLC0415 - the interpreter is large

        return WorkflowDriver(cache, settings)
    from tasks.embedded.control.jobsets import JobSetDriver  # noqa: PLC0415 - only where there is one

    return JobSetDriver(cache, settings)


def _same(change: Transaction, manifest: Object) -> Object | None:
    stored = change.get(manifest["kind"], manifest["metadata"]["name"])
    return stored if stored is not None and stored["metadata"]["uid"] == manifest["metadata"]["uid"] else None


def _owners(pod: Object) -> set[str]:
    return {owner["uid"] for owner in entries(pod["metadata"], "ownerReferences")}


class SupervisorHandle:
    """A supervisor that is waited for."""

    __slots__ = ("descriptor", "name", "node", "uid")

    def __init__(self, descriptor: int, name: str, uid: str, node: str) -> None:
        self.descriptor = descriptor
        self.name = name
        self.uid = uid
        self.node = node


class Supervisors:
    """All supervisors of unfinished pods."""

    def __init__(self, cache: Cache, zygote: Zygote) -> None:
        self._cache = cache
        self._zygote = zygote
        self._by_uid: dict[str, SupervisorHandle] = {}
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
                self._forget_lost(name, uid, node)
            else:
                self._by_uid[uid] = SupervisorHandle(descriptor, name, uid, node)
        return found is not None

    def _track(self, name: str, uid: str, node: str) -> bool:
        descriptor = locks.holder_descriptor(PodFolder(self._cache.store.root, uid).lock)
        if descriptor is None:
            return False
        self._by_uid[uid] = SupervisorHandle(descriptor, name, uid, node)
        return True

    def after_end(self, descriptor: int) -> None:
        """The supervisor behind the descriptor has ended."""
        life = next((life for life in self._by_uid.values() if life.descriptor == descriptor), None)
        if life is not None:
            del self._by_uid[life.uid]
            os.close(descriptor)
            self._forget_lost(life.name, life.uid, life.node)

    def _forget_lost(self, name: str, uid: str, node: str) -> None:
        self.signalled.pop(uid, None)
        self._cache.changed.add(("Pod", name))
        stored = self._cache.store.get("Pod", name)
        if stored is None or stored["metadata"]["uid"] != uid or is_finished(stored):
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
                if (pod := stored[name]) is not None and pod["metadata"]["uid"] == uid and not is_finished(pod)
            ]
            found = change.get("Node", node)
            if lost and node_lost and found is not None and node_facts(found).ready == "True":
                self._cache.wrote(change.put(set_ready(found, "Unknown", "NodeStatusUnknown", message)))
            for pod in lost:
                pod["status"] = failed_status(pod["status"], reason, message, timestamp())
                self._cache.wrote(change.put(pod))
