"""The workflows of a round between nodes: who sits where, all at once, and by all our rules."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.loading.load import load_cluster, load_hardware, load_suite
from tasks.node_tests.links import Asked, plans_of, pods_of, told_by
from tests.support.fakes.linked_nodes import seats_of
from workflows.attempt.pods import PING_GROUPS
from workflows.lint.lint import lint
from workflows.node_tests.links import (
    MEET_SHARE,
    MOST,
    Demand,
    LinksPlan,
    PairDemand,
    group_seats,
    links_workflow,
    pair_calls_of,
    parted,
    pod_seconds,
    round_name,
    waves,
)
from workflows.programs.fabric import meeting, pair_member
from workflows.programs.fabric.report import GangReport, PairReport, parse_report
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.run import pack_answers
from workflows.programs.runtime import flags

WORST_STATUS_BYTES = 4096
"""Of one node: its entry in the status, with the report of eight rails."""


def plan(
    cluster: str = "local", nodes: int = 6, demand: Demand | PairDemand | None = None, pools: int = 1
) -> LinksPlan:
    profile = load_cluster(cluster)
    names = {
        f"a-node-with-a-rather-long-name-of-some-cloud-{index}": profile.pools[index % pools].name
        for index in range(nodes)
    }
    asked = Asked(profile, "fabric", demand or Demand(), names, {})
    return plans_of(asked, [list(names)], 7)[0]


@pytest.mark.parametrize("cluster", ["local", "local-gpus", "bed", "kubernetes-example"])
@pytest.mark.parametrize("gpus", [False, True], ids=["by sockets", "by GPUs"])
def test_it_passes_every_rule(cluster: str, gpus: bool) -> None:
    for nodes in (2, MOST):
        assert lint(links_workflow(plan(cluster, nodes, Demand(gpus=gpus))).to_dict()) == []


def test_the_largest_one_fits_with_its_status() -> None:
    size = len(json.dumps(links_workflow(plan("kubernetes-example", MOST)).to_dict()))
    report = GangReport(
        "n" * 60, 1, 1, 1e9, rails=(48.123,) * 8, missed=tuple(range(99)), why="x" * 999, notes="y" * 999
    )
    assert len(report.text()) * 2 < WORST_STATUS_BYTES
    assert size + MOST * WORST_STATUS_BYTES < 1 << 20
    one = plan()
    with pytest.raises(ValueError, match=f"1 to {MOST}, got 0"):
        links_workflow(LinksPlan(one.cluster, one.hardware, "fabric", one.demand, "r", "n", ()))


def test_all_pods_of_a_round_may_run_at_the_same_time() -> None:
    made = links_workflow(plan("kubernetes-example", MOST, pools=2)).to_dict()
    main = next(item for item in made["spec"]["templates"] if item["name"] == "main")
    assert made["spec"]["parallelism"] >= MOST
    assert len(main["steps"]) == 1, "one after the other would let the first wait for the last"
    assert len(main["steps"][0]) == 2, "a step a pool"
    members = [item for item in made["spec"]["templates"] if "container" in item]
    assert all("retryStrategy" not in item for item in members), "who comes back finds its group gone"


def test_the_program_reads_what_the_workflow_writes() -> None:
    wanted = plan("local", 4, Demand(1 << 20, 1 << 19, 5, 44.0))
    [template] = [item for item in links_workflow(wanted).to_dict()["spec"]["templates"] if "container" in item]
    command: list[str] = template["container"]["command"]
    words = [word.replace("{{inputs.parameters.", "").replace("}}", "") for word in command]
    numbers = {"--group=group": "--group=3", "--rank=rank": "--rank=1", "--ranks=ranks": "--ranks=4"}
    options = flags.from_argv(meeting.Options, [numbers.get(word, word) for word in words[2:]])
    assert (options.group, options.rank, options.ranks, options.iterations) == (3, 1, 4, 5)
    assert (options.all_reduce_bytes, options.all_to_all_bytes) == (1 << 20, 1 << 19)
    assert (options.deadline_seconds, options.meet_seconds) == (44.0, 44.0 * MEET_SHARE)
    assert options.folder.endswith(f"/preflight/links/{round_name('local', 7)}")
    assert template["activeDeadlineSeconds"] == pod_seconds(wanted) > 44


def test_gpus_and_nics_are_asked_for_only_where_gpus_are_measured() -> None:
    for gpus, devices in ((False, set[str]()), (True, {"amd.com/gpu", "rdma/hca"})):
        made = links_workflow(plan("kubernetes-example", 2, Demand(gpus=gpus))).to_dict()
        [template] = [item for item in made["spec"]["templates"] if "container" in item]
        assert set(template["container"]["resources"]["limits"]) == {"cpu", "memory"} | devices
        variables = {item["name"] for item in template["container"]["env"]}
        assert "PRIMUS_POD_IP" in variables
        assert ("NCCL_SOCKET_IFNAME" in variables) is gpus
        assert not any("TOKEN" in name or "KEY" in name for name in variables), "no secret stands in a manifest"


PAIRS = pair_calls_of([check for check in load_suite("fabric").checks if check.spans == "pair"])


@pytest.mark.parametrize("cluster", ["local", "local-gpus", "bed", "kubernetes-example"])
def test_pairs_pass_every_rule_and_have_the_nics_that_they_ask_for(cluster: str) -> None:
    made = links_workflow(plan(cluster, MOST, PAIRS.demand)).to_dict()
    assert lint(made) == []
    [template] = [item for item in made["spec"]["templates"] if "container" in item]
    limits = template["container"]["resources"]["limits"]
    assert "amd.com/gpu" not in limits
    assert ("rdma/hca" in limits) is (cluster == "kubernetes-example")
    assert "IPC_LOCK" in template["container"]["securityContext"]["capabilities"]["add"]
    words: list[str] = template["container"]["command"]
    assert words[1] == "probe-pair"
    places = {"--group={{inputs.parameters.group}}": "--group=0", "--rank={{inputs.parameters.rank}}": "--rank=1"}
    options = flags.from_argv(
        pair_member.Options, [places.get(word, word) for word in words[2:] if not word.startswith("--ranks=")]
    )
    assert options.calls == PAIRS.demand.calls
    assert (options.deadline_seconds, options.meet_seconds) == (PAIRS.demand.deadline_seconds, 60.0)
    assert template["activeDeadlineSeconds"] > PAIRS.demand.deadline_seconds


def test_pods_may_send_echoes_where_a_ping_is_asked_for_and_nowhere_else() -> None:
    others = pair_calls_of([check for check in load_suite("any-machine").checks if check.spans == "pair"])
    for demand, sysctls in ((PAIRS.demand, [PING_GROUPS]), (others.demand, None)):
        made = links_workflow(plan("kubernetes-example", 2, demand)).to_dict()
        assert made["spec"]["securityContext"].get("sysctls") == sysctls
        [template] = [item for item in made["spec"]["templates"] if "container" in item]
        assert template["container"]["securityContext"]["capabilities"]["drop"] == ["NET_RAW"]


def test_checks_with_the_same_call_share_it_and_another_server_is_another_call() -> None:
    calls = pair_calls_of([check for check in load_suite("any-machine").checks if check.spans == "pair"])
    [call] = calls.calls
    assert set(calls.number_of.values()) == {0}
    assert call.quantities == ("pair_lost_datagrams", "pair_round_trip", "pair_round_trip_p99")
    write = next(check for check in load_suite("fabric").checks if check.name == "rdma-write")
    other = write.model_copy(update={"name": "other", "peer_command": ("another", "{port}")})
    two = pair_calls_of([write, other])
    assert dict(two.number_of) == {"rdma-write": 0, "other": 1}
    assert [call.number for call in two.calls] == [0, 1]
    assert [call.peer_command for call in two.calls] == [write.peer_command, other.peer_command]


def test_a_report_of_a_pair_with_eight_rails_and_three_attempts_stays_small() -> None:
    row = "8 1000 1.79 5.41 1.87 1.88 0.18 2.03 5.41".replace(" ", 10 * " ")
    lines = tuple(
        Reading("rdma_latency", 1.87 + rail / 100, "us", f"mlx5_{rail}", line=row.replace("1.87", f"1.{rail}{rail}"))
        for rail in range(8)
    )
    answers = pack_answers({number: [ParsedOutput(lines)] * 3 for number in range(3)})
    assert len(PairReport("n" * 60, 1, 1, 1e9, "m" * 60, answers).text()) * 2 < WORST_STATUS_BYTES


sizes = st.lists(st.integers(2, 30), min_size=1, max_size=20)


@given(sizes)
def test_every_node_has_one_seat_and_workflows_are_small_enough(lengths: list[int]) -> None:
    names = iter(range(sum(lengths)))
    groups = [[f"n{next(names)}" for _ in range(length)] for length in lengths]
    profile = load_cluster("local")
    pools = {node: "cpu" for group in groups for node in group}
    plans = plans_of(Asked(profile, "s", Demand(), pools, {}), groups, 3)
    seats = [seat for one in plans for seat in seats_of(links_workflow(one).to_dict())]
    assert len({one.name for one in plans}) == len(plans)
    assert {one.round_name for one in plans} == {"primus-links-local-3"}
    assert [seat["node"] for seat in seats] == [node for group in groups for node in group]
    for number, group in enumerate(groups):
        own = [seat for seat in seats if seat["group"] == str(number)]
        assert [int(seat["rank"]) for seat in own] == list(range(len(group)))
        assert {seat["ranks"] for seat in own} == {str(len(group))}


@given(sizes, st.integers(1, 40))
def test_waves_keep_the_share_but_for_a_group_that_is_larger(lengths: list[int], most: int) -> None:
    names = iter(range(sum(lengths)))
    groups = [[f"n{next(names)}" for _ in range(length)] for length in lengths]
    pools = {node: "cpu" for group in groups for node in group}
    found = waves(groups, pools, {"cpu": most})
    assert [number for wave in found for number in wave] == list(range(len(groups)))
    for wave in found:
        assert wave
        assert len(wave) == 1 or sum(len(groups[number]) for number in wave) <= most
    assert len(waves(groups, pools, {})) == 1


@pytest.mark.parametrize(
    ("groups", "said"), [([["a"]], "two nodes or more"), ([["a", "b"], ["b", "c"]], "one of them only")]
)
def test_groups_that_cannot_be_are_refused(groups: Sequence[Sequence[str]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        group_seats(groups, dict.fromkeys("abc", "cpu"))


def test_places_are_parted_in_their_order() -> None:
    seats = group_seats(
        [[f"n{number}" for number in range(MOST + 5)]], {f"n{number}": "cpu" for number in range(MOST + 5)}
    )
    assert [len(part) for part in parted(seats)] == [MOST, 5]
    assert tuple(seat for part in parted(seats) for seat in part) == seats


def member(node: str, report: str | None, phase: str = "Succeeded", **more: str) -> dict[str, object]:
    outputs = {"parameters": [{"name": "report", "value": report}]} if report is not None else {}
    inputs = {"parameters": [{"name": "group", "value": "0"}, {"name": "node", "value": node}]}
    return {"type": "Pod", "templateName": "member-0", "phase": phase, "inputs": inputs, "outputs": outputs, **more}


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ([], "its pod was never started"),
        ([member("a", None, "Failed", message="DeadlineExceeded")], "its pod failed: DeadlineExceeded"),
        ([member("a", "{}", "Error")], "its pod error: it left no report"),
        ([member("a", "{broken")], "its pod succeeded: it left no report"),
        ([member("a", "[]")], "its pod succeeded: it left no report"),
        ([member("a", '{"rails": "x"}')], "its pod succeeded: it left no report"),
    ],
)
def test_a_pod_without_a_readable_report_told_nothing(pods: list[dict[str, object]], why: str) -> None:
    good = member("b", GangReport("b", 0, 1, 5.0, rails=(1.0,)).text())
    manifest = {"status": {"nodes": {str(index): item for index, item in enumerate([*pods, good])}}}
    [found] = told_by(pods_of([manifest]), [["a", "b"]], parse_report)
    assert (dict(found.silent), list(found.reports)) == ({"a": why}, ["b"])


def test_hardware_of_every_pool_is_known_to_the_plan() -> None:
    one = plan("kubernetes-example", 4, pools=2)
    assert {one.hardware[pool].name for pool in one.pools} == {
        load_hardware(pool.hardware).name for pool in one.cluster.pools[:2]
    }
