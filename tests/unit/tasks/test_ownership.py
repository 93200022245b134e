"""Two ledgers on one cluster: what the other one's run made is neither adopted, nor written over, nor deleted."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from profiles.errors import Foreign, NotFound, Refused
from profiles.loading.load import load_suite
from tasks.cluster import Cluster, Kind, Manifest, using
from tasks.context import Right, World, standing_in
from tasks.embedded import admission
from tasks.lease import taken_by_another
from tasks.ledger.ledger import Ledger
from tasks.node_tests.links import Asked, plans_of
from tasks.node_tests.preflight import Wanted, open_preflight, plan_of
from tasks.nodes.reconcile import remove
from tasks.nodes.sweep import begin_sweep, sweeps
from tasks.nodes.sweep import plan_of as sweep_plan_of
from tasks.runs.clear import begin_to_clear, clear_attempt
from tasks.runs.examine import leave_nothing, post_flight
from tasks.runs.submit import is_made, let_start, submit_attempt
from tasks.settings import Settings
from tasks.workflow_runs import submit_workflow
from tests.support.builders.attempt_plans import a_cluster, a_plan
from tests.support.builders.ledgers import Clock, a_run, an_attempt, driven
from tests.support.harness import embedded_stage
from workflows import labels as workflows_labels
from workflows.model import ownership
from workflows.model.nodes import Node
from workflows.model.ownership import is_foreign, owner_of, signed
from workflows.model.runs import ObjectSeen
from workflows.node_tests.links import Demand
from workflows.node_tests.sweep import sweep_workflow

RESOLVED = a_plan().resolved
ATTEMPT = an_attempt(nodes=("node-0", "node-1"))
THEIRS = "0" * 32
MARKS = workflows_labels.labels("demo", 1, "train")


class Shelf:
    """A cluster that only keeps objects: nothing runs in it."""

    name = "local"

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], Manifest] = {}
        self.refuses: Exception | None = None

    def put(self, kind: str, name: str, ledger: str = "", marks: Mapping[str, str] = MARKS) -> None:
        bare = {"kind": kind, "metadata": {"name": name, "labels": dict(marks)}}
        self.objects[kind, name] = signed(bare, ledger) if ledger else bare

    def get(self, kind: Kind, name: str) -> Manifest | None:
        return self.objects.get((kind, name))

    def list(self, kind: Kind, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        if self.refuses is not None:
            raise self.refuses
        wanted = (labels or {}).items()
        return [it for (of, _), it in self.objects.items() if of == kind and wanted <= it["metadata"]["labels"].items()]

    def apply(self, manifest: Manifest) -> Manifest:
        self.objects[manifest["kind"], manifest["metadata"]["name"]] = manifest
        return manifest

    def delete(self, kind: Kind, name: str, *, grace_seconds: int | None = None) -> None:
        self.objects.pop((kind, name), None)

    def watch(self, kind: Kind, labels: Mapping[str, str], *, timeout_seconds: float) -> Iterator[object]:
        return iter(())


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    made = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite", Clock())
    yield made
    made.close()


@pytest.fixture
def shelf(ledger: Ledger, tmp_path: Path) -> Iterator[Shelf]:
    """A cluster, with the ledger's driver of run `demo` beside it."""
    right, made = Right("demo", driven(ledger)), Shelf()
    here = World(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)}), ledger, right, Clock())
    with standing_in(here), using(cast("Cluster", made)):
        yield made


def test_what_says_another_ledger_is_foreign_and_what_says_none_is_ours() -> None:
    bare: Manifest = {"kind": "JobSet", "metadata": {"name": "x"}}
    assert not is_foreign(bare, "a"), "an older version made it"
    assert not is_foreign(signed(bare, "a"), "a")
    assert is_foreign(signed(bare, "b"), "a")
    assert not is_foreign(signed(bare, "b"), ""), "whoever has no ledger owns nothing, and refuses nothing"
    noted = {"kind": "JobSet", "metadata": {"name": "x", "annotations": {"mine": "1"}}}
    assert signed(noted, "a")["metadata"]["annotations"] == {"mine": "1", workflows_labels.LEDGER: "a"}
    assert owner_of(noted) == "", "the manifest itself is as it was"


def test_the_embedded_cluster_knows_the_same_annotation() -> None:
    assert admission.OWNER == workflows_labels.LEDGER


