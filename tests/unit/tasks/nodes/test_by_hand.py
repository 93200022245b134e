"""A person takes a node out of service and gives it back; only what we set is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import NotFound, ProfileError, Unavailable
from profiles.loading.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.cluster import Cluster, current, using
from tasks.clusters import embedded_cluster
from tasks.context import World, at_hand
from tasks.embedded.api import EmbeddedCluster
from tasks.nodes.by_hand import cordon, release_by_hand
from tasks.nodes.marks import Mark, set_mark
from tasks.observe.nodes import cluster_node, cluster_nodes, gpus_of
from tasks.processes import own_user as me
from tasks.runs.put_back import power_on
from tasks.settings import Settings, localised
from workflows.model.records import NodeRecord

PROFILE = load_cluster("local")


@pytest.fixture
def here(tmp_path: Path) -> Iterator[World]:
    with at_hand(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})) as world:
        yield world


@pytest.fixture
def cluster(here: World) -> Iterator[EmbeddedCluster]:
    made = embedded_cluster(localised(PROFILE, here.settings.home), here.settings.home)
    with using(made):
        yield made
    made.stop()


def spec(cluster: Cluster, node: str = "node-1") -> dict[str, Any]:
    found = cluster.get("Node", node)
    assert found is not None
    return found["spec"]


def test_a_node_is_taken_out_and_given_back(here: World, cluster: EmbeddedCluster) -> None:
    assert cordon(PROFILE, "node-1", "loud (me@here)") == "node-1 is out of service: loud (me@here)"
    assert spec(cluster)["unschedulable"] is True
    held = here.ledger.node("local", "node-1")
    assert held is not None
    assert (held.state, held.why, held.pool) == ("quarantined", "loud (me@here)", "cpu")
    assert here.ledger.brake_counts("local", "cpu", 0.0).out == ("node-1",), "the brake knows of it"
    assert release_by_hand(PROFILE, "node-1", "mended (me@here)") == "node-1 is released"
    assert not spec(cluster).get("unschedulable")
    back = here.ledger.node("local", "node-1")
    assert back is not None
    assert (back.state, back.why) == ("schedulable", "mended (me@here)")
    assert [item.state for item in here.ledger.actions("people/local")] == ["done"]


def test_twice_is_once(here: World, cluster: EmbeddedCluster) -> None:
    cordon(PROFILE, "node-1", "loud")
    assert cordon(PROFILE, "node-1", "very loud") == "node-1 is out of service: loud"
    release_by_hand(PROFILE, "node-1", "mended")
    assert release_by_hand(PROFILE, "node-1", "mended") == "nothing of ours stands on node-1"
    assert len(here.ledger.node_history("local", "node-1")) == 2
    cordon(PROFILE, "node-1", "loud again")
    release_by_hand(PROFILE, "node-1", "mended again")
    assert not spec(cluster).get("unschedulable")


def test_what_somebody_else_cordoned_stays_cordoned(here: World, cluster: EmbeddedCluster) -> None:
    cluster.patch("Node", "node-1", {"spec": {"unschedulable": True}})
    assert (
        release_by_hand(PROFILE, "node-1", "x")
        == "nothing of ours stands on node-1; it stays cordoned: that was not us"
    )
    cordon(PROFILE, "node-1", "loud")
    assert release_by_hand(PROFILE, "node-1", "x") == "node-1 is released; it stays cordoned: that was not us"
    assert spec(cluster)["unschedulable"] is True


class Silent(EmbeddedCluster):
    """A cluster that lists and takes nothing."""

    def patch(self, kind: str, name: str, patch: Any) -> Any:
        raise Unavailable("no answer")


def test_what_was_written_is_carried_out_by_the_next_try(here: World, cluster: EmbeddedCluster) -> None:
    with using(Silent(cluster.root, cluster.spec)), pytest.raises(Unavailable):
        cordon(PROFILE, "node-1", "loud")
    held = here.ledger.node("local", "node-1")
    assert held is not None
    assert held.state == "quarantined", "written ahead"
    cordon(PROFILE, "node-1", "loud")
    assert spec(cluster)["unschedulable"] is True
    assert [item.state for item in here.ledger.actions("people/local")] == ["done"]
    release_by_hand(PROFILE, "node-1", "mended")
    assert not spec(cluster).get("unschedulable")


def test_a_node_that_nobody_knows(here: World, cluster: EmbeddedCluster) -> None:
    for act in (cordon, release_by_hand):
        with pytest.raises(NotFound, match="local has no node node-99"):
            act(PROFILE, "node-99", "x")
    assert here.ledger.nodes("local") == []


def test_every_node_of_the_pools_as_the_cluster_tells_it(cluster: EmbeddedCluster) -> None:
    cluster.patch("Node", "node-2", {"spec": {"taints": [{"key": "acme", "value": "x", "effect": "NoExecute"}]}})
    nodes = cluster_nodes(cluster, PROFILE)
    assert [node.name for node in nodes] == [f"node-{index}" for index in range(6)]
    assert {node.rack for node in nodes} == {"cpu-rack-0", "cpu-rack-1"}
    assert [node.taints_against(()) for node in nodes if node.taints] == [("acme=x:NoExecute",)]
    assert [node.spare for node in nodes] == [False] * 4 + [True] * 2
    assert {gpus_of(pool) for pool in PROFILE.pools if pool.name in {node.pool for node in nodes}} == {0}
    assert cluster_node(cluster, PROFILE, "node-2") == nodes[2]
    assert cluster_node(cluster, PROFILE, "node-99") is None


def ready(cluster: Cluster, node: str = "node-1") -> bool:
    found = cluster_node(cluster, PROFILE, node)
    return found is not None and found.ready is True


def taken_out(here: World, why: str, at: float, incident: str = "demo-a1-i1") -> None:
    """As our flows take node-1 out."""
    here.ledger.take_out([NodeRecord("local", "node-1", "quarantined", why, at, incident, "cpu")], None)
    set_mark(current(), "node-1", Mark(VerdictWord.FAIL, "demo-a1-i1"))


@pytest.mark.parametrize("silent", [False, True], ids=["told", "silent"])
def test_a_node_whose_power_was_cut_gets_it_back_with_its_place(
    here: World, cluster: EmbeddedCluster, silent: bool
) -> None:
    cluster.lose_node("node-1", silent=silent)
    taken_out(here, "node_lost", here.now())
    assert power_on(PROFILE, "node-1", "practice", me()) == "node-1 has power again; node-1 is released"
    assert ready(cluster)
    assert cluster.power_cut_at("node-1") is None
    assert not spec(cluster).get("taints")
    assert [item.state for item in here.ledger.nodes("local")] == ["schedulable"]
    again = power_on(PROFILE, "node-1", "practice", me())
    assert again == "node-1 has power, and nothing that a drill did stands on it"
    assert len(here.ledger.node_history("local", "node-1")) == 2, "what there is nothing to do for is not written down"


def test_a_release_does_not_pass_for_power(here: World, cluster: EmbeddedCluster) -> None:
    cluster.lose_node("node-1")
    hint = "nothing runs on it yet: it is not ready (PowerLost), `primus nodes power-on node-1` gives it its power back"
    assert release_by_hand(PROFILE, "node-1", "again", me()) == f"nothing of ours stands on node-1; {hint}"
    taken_out(here, "node_lost", here.now())
    assert release_by_hand(PROFILE, "node-1", "again", me()) == f"node-1 is released; {hint}"


def test_what_took_a_node_out_before_its_power_was_cut_keeps_it_out(here: World, cluster: EmbeddedCluster) -> None:
    taken_out(here, "gpu_hardware: Xid 79", here.now() - 60)
    cluster.lose_node("node-1")
    said = power_on(PROFILE, "node-1", "practice", me())
    assert said == "node-1 has power again; it stays out of service: gpu_hardware: Xid 79"
    assert (ready(cluster), bool(spec(cluster).get("taints"))) == (True, True)


def test_a_person_s_cordon_outlives_the_drill(here: World, cluster: EmbeddedCluster) -> None:
    cluster.lose_node("node-1")
    cordon(PROFILE, "node-1", "loud", me())
    said = power_on(PROFILE, "node-1", "practice", me())
    assert said == f"node-1 has power again; it stays out of service: {me()}: loud"
    assert spec(cluster)["unschedulable"] is True


def test_power_is_turned_on_where_drills_can_cut_it_only(here: World) -> None:
    with pytest.raises(NotFound, match="local has no node node-99"):
        power_on(PROFILE, "node-99", "practice", me())
    with pytest.raises(ProfileError, match="drills cut no power on kubernetes-example"):
        power_on(load_cluster("kubernetes-example"), "node-1", "practice", me())
