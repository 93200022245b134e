"""Stories of a look at hosts over real SSH: who misbehaves is named and holds up nobody, and nothing is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.decisions.bootstrap.prechecks.judge import prechecks
from profiles.cluster import ClusterProfile
from tasks.bootstrap.look import look_at_hosts
from tasks.ssh.connections import Target
from tasks.ssh.failures import Way
from tasks.ssh.host_program import remote_command
from tasks.ssh.looking import Pairing, Question, look_at
from tests.support.builders.host_sights import GPU_NODE
from tests.support.servers.ssh_hosts import SYSTEM_PATH, SshHosts, needed_server
from workflows.model.host_facts import Unread
from workflows.model.host_sight import HostsSight, LookFailure
from workflows.programs.hosts.options import Options

pytestmark = pytest.mark.story
SOUND = tuple(f"s{number}" for number in range(14))
"""Beside eight that are not: twenty-two servers."""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[SshHosts]:
    needed_server()
    made = SshHosts(tmp_path / "hosts")
    yield made
    made.stop()


def profile(hosts: SshHosts, **changes: dict[str, Any]) -> ClusterProfile:
    """All servers as workers, but for the first; each has an address of its own below 127, which no inventory may."""
    told: dict[str, Any] = {}
    for place, (name, found) in enumerate(hosts.addresses.items()):
        role = "both" if place == 0 else "worker"
        own = {"address": "127.0.0.1", "node_ip": f"10.1.0.{place + 1}", "port": found.port, "role": role}
        told[name] = {**own, **changes.get(name, {})}
    ssh = {
        "user": hosts.user,
        "private_key_file": str(hosts.folder / "client"),
        "known_hosts_file": str(hosts.folder / "known_hosts"),
        "connect_seconds": 3.0,
    }
    made = ClusterProfile.model_validate(
        {
            "name": "made",
            "engine": "kubernetes",
            "pools": [{"name": "gpu", "hardware": "gpu-node", "nodes": len(told)}],
            "storage": [{"kind": "claim", "source": "shared", "mount_path": "/shared"}],
            "bootstrap": {"hosts": told, "ssh": ssh, "endpoint": {"address": "192.0.2.9"}},
        }
    )
    bootstrap = made.bootstrap
    assert bootstrap is not None
    moved = {name: one.model_copy(update={"node_ip": f"127{one.ip[2:]}"}) for name, one in bootstrap.hosts.items()}
    return made.model_copy(update={"bootstrap": bootstrap.model_copy(update={"hosts": moved})})


def python_that(folder: Path, name: str, does: str) -> str:
    """A PATH on which python3 is something else."""
    file = folder / f"{name}-bin" / "python3"
    file.parent.mkdir()
    file.write_text(f"#!/bin/sh\n{does}\n")
    file.chmod(0o755)
    return f"{file.parent}:{SYSTEM_PATH}"


def clients(hosts: SshHosts) -> list[str]:
    """Living processes that know of these hosts' keys, or run their program."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode(errors="replace")
                if str(hosts.folder / "known_hosts") in words:
                    found.append(words)
    return found


