"""Who may reach what of ours in a cluster: pods of a workspace reach the coordinator, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.errors import ProfileError
from profiles.health import HealthValues
from profiles.loading.load import load_workspace
from tests.support.cases.yaml_files import read_all_yaml
from tests.support.fakes.network_policies import Traffic, ports_of, traffic
from workflows import labels
from workflows.platform.health import SERVICE, check_pod, daemon_set, health
from workflows.platform.pod_shapes import NAME, NAMESPACE, PART
from workflows.platform.workspace import control, workspace

SHIPPED = Path(__file__).parents[4] / "deployments" / "kubernetes"
FILES = ("base/server.yaml", "base/runner.yaml", "base/monitor.yaml", "base/network.yaml")
DATABASE = "components/postgres/postgres.yaml"
GOLDEN = Path(__file__).parents[3] / "golden"
SERVER_PORT, DATABASE_PORT, PAGE_PORT = 4200, 5432, 9464
OURS = [{}, PART, {NAME: "primus-runner", **PART}, {NAME: SERVICE}, {"primus-flows.io/part": "driver"}]
"""Labels that a pod may give itself: it chooses those, but not its namespace."""
Manifest = dict[str, Any]


def pod(namespace: str, marks: Manifest, name: str = "a-pod", **spec: Any) -> Manifest:
    return {"metadata": {"namespace": namespace, "name": name, "labels": dict(marks)}, "spec": spec}


def of_template(item: Manifest) -> Manifest:
    template = item["spec"]["template"]
    return pod(
        item["metadata"]["namespace"], template["metadata"]["labels"], item["metadata"]["name"], **template["spec"]
    )


@cache
def installed(*, compatible: bool = False) -> list[Manifest]:
    """Everything of ours in a cluster with two workspaces and the health service."""
    training = load_workspace("training")
    other = training.model_copy(update={"name": "other-team"})
    parts = [item for name in (*FILES, DATABASE) for item in read_all_yaml((SHIPPED / name).read_text())]
    monitoring = {"kind": "Namespace", "metadata": {"name": "monitoring"}}
    spaces = [*workspace(training), *workspace(other), *control(NAMESPACE), monitoring]
    return [*parts, *spaces, *health(HealthValues(compatible=compatible))]


def cluster(*, compatible: bool = False) -> Traffic:
    return traffic(installed(compatible=compatible))


def ours() -> dict[str, Manifest]:
    """The pods of what is installed outside of workspaces, by name."""
    made = [of_template(item) for item in installed() if "template" in item.get("spec", {})]
    return {item["metadata"]["name"]: item for item in made}


def golden_pods() -> list[Manifest]:
    """Every pod of every workflow and gang that stands in the golden manifests."""
    documents = [one for path in sorted(GOLDEN.glob("*.yaml")) for one in read_all_yaml(path.read_text())]
    return [pod("training", marks, **spec) for one in documents for marks, spec in templates(one)]


def templates(value: Any) -> Iterator[tuple[Manifest, Manifest]]:
    """Labels and specification of each pod that a manifest makes, also of those that it holds as text."""
    if isinstance(value, str) and value.startswith("apiVersion:"):
        value = yaml.safe_load(value)
    if isinstance(value, list):
        yield from (found for item in value for found in templates(item))
    elif isinstance(value, dict):
        inner: Manifest = value
        if "podMetadata" in inner:
            yield inner["podMetadata"]["labels"], {}
        if "containers" in (inner.get("spec") or {}):
            yield inner.get("metadata", {}).get("labels", {}), inner["spec"]
        yield from (found for item in inner.values() for found in templates(item))


def test_no_pod_of_a_workspace_reaches_anything_of_ours_whatever_it_calls_itself() -> None:
    here, sources = cluster(), golden_pods()
    assert len(sources) > 50
    assert {one["metadata"]["labels"].get(labels.ROLE) for one in sources} >= {"trainer", "coordinator", None}
    sources += [pod("training", marks) for marks in OURS] + [pod("training", {}, hostNetwork=True)]
    assert set(ours()) == {"primus-prefect", "primus-runner", "primus-monitor", "primus-postgres", SERVICE}
    reached = {
        (target["metadata"]["name"], port)
        for source, target in product(sources, ours().values())
        for port in {*ports_of(target).values(), SERVER_PORT, DATABASE_PORT, PAGE_PORT}
        if here.admits(source, target, port)
    }
    assert reached == set()


def test_a_workspace_is_not_the_runners_own_namespace() -> None:
    training = load_workspace("training")
    with pytest.raises(ProfileError, match=f"must not be the runner's own namespace {training.name}"):
        load_workspace("training", [f"runner_namespace={training.name}"])


def test_pods_of_a_workspace_reach_its_coordinator_and_each_other_and_no_other_teams_pods() -> None:
    here = cluster()
    rank, boss = (pod("training", {labels.ROLE: role}) for role in ("trainer", labels.COORDINATOR_ROLE))
    assert here.admits(rank, boss, labels.COORDINATOR_PORT)
    assert here.admits(rank, rank, 29500), "rendezvous"
    stranger = pod("other-team", {labels.ROLE: "trainer"})
    assert not here.admits(stranger, rank, 29500)
    assert not here.admits(stranger, boss, 29500)


@pytest.mark.parametrize(
    ("source", "target", "port"),
    [
        ("primus-runner", "primus-prefect", SERVER_PORT),
        ("primus-monitor", "primus-prefect", SERVER_PORT),
        ("primus-prefect", "primus-postgres", DATABASE_PORT),
        ("primus-runner", "primus-postgres", DATABASE_PORT),
        ("primus-monitor", "primus-postgres", DATABASE_PORT),
        (SERVICE, SERVICE, 3333),
    ],
)
def test_what_is_ours_reaches_what_it_needs(source: str, target: str, port: int) -> None:
    assert cluster().admits(ours()[source], ours()[target], port)


def test_the_monitoring_reads_pages_and_no_database() -> None:
    here, prometheus = cluster(), pod("monitoring", {})
    for target, port in (("primus-prefect", SERVER_PORT), ("primus-runner", PAGE_PORT), (SERVICE, 8081)):
        assert here.admits(prometheus, ours()[target], port)
    assert not here.admits(prometheus, ours()["primus-postgres"], DATABASE_PORT)


def test_a_health_service_that_is_as_autopilots_is_open_to_everybody() -> None:
    daemon = pod("primus-health", daemon_set(HealthValues())["spec"]["template"]["metadata"]["labels"])
    rank = pod("training", {labels.ROLE: "trainer"})
    assert cluster(compatible=True).admits(rank, daemon, 3333)
    assert not cluster(compatible=True).admits(rank, daemon, 9999)
    assert not cluster().admits(rank, daemon, 3333)
    asking = check_pod(HealthValues())
    assert cluster().admits(asking, daemon, 3333), "the pod that asks all nodes stands beside them"
