"""What ends the wait for nodes of a preflight."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pytest

from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster
from tasks.node_tests import preflight
from tasks.node_tests.preflight import AWAY_SECONDS, LOOK_SECONDS, Departed


@dataclass
class Clock:
    """Stands for the world."""

    at: float = 1000.0

    def now(self) -> float:
        return self.at


def test_nodes_that_cannot_report_are_waited_for_no_longer_and_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, away = Clock(), {"node-1": "it is not ready (PowerLost)"}
    looks: list[Collection[str]] = []

    def unready(_: ClusterProfile, names: Collection[str]) -> dict[str, str]:
        looks.append(names)
        return {name: why for name, why in away.items() if name in names}

    monkeypatch.setattr(preflight, "unready", unready)
    monkeypatch.setattr(preflight, "world", lambda: clock)
    departed = Departed(load_cluster("local"))
    for _ in range(20):
        clock.at += LOOK_SECONDS
        assert departed.look(["node-1", "node-2"]) == {}, "node-2 may still report"
    clock.at += LOOK_SECONDS
    assert departed.look(["node-1"]) == {}, "it may be ready again in a moment"
    seen = len(looks)
    clock.at += LOOK_SECONDS / 2
    assert departed.look(["node-1"]) == {}
    assert len(looks) == seen, "a large cluster is not listed at each change"
    clock.at += AWAY_SECONDS
    assert departed.look(["node-1"]) == away
    assert departed.look([]) == {}
    clock.at += AWAY_SECONDS
    away.clear()
    assert departed.look(["node-1"]) == {}, "it is back"
