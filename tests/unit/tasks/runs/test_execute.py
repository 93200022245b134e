"""A command beside a rank: what it sees and how it ends, here and in a container."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from websockets.sync.server import ServerConnection, serve

from profiles.errors import NotFound, PrimusError, Refused, Unavailable
from profiles.run import SecretVariable
from tasks.runs import execute as module
from tasks.runs.execute import RankPlace, execute
from tasks.settings import Settings
from tests.support.builders.attempt_plans import a_cluster, a_plan

RESOLVED = a_plan().resolved


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[RankPlace]:
    """A rank that lives on this machine, in a folder and with an environment of its own."""
    environment = {
        "PATH": os.environ["PATH"],
        "PRIMUS_RANK": "1",
        "PRIMUS_TOKEN": "t0",
        "HF_TOKEN": "s3cret",
        "A": "b=c",
    }
    command = [sys.executable, "-S", "-c", "input()"]
    rank = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, cwd=tmp_path)
    monkeypatch.setattr(module, "embedded_cluster", lambda *_: None)
    monkeypatch.setattr(module, "process_of", lambda *_: rank.pid)
    role = RESOLVED.run.roles[0]
    secret = SecretVariable(name="HF_TOKEN", secret="hub", key="token")
    role = role.model_copy(update={"secret_environment": (secret,)})
    run = RESOLVED.run.model_copy(update={"roles": (role, *RESOLVED.run.roles[1:])})
    cluster = RESOLVED.cluster.model_copy(update={"engine": "embedded"})
    yield RankPlace(RESOLVED.model_copy(update={"run": run, "cluster": cluster}), role.name, 1, "p")
    rank.communicate(b"\n")


def ran(place: RankPlace, *command: str, seconds: float = 60.0) -> tuple[int, bytes, bytes]:
    said = {1: b"", 2: b""}

    def write(data: bytes, number: int) -> None:
        said[number] += data

    code = execute(place, command, Settings.from_environment({"PRIMUS_HOME": "/nowhere"}), seconds, write)
    return code, said[1], said[2]


def test_it_has_the_ranks_folder_and_environment_without_secrets(here: RankPlace, tmp_path: Path) -> None:
    code, out, _ = ran(here, "sh", "-c", "env; pwd")
    assert code == 0
    assert {b"PRIMUS_RANK=1", b"A=b=c", os.fsencode(tmp_path)} <= set(out.splitlines())
    assert b"s3cret" not in out
    assert b"PRIMUS_TOKEN" not in out


@pytest.mark.parametrize(
    ("script", "ended"),
    [("exit 7", (7, b"", b"")), ("kill -9 $$", (137, b"", b"")), ("echo a; echo b >&2", (0, b"a\n", b"b\n"))],
)
def test_it_ends_as_the_command_does(here: RankPlace, script: str, ended: tuple[int, bytes, bytes]) -> None:
    assert ran(here, "sh", "-c", script) == ended


def test_what_is_no_program_says_so(here: RankPlace) -> None:
    assert ran(here, "no-such-program") == (127, b"", b"no-such-program: No such file or directory\n")


def test_what_takes_too_long_is_killed_and_what_it_left_behind_is_not_waited_for(here: RankPlace) -> None:
    with pytest.raises(Unavailable, match=r"did not end within 0\.2 s and was killed: --timeout"):
        ran(here, "sleep", "100", seconds=0.2)
    began = time.monotonic()
    assert ran(here, "sh", "-c", "sleep 20 & echo begun")[:2] == (0, b"begun\n")
    assert time.monotonic() - began < 15


def test_a_rank_that_has_ended_is_told(here: RankPlace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "process_of", lambda *_: None)
    with pytest.raises(NotFound, match="rank 1 of p has no process just now"):
        ran(here, "true")


SUCCESS = {"status": "Success"}
SEVEN = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}}


@contextmanager
def api_server(frames: list[bytes], asked: list[str], tmp_path: Path, status: int = 101) -> Iterator[Path]:
    """An API server that runs commands as a kubelet does; its kubeconfig."""

    def answer(link: ServerConnection) -> None:
        asked.append(link.request.path if link.request else "")
        for frame in frames:
            link.send(frame)

    def refuse(link: ServerConnection, _request: Any) -> Any:
        return None if status == 101 else link.respond(status, "no")

    with serve(answer, "127.0.0.1", 0, subprotocols=["v4.channel.k8s.io"], process_request=refuse) as server:  # type: ignore[list-item]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = server.socket.getsockname()[1]
        known = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(known))
        try:
            yield tmp_path / "kubeconfig"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def there() -> RankPlace:
    return RankPlace(replace_cluster(RESOLVED), "trainer", 1, "demo-a1-trainer-0-1")


def replace_cluster(resolved: Any) -> Any:
    return resolved.model_copy(update={"cluster": a_cluster(engine="kubernetes", context="")})


@pytest.mark.parametrize(("told", "code"), [(SUCCESS, 0), (SEVEN, 7)])
def test_in_a_container_it_ends_as_the_command_does(
    told: dict[str, Any], code: int, there: RankPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    frames = [b"\x01out\xff\n", b"\x02err\n", b"\x03" + json.dumps(told).encode()]
    with api_server(frames, asked, tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        assert ran(there, "py-spy", "dump x") == (code, b"out\xff\n", b"err\n")
    assert asked[0].startswith(f"/api/v1/namespaces/{there.resolved.cluster.namespace}/pods/{there.pod}/exec?")
    assert "command=py-spy&command=dump+x" in asked[0] or "command=py-spy&command=dump%20x" in asked[0]
    assert "container=trainer" in asked[0]


@pytest.mark.parametrize(
    ("status", "error", "says"),
    [(403, Refused, "get and create on pods/exec"), (404, NotFound, "gone"), (500, Unavailable, "500")],
)
def test_who_may_not_do_it_is_told_which_right_he_needs(
    status: int, error: type[PrimusError], says: str, there: RankPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with api_server([], [], tmp_path, status) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        with pytest.raises(error, match=says):
            ran(there, "true")
