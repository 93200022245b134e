"""Who may run on a node that no preflight has passed yet, and that pods of runs never may."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from flows.decisions.bootstrap.components import before_admission
from profiles.bootstrap.components import ChartSource
from profiles.bootstrap.inventory import ClusterHost
from profiles.cluster import Pool
from profiles.health import HealthValues
from profiles.loading.load import load_cluster, load_suite
from profiles.values import OWN_PREFIX
from profiles.workspace import Flavor
from tests.support.builders.components import shelf, whole_plan
from tests.support.fakes.serving_stand_ins import MadeCluster, prove
from workflows import labels
from workflows.bootstrap.components import components_workflow
from workflows.node_tests.preflight import planned, preflight_workflow
from workflows.platform.health import daemon_set
from workflows.programs.serving import objects, world
from workflows.tolerations import EVERYTHING, LOST, STARTUP

Json = dict[str, Any]
GOLDEN = Path(__file__).parents[2] / "golden"
RUNS = ("JobSet", "TrainJob", "PyTorchJob")
"""Kinds whose pods train."""


def template(kind: str, pod: Json) -> Json:
    """An object of that kind, whose pods are so."""
    spec: Json = pod
    for key in reversed(objects.POD_TEMPLATES[kind]):
        spec = {key: spec}
    return {"kind": kind, "metadata": {"name": "made"}, **spec}


def pod_in(found: Json, kind: str) -> Json:
    for key in objects.POD_TEMPLATES[kind]:
        found = found[key]
    return found


@pytest.mark.parametrize("kind", objects.POD_TEMPLATES)
def test_pods_of_every_kind_get_the_toleration_once_and_keep_their_own(kind: str) -> None:
    own, lost = {"key": "team", "operator": "Exists"}, LOST if kind == "Deployment" else ()
    made = objects.tolerating(template(kind, {"containers": [], "tolerations": [own]}))
    assert pod_in(made, kind) == {"containers": [], "tolerations": [own, STARTUP, *lost]}
    assert objects.tolerating(made) == made
    assert pod_in(objects.tolerating(template(kind, {"containers": []})), kind)["tolerations"] == [STARTUP, *lost]


def test_a_deployment_that_says_how_long_it_stays_with_a_lost_node_is_left_alone() -> None:
    own = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    made = objects.tolerating(template("Deployment", {"containers": [], "tolerations": [own]}))
    assert pod_in(made, "Deployment")["tolerations"] == [own, STARTUP, LOST[0]]


def test_a_controller_of_one_pod_gets_another_one_on_another_node() -> None:
    selector = {"matchLabels": {"app": "made"}}
    own = {"topologyKey": "rack"}
    made = template("Deployment", {"containers": [], "topologySpreadConstraints": [own]})
    made["spec"] |= {"replicas": 1, "selector": selector}
    found = objects.standing_by(made)
    assert found["spec"]["replicas"] == 2
    mine, apart = pod_in(found, "Deployment")["topologySpreadConstraints"]
    assert (mine, apart["topologyKey"], apart["labelSelector"]) == (own, "kubernetes.io/hostname", selector)
    assert apart["matchLabelKeys"] == ["pod-template-hash"], "those of the version before do not count"
    assert apart["whenUnsatisfiable"] == "ScheduleAnyway", "a cluster that has lost all but one node still has both"
    assert objects.standing_by(found) == found
    assert objects.standing_by(template("Deployment", {}))["spec"]["replicas"] == 2, "one, where it does not say so"


@pytest.mark.parametrize("kind", [kind for kind in objects.POD_TEMPLATES if kind != "Deployment"])
def test_no_other_kind_gets_another_pod(kind: str) -> None:
    made = template(kind, {"containers": []})
    assert objects.standing_by(made) == made


def test_what_has_no_pods_stays_as_it_is() -> None:
    made: Json = {"kind": "ConfigMap", "metadata": {"name": "made"}, "data": {"a": "b"}}
    assert objects.tolerating(made) == made


def test_what_looks_at_nodes_and_what_installs_comes_everywhere() -> None:
    cluster = load_cluster("kubernetes-example")
    plan = planned(cluster, load_suite("smoke"), "smoke", {"n1": cluster.pools[0].name}, 1)
    assert preflight_workflow(plan).to_dict()["spec"]["tolerations"] == [EVERYTHING]
    assert components_workflow(whole_plan())["spec"]["tolerations"] == [EVERYTHING]
    daemon = daemon_set(HealthValues(image="made:1"))
    assert daemon["spec"]["template"]["spec"]["tolerations"] == [EVERYTHING]


@pytest.mark.parametrize("kind", ["workflow", "gang"])
def test_pods_of_proofs_of_the_first_components_come_everywhere(kind: str) -> None:
    made: list[Json] = []
    cluster = MadeCluster("a")
    cluster.took = lambda path, stored: made.append(stored)
    prove(kind, cluster)
    specs = [spec for one in made for spec in (pods_of(one["spec"]) or [one["spec"]])]
    assert specs
    assert all(spec["tolerations"] == [EVERYTHING] for spec in specs)
    wish = world.PodWish("made", ("serving-helper",))
    assert world.pod_of(wish, "made", "made:1")["spec"]["tolerations"] == [EVERYTHING]


def test_charts_that_stand_before_admission_are_told_to_tolerate_it() -> None:
    plan = whole_plan()
    early = before_admission(plan.chosen)
    charts = [one for one in plan.chosen if one.name in early and isinstance(one.profile.source, ChartSource)]
    assert {one.name for one in charts} >= {"amd-gpu-operator", "nvidia-gpu-operator", "cert-manager", "juicefs-csi"}
    for one in charts:
        lists = [value for name, value in one.values.items() if name.lower().endswith("tolerations")]
        assert lists, one.name
        assert all(STARTUP in value for value in lists), one.name


def test_device_plug_ins_and_volumes_stand_before_admission() -> None:
    for one in shelf().values():
        if one.category in ("gpus", "storage"):
            assert one.before_admission, one.name


def pods_of(found: Any) -> list[Json]:
    """Every pod template inside a value of JSON."""
    if isinstance(found, dict):
        own = [found] if "containers" in found else []
        return [*own, *(pod for value in found.values() for pod in pods_of(value))]
    return [pod for value in found for pod in pods_of(value)] if isinstance(found, list) else []


def gangs(document: Json) -> list[Json]:
    """Gangs in a manifest: itself, or those that a workflow applies."""
    if document.get("kind") in RUNS:
        return [document]
    applied = [
        step["resource"]["manifest"] for step in document.get("spec", {}).get("templates", []) if "resource" in step
    ]
    return [one for text in applied for one in yaml.safe_load_all(text) if one.get("kind") in RUNS]


def test_pods_of_runs_never_tolerate_it() -> None:
    seen = 0
    for file in sorted(GOLDEN.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            for gang in gangs(document or {}):
                for pod in pods_of(gang):
                    seen += 1
                    for toleration in pod.get("tolerations", []):
                        assert toleration.get("key"), f"{file.name}: tolerates everything"
                        assert not toleration["key"].startswith(labels.PREFIX), file.name
    assert seen > 20


@pytest.mark.parametrize("key", [labels.STARTUP_TAINT, labels.QUARANTINE_TAINT, labels.HOLD_TAINT])
def test_profiles_refuse_taints_of_ours_where_pods_of_runs_would_tolerate_them(key: str) -> None:
    assert f"{labels.PREFIX}/" == OWN_PREFIX
    taint = f"{key}=x:NoSchedule"
    pool = {"name": "p", "hardware": "cpu", "nodes": 2, "taints": [taint]}
    flavor = {"name": "f", "taints": [taint], "quotas": {"cpu": {"nominal": "1"}}}
    host = {"address": "192.0.2.1", "taints": [taint]}
    cases: list[tuple[type[Any], Json]] = [(Pool, pool), (Flavor, flavor), (ClusterHost, host)]
    for kind, document in cases:
        with pytest.raises(ValidationError, match=f"must not name {key}"):
            kind.model_validate(document)
        kind.model_validate({**document, "taints": ["team=a:NoSchedule"]})


def test_an_installed_list_gets_the_toleration_where_its_component_comes_before_admission() -> None:
    plan = whole_plan()
    manifest = components_workflow(plan)
    place = {one.name: number for number, one in enumerate(plan.chosen)}
    words = {template["name"]: json.dumps(template.get("container", {})) for template in manifest["spec"]["templates"]}
    assert "--to-new-nodes" in words[f"put-{place['local-folder']}"]
    assert "--to-new-nodes" not in words[f"put-{place['metrics-server']}"]
