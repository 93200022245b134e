"""A supervisor whose pod is to end while it is being started, or whose cluster is removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tasks.embedded.objects import END_ANNOTATION
from tasks.embedded.runtime import supervisor
from tasks.embedded.runtime.supervisor import SupersededError, Supervisor, publish
from tasks.embedded.store import locks
from tasks.embedded.store.store import Store

POD = {"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "node-0", "containers": []}, "status": {}}
ASKED = {**POD, "metadata": {**POD["metadata"], "annotations": {END_ANNOTATION: "{}"}}}


@pytest.mark.parametrize(
    ("pod", "signal_comes", "asked"),
    [(POD, False, False), (POD, True, True), (ASKED, False, True), (ASKED, True, True)],
    ids=["nobody", "a-signal-after-it-was-read", "the-object-says-so", "both"],
)
def test_an_end_that_was_asked_for_at_the_start_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pod: dict[str, Any], signal_comes: bool, asked: bool
) -> None:
    monkeypatch.setattr(supervisor, "Starter", lambda *_: None)
    one = object.__new__(Supervisor)
    one.root, one.name, one.uid, one.asked, one.settings = str(tmp_path), "p", "u", False, {}
    one.deadline, one.namespaces = None, None

    @contextmanager
    def transaction() -> Iterator[Any]:
        yield SimpleNamespace(get=lambda kind, name: pod)
        if signal_comes:
            one._on_term()

    one.store = SimpleNamespace(transaction=transaction)
    one.folder = SimpleNamespace(started=str(tmp_path / "started"))
    assert one._claim()
    assert one.asked is asked


def test_who_tells_of_a_pod_whose_cluster_was_removed_ends_and_waits_where_it_only_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, aside = tmp_path / "cluster", tmp_path / "aside"
    store = Store(str(root))
    store.prepare()
    lock = locks.take(str(root / "pod-lock"))
    assert lock is not None
    with store.transaction() as change:
        change.put({"kind": "Pod", "apiVersion": "v1", **POD})
    root.rename(aside)
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            shutil.rmtree(aside)

    monkeypatch.setattr(supervisor.time, "sleep", wait)
    with pytest.raises(SupersededError):
        publish(store, "p", "u", None, lambda before: {**before, "phase": "Running"}, lock)
    assert len(waits) == 3