def test_twenty_two_hosts_of_which_eight_misbehave(tmp_path: Path, hosts: SshHosts) -> None:
    for name in SOUND[:-1]:
        hosts.start(name)
    hosts.start(SOUND[-1], python_that(tmp_path, "noisy", f'echo "Welcome; {"x" * 999}"; exec {sys.executable} "$@"'))
    hosts.start("unknown-key", known=False)
    hosts.start("changed-key", known=False)
    other = (hosts.folder / "s0-key.pub").read_text()
    with (hosts.folder / "known_hosts").open("a") as known:
        known.write(f"[127.0.0.1]:{hosts.addresses['changed-key'].port} {other}")
    hosts.nobody("nobody")
    hosts.start("silent")
    hosts.freeze("silent")
    hosts.start("floods", python_that(tmp_path, "floods", "exec yes"))
    hosts.start("garbage", python_that(tmp_path, "garbage", "echo garbage; exit 0"))
    hosts.start("old", python_that(tmp_path, "old", "echo primus-python 3.6 >&2; exit 126"))
    hosts.start("stranger")
    stranger = hosts.folder / "s0-key"  # a key that nobody lets in
    told = profile(hosts, stranger={"private_key_file": str(stranger)})
    before = sorted(os.listdir(hosts.folder / "home"))
    heard: list[str] = []
    sight = look_at_hosts(told, tell=lambda host, what: heard.append(host))
    assert {name: one.failure for name, one in sight.hosts.items() if one.failure} == {
        "unknown-key": LookFailure.HOST_KEY_UNKNOWN,
        "changed-key": LookFailure.HOST_KEY_CHANGED,
        "nobody": LookFailure.REFUSED,
        "silent": LookFailure.UNREACHABLE,
        "floods": LookFailure.UNREADABLE,
        "garbage": LookFailure.LOST,
        "old": LookFailure.NO_PYTHON,
        "stranger": LookFailure.PERMISSION_DENIED,
    }
    assert set(heard) == set(sight.hosts)
    for name in SOUND:
        one = sight.hosts[name]
        assert isinstance(one.facts.memory, Unread) is False
        assert not isinstance(one.reach, Unread)
        assert one.reach.keys() == set(SOUND) - {name}
        assert {word for way in one.reach.values() for word in way.ports.values()} == {"open"}
        assert {way.mtu for way in one.reach.values()} == {65535}
    assert not isinstance(sight.hosts["s0"].facts.fsync, Unread), "a control plane's disk is measured"
    assert isinstance(sight.hosts["s1"].facts.fsync, Unread)
    assert (clients(hosts), sorted(os.listdir(hosts.folder / "home"))) == ([], before)
    assert_told(told, sight)


def assert_told(told: ClusterProfile, sight: HostsSight) -> None:
    """What pre-checks make of it: the hosts are one machine, which they find too."""
    found = prechecks(told, {"gpu-node": GPU_NODE}, sight)
    stopped = {(one.check, str(one.word)): set(one.hosts) for one in found.stopped}
    assert stopped["host-key", "fail"] == {"unknown-key", "changed-key"}
    assert stopped["reachable", "fail"] == {"nobody", "silent"}
    assert stopped["reachable", "unknown"] == {"floods", "garbage"}
    assert stopped["login", "fail"] == {"stranger"}
    assert stopped["python", "fail"] == {"old"}
    assert stopped["machine-id", "fail"] == stopped["hostname", "fail"] == set(SOUND)
    assert not stopped.keys() & {("ports", "fail"), ("mtu", "fail"), ("clock", "fail"), ("ports", "unknown")}
    assert found.fit == ()


def test_hosts_behind_another_one_are_reached_through_it(hosts: SshHosts) -> None:
    for name in ("gate", "inner", "shut"):
        hosts.start(name, known=name != "shut")
    jump = {"jump": f"{hosts.user}@127.0.0.1:{hosts.addresses['gate'].port}"}
    sight = look_at_hosts(profile(hosts, inner=jump, shut=jump), ("inner", "shut"), deep=False)
    assert sight.hosts.keys() == {"inner", "shut"}
    assert (sight.hosts["inner"].failure, sight.hosts["inner"].why) == (None, "")
    assert isinstance(sight.hosts["inner"].facts.init, str)
    assert sight.hosts["shut"].failure is LookFailure.HOST_KEY_UNKNOWN
    assert "(through " in sight.hosts["shut"].why
    unknown = {"jump": f"{hosts.user}@127.0.0.1:{hosts.addresses['shut'].port}"}
    [lost] = look_at_hosts(profile(hosts, inner=unknown), ("inner",), deep=False).hosts.values()
    assert lost.failure is LookFailure.HOST_KEY_UNKNOWN, "a jump host's key is not trusted either"


