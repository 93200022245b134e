"""What programs of Kubernetes run with is read from processes and files, and it is waited for until they serve."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from workflows.model.host_facts import HostFacts, ProgramConfiguration, Unread, parse_facts
from workflows.programs.hosts import items, running, serves
from workflows.programs.hosts.items import CannotReadError
from workflows.programs.hosts.main import facts
from workflows.programs.hosts.options import Options

HERTZ = os.sysconf("SC_CLK_TCK")
UP = 1000.0
LONG = "x" * 9000


def process(root: Path, number: int, words: list[str], began: float, network: str = "net:[1]") -> Path:
    """A process of a made-up host, `began` seconds after it was switched on."""
    own = root / "proc" / str(number)
    (own / "ns").mkdir(parents=True)
    (own / "ns/net").symlink_to(network)
    (own / "comm").write_text(Path(words[0]).name[:15] + "\n")
    (own / "cmdline").write_text("\0".join(words) + "\0")
    (own / "environ").write_text("PATH=/bin\0NOTHING\0TRIAL=a=1\0TOKEN=geheim\0")
    fields = ["S", *["0"] * 18, str(int(began * HERTZ)), *["0"] * 10]
    (own / "stat").write_text(f"{number} (a b) {' '.join(fields)}\n")
    return own


@pytest.fixture(autouse=True)
def no_containerd(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test asks the machine's own container runtime."""

    def absent(*words: str) -> str:
        raise CannotReadError("there is no ctr on it")

    monkeypatch.setattr(running, "containerd", absent)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    process(tmp_path, 1, ["/sbin/init"], 0.0)
    (tmp_path / "proc/uptime").write_text(f"{UP} 0.0\n")
    (tmp_path / "var/lib/kubelet").mkdir(parents=True)
    (tmp_path / "var/lib/kubelet/config.yaml").write_text(f"kind: KubeletConfiguration\nname: {LONG}\n")
    process(tmp_path, 20, ["/usr/local/bin/kubelet", "--config=/var/lib/kubelet/config.yaml"], 400.0)
    own = process(tmp_path, 30, ["/usr/local/bin/kube-proxy", "--config=/var/lib/kube-proxy/config.conf"], 500.0)
    (own / "root/var/lib/kube-proxy").mkdir(parents=True)
    (own / "root/var/lib/kube-proxy/config.conf").write_text("mode: nftables\n")
    process(tmp_path, 40, ["kube-controller-manager", "--leader-elect=true"], 600.0)
    process(tmp_path, 50, ["etcd", "--name=c1"], 600.0)
    process(tmp_path, 51, ["etcd", "--name=of-a-pod"], 600.0, network="net:[2]")
    process(tmp_path, 60, ["kube-controller", "--of=somebody"], 600.0)
    return tmp_path


def looked(root: Path, *, asked: bool = True) -> HostFacts:
    found = parse_facts(json.dumps(facts(Options(root=str(root), running=asked, variables=("TRIAL", "OTHER")))))
    assert isinstance(found, HostFacts)
    return found


def configuration(found: HostFacts, program: str) -> ProgramConfiguration:
    told = found.configurations[program]
    assert isinstance(told, ProgramConfiguration), told
    return told


def test_settings_are_told_whole_with_the_ages_of_file_and_process(root: Path) -> None:
    os.utime(root / "var/lib/kubelet/config.yaml", (1.0, 1.0))
    kubelet = configuration(looked(root), "kubelet")
    assert kubelet.content == f"kind: KubeletConfiguration\nname: {LONG}\n"
    assert len(kubelet.text) > 1, "an answer's texts have an end"
    assert kubelet.process_age_seconds == pytest.approx(UP - 400.0)
    assert kubelet.file_age_seconds > kubelet.process_age_seconds
    proxy = configuration(looked(root), "kube-proxy")
    assert (proxy.content, proxy.process_age_seconds) == ("mode: nftables\n", pytest.approx(UP - 500.0))


def test_only_processes_of_the_host_s_own_network_and_of_the_whole_name_count(root: Path) -> None:
    found = looked(root).processes
    assert found == {
        "kube-apiserver": (),
        "kube-controller-manager": (("--leader-elect=true",),),
        "kube-scheduler": (),
        "etcd": (("--name=c1",),),
    }


def test_of_an_environment_only_those_variables_are_told_that_were_asked_for(root: Path) -> None:
    found = looked(root).variables
    none: dict[str, str] = {}
    assert found == {name: none for name in running.CONTROL_PROGRAMS} | {
        "kube-controller-manager": {"TRIAL": "a=1"},
        "etcd": {"TRIAL": "a=1"},
    }
    (root / "proc/50/environ").unlink()
    assert isinstance(looked(root).variables["etcd"], Unread), "what cannot be read is not missing"


