from __future__ import annotations

from typing import Any

import pytest
import yaml

from profiles.bootstrap.inventory import Bootstrap
from profiles.cluster import ClusterProfile
from profiles.errors import Refused
from profiles.loading import load
from tests.support.builders.kubeadm_cluster import kubeadm_cluster
from workflows.bootstrap import kubeadm_documents, kubespray
from workflows.bootstrap.kubespray import KubesprayPlaybook

HOSTS = {
    "c1": {"address": "192.0.2.11", "role": "both"},
    "c2": {"address": "192.0.2.12", "role": "both"},
    "c3": {"address": "192.0.2.13", "role": "both"},
    "w1": {"address": "192.0.2.14"},
}
MADE = Bootstrap.model_validate({"hosts": HOSTS, "endpoint": {"address": "192.0.2.10"}, "batch_share": 0.25})
FACTS = KubesprayPlaybook("playbooks/facts.yml")


def test_workers_join_by_the_scaling_playbook_with_facts_first() -> None:
    assert kubespray.node_in(MADE, ["w1"]) == (FACTS, KubesprayPlaybook("scale.yml", ("w1",)))


def test_control_planes_join_by_the_cluster_playbook_beside_all_others() -> None:
    joining = KubesprayPlaybook("cluster.yml", ("c1", "c2", "c3", "w1"))
    assert kubespray.node_in(MADE, ["w1", "c3"]) == (FACTS, joining)


@pytest.mark.parametrize("dead", [False, True])
def test_hosts_leave_and_dead_ones_are_not_cleaned_up(dead: bool) -> None:
    (playbook,) = kubespray.node_out(MADE, ["w1", "c3"], dead=dead)
    gone = {"reset_nodes": False, "allow_ungraceful_removal": True} if dead else {}
    assert playbook.playbook == "remove-node.yml"
    assert playbook.variables == {"node": "w1,c3", "skip_confirmation": True, **gone}


def test_the_first_control_plane_does_not_leave() -> None:
    with pytest.raises(Refused, match="cannot remove: name another control plane first"):
        kubespray.node_out(MADE, ["w1", "c1"], dead=True)


def test_upgrades_go_in_batches_and_know_facts_where_they_are_limited() -> None:
    wanted = {"kube_version": "1.36.4", "serial": "25%"}
    assert kubespray.upgrade(MADE, "1.36.4") == (KubesprayPlaybook("upgrade-cluster.yml", variables=wanted),)
    limited = KubesprayPlaybook("upgrade-cluster.yml", ("w1",), wanted)
    assert kubespray.upgrade(MADE, "1.36.4", ["w1"]) == (FACTS, limited)


def _cluster(change: dict[str, Any]) -> ClusterProfile:
    example = load.load_cluster("bootstrap-example")
    assert example.bootstrap is not None
    return example.model_copy(update={"bootstrap": example.bootstrap.model_copy(update=change)})


def test_nodes_get_the_labels_and_taints_that_the_other_engine_gives_them() -> None:
    engine = {"kind": "kubespray", "version": "1.36.3", "environment": "/opt/k"}
    source = {"archive": "/k.tar", "sha256": "a" * 64}
    cluster = kubeadm_cluster(engine={**engine, "source": source})
    inventory = yaml.safe_load(kubespray.kubespray_files(cluster, start_up_taint="a=b:NoSchedule")[kubespray.INVENTORY])
    hosts = inventory["all"]["hosts"]
    for name in HOSTS:
        assert hosts[name]["node_labels"] == kubeadm_documents.node_labels(cluster, name)
    assert hosts["w2"]["node_labels"]["primus-flows.io/spare"] == "true"
    assert hosts["w2"]["node_taints"] == ["team=a:NoSchedule", "a=b:NoSchedule"]
    assert "node_taints" not in hosts["c1"], "Kubespray taints a control plane without work itself"


def test_another_engine_gets_no_files() -> None:
    with pytest.raises(Refused, match="is not Kubespray"):
        kubespray.kubespray_files(_cluster({}))
    with pytest.raises(Refused, match="is not Kubespray"):
        kubespray.kubespray_files(load.load_cluster("kubernetes-example"))
