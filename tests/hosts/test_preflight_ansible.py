"""Stories of a preflight by SSH against real SSH servers: what a host does not tell is unknown, and holds up nobody."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tasks.ssh.probe import run_over_ssh
from tests.support.fakes.launcher_matrix import (
    CHECKS,
    EXPECTED,
    NODES,
    FakedNodes,
    cluster_of,
    outline,
    plan,
    suite,
    told_by_pods,
    verdicts,
)
from tests.support.servers.ssh_hosts import SYSTEM_PATH, SshHosts, needed_server
from workflows.model.node_results import NodeResult

pytestmark = pytest.mark.story


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[SshHosts]:
    needed_server()
    made = SshHosts(tmp_path / "hosts")
    yield made
    made.stop()


@pytest.fixture
def faked(tmp_path: Path) -> FakedNodes:
    return FakedNodes(tmp_path / "bin")


NO_TEMPLATE = ("{%", "{#", "$HOME", "~", "a'b", '"', "; touch /tmp/no", "`id`", "*", "é")
"""Arguments of a tool that Ansible or a shell would make something else of."""
BEGIN = """
import sys
from dataclasses import replace
from pathlib import Path
from profiles.admission import BareMetal
from tasks.ssh.probe import run_over_ssh
from tests.support.fakes.launcher_matrix import NODES, cluster_of, plan, suite
home = Path(sys.argv[1])
settings = BareMetal.model_validate_json((home / "section").read_text())
asked = replace(plan(cluster_of(home), "ansible", NODES[:1]), suite=suite(stream_seconds=100))
run_over_ssh(asked, settings, home, lambda phase, count: None)
"""
"""A run in a process of its own."""


def ignore(phase: str, count: int) -> None:
    """Nobody watches."""


def playing(hosts: SshHosts) -> list[str]:
    """Command lines of SSH clients and of Ansible that know of these hosts."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
                if "ssh" in words[0] and str(hosts.folder / "known_hosts") in " ".join(words):
                    found.append(" ".join(words))
    return found


def without_python(folder: Path) -> str:
    """A PATH with what a shell needs, and no Python."""
    folder.mkdir()
    for name in ("sh", "bash", "mkdir", "rm", "cat", "echo", "chmod", "dirname", "env", "sleep"):
        found = next((Path(part) / name for part in SYSTEM_PATH.split(":") if (Path(part) / name).exists()), None)
        if found is not None:
            (folder / name).symlink_to(found)
    return str(folder)