def test_what_does_not_run_and_what_is_not_there_is_told_as_that(root: Path) -> None:
    for number in (20, 30):
        (root / f"proc/{number}/comm").write_text("gone\n")
    (root / "var/lib/kubelet/config.yaml").unlink()
    found = looked(root)
    for program in ("kubelet", "kube-proxy"):
        told = configuration(found, program)
        assert (told.content, told.process_age_seconds) == ("", None)


def test_nothing_of_it_is_read_where_nobody_asks(root: Path) -> None:
    found = looked(root, asked=False)
    assert (found.configurations, found.processes) == ({}, {})
    assert isinstance(found.container_runtime, Unread)


def test_a_plug_in_of_containerd_that_failed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    head = "TYPE                            ID     PLATFORMS    STATUS\n"
    sound = f"{head}io.containerd.grpc.v1  cri  linux/amd64  ok\nio.containerd.snapshotter.v1 zfs - error\n"
    broken = sound.replace("linux/amd64  ok", "linux/amd64  error")
    for text, said in ((sound, "ok"), (broken, "its plug-in cri has failed: journalctl -u containerd")):
        monkeypatch.setattr(running, "containerd", lambda *words, text=text: text)
        assert running.works(Options(running=True))["container_runtime"]() == said


def test_nobody_waits_for_a_containerd_whose_socket_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def told(argv: list[str]) -> str:
        asked.append(argv)
        return "told"

    monkeypatch.setattr(items, "tool", told)
    monkeypatch.setattr(items, "SOCKET", str(tmp_path / "socket"))
    with pytest.raises(CannotReadError, match="containerd does not run"):
        items.containerd("plugins", "ls")
    (tmp_path / "socket").touch()
    assert items.containerd("plugins", "ls") == "told"
    assert asked == [["ctr", "--connect-timeout=3s", "plugins", "ls"]]


def test_a_text_that_is_no_base64_is_no_file() -> None:
    with pytest.raises(ValueError, match="base64"):
        _ = ProgramConfiguration(("***",), 0.0, None).content
    assert ProgramConfiguration((base64.b64encode(b"\xff").decode(),), 0.0, None).content == "�"


class Answer(BaseHTTPRequestHandler):
    """Answers /healthz and nothing else."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def server() -> Iterator[str]:
    made = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()


def waited(url: str, wanted: dict[str, dict[str, dict[str, str]]], seconds: float = 0.0) -> tuple[int, str]:
    command = [sys.executable, "-I", "-c", Path(serves.__file__).read_text(), str(seconds), url]
    done = subprocess.run(command, input=json.dumps(wanted), capture_output=True, text=True, check=False)
    return done.returncode, done.stderr.strip()


def test_what_answers_serves_and_what_does_not_says_why(server: str) -> None:
    assert waited(f"{server}/healthz", {}) == (0, "")
    code, why = waited(f"{server}/readyz", {})
    assert (code, why) == (1, f"not within 0.0 s: {server}/readyz: HTTP Error 503: Service Unavailable")
    code, why = waited("http://127.0.0.1:1/healthz", {})
    assert (code, "refused" in why) == (1, True)


def begun(program: Path) -> subprocess.Popen[bytes]:
    """It runs under its own name from its first word on: who called it hears earlier that it was begun."""
    command = [str(program), "-c", "echo up; read line", "--level=1", "--level=2"]
    environment = {**os.environ, "TRIAL": "1"}
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process


def test_a_program_serves_once_it_keeps_running_with_its_arguments_and_variables(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"trial-{os.getpid()}"[:15]
    program = tmp_path / name
    program.symlink_to("/bin/sh")
    url, wanted = f"{server}/healthz", {name: {"arguments": {"level": "2"}, "variables": {"TRIAL": "1"}}}
    monkeypatch.setattr(serves, "_network", lambda process: "one")  # who proves this may not look at process 1
    assert serves.why_not(url, wanted) == f"{name} does not run"
    own = begun(program)
    try:
        assert serves.why_not(url, {name: {"arguments": {"level": "3"}}}) == f"{name} runs without --level=3"
        assert serves.why_not(url, {name: {"variables": {"TRIAL": "2"}}}) == f"{name} runs without TRIAL=2"
        monkeypatch.setattr(serves, "SETTLED_SECONDS", 3600.0)
        assert serves.why_not(url, wanted) == f"{name} does not keep running"
        monkeypatch.setattr(serves, "SETTLED_SECONDS", -1.0)
        assert serves.why_not(url, wanted) == ""
        second = begun(program)
        assert serves.why_not(url, wanted) == f"{name} does not keep running"
        second.communicate(b"\n")
    finally:
        own.communicate(b"\n")
