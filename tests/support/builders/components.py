"""Components as a cluster of the shelf would get them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache

from flows.decisions.bootstrap.components import chosen_components, with_digests
from profiles.bootstrap.components import ChartSource, ComponentProfile, ManifestsSource
from profiles.bootstrap.engines import Adopt
from profiles.bootstrap.inventory import Bootstrap, ClusterHost, ComponentChoice, Mirror
from profiles.cluster import ClusterProfile
from profiles.loading.load import load_cluster, load_shelf
from workflows.bootstrap.components import ComponentsPlan
from workflows.model.components import ChosenComponent

HARBOR: dict[str, object] = {"externalURL": "https://harbor.example.org", "existingSecretAdminPassword": "harbor-admin"}
FILES, REGISTRY = "https://mirror.example.org/files", "registry.example.org:5000"
OURS = ("primus-health", "primus-monitor", "primus-runner", "primus-workspace")
MADE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made", "namespace": "primus-flows"}}
BUILT_IN = {name: (MADE,) for name in OURS}


@cache
def shelf() -> Mapping[str, ComponentProfile]:
    """All that is shipped."""
    return load_shelf()


def cluster_with(names: Collection[str], registry: str = REGISTRY) -> ClusterProfile:
    """A shipped cluster with one host and these components."""
    values = {"harbor": HARBOR}
    bootstrap = Bootstrap(
        hosts={"a": ClusterHost(address="192.0.2.1")},
        engine=Adopt(kind="adopt"),
        mirror=Mirror(files_url=FILES, registry=registry),
        components=tuple(ComponentChoice(name=name, values=values.get(name, {})) for name in names),
    )
    return load_cluster("kubernetes-example").model_copy(update={"bootstrap": bootstrap})


def chosen_of(cluster: ClusterProfile, *vendors: str) -> tuple[ChosenComponent, ...]:
    """What that cluster gets, with digests that a mirror says of all sources."""
    assert cluster.bootstrap is not None
    paths = [
        one.source.path
        for one in shelf().values()
        if isinstance(one.source, ChartSource | ManifestsSource) and not one.source.sha256
    ]
    said = {path: f"{number:064x}" for number, path in enumerate(sorted(paths), start=1)}
    return with_digests(chosen_components(cluster.bootstrap, shelf(), vendors), said)


def plan_of(*names: str, vendors: Collection[str] = (), registry: str = REGISTRY) -> ComponentsPlan:
    """One round that installs all of them but the flow's own first ones."""
    cluster = cluster_with(names, registry)
    chosen = chosen_of(cluster, *vendors)
    installed = frozenset(one.name for one in chosen if not one.profile.first)
    return ComponentsPlan(cluster, chosen, installed, 1, BUILT_IN, nodes=3)


def whole_plan() -> ComponentsPlan:
    """Everything on the shelf, on a cluster with GPUs of both vendors."""
    return plan_of(*sorted(shelf()), vendors=("amd", "nvidia"))
