"""How a host is reached and asked: command lines, failures by name, the real program in a process of this machine."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import zlib
from dataclasses import replace
from typing import Any

import pytest

from profiles.bootstrap.inventory import ClusterHost, Ssh
from profiles.errors import ProfileError
from tasks.ssh.connections import Target, target
from tasks.ssh.failures import Way, failure_of
from tasks.ssh.host_program import program, remote_command
from tasks.ssh.looking import Pairing, Question, look_at, reach_from
from tests.support.cases.rows import rows
from workflows.model.host_facts import Unread
from workflows.model.host_sight import ClockBounds, HostSight, LookFailure, PeerReach
from workflows.programs.hosts.options import Options

WAY = Way("10.0.0.1 port 22", "root", "known", 5.0, "python3")


def local(name: str, command: str) -> Target:
    """A host that is a command of this machine."""
    return Target(name, ("sh", "-c", command), replace(WAY, where=name))


def looked(*questions: Question, pairing: Pairing | None = None) -> dict[str, HostSight]:
    return asyncio.run(look_at(questions, 4, pairing))


def test_a_host_is_reached_by_its_own_settings_before_the_common_ones() -> None:
    ssh = Ssh(user="admin", private_key_file="/keys/all", known_hosts_file="/keys/known", connect_seconds=3)
    words = target("n1", ClusterHost(address="n1.site", node_ip="10.0.0.1", port=2222, user="root"), ssh).command
    assert words[:3] == ("ssh", "-T", "-x")
    assert words[-6:-1] == ("2222", "-l", "root", "--", "n1.site")
    assert {"StrictHostKeyChecking=yes", "BatchMode=yes", 'UserKnownHostsFile="/keys/known"'} <= set(words)
    assert "/keys/all" in words
    assert "sudo" not in words[-1]
    assert "sudo -n" in target("n1", ClusterHost(address="10.0.0.1"), ssh).command[-1]


def test_a_jump_host_is_asked_with_the_same_care() -> None:
    host = ClusterHost(address="10.0.0.1", jump="me@gate.site:2200", private_key_file="/keys/100%")
    [command] = [word for word in target("n1", host, Ssh()).command if word.startswith("ProxyCommand=")]
    assert command.startswith("ProxyCommand=ssh -o StrictHostKeyChecking=yes")
    assert command.endswith("-p 2200 -l me -W [%h]:%p -- gate.site")
    assert "-i /keys/100%% " in command


@rows("tasks/connections")
def test_what_a_shell_could_read_is_refused(host: dict[str, Any], field: str, ssh: dict[str, Any] = {}) -> None:  # noqa: B006
    settings = Ssh.model_construct(**{**Ssh().model_dump(), **ssh})
    made = ClusterHost.model_construct(**{**ClusterHost(address="10.0.0.1").model_dump(), **host})
    with pytest.raises(ProfileError, match=field):
        target("n1", made, settings)


@rows("tasks/connections")
def test_each_failure_has_a_name_and_says_what_to_do(
    said: str, kind: LookFailure, why: str, code: int | None = None
) -> None:
    found, sentence = failure_of(WAY, said, code)
    assert found is kind
    assert why in sentence
    assert "\x1b" not in sentence


def test_no_program_goes_along_that_tells_no_facts() -> None:
    told = zlib.decompress(program().partition(b"\n")[2])
    assert b"workflows.programs.hosts.main" in told
    assert not {name for name in ("plane", "put") if f"'workflows.programs.hosts.{name}'".encode() in told}


class Counted:
    """Connections of which the most that are open at once are known."""

    open_now = most = 0

    def __init__(self, to: Target) -> None:
        self._is_open = False

    async def open(self) -> None:
        self._is_open = True
        Counted.open_now += 1
        Counted.most = max(Counted.most, Counted.open_now)

    async def clock(self) -> ClockBounds:
        await asyncio.sleep(0)
        return ClockBounds(0.0, 0.0)

    async def facts(self, options: str, seconds: float) -> str:
        await asyncio.sleep(0)
        return '{"items": {}}'

    async def listen(self, told: Any, seconds: float) -> dict[str, Any]:
        return {"listening": [], "udp": 1}

    async def go(self, told: Any, seconds: float) -> dict[str, Any]:
        return {"peers": {}}

    async def close(self) -> None:
        Counted.open_now -= self._is_open
        self._is_open = False


@pytest.mark.parametrize(("pairing", "most"), [(None, 4), (Pairing(lambda source, target: ()), 40)])
def test_no_more_hosts_are_connected_than_log_in_at_once_but_where_they_try_each_other(
    monkeypatch: pytest.MonkeyPatch, pairing: Pairing | None, most: int
) -> None:
    monkeypatch.setattr("tasks.ssh.looking.Conversation", Counted)
    monkeypatch.setattr(Counted, "most", 0)
    questions = [Question(local(f"n{number}", "true"), Options(), "127.0.0.1", ()) for number in range(40)]
    found = looked(*questions, pairing=pairing)
    assert [one.failure for one in found.values()] == [None] * 40
    assert (Counted.most, Counted.open_now) == (most, 0)


def test_a_look_takes_as_many_descriptors_as_the_system_allows() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        looked()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_program_needs_nothing_of_the_host_but_python() -> None:
    asked = program() + b"W\nclock\nnonsense\n"
    command = ["sh", "-c", remote_command(sys.executable, "root")]
    ended = subprocess.run(command, input=asked, capture_output=True, check=False)
    lines = ended.stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[b"W", b"clock"], [b"W", b"unknown"]], ended.stderr
    assert ended.returncode == 2


def test_hosts_tell_facts_and_reach_each_other() -> None:
    run = remote_command(sys.executable, "root")
    questions = [
        Question(
            local(f"n{number}", run), Options(folders=("/",), names=("localhost",)), f"127.0.0.{number + 2}", (16443,)
        )
        for number in range(2)
    ]
    found = looked(*questions, pairing=Pairing(lambda source, target: (16443, 16444), 0))
    for name, peer in (("n0", "n1"), ("n1", "n0")):
        assert (found[name].failure, found[name].why) == (None, "")
        assert found[name].facts.init
        assert found[name].facts.names["localhost"] == ("127.0.0.1",)
        clock, reach = found[name].clock, found[name].reach
        assert isinstance(clock, ClockBounds)
        assert clock.earliest_seconds <= 0 <= clock.latest_seconds
        assert reach == {peer: PeerReach({16443: "open", 16444: "refused"}, 65535, 65535)}


def test_hosts_that_misbehave_are_told_apart_and_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.ssh.connections.LOGIN_SECONDS", 4.0)
    way = replace(WAY, connect_seconds=0.5)
    commands = {
        "sound": f"echo Welcome; {remote_command(sys.executable, 'root')}",
        "floods": "yes",
        "one-line": "cat /dev/zero",
        "silent": "exec sleep 100",
        "gone": "echo some words >&2; exit 9",
        "no-python": "no-such-python-here",
        "old": "echo primus-python 3.6 >&2; exit 126",
    }
    questions = [
        Question(replace(local(name, text), way=way), Options(), "127.0.0.1", ()) for name, text in commands.items()
    ]
    questions.append(Question(Target("no-ssh", ("/no/such/ssh",), WAY), Options(), "127.0.0.1", ()))
    found = looked(*questions)
    assert {name: one.failure for name, one in found.items()} == {
        "sound": None,
        "floods": LookFailure.UNREADABLE,
        "one-line": LookFailure.UNREADABLE,
        "silent": LookFailure.TIMED_OUT,
        "gone": LookFailure.LOST,
        "no-python": LookFailure.NO_PYTHON,
        "old": LookFailure.NO_PYTHON,
        "no-ssh": LookFailure.LOST,
    }
    assert found["gone"].why.endswith("ended with 9: some words")
    assert "3.6" in found["old"].why


def test_what_a_host_says_of_its_peers_is_data() -> None:
    row: dict[str, Any] = {"ports": {"80": "op\x1b[2Jen"}, "mtu": 1500, "wanted_mtu": 9000}
    assert reach_from({"peers": {"n1": row}}) == {"n1": PeerReach({80: "op\ufffd[2Jen"}, 1500, 9000)}
    strange: tuple[dict[str, Any], ...] = ({"why": "no"}, {"peers": {"n1": {}}}, {"peers": {"n1": {**row, "mtu": "x"}}})
    for told in strange:
        assert isinstance(reach_from(told), Unread)
