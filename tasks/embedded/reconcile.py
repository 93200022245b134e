"""One round of the keeper: bring the world closer to what the objects say. Every step may be repeated."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from typing import Any

from tasks.embedded import processes
from tasks.embedded.cache import Cache
from tasks.embedded.lives import Lives
from tasks.embedded.objects import (
    END_ANNOTATION,
    JOBSET_LABEL,
    WORKFLOW_LABEL,
    Object,
    entries,
    finished,
    mark_deleted,
    section,
    timestamp,
)
from tasks.embedded.pod_ends import deleting, earlier, end_reason
from tasks.embedded.scheduler import Scheduler
from tasks.embedded.store import BrokenObjectError, Store, Transaction
from tasks.embedded.trees import remove_tree
from tasks.embedded.zygote import Zygote

OWNERS = {"JobSet": JOBSET_LABEL, "Workflow": WORKFLOW_LABEL}


class Reconciler:
    """What the keeper does when something happened.

    Args:
        store: of the cluster.
        zygote: starts supervisors.
        settings: content of `cluster.json`.
    """

    def __init__(self, store: Store, zygote: Zygote, settings: Object) -> None:
        self._store = store
        self._settings = settings
        self.cache = Cache(store, self._put_aside)
        self.lives = Lives(self.cache, zygote)
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
        pods = any(not finished(pod) or deleting(pod) for pod in self.cache["Pod"].values())
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
            if pod is None or finished(pod):
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
            if stored is None or stored["spec"].get("nodeName") or finished(stored):
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
        """Read every object anew: somebody found a broken one, or a file was changed behind our back."""
        self.cache.reload()
        self._swept = False

    def pass_over(self, error: Exception) -> None:
        """Put aside what broke a round, so that the next one comes through.

        Raises:
            Exception: the very error, where no object is to blame.
        """
        from tasks.embedded.inquest import find_broken  # noqa: PLC0415 - only where something broke

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
        from tasks.embedded.broken import put_aside  # noqa: PLC0415 - only where something broke

        sys.stderr.write(f"{timestamp()} {broken}\n")
        sys.stderr.flush()
        put_aside(self._store, broken.kind, broken.name, broken.problem, self._settings)

    # Deletion.

    def _remove(self, changed: set[tuple[str, str]]) -> None:
        del changed
        for pod in [pod for pod in self.cache["Pod"].values() if deleting(pod)]:
            uid = pod["metadata"]["uid"]
            if finished(pod) and not self.lives.alive(uid) and not self._owner_must_see(pod):
                self._remove_object(pod)
                remove_tree(os.path.join(self._store.root, "pods", uid))
        for kind, label in OWNERS.items():
            for owner in [owner for owner in self.cache[kind].values() if deleting(owner)]:
                pods = self.cache.pods(label, owner["metadata"]["name"])
                self._delete_pods(pods, owner["metadata"].get("deletionGracePeriodSeconds"))
                if not pods:
                    self._remove_object(owner)

    def _owner_must_see(self, pod: Object) -> bool:
        """A workflow is told how its pod ended before the pod's object goes."""
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
        self.cache.removed(kind, name)
        if kind != "Pod":
            remove_tree(os.path.join(self._store.root, "owners", manifest["metadata"]["uid"]))

    def _sweep(self) -> None:
        """After a crash: end what belongs to pods that are gone or finished, and forget their folders.

        A pod whose owner is gone goes too: somebody removed the owner's file.
        """
        owners = {owner["metadata"]["uid"] for kind in OWNERS for owner in self.cache[kind].values()}
        self._delete_pods([pod for pod in self.cache["Pod"].values() if _owners(pod) - owners], None)
        pods = {pod["metadata"]["uid"]: pod for pod in self.cache["Pod"].values()}
        living = {uid for uid, pod in pods.items() if not finished(pod)}
        processes.kill(self._store.root, lambda found: found.pod_uid not in living and bool(found.pod_uid))
        folder = os.path.join(self._store.root, "pods")
        for uid in set(os.listdir(folder)) - pods.keys():
            remove_tree(os.path.join(folder, uid))


def _make_driver(kind: str, cache: Cache, settings: Object) -> Any:
    if kind == "Workflow":
        from tasks.embedded.workflows import WorkflowDriver  # noqa: PLC0415 - the interpreter is large

        return WorkflowDriver(cache, settings)
    from tasks.embedded.jobsets import JobSetDriver  # noqa: PLC0415 - only where there is one

    return JobSetDriver(cache, settings)


def _same(change: Transaction, manifest: Object) -> Object | None:
    stored = change.get(manifest["kind"], manifest["metadata"]["name"])
    return stored if stored is not None and stored["metadata"]["uid"] == manifest["metadata"]["uid"] else None


def _owners(pod: Object) -> set[str]:
    return {owner["uid"] for owner in entries(pod["metadata"], "ownerReferences")}
