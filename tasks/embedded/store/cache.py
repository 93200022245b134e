"""The keeper's picture of the store: every object it acts on, kept up to date by the log of changes."""

from __future__ import annotations

from collections.abc import Callable

from tasks.embedded.objects import JOBSET_LABEL, WORKFLOW_LABEL, Object, section
from tasks.embedded.store.changes import Change, ChangeReader
from tasks.embedded.store.store import BrokenObjectError, Store

KINDS = ("Pod", "JobSet", "Workflow", "Node")


class Cache:
    """Objects by kind and name, and those that changed since the last `take_changed`.

    `put_aside` handles a broken object, which afterwards can be read, or is gone.
    """

    def __init__(self, store: Store, put_aside: Callable[[BrokenObjectError], None]) -> None:
        self.store = store
        self._put_aside = put_aside
        self.reader = ChangeReader(store.log_path)
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self.changed: set[tuple[str, str]] = set()
        self.reload()

    def __getitem__(self, kind: str) -> dict[str, Object]:
        return self.objects[kind]

    def pods(self, label: str, value: str) -> list[Object]:
        """Pods with this label."""
        return [pod for pod in self["Pod"].values() if section(pod["metadata"], "labels").get(label) == value]

    def refresh(self) -> bool:
        """Read what others changed; whether anything did."""
        changes = self.reader.read()
        if changes is None:
            self.reload()
            return True
        for change in changes:
            self._apply(change)
        return bool(changes)

    def wrote(self, manifest: Object) -> None:
        """Take over what the keeper itself just wrote."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        self.objects[kind][name] = manifest
        self._mark(kind, name, manifest)

    def note_removed(self, kind: str, name: str) -> None:
        """Forget what the keeper itself just removed."""
        found = self.objects[kind].pop(name, None)
        self._mark(kind, name, found)

    def take_changed(self) -> set[tuple[str, str]]:
        """Kind and name of everything that changed since the last call; a pod's owners count as changed."""
        found, self.changed = self.changed, set()
        return found

    def _apply(self, change: Change) -> None:
        kind, name = change.kind, change.name
        if kind not in self.objects:
            self.changed.add((kind, name))
            return
        known = self.objects[kind].get(name)
        if known is not None and int(known["metadata"]["resourceVersion"]) >= change.version:
            return
        current = self.store.get(kind, name)
        if current is None:
            self._mark(kind, name, self.objects[kind].pop(name, None))
        elif known is None or known["metadata"]["resourceVersion"] != current["metadata"]["resourceVersion"]:
            self.objects[kind][name] = current
            self._mark(kind, name, current)

    def _mark(self, kind: str, name: str, manifest: Object | None) -> None:
        self.changed.add((kind, name))
        labels = section(manifest or {}, "metadata", "labels")
        for owner, label in (("JobSet", JOBSET_LABEL), ("Workflow", WORKFLOW_LABEL)):
            if kind == "Pod" and label in labels:
                self.changed.add((owner, labels[label]))

    def reload(self) -> None:
        """Read every object anew and count it as changed; what is broken is put aside, whatever its kind."""
        for kind in sorted({*KINDS, *self.store.kinds()}):
            found = {name: item for name in self.store.names(kind) if (item := self._read(kind, name)) is not None}
            if kind not in self.objects:
                continue
            before, self.objects[kind] = self.objects[kind], found
            for name in before.keys() | found.keys():
                self._mark(kind, name, found.get(name) or before.get(name))

    def _read(self, kind: str, name: str) -> Object | None:
        try:
            return self.store.get(kind, name)
        except BrokenObjectError as error:
            self._put_aside(error)
            return self.store.get(kind, name)
