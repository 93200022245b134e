"""Words, parameters, labels and metrics of the node daemon: tables and properties, no world."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BeforeValidator

from tests.support.cases.rows import rows
from workflows.programs.health import labels, node_checks
from workflows.programs.health import options as health_options
from workflows.programs.health.diagnostic import failing, fatal_words, is_fatal, unified
from workflows.programs.health.gpu_places import GpuList, placed
from workflows.programs.health.kubernetes import iso, owner_of, seconds_of
from workflows.programs.health.labels import HEALTH, changes, diagnosed, level_label, output_annotation, stamp
from workflows.programs.health.node_checks import claim_name
from workflows.programs.health.options import Options, parse
from workflows.programs.health.peers import Peer, PeerError, addresses_of, gpus_asked, peer_of, peers_from
from workflows.programs.health.query import (
    NONE,
    QueryError,
    Status,
    asked_checks,
    duration_seconds,
    read_query,
    remote_query,
    status_from,
)
from workflows.programs.health.results import (
    CHECKS,
    FAIL,
    PASS,
    TAGS,
    UNKNOWN,
    DeviceResult,
    NodeAnswer,
    Result,
    ResultStore,
    away,
    metrics_text,
    node_block,
    statuses_in,
    summary,
    text_of,
    worst,
)
from workflows.programs.parsers.text import Reading
from workflows.programs.runtime.flags import UsageError
from workflows.programs.runtime.report_token import token_from

STATUS_OF = {
    "pciebw": "PCIE Failed",
    "remapped": "REMAPPED ROWS Failed",
    "gpupower": "GPU POWER Failed",
    "gpumem": "GPU MEM Test Failed",
    "dcgm": "DCGM Failed",
    "ping": "PING Failed",
    "pvc": "PVC Create-Delete Test Failed",
}
FAILED_LINES = {"ping": ("[PING] At least one node unreachable. FAIL",)}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("verdict", [PASS, FAIL, UNKNOWN])
def test_a_client_that_scans_lines_reads_the_verdict_of_each_check(check: str, verdict: str) -> None:
    lines = FAILED_LINES.get(check, ()) if verdict == FAIL else ()
    text = text_of(
        Result(check, verdict, "PCIE FAIL and DCGM ABORT, says the tool" if verdict != PASS else "", lines=lines)
    )
    assert statuses_in(text) == (["OK"] if verdict == PASS else [STATUS_OF[check]])


@rows("programs/health/words")
def test_statuses_of_a_text(text: str, statuses: list[str]) -> None:
    assert statuses_in(text) == statuses


def test_the_block_and_the_summary_have_their_documented_shape() -> None:
    good = NodeAnswer("node-a", "10.0.0.1", "http://10.0.0.1:3333/status?host=node-a", "raw", ("OK",))
    bad = away("node-b", "10.0.0.2", "http://10.0.0.2:3333/status?host=node-b", "no route FAIL")
    assert node_block(good) == (
        "\nAutopilot Endpoint: 10.0.0.1\nNode: node-a\nurl(s): http://10.0.0.1:3333/status?host=node-a\n"
        "Response:\nraw\nNode Status: OK\n-------------------------------------\n\n"
    )
    assert (
        "Response:\nServer Disconnected. ABORT\nno route Fail\n\nNode Status: Connection to Server Failed\n"
        in node_block(bad)
    )
    assert summary([good, replace(good, node="node-b", statuses=("DCGM Failed",))], 0.5) == (
        "Node Summary:\n\n{'node-a': ['OK'], 'node-b': ['DCGM Failed']}\n\nruntime: 0.5 sec\n"
    )
    assert (good.verdict, bad.verdict) == (PASS, UNKNOWN)


@given(st.lists(st.sampled_from([PASS, FAIL, UNKNOWN])))
def test_only_passes_make_a_pass(verdicts: list[str]) -> None:
    assert (worst(verdicts) == PASS) == (bool(verdicts) and set(verdicts) == {PASS})


@rows("programs/health/words")
def test_status_is_read(query: str, status: Status) -> None:
    assert status_from(read_query(query)) == status


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("batch=x", "batch"),
        ("batch=-1", "batch"),
        ("batch=99999", "batch"),
        ("r=0", "r"),
        ("r=5", "r"),
        ("r=1;reboot", "r"),
        ("host=a;b", "host"),
        ("host=$(reboot)", "host"),
        ("host=../../x", "host"),
        ("host=-rf", "host"),
        ("pingnodes=-f", "pingnodes"),
        ("check=a%20b", "check"),
        ("job=nonamespace", "job"),
        ("job=ns:a=b,c", "job"),
        ("job=NS:a=b", "job"),
        ("nodelabel=a", "nodelabel"),
        ("nodelabel=a=b%26c", "nodelabel"),
        ("host=a%0ab", "host"),
        ("&".join(f"p{index}=1" for index in range(65)), "the query"),
        ("host=" + "a," * 40000, "the query"),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_name(query: str, named: str) -> None:
    with pytest.raises(QueryError) as refused:
        status_from(read_query(query))
    assert str(refused.value).replace("'", "").startswith(named)


@given(st.text(max_size=200))
def test_no_query_makes_the_reader_crash(text: str) -> None:
    try:
        status = status_from(read_query(text))
    except QueryError:
        return
    for word in (*status.hosts, *status.checks, *status.pingnodes):
        assert word[:1].isalnum() or word[:1] in "_-"
        assert not set(word) & set(" ;&|$`'\"\\<>(){}\n/")


@rows("programs/health/words")
def test_what_loads_something_is_work(query: str, works: bool) -> None:
    assert status_from(read_query(query)).works() == works


@rows("programs/health/words")
def test_one_node_is_asked_for_the_same(status: Status, path: str) -> None:
    assert remote_query(status, "n") == path


def test_all_is_the_periodic_set_and_each_check_runs_once() -> None:
    assert asked_checks(("dcgm", "all", "pvc"), ("pciebw", "dcgm")) == ["dcgm", "pciebw", "pvc"]
    assert Status(job="ns:a=b").everywhere is False
    assert Status(nodelabel=NONE).everywhere is True


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0), ("90", 90), ("90s", 90), ("30m", 1800), ("1h", 3600), ("1d", 86400), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration_seconds("--w", text) == seconds


@pytest.mark.parametrize("text", ["", "-1h", "1w", "h", "1h30m", "1e3"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(QueryError, match="--w: write"):
        duration_seconds("--w", text)


def result(verdict: str, level: int = 1, *failed: str, check: str = "dcgm") -> Result:
    return Result(check, verdict, level=level if check == "dcgm" else 0, failing=failed, at=1.0 * level)


def after(marks: dict[str, str], *news: Result, known: tuple[Result, ...] = ()) -> dict[str, str]:
    """Marks after results, one by one, as the daemon writes them."""
    for one in news:
        marks = diagnosed(marks, one)
        marks = {**marks, HEALTH: labels.health(marks, (*known, one), ("PCIe", "NVLink", "ECC", "GPU Memory"))}
    return marks


def result_of(told: dict[str, Any]) -> Result:
    failed = told.get("failed", ())
    return result(told["verdict"], told.get("level", 1), *failed, check=told.get("check", "dcgm"))


AResult = Annotated[Result, BeforeValidator(result_of)]


@rows("programs/health/words")
def test_the_health_label(news: list[AResult], word: str) -> None:
    assert after({}, *news)[HEALTH] == word


@pytest.mark.parametrize(("level", "word"), [(1, "EVICT"), (2, "EVICT"), (3, "PASS")])
def test_an_evict_of_a_person_lasts_until_a_deep_test_passes(level: int, word: str) -> None:
    assert after({HEALTH: "EVICT"}, result(PASS, level))[HEALTH] == word


@given(
    st.lists(
        st.builds(
            result, st.sampled_from([PASS, FAIL, UNKNOWN]), st.integers(1, 4), st.sampled_from(["pcie.0", "software.0"])
        ),
        max_size=12,
    )
)
def test_evict_never_ends_before_a_deep_enough_pass(news: list[Result]) -> None:
    marks: dict[str, str] = {}
    evicting: set[int] = set()
    for one in news:
        marks = after(marks, one)
        if one.verdict == FAIL:
            (evicting.add if "pcie.0" in one.failing else evicting.discard)(one.level)
        if one.verdict == PASS:
            evicting = {level for level in evicting if level > one.level}
        assert (marks[HEALTH] == "EVICT") == bool(evicting)


def test_labels_of_a_level_and_what_is_written() -> None:
    marks = after({}, Result("dcgm", FAIL, level=3, failing=("pcie.3", "memory.0.1"), at=0.0))
    assert marks[level_label(3)] == stamp(FAIL, 0.0) == "ERR_1970-01-01_00.00.00UTC"
    assert marks[output_annotation(3)] == "pcie.3,memory.0.1"
    assert changes({}, marks) == marks
    assert changes(marks, marks) == {}
    deeper = after(marks, Result("dcgm", PASS, level=4, at=60.0))
    assert deeper[level_label(4)] == "PASS_1970-01-01_00.01.00UTC"
    assert deeper[level_label(3)] == deeper[output_annotation(3)] == ""


def test_nothing_gets_better_before_all_regular_checks_were_made() -> None:
    known = (result(PASS, check="remapped"),)
    assert labels.health({HEALTH: "WARN"}, known, (), ("remapped", "pciebw", "ping")) == "WARN"
    known = (*known, result(PASS, check="pciebw"))
    assert labels.health({HEALTH: "WARN"}, known, (), ("remapped", "pciebw", "ping")) == "PASS"


def test_failed_tests_with_their_gpus() -> None:
    tests = [
        Reading("dcgm_test", subject="gpu 3 PCIe", said="fail"),
        Reading("dcgm_test", subject="gpu 0 GPU Memory", said="fail"),
        Reading("dcgm_test", subject="gpu 5 GPU Memory", said="fail"),
        Reading("dcgm_test", subject="gpu 0,1 Page Retirement/Row Remap", said="fail"),
        Reading("agfhc_test", subject="hbm_bw-1-1", said="fail"),
    ]
    assert failing(tests) == ("pcie.3", "gpu_memory.0.5", "page_retirement_row_remap.0.1", "hbm_bw-1-1")


def test_fatal_words() -> None:
    assert fatal_words("") == fatal_words(" , ") == ("PCIe", "NVLink", "ECC", "GPU Memory")
    assert fatal_words("a b, C") == ("a b", "C")
    assert is_fatal(("gpu_memory.0",), fatal_words(""))
    assert not is_fatal(("software.0", ""), fatal_words(""))
    assert not is_fatal(("memory.pcie",), ("pcie",)), "names of tests count, not GPUs"
    assert unified(" Page Retirement/Row Remap ") == "page_retirement_row_remap"


def test_metrics_turn_when_the_cause_is_gone_and_unknown_has_no_figure() -> None:
    known = ResultStore()
    known.add(
        Result("remapped", FAIL, devices=(DeviceResult("0", FAIL), DeviceResult("1", UNKNOWN)), at=1.0, seconds=0.5)
    )
    text = metrics_text("n", ("cpu", 'g"pu\n'), known.results(), {}, 11.5)
    series = '{health="remapped",node="n",cpumodel="cpu",gpumodel="g\\"pu ",deviceid="0"} 1\n'
    assert f"autopilot_health_checks{series}" in text
    assert 'deviceid="1"' not in text
    assert 'primus_node_verdict{node="n",depth="smoke",verdict="fail"} 1\n' in text
    assert 'primus_node_check_age_seconds{node="n",check="remapped"} 10\n' in text
    known.add(Result("remapped", PASS, devices=(DeviceResult("0", PASS),), at=2.0))
    known.add(Result("remapped", FAIL, at=1.5))
    known.add(Result("remapped", UNKNOWN, at=9.0, kept=False))
    text = metrics_text("n", ("", ""), known.results(), {("/status", 200): 3}, 12.0)
    assert 'deviceid="0"} 0\n' in text
    assert 'verdict="pass"} 1\n' in text
    assert 'primus_health_requests_total{path="/status",code="200"} 3\n' in text


def test_a_bandwidth_that_is_not_known_has_no_series() -> None:
    devices = (DeviceResult("0", PASS, 55.25), DeviceResult("1", UNKNOWN))
    text = metrics_text("n", ("", ""), (Result("pciebw", UNKNOWN, devices=devices, unit="GB/s"),), {}, 1.0)
    assert 'deviceid="0"} 55.25\n' in text
    assert 'deviceid="1"' not in text


def test_the_diagnostic_s_metric_is_1_while_any_level_fails() -> None:
    known = ResultStore()
    known.add(result(PASS, 1))
    known.add(result(FAIL, 3, "pcie.0"))
    assert 'deviceid=""} 1\n' in metrics_text("n", ("", ""), known.results(), {}, 9.0)
    known.add(replace(result(PASS, 4), at=10.0))
    assert 'deviceid=""} 0\n' in metrics_text("n", ("", ""), known.results(), {}, 11.0)


def test_no_flood_of_paths_makes_a_flood_of_series() -> None:
    known = ResultStore()
    for index in range(1000):
        known.count(f"/{index}", 404)
    assert len(known.requests()) == 65
    assert sum(known.requests().values()) == 1000


@rows("programs/health/words")
def test_peers_are_read(text: str, peers: tuple[Peer, ...]) -> None:
    assert peers_from(text) == peers


@pytest.mark.parametrize("text", ["a", "a=", "=b", "a=b:", "a=b:0", "a=b:65536", "a=b:x", "a=b,a=c", "a b=c", "a=b/c"])
def test_peers_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(PeerError, match="--peers: "):
        peers_from(text)


def test_the_url_of_a_peer() -> None:
    assert Peer("a", "fd00::1", 5).url == "http://[fd00::1]:5"
    assert Peer("a", "h").url == "http://h:3333"


@given(st.integers(1, 60), st.integers(1, 20))
def test_in_the_end_everybody_pings_everybody(count: int, most: int) -> None:
    peers = [Peer(f"n{index}", "h") for index in range(count + 1)]
    rounds = [node_checks.choose_peers(peers, "n0", most, run) for run in range(-(-count // most))]
    assert {one.node for chosen in rounds for one in chosen} == {f"n{index}" for index in range(1, count + 1)}
    assert all(len({one.node for one in chosen}) == min(most, count) for chosen in rounds)


@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 9))
def test_nobody_is_pinged_by_more_than_his_share(count: int, most: int, run: int) -> None:
    peers = [Peer(f"n{index}", "h") for index in range(count)]
    asked = [one.node for own in peers for one in node_checks.choose_peers(peers, own.node, most, run)]
    assert {asked.count(one.node) for one in peers} == {min(most, count - 1)}


def test_pods_and_their_addresses() -> None:
    status = '[{"interface": "eth0", "ips": ["10.0.0.1", "fd00::1"]}, {"interface": "net1", "ips": ["10.1.0.1"]}, 3]'
    metadata = {"annotations": {"k8s.v1.cni.cncf.io/network-status": status}}
    pod = {"metadata": metadata, "spec": {"nodeName": "n"}, "status": {"phase": "Running", "podIP": "10.0.0.1"}}
    assert peer_of(pod, 5) == Peer("n", "10.0.0.1", 5, {"eth0": "10.0.0.1", "net1": "10.1.0.1"})
    assert peer_of({**pod, "status": {"phase": "Pending"}}, 5) == Peer(
        "n", "", 5, {"eth0": "10.0.0.1", "net1": "10.1.0.1"}
    )
    assert peer_of({"metadata": {}, "spec": {}}, 5) is None
    assert addresses_of({"annotations": {"k8s.v1.cni.cncf.io/network-status": "{broken"}}) == {}


@rows("programs/health/words")
@pytest.mark.parametrize("part", ["containers", "initContainers"])
def test_who_asks_for_gpus(resources: object, phase: str, busy: bool, part: str) -> None:
    spec = {part: [{"resources": resources}]}
    pod = {"metadata": {"namespace": "a", "name": "b"}, "spec": spec, "status": {"phase": phase}}
    assert gpus_asked([pod]) == (["a/b"] if busy else [])


@given(st.integers(0, 4102444800))
def test_times_of_holds(seconds: int) -> None:
    assert seconds_of(iso(seconds)) == seconds


@given(st.text(min_size=1, max_size=120))
def test_names_made_of_nodes_are_names(node: str) -> None:
    for name, letters in ((owner_of(node), "-._"), (claim_name(node), "-")):
        assert 0 < len(name) <= 63
        assert all(one.isascii() and (one.isalnum() or one in letters) for one in name)
        assert name[-1].isalnum()


def test_flags_as_autopilot_has_them() -> None:
    options = parse(
        ["-port", "4000", "--bw=5", "-w", "1h", "--invasive-check-timer=0", "--label", "--compatible=false"]
    )
    assert options == Options(port=4000, bw=5.0, w="1h", invasive_check_timer="0", label=True)
    assert parse(options.argv()) == options


@rows("programs/health/words")
def test_flags_that_make_no_sense(argv: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        parse(argv)


def test_the_periodic_set_and_the_token_come_from_the_environment(tmp_path: object) -> None:
    assert health_options.periodic_of(Options(), {"PERIODIC_CHECKS": "dcgm, ping,dcgm"}) == ("dcgm", "ping")
    with pytest.raises(UsageError, match="PERIODIC_CHECKS: nonsense"):
        health_options.periodic_of(Options(), {"PERIODIC_CHECKS": "nonsense"})
    path = f"{tmp_path}/token"
    with pytest.raises(UsageError, match="cannot be read"):
        token_from({"PRIMUS_TOKEN_FILE": path})
    with open(path, "w", encoding="ascii") as file:
        file.write("abc\n")
    assert token_from({"PRIMUS_TOKEN_FILE": path}) == "abc"
    assert token_from({"PRIMUS_TOKEN": "x", "PRIMUS_TOKEN_FILE": path}) == "x"
    assert token_from({}) == ""
    with pytest.raises(UsageError, match="is no token"):
        token_from({"PRIMUS_TOKEN": "a b"})


def test_tags_are_those_of_all_checks() -> None:
    assert tuple(TAGS) == CHECKS


@dataclass(frozen=True)
class Shown:
    """What a tool lists and what is known beside it; keys of two letters are buses, others what a tool counts."""

    keys: tuple[str, ...]
    known: tuple[str, ...] = ()
    expected: int = 0
    minors: tuple[int, ...] = ()
    lost: tuple[str, ...] = ()
    broken_off: str = ""


@rows("programs/health/words")
def test_a_gpu_has_the_number_of_its_place_and_a_lost_one_too(
    shown: Shown, names: tuple[str, ...], gone: tuple[str, ...] = (), untold: tuple[str, ...] = ()
) -> None:
    places = {key: place(key) for key in shown.keys if len(key) == 2}
    minors = dict(zip(shown.keys, shown.minors, strict=False))
    listing = GpuList(shown.keys, places, minors, tuple(map(place, shown.lost)), shown.broken_off)
    found = placed(listing, list(map(place, shown.known)), shown.expected)
    assert tuple(found.names[key] for key in shown.keys) == names
    assert (found.lost, found.untold) == (gone, untold)


def place(bus: str) -> str:
    return f"0000:{bus}:00.0"
