"""Golden manifests of every shipped run profile, on every hardware that a shipped cluster offers it.

`make golden` rewrites them; look at the difference before you commit it. Nothing else writes them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.decisions.bootstrap.components import removal_order
from flows.decisions.node_tests.fabric.groups import gang_checks
from flows.testing.links import demand_of
from profiles.admission import Admission
from profiles.checks.catalogue import Depth
from profiles.cluster import ClusterProfile, Pool
from profiles.errors import ProfileError
from profiles.loading.load import list_profiles, load_cluster, load_hardware, load_run, load_suite, resolve
from profiles.resolve import Resolved
from profiles.run import RunProfile
from tasks.node_tests.links import Asked
from tasks.node_tests.links import plans_of as links_plans_of
from tasks.node_tests.preflight import Wanted, plan_of
from tests.support.builders.components import BUILT_IN, shelf, whole_plan
from tests.support.cases.yaml_files import DUMPER, read_all_yaml, read_yaml
from workflows import labels
from workflows.attempt.examination import examination_workflow, post_flight_workflow
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.training import FORMS, gang, manifests
from workflows.bootstrap.components import components_workflow, installer
from workflows.bootstrap.removal import Leaving, RemovalPlan, removal_workflow
from workflows.lint.lint import applied, lint
from workflows.model.gang_status import lent_restarts
from workflows.node_tests.links import links_workflow, pair_calls_of
from workflows.node_tests.pods import racks_of
from workflows.node_tests.preflight import preflight_workflow
from workflows.node_tests.sweep import SweepPlan, sweep_workflow

FOLDER = Path(__file__).parent
KUBEFLOW = tuple(form for form in FORMS if form != "jobset")
LEDGER = "6f1c0a52e1d94b6f8a3d7c95b20e4f17"
REWRITE = os.environ.get("PRIMUS_GOLDEN") == "1"


@cache
def plans() -> dict[str, AttemptPlan]:
    """Attempt 1 of each profile, by the name of its golden file."""
    found: dict[str, AttemptPlan] = {}
    for run, cluster, pool in places():
        try:
            resolved = resolve(run.model_copy(update={"pool": pool.name}), cluster)
        except ProfileError:
            continue  # this pool is not for this profile; that some pool is, another test says
        nodes = tuple(f"node-{index}" for index in range(resolved.run.deciding_role.replicas))
        where = "bed" if cluster.name == "bed" else cluster.engine
        name = f"{run.name}-on-{where}-{pool.hardware}"
        plan = AttemptPlan(
            resolved,
            f"{run.name[:24].rstrip('-')}-1",
            1,
            nodes,
            fencing=1,
            ledger=LEDGER,
            restarts_in_place=right(resolved),
        )
        found.setdefault(name, plan)
    return found


def places() -> Iterator[tuple[RunProfile, ClusterProfile, Pool]]:
    """Every run with every pool of every Kubernetes cluster; those for trying out with the embedded pools too."""
    listed = list_profiles()
    loaded = [load_cluster(item.name) for item in listed if item.kind == "cluster"]
    clusters = [cluster for cluster in loaded if cluster.bootstrap is None]  # how it was made changes no manifest
    for run in (load_run(item.name) for item in listed if item.kind == "run"):
        for cluster in clusters:
            if cluster.engine == "kubernetes" or run.name.startswith("demo"):
                yield from ((run, cluster, pool) for pool in cluster.pools)


def right(resolved: Resolved) -> int:
    """As the flow lends it to a first attempt."""
    return lent_restarts(resolved.run.recovery, resolved.run.recovery.mode, paused=False)


def special() -> dict[str, list[dict[str, Any]]]:
    """Beyond first attempts: a roll-back away from a suspect, and the workflows around a failure."""
    demo = plans()["demo-on-embedded-cpu"]
    again = replace(
        demo,
        attempt=2,
        nodes=("node-0", "node-2"),
        avoid_nodes=("node-1",),
        max_resume_step=100,
        excluded_checkpoints=("$(PRIMUS_FOLDER_STORAGE_0)/runs/demo-1/checkpoints/step-120",),
        fencing=2,
        deep_verify=True,
    )
    around = [post_flight_workflow(demo), examination_workflow(demo, ["node-1"], 1)]
    return {
        "special-roll-back": manifests(again),
        "special-failover": [one.to_dict() for one in around],
        "special-sweep": [sweep_workflow(sweep("local", 6)).to_dict(), sweep_workflow(sweep("bed", 3)).to_dict()],
        "special-sweep-of-racks": [sweep_workflow(sweep("kubernetes-example", 40)).to_dict()],
        "special-preflight": [
            preflight("local", "any-machine", "device"),
            preflight("local", "any-machine", "storage"),
        ],
        "special-preflight-of-gpus": [preflight("kubernetes-example", "smoke", "smoke")],
        "special-preflight-in-an-image-of-the-site": [
            preflight("kubernetes-example", "device", "device", gpu_image="registry.example.org/tests-rocm:7")
        ],
        "special-preflight-of-volumes": [
            preflight("kubernetes-example", "storage", "storage", storage_class="fast-ssd")
        ],
        "special-links-of-pairs": pairs("kubernetes-example", "fabric"),
        "special-links": links("local", "any-machine", 3),
        "special-links-of-gpus": links("kubernetes-example", "fabric", 1),
        "special-components": [*installer(), components_workflow(whole_plan())],
        "special-removal-of-components": [removal()],
    }


def removal() -> dict[str, Any]:
    """Everything goes but what the flow itself takes away."""
    plan = whole_plan()
    order = removal_order([one.name for one in plan.chosen if not one.profile.first], shelf(), with_data=False)
    by_name = {one.name: one for one in plan.chosen}
    leaving = tuple(Leaving(by_name[one.profile.name], one.namespace) for one in order)
    return removal_workflow(RemovalPlan(plan.cluster, leaving, 1, BUILT_IN))


def preflight(cluster: str, suite: str, depth: Depth, gpu_image: str = "", storage_class: str = "") -> dict[str, Any]:
    """The first test of six nodes of the first pool."""
    profile = load_cluster(cluster)
    profile = profile.model_copy(update={"admission": Admission(gpu_image=gpu_image, storage_class=storage_class)})
    nodes = {f"node-{number}": profile.pools[0].name for number in range(6)}
    return preflight_workflow(plan_of(Wanted(profile, load_suite(suite), depth, nodes), 1)).to_dict()


def links(cluster: str, suite: str, groups: int) -> list[dict[str, Any]]:
    """The first round between six nodes of the first pool, in so many groups."""
    profile = load_cluster(cluster)
    nodes, hardware = [f"node-{number}" for number in range(6)], load_hardware(profile.pools[0].hardware)
    demand = demand_of(gang_checks(load_suite(suite).checks_of("fabric", hardware)), profile)
    asked = Asked(profile, suite, demand, dict.fromkeys(nodes, profile.pools[0].name), {})
    plans = links_plans_of(asked, [nodes[number::groups] for number in range(groups)], 1)
    return [links_workflow(plan).to_dict() for plan in plans]


def pairs(cluster: str, suite: str) -> list[dict[str, Any]]:
    """The first round of pairs of two nodes of the first pool."""
    profile = load_cluster(cluster)
    nodes, hardware = ["node-0", "node-1"], load_hardware(profile.pools[0].hardware)
    own = [check for check in load_suite(suite).checks_of("fabric", hardware) if check.spans == "pair"]
    asked = Asked(profile, suite, pair_calls_of(own).demand, dict.fromkeys(nodes, profile.pools[0].name), {})
    return [links_workflow(plan).to_dict() for plan in links_plans_of(asked, [nodes], 1)]


def sweep(cluster: str, nodes: int) -> SweepPlan:
    """The first sweep, of so many nodes of each pool."""
    profile = load_cluster(cluster)
    hardware = {pool.name: load_hardware(pool.hardware) for pool in profile.pools}
    racks = [
        rack for pool in profile.pools for rack in racks_of(pool, [f"{pool.name}-{index}" for index in range(nodes)])
    ]
    return SweepPlan(profile, hardware, 1, tuple(racks), asked_at=1700000000.0, since=1699996400.0)


def in_other_forms() -> dict[str, list[dict[str, Any]]]:
    """The gang alone for Kubeflow's controllers, of a run on CPUs and of one on whole GPU nodes."""
    chosen = {"demo": "cpu", "megatron-lm": "mi300x"}
    cluster = load_cluster("kubernetes-example")
    found: dict[str, list[dict[str, Any]]] = {}
    for run, pool in chosen.items():
        resolved = resolve(load_run(run).model_copy(update={"pool": pool}), cluster)
        nodes = tuple(f"node-{index}" for index in range(resolved.run.deciding_role.replicas))
        plan = AttemptPlan(resolved, f"{run}-1", 1, nodes, fencing=1, ledger=LEDGER)  # no flow lends it a right
        found |= {f"{form}-{run}-on-kubernetes-{pool}": gang(plan, form) for form in KUBEFLOW}
    return found


