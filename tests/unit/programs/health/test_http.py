"""The node daemon over HTTP: who may ask for what, what comes back, and what a flood of requests meets."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from tests.support.cases.rows import rows
from tests.support.harness.health_daemons import (
    IDLE,
    TOKEN,
    Made,
    Told,
    Toolbox,
    at_once,
    diag,
    get,
    made,
    ping_text,
    serving,
)
from workflows.programs.health.main import RunningDaemon, start_daemon
from workflows.programs.health.peers import Peer, fetch
from workflows.programs.health.query import Status
from workflows.programs.health.routes import Gate
from workflows.programs.health.server import RateLimiter
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes.call import Call
from workflows.programs.runtime.bounded import ExclusiveTurns, SharedResult, side_by_side

BEARER = f"Bearer {TOKEN}"
QUIET = ["--api=none", "--loglevel=0", "--w=0", "--invasive-check-timer=0"]


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    toolbox = Toolbox(tmp_path / "bin").healthy(1)
    toolbox.prints("ping", ping_text("10.0.0.2", 10))
    monkeypatch.setenv("PATH", toolbox.path)
    return toolbox


@pytest.mark.parametrize(
    ("target", "status", "first"),
    [
        ("/pciebw", 200, "Requesting pcie test with bw: 4\n[[ PCIEBW ]] Briefings completed. Continue with PCIe Band"),
        ("/remapped", 200, "Requesting Remapped Rows check on all GPUs\n[[ REMAPPED ROWS ]] SUCCESS\nHost  n0\n"),
        ("/gpupower", 200, "GPU Power Measurement test\n[GPU POWER] SUCCESS\n0\n"),
        ("/dcgm", 200, "DCGM test\n[[ DCGM ]] SUCCESS\n"),
        ("/ping", 200, "Ping testNode n1 10.0.0.2 eth0 0\n[PING] all nodes reachable. success\n"),
        ("/pvc", 200, "PVC create-delete test\n[PVC Create-Delete] Storage class not set. Cannot run. ABORT\n"),
        ("/status?host=n0", 200, "[[ PCIEBW ]] Briefings completed."),
        ("/status?host=n0&check=foo,gpupower", 200, "[GPU POWER] SUCCESS\n0\ncheck not supported: foo\n"),
        ("/status", 200, "Asking to run on remote node(s) all or with node label None\n\nInitiated connection to ['"),
        ("/status/?host=n0&check=gpupower", 200, "[GPU POWER] SUCCESS\n0\n"),
        ("/readinessprobe", 201, '{"Name":"readinessProbe","Body":"ready"}\n'),
        ("/healthz", 200, "ok\n"),
        ("/metrics", 200, "# HELP autopilot_health_checks"),
        ("/status?r=9", 400, "/status: r: must be a whole number from 1 to 4, got '9'\n"),
        ("/iperf?plane=x", 400, "/iperf: plane: "),
        ("/iperfclients?dstip=;reboot", 400, "/iperfclients: "),
        ("/nothing", 404, "no such path: known are /dcgm"),
        ("/", 404, "no such path"),
    ],
)
def test_paths_and_their_first_lines(box: Toolbox, target: str, status: int, first: str) -> None:
    with serving(made(peers=(Peer("n1", "10.0.0.2"),))) as port:
        code, text, headers = get(port, target, Authorization=BEARER)
    assert (code, text[: len(first)]) == (status, first)
    assert headers["Content-Type"].startswith("application/json" if target == "/readinessprobe" else "text/plain")


@rows("programs/health/http")
def test_what_starts_work_needs_the_token(box: Toolbox, target: str, open_to_all: bool) -> None:
    one = made(run=Told())
    with serving(one) as port:
        for wrong in ("", "Bearer nonsense", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer", TOKEN):
            status, text, headers = get(port, target, Authorization=wrong)
            assert (status == 401) is not open_to_all
            assert TOKEN not in text
            if not open_to_all:
                assert headers["WWW-Authenticate"] == "Bearer"
        assert get(port, target, Authorization=BEARER)[0] != 401
    with serving(made(run=Told(), compatible=True)) as port:
        assert get(port, target)[0] != 401


def test_without_a_token_nobody_starts_work() -> None:
    assert "started without a token" in Gate("", compatible=False).refusal("Bearer ")
    assert Gate("", compatible=True).refusal("") == ""


def test_json_is_typed(box: Toolbox) -> None:
    with serving(made("n1", periodic=("remapped", "gpupower"))) as other:
        one = made(peers=(Peer("n1", "127.0.0.1", other), Peer("gone", "127.0.0.1", 1)), periodic=("remapped",))
        with serving(one) as port:
            status, text, headers = get(port, "/status", Accept="application/json")
            own = json.loads(get(port, "/status?host=n0", Accept="application/json")[1])
            check = json.loads(get(port, "/remapped", Accept="application/json")[1])
    told = json.loads(text)
    assert (status, headers["Content-Type"]) == (200, "application/json")
    assert told["verdict"] == "unknown", "one node says nothing"
    assert [(node["node"], node["verdict"], node["statuses"]) for node in told["nodes"]] == [
        ("n1", "pass", ["OK"]),
        ("gone", "unknown", ["Connection to Server Failed"]),
        ("n0", "pass", ["OK"]),
    ]
    assert [one["check"] for one in told["nodes"][0]["report"]["checks"]] == ["remapped", "gpupower"]
    assert "Node Summary:\n\n" in told["text"]
    assert (own["node"], own["verdict"], own["gpu_health"]) == ("n0", "pass", "PASS")
    assert (check["check"], check["verdict"], check["devices"]) == (
        "remapped",
        "pass",
        [{"identity": "0", "verdict": "pass", "value": None}],
    )


def test_a_node_that_still_runs_autopilot_is_read_by_its_text() -> None:
    def fetched(answer: bytes) -> list[str]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=serve, args=(listener, answer))
            thread.start()
            one = made(peers=(Peer("old", "127.0.0.1", listener.getsockname()[1]),))
            (node,) = one.json("/status?host=old&check=pciebw")["nodes"]
            thread.join()
            return [*node["statuses"], node["verdict"]]

    def serve(listener: socket.socket, answer: bytes) -> None:
        for data in (b"HTTP/1.0 404 Not Found\r\n\r\n", answer):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(data)

    head = b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n"
    assert fetched(head + b"\r\n[[ DCGM ]] FAIL\n") == ["DCGM Failed", "fail"]
    assert fetched(head + b"\r\n[[ PCIEBW ]] SUCCESS\n") == ["OK", "pass"]
    away = ["Connection to Server Failed", "unknown"]
    assert fetched(head + b"Content-Length: 99\r\n\r\n[[ PCIEBW ]] SUCC") == away
    assert fetched(b"HTTP/1.0 429 Too Many\r\n\r\nlater") == away
    assert fetched(b"nonsense") == away
    typed = b"HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n"
    assert fetched(typed + b'{"node": "someone else", "text": "", "verdict": "pass"}') == away
    assert fetched(typed + b'{"broken') == away


def test_a_daemon_that_is_silent_costs_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.programs.health.fleet_status.ALIVE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = made(peers=(Peer("hung", "127.0.0.1", listener.getsockname()[1]),))
        (node,) = one.json("/status?host=hung")["nodes"]
    assert node["why"].endswith(": no whole answer in time") or "timed out" in node["why"]


def test_an_answer_that_drips_ends_with_the_time_for_all_of_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                while not ended.wait(0.02):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(OSError, match=r"no whole answer in time|timed out"):
                fetch(Peer("n", "127.0.0.1", listener.getsockname()[1]), "/", 0.3, {})
        finally:
            ended.set()
            thread.join()


def test_two_hundred_callers_cause_one_test(box: Toolbox, tmp_path: Path) -> None:
    gate = threading.Event()
    runs: list[str] = []

    def run(call: Call, places: object, seconds: float, parsers: object) -> ParsedOutput:
        runs.append(call.title)
        assert gate.wait(60)
        return Told()(call, {}, seconds, parsers)

    def ask() -> tuple[int, str]:
        return get(port, "/remapped")[:2]

    one = made(run=run)
    with serving(one) as port:
        threading.Thread(target=lambda: (wait_for_waiting(one, 200), gate.set())).start()
        answers = at_once(200, ask)
    assert runs == ["nvidia-smi"]
    assert set(answers) == {answers[0]}
    assert answers[0][0] == 200


def wait_for_waiting(one: Made, count: int) -> None:
    """Until so many connections are being served."""
    room = threading.Event()
    for _ in range(3000):
        if sum(thread.name.find("process_request_thread") >= 0 for thread in threading.enumerate()) >= count:
            return
        room.wait(0.01)


def test_too_many_requests_are_refused_and_liveness_is_not(box: Toolbox) -> None:
    one = made()
    with serving(one, rate=0.1) as port:
        codes = [get(port, "/status?host=n0&check=remapped")[0] for _ in range(3)]
        refused = get(port, "/remapped")
        lively = [get(port, path)[0] for path in ("/healthz", "/readinessprobe", "/metrics")] * 3
    assert codes == [200, 429, 429]
    assert refused[1] == "too many requests: ask again in a second\n"
    assert refused[2]["Retry-After"] == "1"
    assert set(lively) == {200, 201}
    assert one.daemon.known.requests()["/status", 429] == 2


def test_more_connections_than_there_is_room_for_are_refused(box: Toolbox) -> None:
    with serving(made(), connections=2) as port:
        held = [socket.create_connection(("127.0.0.1", port)) for _ in range(2)]
        try:
            assert get_until(port, 429)
        finally:
            for one in held:
                one.close()
        assert get_until(port, 200)


def get_until(port: int, wanted: int) -> bool:
    pause = threading.Event()
    for _ in range(1000):
        if get(port, "/healthz")[0] == wanted:
            return True
        pause.wait(0.01)
    return False


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 70000\r\n", b"413"),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n", b"413"),
        ("GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n", b"413"),
        ("POST /healthz HTTP/1.1\r\nHost: x\r\n", b"501"),
        ("DELETE /status HTTP/1.1\r\nHost: x\r\n", b"501"),
        ("GET /status?host=" + "a" * 70000 + " HTTP/1.1\r\nHost: x\r\n", b"414"),
        ("GET /healthz HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi", b"200"),
        ("HEAD /healthz HTTP/1.0\r\n", b"200"),
        ("nonsense\r\n", b"400"),
    ],
)
def test_odd_requests(lines: str, code: bytes) -> None:
    with serving(made()) as port, socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall((lines + "\r\n").encode())
        data = b""
        while piece := connection.recv(65536):
            data += piece
    assert code in data.split(b"\r\n")[0] or b"Error code: " + code in data


def test_a_check_that_crashes_is_unknown_and_the_others_go_on(box: Toolbox) -> None:
    def run(call: Call, places: object, seconds: float, parsers: object) -> ParsedOutput:
        if call.title == "nvidia-smi":
            raise RuntimeError("a fault of ours")
        return Told()(call, {}, seconds, parsers)

    told = made(run=run).json("/status?host=n0&check=remapped,pciebw")
    assert [(one["verdict"], one["why"]) for one in told["checks"]] == [
        ("unknown", "the check crashed: RuntimeError: a fault of ours"),
        ("pass", ""),
    ]


@rows("programs/health/http")
def test_a_tool_that_tells_nothing_leaves_the_check_unknown(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch, first: str, code: int, text: str, why: str
) -> None:
    box.prints("nvidia-smi", text, code, first)
    short = Call(0, command=("nvidia-smi", "-q"), parser="nvidia-smi", deadline_seconds=0.3 if "sleep" in first else 20)
    monkeypatch.setitem(
        __import__("workflows.programs.health.gpu_checks", fromlist=["_REMAPPED"])._REMAPPED,
        "nvidia-smi",
        (short, ("row_remap_pending",)),
    )
    told = made(periodic=("remapped",)).json("/status?host=n0")
    assert told["verdict"] == "unknown"
    assert told["gpu_health"] == "WARN"
    assert why in told["checks"][0]["why"]
    assert "REMAPPED ROWS ]] ABORT" in told["text"]


def test_a_node_without_gpus_or_tools_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    told = made(compatible=True).json("/status?host=n0&check=pciebw,remapped,gpupower,gpumem,dcgm,ping,pvc")
    assert {one["check"]: one["verdict"] for one in told["checks"]} == dict.fromkeys(
        ("pciebw", "remapped", "gpupower", "gpumem", "dcgm", "ping", "pvc"), "unknown"
    )
    assert "[PING] No nodes found. ABORT\n" in told["text"]
    assert "neither nvidia-smi, amd-smi nor rocm-smi" in told["checks"][0]["why"]


def test_while_gpus_are_loaded_others_wait_and_are_told_so(box: Toolbox) -> None:
    one = made(turn_seconds=0.05, periodic=("pciebw", "remapped"))
    one.daemon.round()
    with one.daemon._turns.turn("gpus", "a deep test", 0.0):  # pyright: ignore[reportPrivateUsage]
        told = one.json("/pciebw")
    assert (told["verdict"], told["why"]) == ("unknown", "a deep test is using the GPUs: ask again later")
    assert one.json("/status?host=n0&check=remapped")["gpu_health"] == "PASS", "what was known before still holds"


def test_invasive_says_at_once_whether_it_begins(box: Toolbox) -> None:
    box.prints("dcgmi", diag({"pcie": {0: "Pass"}}))
    one = made(run=Told(gpu_devices=IDLE))
    assert one.text("/invasive").startswith("Launching invasive health checks. Results will be added to 'autopilot.")
    assert one.daemon.deep().verdict == "pass"
    busy = made(run=Told())
    assert "Cannot run invasive health checks: it is not known whether its GPUs are used" in busy.text("/invasive")
    assert busy.json("/invasive") == {
        "node": "n0",
        "started": False,
        "why": "it is not known whether its GPUs are used: no gpu-devices here",
    }


def test_rounds_are_made_at_the_start_and_end_with_the_daemon(box: Toolbox) -> None:
    made_twice = threading.Event()
    one = made(periodic=("remapped",))
    round_ = one.daemon.round

    def counted() -> object:
        if len(box.calls("nvidia-smi")) >= 2:
            made_twice.set()
        return round_()

    one.daemon.round = counted  # type: ignore[method-assign]
    threads = one.daemon.begin(0.01, 0.0)
    assert made_twice.wait(30)
    one.daemon.end()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def daemon(*flags: str, **environment: str) -> RunningDaemon:
    from workflows.programs.health.options import parse

    return start_daemon(parse([*QUIET, *flags]), environment)


def test_the_ports_beside_the_main_one_serve_their_own_paths_only(box: Toolbox) -> None:
    running = daemon("--port=0", "--readiness-port=0", "--metrics-port=0", "--node=n0", PRIMUS_TOKEN=TOKEN)
    try:
        ports = running.ports
        assert get(ports["readiness"], "/readinessprobe")[:2] == (201, '{"Name":"readinessProbe","Body":"ready"}\n')
        assert get(ports["health"], "/readinessprobe")[0] == 201
        assert get(ports["readiness"], "/status")[0] == 404
        assert get(ports["metrics"], "/metrics")[1].startswith("# HELP autopilot_health_checks")
        assert get(ports["health"], "/metrics")[0] == 200
        assert get(ports["metrics"], "/gpumem", Authorization=BEARER)[0] == 404
        assert get(ports["health"], "/gpumem")[0] == 401
        with pytest.raises(OSError, match=r"--metrics-port: 127.0.0.1:\d+ cannot be bound .*: name another one, or -1"):
            daemon("--port=0", "--readiness-port=-1", f"--metrics-port={ports['metrics']}", "--node=n0")
    finally:
        running.close()


def test_once_and_turns() -> None:
    once, turns = SharedResult(), ExclusiveTurns()
    begun = threading.Event()
    waits = threading.Event()
    ran: list[int] = []

    def work() -> int:
        ran.append(1)
        begun.set()
        waits.wait(30)
        return 7

    first = threading.Thread(target=lambda: once.do("a", work))
    first.start()
    assert begun.wait(30)
    later = threading.Timer(0.05, waits.set)
    later.start()
    assert once.do("a", work) == 7
    assert once.do("b", lambda: 8) == 8
    first.join()
    later.join()
    assert len(ran) == 1
    assert once.do("a", lambda: 9) == 9, "done is forgotten"
    with pytest.raises(ZeroDivisionError):
        once.do("a", lambda: 1 // 0)
    assert once.do("a", lambda: 10) == 10
    with turns.turn("gpus", "me", 0.0) as other, turns.turn("gpus", "you", 0.0) as second:
        assert (other, second, turns.holder("gpus")) == ("", "me", "me")
    assert turns.holder("gpus") == ""
    assert side_by_side([lambda index=index: index for index in range(50)], 3) == list(range(50))
    assert side_by_side([]) == []


def test_a_rate_fills_again_with_time() -> None:
    now = [0.0]
    rate = RateLimiter(2.0, lambda: now[0])
    assert [rate.take() for _ in range(21)] == [True] * 20 + [False]
    now[0] = 1.0
    assert [rate.take() for _ in range(3)] == [True, True, False]


def test_the_report_runs_checks_side_by_side() -> None:
    together = threading.Barrier(2)

    def run(call: Call, places: object, seconds: float, parsers: object) -> ParsedOutput:
        together.wait(30)  # only where both are under way
        return ParsedOutput(unknown="said nothing")

    peers = (Peer("n1", "10.0.0.2"), Peer("n2", "10.0.0.3"))
    (result,) = made(peers=peers, run=run).daemon.report(Status(checks=("ping",))).results
    assert result.verdict == "unknown"
