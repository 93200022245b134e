"""The plan of each request: which hosts it concerns, in which order, and what waits for what."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flows.decisions.bootstrap.judge import Wanted
from flows.decisions.bootstrap.plans import plan_of, subjects_of
from profiles.bootstrap.request import BootstrapRequest
from profiles.errors import ProfileError
from profiles.loading.load import load_hardware
from tests.support.builders.kubeadm_cluster import HOSTS, kubeadm_cluster, release
from workflows.model.bootstrap import CLUSTER, Stage, StepRecord

WANTED = Wanted(kubeadm_cluster(), release(), {"cpu": load_hardware("cpu")}, version="1.36.4")
NAMES = tuple(HOSTS)


def request(verb: str = "build", **more: Any) -> BootstrapRequest:
    return BootstrapRequest(cluster="made", verb=verb, **more)  # pyright: ignore[reportArgumentType]


def records(*rows: tuple[Stage, str, float]) -> dict[str, StepRecord]:
    made = [StepRecord("made", stage, name, "w", "proven", 1, at, at + 1, "it holds") for stage, name, at in rows]
    return {record.id: record for record in made}


def test_a_build_concerns_all_hosts_and_each_waits_for_its_own_check() -> None:
    plan = plan_of(WANTED, request(), {})
    ids = [step.id for step in plan]
    assert len(set(ids)) == len(ids)
    assert {step.subject for step in plan} == {*NAMES, CLUSTER}
    for place, step in enumerate(plan):
        assert set(step.after) <= set(ids[:place]), "each stands behind those that it comes after"
    assert ids[: len(NAMES)] == [f"prechecks/{name}" for name in NAMES]


def test_hosts_that_are_left_out_or_not_named_are_not_touched() -> None:
    assert subjects_of(WANTED, request(without=("w1",)), {}) == tuple(name for name in NAMES if name != "w1")
    assert subjects_of(WANTED, request(hosts=("w1", "w2")), {}) == ("w1", "w2")
    plan = plan_of(WANTED, request(hosts=("w1",)), {})
    assert {step.subject for step in plan} == {"w1", CLUSTER}
    assert all(before.endswith(("/w1", f"/{CLUSTER}")) for step in plan for before in step.after)


def test_who_joins_concerns_itself_and_those_that_are_there() -> None:
    there = records((Stage.CONTROL_PLANE, "c1", 10.0), (Stage.WORKERS, "w1", 10.0))
    assert subjects_of(WANTED, request("join", hosts=("w2",)), there) == ("c1", "w1", "w2")


def test_a_host_that_left_stays_out_until_it_joins() -> None:
    left = records((Stage.WORKERS, "w1", 10.0), (Stage.LEAVE, "w1", 20.0))
    assert "w1" not in subjects_of(WANTED, request(), left)
    assert "w1" in subjects_of(WANTED, request("join", hosts=("w1",)), left)
    again = left | records((Stage.WORKERS, "w1", 30.0))
    assert "w1" in subjects_of(WANTED, request(), again)


@pytest.mark.parametrize("verb", ["build", "join", "leave"])
def test_a_host_that_the_inventory_does_not_name_is_refused(verb: str) -> None:
    with pytest.raises(ProfileError, match="hosts: x9: no such host in the inventory"):
        plan_of(WANTED, request(verb, hosts=("x9",)), {})


def test_leaving_and_upgrading_are_plans_of_their_own() -> None:
    leave = plan_of(WANTED, request("leave", hosts=("w1",)), {})
    assert [step.id for step in leave] == ["leave/w1", "network/c1", "network/c2", "network/c3", "network/w2"]
    assert {step.after for step in leave[1:]} == {("leave/w1",)}, "who stays forgets who left, and only then"
    upgrade = [step.id for step in plan_of(WANTED, request("upgrade", version="1.36.4"), {})]
    assert upgrade[:3] == ["upgrade/c1", "upgrade/c2", "upgrade/c3"]
    assert plan_of(WANTED, request("drift"), {}) == ()


def test_who_left_is_neither_upgraded_nor_told_that_another_one_left() -> None:
    left = records((Stage.WORKERS, "w2", 10.0), (Stage.LEAVE, "w2", 20.0))
    steps = {step.id for step in plan_of(WANTED, request("upgrade", version="1.36.4"), left)}
    assert "upgrade/w1" in steps
    assert "upgrade/w2" not in steps
    assert "network/w2" not in {step.id for step in plan_of(WANTED, request("leave", hosts=("w1",)), left)}
    again = [step.id for step in plan_of(WANTED, request("leave", hosts=("w2",)), left)]
    assert again[0] == "leave/w2"


def test_a_cluster_without_our_network_has_no_routes_to_forget() -> None:
    other = replace(WANTED, cluster=kubeadm_cluster(engine={"kind": "kubeadm", "network": "none"}))
    assert [step.id for step in plan_of(other, request("leave", hosts=("w1",)), {})] == ["leave/w1"]