def test_a_host_that_dies_amid_its_facts_is_told_and_a_look_that_is_ended_leaves_nothing(
    tmp_path: Path, hosts: SshHosts
) -> None:
    reached = tmp_path / "reached"
    slow = f'case "$*" in *-c*) touch {reached}; exec {sys.executable} -I -c "import time; time.sleep(600)";; esac'
    hosts.start("dies", python_that(tmp_path, "dies", slow))
    hosts.start("lives")
    ended: list[HostsSight] = []

    def tell(host: str, what: str) -> None:
        if host == "lives" and what == "has told its facts":
            hosts.wait(reached.exists, "the program runs on the host that dies")
            hosts.kill("dies")

    ended.append(look_at_hosts(profile(hosts), tell=tell))
    assert ended[0].hosts["dies"].failure is LookFailure.LOST
    assert ended[0].hosts["lives"].failure is None

    def stops(host: str, what: str) -> None:
        raise KeyboardInterrupt(host)

    with pytest.raises(KeyboardInterrupt):
        look_at_hosts(profile(hosts), ("lives",), tell=stops)
    assert clients(hosts) == []


IN_NAMESPACES = ("host-a", "host-b", "host-c")


@pytest.fixture
def lan(tmp_path: Path) -> Iterator[str]:
    """Three hosts at one bridge, each a network namespace; all interfaces have 9000, one port of the bridge 1500."""
    name = f"pc{os.getpid() % 100000}"
    made = [f"{name}{letter}" for letter in "abc"]
    if os.geteuid() != 0 or shutil.which("ip", path=SYSTEM_PATH) is None:
        pytest.skip("network namespaces need root and ip: paths with a small MTU were NOT tried")
    first = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if first.returncode != 0:
        pytest.skip(f"no network namespaces here: {first.stderr.strip()}")
    try:
        _run(f"ip -n {name} link add br0 mtu 9000 type bridge")
        _run(f"ip -n {name} link set br0 up")
        for number, own in enumerate(made):
            _run(f"ip netns add {own}")
            _run(f"ip -n {name} link add p{number} mtu 9000 type veth peer name eth0 netns {own}")
            _run(f"ip -n {name} link set p{number} master br0 up")
            _run(f"ip -n {own} link set eth0 mtu 9000 up")
            _run(f"ip -n {own} link set lo up")
            _run(f"ip -n {own} address add 10.77.0.{number + 1}/24 dev eth0")
        _run(f"ip -n {name} link set p2 mtu 1500")
        yield name
    finally:
        for own in (*made, name):
            subprocess.run(["ip", "netns", "del", own], capture_output=True, check=False)


def _run(words: str) -> None:
    subprocess.run(words.split(), check=True, capture_output=True)


def test_one_port_with_1500_amid_9000_and_a_closed_one_are_found(lan: str) -> None:
    questions: list[Question] = []
    for place, (name, letter) in enumerate(zip(IN_NAMESPACES, "abc", strict=True)):
        command = ("ip", "netns", "exec", f"{lan}{letter}", "sh", "-c", remote_command(sys.executable, "root"))
        way = Way(name, "root", "", 5.0, "python3")
        ports = (6443, 10250) if name != "host-b" else (10250,)
        questions.append(Question(Target(name, command, way), Options(), f"10.77.0.{place + 1}", ports))
    sight = asyncio.run(look_at(questions, 3, Pairing(lambda source, target: (6443, 10250), 9000)))
    assert [one.why for one in sight.values()] == ["", "", ""]
    seen = {
        (name, peer): way
        for name, one in sight.items()
        if isinstance(one.reach, dict)
        for peer, way in one.reach.items()
    }
    assert len(seen) == 6, json.dumps({name: str(one.reach) for name, one in sight.items()})
    for (source, peer), way in seen.items():
        assert way.wanted_mtu == 9000
        assert way.mtu == (1500 if "host-c" in (source, peer) else 9000), (source, peer)
        assert way.ports == {6443: "refused" if peer == "host-b" else "open", 10250: "open"}