@cache
def wanted() -> dict[str, list[dict[str, Any]]]:
    """All golden files with what belongs into them."""
    return {name: manifests(plan) for name, plan in plans().items()} | special() | in_other_forms()


def read(document: dict[str, Any]) -> dict[str, Any]:
    """The manifest with the manifests inside it parsed as well, so that only meaning is compared."""
    return {"manifest": _without_texts(document), "applied": list(applied(document))}


def _without_texts(document: dict[str, Any]) -> dict[str, Any]:
    copy = read_yaml(yaml.dump(document, Dumper=DUMPER))
    for template in copy.get("spec", {}).get("templates", []):
        template.get("resource", {}).pop("manifest", None)
    return copy


class _Dumper(yaml.SafeDumper):
    """Texts of several lines as blocks, as people would write them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style="|" if "\n" in data else None)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _text)


@pytest.mark.parametrize("name", sorted(wanted()))
def test_golden_manifests(name: str) -> None:
    built, file = wanted()[name], FOLDER / f"{name}.yaml"
    if REWRITE:
        file.parent.mkdir(exist_ok=True)
        file.write_text(yaml.dump_all(built, Dumper=_Dumper, sort_keys=False, width=110))
    assert file.exists(), "run: make golden"
    kept = list(read_all_yaml(file.read_text()))
    assert [read(one) for one in built] == [read(one) for one in kept], "run: make golden, and look at the difference"


def test_golden_files_are_all_still_wanted() -> None:
    stale = {file.stem for file in FOLDER.glob("*.yaml")} - set(wanted())
    if REWRITE:
        for name in stale:
            (FOLDER / f"{name}.yaml").unlink()
        stale = set[str]()
    assert stale == set()


def test_every_shipped_run_renders_somewhere() -> None:
    shipped = {item.name for item in list_profiles() if item.kind == "run"}
    assert {name.partition("-on-")[0] for name in plans()} == shipped


@pytest.mark.parametrize("name", sorted(plans()))
def test_every_shipped_profile_passes_every_rule(name: str) -> None:
    plan = plans()[name]
    assert [finding for one in manifests(plan) for finding in lint(one, plan)] == []


@pytest.mark.parametrize("form", KUBEFLOW)
@pytest.mark.parametrize("name", sorted(plans()))
def test_every_shipped_profile_passes_every_rule_in_every_form(name: str, form: str) -> None:
    plan = plans()[name]
    assert [finding for one in gang(plan, form) for finding in lint(one, plan)] == []


def test_people_s_own_words_are_labels_of_workflow_gang_and_pods_and_of_no_selector() -> None:
    plain = plans()["demo-on-kubernetes-cpu"]
    words = labels.of_people("ada", {"team": "vision", "long": ""})
    assert words == {
        f"{labels.PREFIX}/owner": "ada",
        f"tags.{labels.PREFIX}/team": "vision",
        f"tags.{labels.PREFIX}/long": "",
    }
    assert labels.of_people(r"CORP\ada", {}) == {}, "no label can say this"
    plan = replace(plain, marks=words)
    sent = manifests(plan)
    assert [finding for one in sent for finding in lint(one, plan)] == []
    for one in sent:
        assert one["kind"] != "Workflow" or words.items() <= one["metadata"]["labels"].items()
    [gang_of_pods] = gang(plan, "jobset")
    assert words.items() <= gang_of_pods["metadata"]["labels"].items()
    for job in gang_of_pods["spec"]["replicatedJobs"]:
        assert words.items() <= job["template"]["spec"]["template"]["metadata"]["labels"].items()
    text = json.dumps(gang(plan, "pytorchjob"))
    assert '"selector": {"primus-flows.io/run"' in text
    assert "vision" not in text.partition('"selector": {')[2].partition("}")[0]


@pytest.mark.parametrize("name", sorted(plans()))
def test_every_shipped_profile_renders_twice_alike(name: str) -> None:
    assert manifests(plans()[name]) == manifests(plans()[name])
