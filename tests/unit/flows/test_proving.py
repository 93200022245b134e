"""Nodes that are held for a test are given back, whoever ends it and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from flows.testing import prove
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster, load_suite


class EndedError(Exception):
    """Somebody ends the test."""


def test_whoever_ends_a_test_as_it_is_told_of_gives_its_nodes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    given_back: list[tuple[str, ...]] = []

    def hold(profile: ClusterProfile, nodes: Sequence[str], owner: str) -> dict[str, str]:
        return {"node-1": "r uses it"}

    def give_back(nodes: Sequence[str], owner: str) -> None:
        given_back.append((*nodes, owner))

    def tell(said: str) -> None:
        assert "node-1 (r uses it)" in said
        raise EndedError(said)

    monkeypatch.setattr(prove, "unready", lambda *_: {})
    monkeypatch.setattr(prove, "joining_nodes", dict)
    monkeypatch.setattr(prove, "hold_nodes", hold)
    monkeypatch.setattr(prove, "give_nodes_back", give_back)
    profile, nodes = load_cluster("local"), {"node-0": "cpu", "node-1": "cpu"}
    with pytest.raises(EndedError):
        prove.prove(profile, load_suite("any-machine"), ("device",), nodes, tell, prove.Manner(owner="me"))
    assert given_back == [("node-0", "me")]
