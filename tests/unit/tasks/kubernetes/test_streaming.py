"""Everything of a kind, a page at a time: the same as a list, and never less than all without an error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from profiles.errors import Unavailable
from profiles.loading.load import load_cluster
from tasks.cluster import each
from tasks.clusters import embedded_cluster
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tests.support.fakes.fake_api_server import FakeApiServer, Fault
from tests.support.faults.node_faults import local
from workflows import labels


def names(found: Iterator[dict[str, Any]]) -> list[str]:
    return sorted(item["metadata"]["name"] for item in found)


def test_on_the_embedded_cluster(tmp_path: Path) -> None:
    cluster = embedded_cluster(local(), tmp_path)
    try:
        assert names(each(cluster, "Node")) == names(iter(cluster.list("Node")))
        assert names(each(cluster, "Node", {labels.POOL: "none"})) == []
    finally:
        cluster.stop()


def test_on_kubernetes_in_pages(api: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.kubernetes.watch.PAGE", 2)
    for name in ("a", "b", "c"):
        api.put("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    server = ApiServer(lambda: Configuration(host=api.url))
    assert names(each(KubernetesCluster(load_cluster("bed"), server), "Node")) == ["a", "b", "c"]
    assert all("watch" not in seen.query for seen in api.seen), "nobody waits for changes"
    server.close()


def test_a_cluster_that_is_away_is_not_empty(api: FakeApiServer) -> None:
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    api.faults.append(Fault("/nodes", 0, times=1000))
    server = ApiServer(lambda: Configuration(host=api.url), clock=lambda: clock[0], sleep=sleep)
    with pytest.raises(Unavailable):
        list(each(KubernetesCluster(load_cluster("bed"), server), "Node"))
    server.close()
