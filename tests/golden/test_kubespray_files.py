"""What a site's Kubespray gets for the example of a bootstrap: its inventory and group variables, whole."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from profiles.bootstrap.inventory import Bootstrap
from profiles.cluster import ClusterProfile
from profiles.loading import load
from workflows.bootstrap.kubespray import KubesprayScope, kubespray_files

FOLDER = Path(__file__).parent
ENGINE: dict[str, Any] = {
    "kind": "kubespray",
    "source": {"url": "https://git.example.org/kubespray.git", "commit": "0123456789abcdef" * 2 + "01234567"},
    "environment": "/opt/kubespray",
    "version": "1.36.3",
    "variables": {"kube_network_plugin": "cilium", "kube_proxy_mode": "nftables"},
}
CASES: dict[str, dict[str, Any]] = {
    "mirror-and-virtual-address": {},
    "balancer-of-the-site": {"endpoint": {"address": "api.example.org", "port": 8443, "kind": "external"}},
    "newer-copy": {},
    "own-registries": {"mirror": {}, "endpoint": None},
    "insecure-registry": {"mirror": {"registry": "192.0.2.1:5000/k", "registry_insecure": True}},
}
SCOPES = {
    "newer-copy": KubesprayScope(
        ("control-1", "control-2", "control-3", "mi300x-1", "h200-1"),
        {
            "control-1": {
                "spec": {"taints": [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]}
            },
            "mi300x-1": {
                "spec": {
                    "taints": [
                        {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"},
                        {"key": "primus-flows.io/bad", "value": "true", "effect": "NoExecute", "timeAdded": "now"},
                        {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
                    ]
                }
            },
        },
    )
}
"""One of a cluster that lives: two nodes, and a host that is to join."""


def example(change: dict[str, Any]) -> ClusterProfile:
    cluster = load.load_cluster("bootstrap-example")
    assert cluster.bootstrap is not None
    said = cluster.bootstrap.model_dump(mode="json") | {"engine": ENGINE} | change
    return cluster.model_copy(update={"bootstrap": Bootstrap.model_validate(said)})


@pytest.mark.parametrize("case", CASES)
def test_the_files_are_as_recorded(case: str) -> None:
    removed = {"loadbalancer_apiserver", "apiserver_loadbalancer_domain_name"} if case == "newer-copy" else ()
    files = kubespray_files(example(CASES[case]), SCOPES.get(case), removed)
    for path, text in files.items():
        golden = FOLDER / f"kubespray-{case}-{Path(path).stem}.yml"
        if os.environ.get("PRIMUS_GOLDEN") == "1":
            golden.write_text(text)
        assert golden.read_text() == text, "run: make golden, and look at the difference"


def test_no_recorded_files_are_left_over() -> None:
    kept = {file.name for file in FOLDER.glob("kubespray-*.yml")}
    assert kept == {f"kubespray-{case}-{name}.yml" for case in CASES for name in ("hosts", "primus")}
