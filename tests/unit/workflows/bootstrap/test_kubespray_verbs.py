from __future__ import annotations

from typing import Any

import pytest
import yaml

from profiles.cluster import ClusterProfile
from profiles.errors import Refused
from profiles.loading import load
from tests.support.builders.kubeadm_cluster import kubeadm_cluster
from workflows.bootstrap import kubeadm_documents, kubespray
from workflows.bootstrap.kubespray import KubesprayPlaybook, KubesprayScope

PLANES = ("c1", "c2", "c3")
FACTS = KubesprayPlaybook("playbooks/facts.yml")


def test_workers_join_by_the_scaling_playbook_with_facts_first() -> None:
    assert kubespray.node_in(PLANES, ["w1"]) == (FACTS, KubesprayPlaybook("scale.yml", ("w1",)))


def test_control_planes_join_by_the_cluster_playbook_beside_all_others() -> None:
    joining = KubesprayPlaybook("cluster.yml", ("c1", "c2", "c3", "w1"))
    assert kubespray.node_in(PLANES, ["w1", "c3"]) == (FACTS, joining)


@pytest.mark.parametrize("dead", [False, True])
def test_hosts_leave_and_dead_ones_are_not_cleaned_up(dead: bool) -> None:
    (playbook,) = kubespray.node_out(["w1", "c3"], dead=dead)
    gone = {"reset_nodes": False, "allow_ungraceful_removal": True} if dead else {}
    assert playbook.playbook == "remove-node.yml"
    assert playbook.variables == {"node": "w1,c3", "skip_confirmation": True, **gone}


def test_a_batch_is_upgraded_at_once_and_knows_facts() -> None:
    wanted = {"kube_version": "1.36.4", "serial": 2}
    assert kubespray.upgrade("1.36.4", ["w1", "w2"], at_once=2) == (
        FACTS,
        KubesprayPlaybook("upgrade-cluster.yml", ("w1", "w2"), wanted),
    )


def _cluster(change: dict[str, Any]) -> ClusterProfile:
    example = load.load_cluster("bootstrap-example")
    assert example.bootstrap is not None
    return example.model_copy(update={"bootstrap": example.bootstrap.model_copy(update=change)})


def made() -> ClusterProfile:
    engine = {"kind": "kubespray", "version": "1.36.3", "environment": "/opt/k"}
    return kubeadm_cluster(engine={**engine, "source": {"archive": "/k.tar", "sha256": "a" * 64}})


def inventory(scope: KubesprayScope | None = None) -> dict[str, Any]:
    return yaml.safe_load(kubespray.kubespray_files(made(), scope)[kubespray.INVENTORY])["all"]


STARTUP = {"key": "primus-flows.io/startup", "effect": "NoSchedule"}
BAD = {"key": "primus-flows.io/bad", "effect": "NoExecute"}
TEAM = {"key": "team", "value": "a", "effect": "NoSchedule"}


def test_nodes_get_the_labels_and_taints_that_the_other_engine_gives_them() -> None:
    hosts = inventory()["hosts"]
    for name in hosts:
        assert hosts[name]["node_labels"] == kubeadm_documents.node_labels(made(), name)
    assert hosts["w2"]["node_labels"]["primus-flows.io/spare"] == "true"
    assert hosts["w2"]["node_taints"] == [STARTUP, TEAM]
    assert hosts["c2"]["node_taints"] == [STARTUP]
    assert "node_taints" not in hosts["c1"], "Kubespray taints a control plane without work itself"


def test_names_are_there_for_nodes_that_nobody_has_tested_yet() -> None:
    variables = yaml.safe_load(kubespray.kubespray_files(made())[kubespray.VARIABLES])
    assert variables["dns_extra_tolerations"] == [{"key": STARTUP["key"], "operator": "Exists"}]


@pytest.mark.parametrize(
    ("there", "named"),
    [
        ([], [TEAM]),
        ([STARTUP], [STARTUP, TEAM]),
        ([{**TEAM, "timeAdded": "2026-01-01T00:00:00Z"}], [TEAM]),
        ([BAD], [BAD, TEAM]),
        ([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}, TEAM], [TEAM]),
        ([{**TEAM, "value": "b"}], [TEAM]),
    ],
)
def test_a_node_keeps_the_taints_that_it_has_got_since(
    there: list[dict[str, str]], named: list[dict[str, str]]
) -> None:
    """Kubespray's role takes away what is not named, and names again by itself what is Kubernetes' own."""
    scope = KubesprayScope(nodes={"w2": {"spec": {"taints": there}}})
    assert inventory(scope)["hosts"]["w2"]["node_taints"] == named


def test_what_is_not_of_the_cluster_is_not_in_the_inventory() -> None:
    found = inventory(KubesprayScope(("w1", "c1", "c2")))
    assert list(found["hosts"]) == ["c1", "c2", "w1"]
    groups = {name: list(group["hosts"]) for name, group in found["children"].items()}
    assert groups == {"kube_control_plane": ["c1", "c2"], "etcd": ["c1", "c2"], "kube_node": ["c2", "w1"]}


def test_another_engine_gets_no_files() -> None:
    with pytest.raises(Refused, match="is not Kubespray"):
        kubespray.kubespray_files(_cluster({}))
    with pytest.raises(Refused, match="is not Kubespray"):
        kubespray.kubespray_files(load.load_cluster("kubernetes-example"))