def test_a_run_s_objects_carry_the_ledger_that_made_them(shelf: Shelf, ledger: Ledger) -> None:
    ledger.plan_attempt(1, ATTEMPT)
    let_start(ATTEMPT, submit_attempt.fn(RESOLVED, ATTEMPT))
    post_flight.fn(RESOLVED, "demo", (replace(ATTEMPT, submitted_at=1.0),))
    kinds = {key: owner_of(item) for key, item in shelf.objects.items()}
    names = [("Workflow", "demo-a1"), ("Secret", "demo-a1-token"), ("Workflow", "demo-a1-post")]
    assert kinds == dict.fromkeys(names, ledger.identity())


@pytest.mark.parametrize("taken", [("Workflow", "demo-a1"), ("JobSet", "demo-a1"), ("Secret", "demo-a1-token")])
def test_an_attempt_whose_name_is_taken_is_neither_adopted_nor_made(shelf: Shelf, taken: tuple[str, str]) -> None:
    shelf.put(*taken, THEIRS)
    before = copy.deepcopy(shelf.objects)
    with pytest.raises(Foreign, match=r"demo-a1.* not ours.*another --name"):
        submit_attempt.fn(RESOLVED, ATTEMPT)
    assert shelf.objects == before


def test_what_an_older_version_or_we_ourselves_made_is_adopted(shelf: Shelf, ledger: Ledger) -> None:
    for owner in ("", ledger.identity()):
        shelf.put("JobSet", "demo-a1", owner)
        assert is_made(cast("Cluster", shelf), ATTEMPT)


def test_clearing_away_leaves_the_other_one_s_objects(shelf: Shelf) -> None:
    shelf.put("Workflow", "demo-a1", THEIRS)
    shelf.put("JobSet", "demo-a1", THEIRS)
    shelf.put("Secret", "demo-a1-token", THEIRS)
    shelf.put("Pod", "demo-a1-trainer-0", marks={**MARKS, workflows_labels.ROLE: "trainer"})
    before = copy.deepcopy(shelf.objects)
    assert "another ledger" in clear_attempt.fn(RESOLVED, ATTEMPT, 0.0, ("node-0",))
    assert "another ledger" in begin_to_clear.fn(ATTEMPT, ("node-0",))
    leave_nothing.fn(RESOLVED, ATTEMPT, keep_completed=False)
    assert shelf.objects == before


def test_of_two_examinations_only_ours_is_cleared_away(shelf: Shelf, ledger: Ledger) -> None:
    for name, owner in (("demo-a1-x1", ledger.identity()), ("demo-a1-x2", THEIRS)):
        shelf.put("Workflow", name, owner, {**MARKS, workflows_labels.PIPELINE: "examination"})
    clear_attempt.fn(RESOLVED, ATTEMPT, 0.0, ())
    assert list(shelf.objects) == [("Workflow", "demo-a1-x2")]


def test_what_was_never_submitted_is_not_collected_nor_what_another_collects(shelf: Shelf) -> None:
    post_flight.fn(RESOLVED, "demo", (an_attempt(),))
    assert shelf.objects == {}
    shelf.put("Workflow", "demo-a1-post", THEIRS)
    assert "another ledger" in post_flight.fn(RESOLVED, "demo", (replace(ATTEMPT, submitted_at=1.0),))


def test_a_name_that_another_ledger_s_run_has_is_told_before_anything_is_made(shelf: Shelf, ledger: Ledger) -> None:
    assert taken_by_another("demo") == ""
    shelf.put("JobSet", "demo-a7", ledger.identity())
    shelf.put("Workflow", "demo-a6")
    shelf.put("JobSet", "demo-2-a1", THEIRS, workflows_labels.labels("demo-2", 1, "train"))
    assert taken_by_another("demo") == "", "its own, one of an older version, and another run's"
    shelf.put("Workflow", "demo-a2", THEIRS)
    said = taken_by_another("demo")
    assert "Workflow demo-a2 " in said
    assert "a run demo of another ledger is on this cluster (00000000)" in said
    assert "another --name" in said
    assert "delete Workflow demo-a2" in said
    for error in (NotFound("no such kind"), Refused("workflows", "may not be listed")):
        shelf.refuses = error
        assert taken_by_another("demo") == "", "creating under that name would be refused"


