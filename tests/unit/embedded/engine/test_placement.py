"""Placement: tables in the scheduler's own words, and properties that hold for any cluster."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BeforeValidator

from tasks.embedded.engine.kube.placement import (
    Bound,
    Gang,
    NodeFacts,
    PodRequest,
    Unschedulable,
    expression_holds,
    is_tolerated,
    node_term_holds,
    place,
    selector_holds,
)
from tasks.embedded.engine.kube.quantity import milli, pod_requests
from tests.support.cases.rows import rows

GPU = "amd.com/gpu"


def node(name: str, gpus: int = 8, **fields: Any) -> NodeFacts:
    labels = {"kubernetes.io/hostname": name, **fields.pop("labels", {})}
    return NodeFacts(name, labels, {"cpu": 8000, GPU: gpus * 1000, "pods": 110_000}, **fields)


def wish(name: str, gpus: int = 0, **fields: Any) -> PodRequest:
    return PodRequest(name, {GPU: gpus * 1000, "pods": 1000} if gpus else {"pods": 1000}, **fields)


def only(nodes: list[NodeFacts], *pods: PodRequest, placed: list[tuple[str, PodRequest]] | None = None) -> Any:
    (decision,) = place(nodes, placed or [], [Gang("g", pods)])
    return decision


def apart(label: str) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"role": label}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def near(label: str) -> dict[str, Any]:
    return {"podAffinity": apart(label)["podAntiAffinity"]}


ANode = Annotated[NodeFacts, BeforeValidator(lambda fields: node(**fields))]
APod = Annotated[PodRequest, BeforeValidator(lambda fields: wish(**fields))]


@rows("embedded/engine/placement")
def test_why_a_pod_waits(nodes: list[ANode], pod: APod, message: str) -> None:
    assert only(nodes, pod) == Unschedulable("g", message)


def test_what_a_node_does_not_tell_it_has_not() -> None:
    message = "0/1 nodes are available: 1 Insufficient cpu, 1 Too many pods."
    found = only([NodeFacts("a", {}, {"pods": 0})], PodRequest("p", {"pods": 1000, "cpu": 1}))
    assert found == Unschedulable("g", message)


@rows("embedded/engine/placement")
def test_where_a_pod_goes(nodes: list[ANode], pod: APod, where: str) -> None:
    assert only(nodes, pod) == Bound("g", {"p": where})


def test_pods_of_a_role_stay_apart_and_the_rest_fits_beside() -> None:
    trainers = [wish(f"t{index}", 8, labels={"role": "t"}, affinity=apart("t")) for index in range(2)]
    found = only([node("a"), node("b")], wish("c"), *trainers)
    assert isinstance(found, Bound)
    assert {found.nodes["t0"], found.nodes["t1"]} == {"a", "b"}


def test_neighbours_that_run_already_count_both_ways() -> None:
    nodes = [node("a"), node("b")]
    runs = [("a", wish("old", labels={"role": "t"}))]
    assert only(nodes, wish("p", affinity=apart("t")), placed=runs) == Bound("g", {"p": "b"})
    guard = [("a", wish("old", affinity=apart("t")))]
    assert only(nodes, wish("p", labels={"role": "t"}), placed=guard) == Bound("g", {"p": "b"})
    assert only(nodes, wish("p", affinity=near("t")), placed=runs) == Bound("g", {"p": "a"})
    assert isinstance(only(nodes, wish("p", affinity=near("t"))), Unschedulable)
    pair = [wish(f"p{index}", labels={"role": "t"}, affinity=near("t")) for index in range(2)]
    found = only(nodes, *pair)
    assert isinstance(found, Bound)
    assert len(set(found.nodes.values())) == 1


def test_a_gang_starts_whole_or_not_at_all() -> None:
    gang = [wish(f"t{index}", 8) for index in range(3)]
    found = place([node("a"), node("b")], [], [Gang("big", tuple(gang)), Gang("small", (wish("s", 8),))])
    assert isinstance(found[0], Unschedulable)
    assert found[1] == Bound("small", {"s": "a"})


def test_a_gang_that_fits_only_in_one_way_is_placed() -> None:
    picky = wish("picky", 1, node_selector={"kubernetes.io/hostname": "a"})
    easy = wish("easy", 1)
    found = only([node("a", 1), node("b", 1)], easy, picky)
    assert found == Bound("g", {"easy": "b", "picky": "a"})


def test_higher_priority_then_age_goes_first() -> None:
    gangs = [
        Gang("young", (wish("y", 8),), created="2"),
        Gang("old", (wish("o", 8),), created="1"),
        Gang("urgent", (wish("u", 8),), priority=5, created="3"),
    ]
    found = place([node("a"), node("b")], [], gangs)
    assert [(one.key, type(one)) for one in found] == [("urgent", Bound), ("old", Bound), ("young", Unschedulable)]


def test_gangs_that_ask_for_the_same_get_the_same_answer() -> None:
    gangs = [Gang(f"g{index}", (wish(f"p{index}", 8),), signature="same", created=str(index)) for index in range(4)]
    found = place([node("a"), node("b")], [], gangs)
    assert [type(one) for one in found] == [Bound, Bound, Unschedulable, Unschedulable]


NODES = st.lists(
    st.tuples(st.integers(0, 8), st.booleans(), st.sampled_from(["True", "True", "False", "Unknown"]), st.booleans()),
    max_size=5,
).map(
    lambda rows: [
        node(f"n{index}", gpus, unschedulable=off, ready=ready, spare=spare)
        for index, (gpus, off, ready, spare) in enumerate(rows)
    ]
)
GANGS = st.lists(st.tuples(st.lists(st.integers(0, 8), min_size=1, max_size=4), st.integers(0, 2)), max_size=5).map(
    lambda rows: [
        Gang(f"g{g}", tuple(wish(f"g{g}p{p}", gpus) for p, gpus in enumerate(sizes)), priority=priority)
        for g, (sizes, priority) in enumerate(rows)
    ]
)


@settings(max_examples=300, deadline=None)
@given(NODES, GANGS)
def test_no_node_is_overfull_no_gang_is_torn_no_bad_node_is_used(nodes: list[NodeFacts], gangs: list[Gang]) -> None:
    found = place(nodes, [], gangs)
    assert sorted(one.key for one in found) == sorted(gang.key for gang in gangs)
    assert found == place(list(reversed(nodes)), [], list(reversed(gangs)))
    asked = {pod.name: pod.requests.get(GPU, 0) for gang in gangs for pod in gang.pods}
    used = dict.fromkeys((one.name for one in nodes), 0)
    for decision, gang in ((one, next(g for g in gangs if g.key == one.key)) for one in found):
        if isinstance(decision, Bound):
            assert decision.nodes.keys() == {pod.name for pod in gang.pods}
            for name, where in decision.nodes.items():
                used[where] += asked[name]
        else:
            assert decision.message.startswith(f"0/{len(nodes)} nodes are available: ")
    for one in nodes:
        assert used[one.name] <= one.allocatable[GPU]
        if used[one.name]:
            assert one.ready == "True"
            assert not one.unschedulable


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", 1000), ("500m", 500), ("0.1", 100), ("1Ki", 1_024_000), ("16Gi", 16 * 1024**3 * 1000), ("1e3", 1_000_000),
     ("2k", 2_000_000), (3, 3000), ("1u", 1), ("1.5Gi", 1536 * 1024**2 * 1000), (".5", 500), ("0", 0)],
)  # fmt: skip
def test_quantities(text: str, expected: int) -> None:
    assert milli(text) == expected


@pytest.mark.parametrize("text", ["", "x", "1X", "1 Gi x", "--1", "1.2.3", "Gi"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is no quantity"):
        milli(text)


def test_a_pod_asks_for_its_containers_or_its_largest_init_container() -> None:
    spec = {
        "containers": [
            {"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", GPU: "4"}}},
            {"resources": {"limits": {"cpu": "500m"}}},
        ],
        "initContainers": [{"resources": {"requests": {"cpu": "3", "memory": "1Ki"}}}],
    }
    assert pod_requests(spec) == {"cpu": 3000, GPU: 4000, "memory": 1_024_000, "pods": 1000}


@rows("embedded/engine/placement")
def test_expressions(operator: str, values: list[str], value: str | None, holds: bool) -> None:
    labels = {} if value is None else {"k": value}
    assert expression_holds({"key": "k", "operator": operator, "values": values}, labels) is holds


def test_selectors_of_nothing_and_of_everything() -> None:
    assert not selector_holds(None, {"a": "b"})
    assert selector_holds({}, {"a": "b"})
    assert not node_term_holds({}, "n", {"a": "b"})
    field = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert node_term_holds(field, "n", {})
    assert not node_term_holds(field, "m", {})


@rows("embedded/engine/placement")
def test_tolerations(toleration: dict[str, str], holds: bool) -> None:
    assert is_tolerated({"key": "k", "value": "v", "effect": "NoSchedule"}, [toleration]) is holds
