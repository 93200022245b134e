"""What a gang on a cordoned node is told of its pool: only then, not too often, and never by waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from profiles.errors import Unavailable
from profiles.loading.load import load_cluster, load_run, resolve
from tasks.cluster import Manifest, using
from tasks.context import World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.runs.actions import ROOM_SECONDS, PoolRoom
from tasks.settings import Settings
from tests.support.builders.nodes import a_node
from workflows import labels
from workflows.model.attempt import AttemptView
from workflows.model.records import AttemptRecord

VIEW = AttemptView("r", 1, 0.0, nodes=(a_node("node-0", True), a_node("node-1", True)))
CORDONED = replace(VIEW, nodes=(VIEW.nodes[0], replace(VIEW.nodes[1], cordoned=True)))


class Pool:
    """A cluster of three nodes, of which another run uses one, and which may not answer."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False

    def list(self, kind: str, marks: dict[str, str] | None = None) -> list[Manifest]:
        del marks
        if self.away:
            raise Unavailable("the cluster does not answer")
        if kind == "Pod":
            self.asked += 1
            return [pod("r", "node-0"), pod("r", "node-1"), pod("other", "node-2")]
        return [node(f"node-{index}") for index in range(3)]

    def watch(self, kind: str, marks: dict[str, str] | None = None, *, timeout_seconds: float) -> Iterator[Seen]:
        assert timeout_seconds == 0.0, "a list, a page at a time"
        yield Seen("SYNC", {})
        yield from (Seen("ADDED", item) for item in self.list(kind, marks))


@dataclass(frozen=True)
class Seen:
    """One line of a watch."""

    type: str
    object: Manifest


def pod(run: str, where: str) -> Manifest:
    marks = {labels.RUN: run, labels.ATTEMPT: "1", labels.ROLE: "trainer"}
    about = {"name": f"{run}-{where}", "labels": marks}
    return {"metadata": about, "spec": {"nodeName": where}, "status": {"phase": "Running"}}


def node(name: str) -> Manifest:
    conditions = [{"type": "Ready", "status": "True"}]
    return {"metadata": {"name": name, "labels": {}}, "spec": {}, "status": {"conditions": conditions}}


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(tmp_path: Path, clock: Clock) -> Iterator[Pool]:
    settings = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    ledger, cluster = Ledger(settings.ledger_url), Pool()
    with standing_in(World(settings, ledger, now=clock)), using(cluster):  # pyright: ignore[reportArgumentType]
        yield cluster
    ledger.close()


def room() -> PoolRoom:
    return PoolRoom(resolve(load_run("demo"), load_cluster("local")), AttemptRecord("r", 1, 0.0, "first"))


def busy(view: AttemptView) -> dict[str, str] | None:
    return None if view.pool is None else {item.name: item.busy for item in view.pool}


def test_the_pool_is_asked_about_only_where_a_node_is_to_be_emptied(pool: Pool) -> None:
    assert room().look(VIEW) is VIEW
    assert pool.asked == 0
    assert busy(room().look(CORDONED)) == {"node-0": "", "node-1": "", "node-2": "other"}, "its own pods are no others"


def test_it_is_asked_again_after_a_while(pool: Pool, clock: Clock) -> None:
    one = room()
    for at in (0.0, 0.5 * ROOM_SECONDS, 0.9 * ROOM_SECONDS):
        clock.now = 100.0 + at
        assert one.look(CORDONED).pool is not None
    assert pool.asked == 1
    clock.now = 100.0 + ROOM_SECONDS
    one.look(CORDONED)
    assert pool.asked == 2


def test_what_does_not_answer_says_nothing_and_is_not_waited_for(pool: Pool, clock: Clock) -> None:
    one = room()
    assert one.look(CORDONED).pool is not None
    clock.now += ROOM_SECONDS
    pool.away = True
    assert one.look(CORDONED).pool is None, "what was seen before is old"
    assert one.look(replace(CORDONED, away="it stands still")).pool is None