def test_workflows_about_nodes_are_told_apart_too(shelf: Shelf, ledger: Ledger) -> None:
    profile = a_cluster()
    nodes = [Node("node-0", profile.pools[0].name)]
    name = begin_sweep(profile, nodes, 1, 0.0)
    assert owner_of(shelf.objects["Workflow", name]) == ledger.identity()
    assert begin_sweep(profile, nodes, 1, 0.0) == name, "adopted"
    taken = workflows_labels.sweep_name(profile.name, 2, ledger.identity())
    shelf.put("Workflow", taken, THEIRS, {workflows_labels.PIPELINE: "sweep"})
    with pytest.raises(Foreign, match=taken):
        begin_sweep(profile, nodes, 2, 0.0)
    assert [item.name for item in sweeps()] == [name], "the other one is neither read nor deleted"
    with pytest.raises(Foreign, match=taken):
        submit_workflow(cast("Cluster", shelf), signed({"metadata": {"name": taken}}, ledger.identity()))


def test_a_test_of_nodes_takes_the_next_number_that_is_free(shelf: Shelf, ledger: Ledger) -> None:
    profile = a_cluster()
    wanted = Wanted(profile, load_suite("smoke"), "smoke", {"node-0": profile.pools[0].name})
    for number in (1, 2):
        shelf.put("Workflow", workflows_labels.preflight_name(profile.name, number, ledger.identity()), THEIRS, {})
    opened = open_preflight(wanted)
    assert opened.number == 3
    assert open_preflight(wanted).number == 3, "it goes on with the same"
    shelf.put("Workflow", opened.plan.name, THEIRS, {})
    assert open_preflight(wanted).number == 4, "somebody else was faster"
    assert len(shelf.objects) == 3, "and nothing of theirs is gone"


def test_two_ledgers_never_give_their_tests_the_same_name(ledger: Ledger) -> None:
    profile, pools = a_cluster(), {"node-0": a_cluster().pools[0].name, "node-1": a_cluster().pools[0].name}
    wanted = Wanted(profile, load_suite("smoke"), "smoke", pools)
    asked = Asked(profile, "s", Demand(), pools, {})

    def names(owner: str) -> list[str]:
        sweep = sweep_workflow(sweep_plan_of(profile, pools, 7, 0.0, 0.0, owner)).to_dict()
        tests = [plan_of(replace(wanted, launcher=one), 7, owner).name for one in ("kubernetes", "slurm", "ansible")]
        return [*tests, sweep["metadata"]["name"], plans_of(asked, [list(pools)], 7, owner)[0].round_name]

    assert not set(names(ledger.identity())) & set(names(THEIRS))
    for own in names(ledger.identity()):
        assert own.endswith(f"-{ledger.identity()[:6]}-7")
        assert len(own) <= 45, "a part of a round and a pod come behind it"


def test_a_workflow_of_a_person_is_nobody_s(shelf: Shelf) -> None:
    shelf.put("Workflow", "hello", THEIRS)
    assert owner_of(submit_workflow(cast("Cluster", shelf), {"metadata": {"name": "hello"}})) == THEIRS


def test_reconciling_deletes_only_what_is_ours(shelf: Shelf, ledger: Ledger) -> None:
    thing = ObjectSeen("JobSet", "demo-a1", "demo", 1)
    shelf.put("JobSet", "demo-a1", THEIRS)
    assert "another ledger" in remove(thing)
    shelf.put("JobSet", "demo-a1", ledger.identity())
    assert remove(thing) == "JobSet/demo-a1 was deleted"
    assert shelf.objects == {}


def test_the_embedded_cluster_writes_nothing_over_another_ledger_s_object(tmp_path: Path) -> None:
    def config(ledger: str, value: str) -> Manifest:
        bare: Manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": value}}
        return signed(bare, ledger) if ledger else bare

    with embedded_stage.cluster(tmp_path) as cluster:
        cluster.apply(config("", "0"))
        assert cluster.apply(config("one", "1"))["data"] == {"a": "1"}, "nobody's becomes ours"
        with pytest.raises(Foreign, match=r"ConfigMap x .*another ledger"):
            cluster.apply(config("two", "2"))
        found = cluster.get("ConfigMap", "x")
        assert found is not None
        assert (found["data"], ownership.owner_of(found)) == ({"a": "1"}, "one")


def test_two_ledgers_have_two_identities_and_each_keeps_its_own(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{name}.sqlite" for name in ("one", "two")]
    first = {url: Ledger(url).identity() for url in urls}
    assert len(set(first.values())) == 2
    again = Ledger(urls[0])
    again.open_run(a_run())
    assert again.identity() == first[urls[0]]
