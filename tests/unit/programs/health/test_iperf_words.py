"""iperf of the node daemons: what may be asked, the ring, and the text of the answers."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.damaged import reaches
from tests.support.cases.rows import rows
from workflows.programs.health.iperf_results import (
    Flow,
    IperfMatrix,
    IperfRequest,
    Sums,
    clients_json,
    flow_of,
    matrix_text,
    metrics_of,
    parse_request,
    path,
    ports_of,
    received_gbits,
    steps,
)


@rows("programs/health/iperf_words")
def test_what_is_asked_of_iperf_today_and_of_old(query: dict[str, str], wish: IperfRequest) -> None:
    assert parse_request(query) == wish


@pytest.mark.parametrize(
    ("clients", "per_node", "interfaces", "servers"),
    [(1, 1, 2, 1), (1, 8, 2, 4), (1, 3, 2, 1), (4, 4, 2, 4), (8, 1, 1, 8), (1, 1, 0, 1)],
)
def test_each_interface_has_its_servers(clients: int, per_node: int, interfaces: int, servers: int) -> None:
    assert IperfRequest(clients=clients, servers_per_node=per_node).servers(interfaces) == servers


@rows("programs/health/iperf_words")
def test_what_cannot_be_asked_of_iperf_is_told_by_its_name(query: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=r"^" + re.escape(said)):
        parse_request(query)


def test_what_clients_are_asked_for() -> None:
    asked = {"dstip": "10.0.0.7", "dstport": "5300", "numclients": "2", "srcip": "10.0.0.1"}
    assert flow_of(asked) == Flow("10.0.0.7", 5300, 2, "10.0.0.1")
    assert flow_of({"dstip": "fd00::7"}) == Flow("fd00::7", 5200, 8)


@rows("programs/health/iperf_words")
def test_clients_go_to_one_machine_only(query: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=r"^" + re.escape(said)):
        flow_of(query)


def test_servers_have_consecutive_ports() -> None:
    assert ports_of({}) == range(5200, 5208)
    assert ports_of({"numservers": "2", "startport": "65534"}) == range(65534, 65536)
    with pytest.raises(ValueError, match=r"^startport: 3 ports from 65534 on end beyond 65535: take a lower one$"):
        ports_of({"numservers": "3", "startport": "65534"})
    with pytest.raises(ValueError, match=r"^numservers: must be a whole number from 1 to 256"):
        ports_of({"numservers": "257"})


WISHES = st.dictionaries(
    st.sampled_from(["workload", "pclients", "clientsperiface", "startport", "plane", "cleanup", "serverspernode"]),
    st.text()
    | st.integers(-1, 70000).map(str)
    | st.sampled_from(["", "1", "8", "ring", "data", "mgmt", "yes", "1.5", "²"]),
)


def _is_wish(query: dict[str, str]) -> bool:
    try:
        parse_request(query)
    except ValueError:
        return False
    return True


def test_such_wishes_are_granted_and_refused_for_their_size() -> None:
    assert reaches(WISHES, lambda query: len(query) > 3 and _is_wish(query))
    assert reaches(WISHES, lambda query: query.get("startport", "").isdecimal() and not _is_wish(query))


@given(WISHES)
def test_whatever_is_asked_is_bounded_or_refused(query: dict[str, str]) -> None:
    refused = ""
    wish = IperfRequest()
    try:
        wish = parse_request(query)
    except ValueError as error:
        refused = str(error)
    if refused:
        assert refused.partition(":")[0] in query
    else:
        assert 1 <= wish.clients <= 64
        assert 1024 <= wish.start_port <= 65535
        assert 1 <= wish.servers(3) <= 256


@given(st.integers(0, 20))
def test_the_ring_has_every_pair_once_and_disturbs_nobody(count: int) -> None:
    nodes = [f"n{index}" for index in range(count)]
    ring = steps(nodes)
    assert len(ring) == max(0, count - 1)
    pairs = [pair for step in ring for pair in step]
    assert sorted(pairs) == sorted((a, b) for a in nodes for b in nodes if a != b)
    for step in ring:
        assert sorted(source for source, _ in step) == sorted(nodes), "each sends to one"
        assert sorted(there for _, there in step) == sorted(nodes), "and receives from one"


def test_paths_carry_what_is_asked() -> None:
    asked = path("iperfclients", dstip="fd00::7", dstport=5200, srcip="")
    assert dict(parse_qsl(urlsplit(asked).query)) == {"dstip": "fd00::7", "dstport": "5200"}
    assert path("iperfstopservers") == "/iperfstopservers"


def test_clients_are_summed_as_strings() -> None:
    answer = json.loads(clients_json([Sums(1.0, 8.0, 0.9, 7.0), Sums(2.0, 10.0, 1.8, 9.0)], []))
    assert answer == {
        "sender": {
            "aggregate": {"transfer": "3.00", "bitrate": "18.00"},
            "mean": {"transfer": "1.50", "bitrate": "9.00"},
            "min": {"transfer": "1.00", "bitrate": "8.00"},
            "max": {"transfer": "2.00", "bitrate": "10.00"},
        },
        "receiver": {
            "aggregate": {"transfer": "2.70", "bitrate": "16.00"},
            "mean": {"transfer": "1.35", "bitrate": "8.00"},
            "min": {"transfer": "0.90", "bitrate": "7.00"},
            "max": {"transfer": "1.80", "bitrate": "9.00"},
        },
    }


def test_a_client_that_failed_is_no_slow_link() -> None:
    half = clients_json([Sums(1.0, 8.0, 0.9, 7.0)], ["port 5201: the server is busy"])
    assert json.loads(half)["receiver"]["aggregate"]["bitrate"] == "7.00"
    with pytest.raises(ValueError, match=r"^port 5201: the server is busy$"):
        received_gbits(half)
    none = clients_json([], ["port 5200: unreachable"])
    assert json.loads(none)["sender"]["max"] == {"transfer": "nan", "bitrate": "nan"}, "not known, and no 0"
    with pytest.raises(ValueError, match="unreachable"):
        received_gbits(none)


@pytest.mark.parametrize("text", ["", "not found", "[]", "7", "{}", '{"receiver": {"aggregate": {"bitrate": "x"}}}'])
def test_an_answer_that_is_none_is_unknown(text: str) -> None:
    with pytest.raises(ValueError, match=r"^answered "):
        received_gbits(text)


def test_what_old_daemons_answer_is_read() -> None:
    assert received_gbits('{ "receiver": {"aggregate": {"transfer": "5.4", "bitrate": "9.41"}} }') == 9.41


FOUND = IperfMatrix(
    ("node-a", "node-b", "node-c"),
    {"net1-0": {("node-a", "node-b"): 9.4, ("node-b", "node-a"): 9.6}, "net1-1": {}},
    ("node-c: its daemon does not answer: timed out",),
)


def test_the_matrix_names_each_destination_once_and_leaves_holes() -> None:
    lines = matrix_text(FOUND).split("\n")
    assert lines[0] == ""
    assert lines[1] == "Network Throughput net1-0:"
    assert lines[2].split() == ["src/dst", "node-a", "node-b", "node-c"]
    assert [line.split() for line in lines[3:6]] == [
        ["node-a", "N/A", "9.40", "N/A"],
        ["node-b", "9.60", "N/A", "N/A"],
        ["node-c", "N/A", "N/A", "N/A"],
    ]
    assert lines[3].index("9.40") == lines[2].index("node-b"), "figures stand below their destination"
    assert lines[7] == "Network Throughput net1-1:"
    assert lines[13:16] == [
        "Overall Network Interface Average Bandwidth:",
        "net1-0 Average Bandwidth Gb/s: 9.50",
        "net1-1 Average Bandwidth Gb/s: N/A",
    ]
    assert lines[16:] == ["", "Not measured:", "node-c: its daemon does not answer: timed out", ""]


def test_long_names_do_not_run_into_each_other() -> None:
    long = "gpu-node-" + "x" * 50
    lines = matrix_text(IperfMatrix((long, "b"), {"eth0": {(long, "b"): 1.0}})).split("\n")
    assert lines[2].split() == ["src/dst", long, "b"]
    assert lines[3].split() == [long, "N/A", "1.00"]


def test_holes_have_no_sample() -> None:
    head = [
        "# HELP autopilot_iperf_gbits Gb/s between two nodes in the newest iperf",
        "# TYPE autopilot_iperf_gbits gauge",
    ]
    assert metrics_of(FOUND).splitlines() == [
        *head,
        'autopilot_iperf_gbits{iface="net1-0",source="node-a",destination="node-b"} 9.4',
        'autopilot_iperf_gbits{iface="net1-0",source="node-b",destination="node-a"} 9.6',
    ]
    told = metrics_of(IperfMatrix(("a",), {'e"\n\\': {("a", "b"): 1.0}})).splitlines()
    assert told == [*head, 'autopilot_iperf_gbits{iface="e\\"\\n\\\\",source="a",destination="b"} 1']
    assert not metrics_of(IperfMatrix(("a",), {})), "no sample, no family"