def processes_of(faked: FakedNodes) -> list[int]:
    """Living processes whose command line or PATH is that of the made-up nodes' tools."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(faked.folder).encode() in told:
                found.append(int(entry.name))
    return found


def test_the_same_nodes_get_the_same_verdicts_by_ssh_and_in_pods(
    tmp_path: Path, hosts: SshHosts, faked: FakedNodes
) -> None:
    for node in NODES:
        hosts.start(node, faked.path)
    seen: list[int] = []
    by_ssh = plan(cluster_of(tmp_path), "ansible")
    told = run_over_ssh(by_ssh, hosts.settings(at_once=4), tmp_path, lambda phase, count: seen.append(count))
    assert [(item.node, item.why) for item in told] == [(node, "") for node in NODES]
    assert seen == sorted(seen)
    assert set(seen) == set(range(len(NODES) + 1)), "each host was told of when it had answered"
    in_pods, pods = told_by_pods(tmp_path, faked)
    own, others = verdicts(by_ssh, told), verdicts(in_pods, pods)
    assert outline(own) == outline(others) == EXPECTED
    assert own == others, "records are equal but for time"
    made = {name: set(asked.calls("cpu").number_of) for name, asked in (("ssh", by_ssh), ("pods", in_pods))}
    assert made == {"ssh": set(CHECKS) - {"pod-only"}, "pods": set(CHECKS) - {"host-only"}}
    assert hosts.left() == []
    assert processes_of(faked) == [], "what hung was ended on its host"


def test_hosts_that_do_not_answer_are_unknown_and_hold_up_nobody(
    tmp_path: Path, hosts: SshHosts, faked: FakedNodes
) -> None:
    tool = faked.folder / "node-stream"
    tool.write_text(f'#!/bin/sh\nfor word in "$@"; do echo "$word"; done > {faked.folder}/words\n')
    hosts.start("node-0", faked.path)
    hosts.start("node-1", faked.path, known=False)
    hosts.nobody("node-2")
    hosts.start("node-3", without_python(tmp_path / "bare"))
    asked = replace(plan(cluster_of(tmp_path), "ansible", NODES[:5]), suite=suite(words=NO_TEMPLATE))
    told = run_over_ssh(asked, hosts.settings(), tmp_path, ignore)
    assert (faked.folder / "words").read_text().splitlines() == list(NO_TEMPLATE), "taken for text all the way"
    why = {item.node: item.why for item in told}
    assert (why["node-0"], bool(told[0].at), told[0].answers.keys()) == ("", True, {0, 1, 2})
    assert [bool(item.at) for item in told[1:]] == [False] * 4
    ports = {node: host.port for node, host in hosts.addresses.items()}
    known = hosts.folder / "known_hosts"
    assert why["node-1"] == (
        f"the key of 127.0.0.1 port {ports['node-1']} is not in {known}: compare it on the host, then add it"
    )
    assert why["node-2"] == f"127.0.0.1 port {ports['node-2']} refuses the connection: no SSH server listens there"
    assert why["node-3"] == ("it has no python3: install Python 3.9 or later there, or name it in bare_metal.python")
    assert why["node-4"] == "the cluster profile does not say where it is: add it to bare_metal.hosts as 'node-4'"
    assert hosts.left() == []


def test_hosts_that_die_or_freeze_in_the_middle_are_unknown(
    tmp_path: Path, hosts: SshHosts, faked: FakedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.ssh.inventory.ALIVE_SECONDS", 1)
    tool = faked.folder / "node-stream"
    tool.write_text(
        f'#!/bin/sh\n[ "$PRIMUS_NODE" = node-0 ] && exit 1\n: > {faked.folder}/$PRIMUS_NODE\nexec sleep 600\n'
    )
    for node in NODES[:3]:
        hosts.start(node, faked.path)
    told: list[NodeResult] = []
    asked = plan(cluster_of(tmp_path), "ansible", NODES[:3])
    asked = replace(asked, suite=suite(stream_seconds=60))
    thread = threading.Thread(target=lambda: told.extend(run_over_ssh(asked, hosts.settings(), tmp_path, ignore)))
    thread.start()
    for node in NODES[1:3]:
        hosts.wait((faked.folder / node).exists, f"the tool of {node} runs")
    hosts.kill("node-1")
    hosts.freeze("node-2")
    thread.join(120)
    assert not thread.is_alive()
    assert [bool(item.at) for item in told] == [True, False, False]
    ports = [hosts.addresses[node].port for node in NODES[:3]]
    for item, port in zip(told[1:], ports[1:], strict=True):
        assert item.why.startswith(
            f"the connection to 127.0.0.1 port {port} was lost while it was tested: the host died"
        )


def test_hosts_whose_python_or_probe_is_not_ours_tell_nothing(
    tmp_path: Path, hosts: SshHosts, faked: FakedNodes
) -> None:
    wrappers = {"node-0": "echo garbage; exit 0", "node-1": "echo out of order >&2; exit 7"}
    for node, lines in wrappers.items():
        broken = tmp_path / f"{node}-bin" / "python3"
        broken.parent.mkdir()
        broken.write_text(f'#!/bin/sh\ncase "$*" in *probe-host*) {lines};; esac\nexec /usr/bin/python3 "$@"\n')
        broken.chmod(0o755)
        hosts.start(node, f"{broken.parent}:{faked.path}")
    hosts.start("node-2", faked.path)
    (faked.folder / "node-stream").write_text("#!/bin/sh\nsetsid sleep 600 &\nkill -9 $PPID\nsleep 600\n")
    told = run_over_ssh(plan(cluster_of(tmp_path), "ansible", NODES[:3]), hosts.settings(), tmp_path, ignore)
    assert [(item.at, item.why) for item in told] == [
        (0.0, "its probe left no report; it said: garbage"),
        (0.0, "its probe ended with 7: out of order"),
        (0.0, "its probe ended with 137: probe-host: the probe was ended by signal 9"),
    ]
    assert (hosts.left(), processes_of(faked)) == ([], [])


def test_a_run_that_is_killed_and_begun_again_leaves_nothing_running(
    tmp_path: Path, hosts: SshHosts, faked: FakedNodes
) -> None:
    hangs, sleeping = faked.folder / "node-stream", faked.folder / "sleeping"
    healthy = hangs.read_text()
    hangs.write_text(f"#!/bin/sh\necho $$ > {sleeping}\nexec sleep 600\n")
    hosts.start("node-0", faked.path)
    (tmp_path / "section").write_text(hosts.settings().model_dump_json())
    words = [sys.executable, "-c", BEGIN, str(tmp_path)]
    with tempfile.TemporaryDirectory() as short:  # what it leaves on this machine; names of sockets must be short
        environment = {**os.environ, "PYTHONPATH": ".", "TMPDIR": short}
        killed = subprocess.Popen(words, cwd=Path(__file__).parents[2], env=environment)
        hosts.wait(sleeping.exists, "the tool of the first run runs")
        assert processes_of(faked)
        killed.kill()
        killed.wait()
        hosts.wait(lambda: not playing(hosts), "Ansible of the killed run has ended")
    assert processes_of(faked), "its host has not heard of it"
    hangs.write_text(healthy)
    [told] = run_over_ssh(plan(cluster_of(tmp_path), "ansible", NODES[:1]), hosts.settings(), tmp_path, ignore)
    assert (bool(told.at), told.why) == (True, "")
    assert processes_of(faked) == [], "the first one was ended, and what it had started"
    assert hosts.left() == []
    hosts.wait(lambda: not playing(hosts), "Ansible of the killed run has ended")


def test_whoever_stops_it_leaves_no_ansible_and_late_hosts_are_unknown(
    tmp_path: Path, hosts: SshHosts, faked: FakedNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in ("node-0", "node-2"):
        hosts.start(node, faked.path)
    asked = plan(cluster_of(tmp_path), "ansible", ("node-0", "node-2"))

    def stops(phase: str, count: int) -> None:
        if count:
            raise KeyboardInterrupt(phase)

    with pytest.raises(KeyboardInterrupt):
        run_over_ssh(asked, hosts.settings(), tmp_path, stops)
    hosts.wait(lambda: not playing(hosts), "Ansible has ended")
    monkeypatch.setattr("tasks.ssh.probe.whole_seconds", lambda *_: 0.1)
    told = run_over_ssh(asked, hosts.settings(), tmp_path, ignore)
    assert {(item.at, item.why) for item in told} == {(0.0, "it was not reached: time was up after 0.1 s")}
    hosts.wait(lambda: not playing(hosts), "Ansible has ended")
