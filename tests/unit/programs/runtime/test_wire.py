"""The small HTTP client and server against each other and against peers that misbehave; the entry of all programs."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from tests.support.harness.launcher_harness import GangOnLoopback, terminate
from workflows.programs import main
from workflows.programs.runtime import copy
from workflows.programs.runtime.flags import UsageError
from workflows.programs.runtime.http_client import (
    AddressError,
    Client,
    UnreachableError,
    addresses,
    hosts_of,
    parse_head,
    split_url,
)
from workflows.programs.runtime.http_server import DeferredResponse, Request, Response, Server

ROOT = Path(__file__).parents[4]


@rows("programs/runtime/wire")
def test_urls_are_split(url: str, expected: tuple[str, int]) -> None:
    assert split_url(url) == expected


@pytest.mark.parametrize("url", ["", "host:1", "https://host:1", "http://", "http://host:port", "http://host/path"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(AddressError, match="expected http://host:port"):
        split_url(url)


def test_the_hosts_file_is_asked_before_the_name_server(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# comment\n127.0.0.9 me.gang me # mine\nfd00::1 me\n\n127.0.0.8 Other\n")
    assert addresses("me.gang", str(path)) == ["127.0.0.9"]
    assert addresses("ME", str(path)) == ["127.0.0.9", "fd00::1"]
    assert hosts_of(path.read_text())["other"] == ["127.0.0.8"]
    assert addresses("127.0.0.7", str(path)) == ["127.0.0.7"]
    with pytest.raises(UnreachableError, match="name not known"):
        addresses("no-such-host.invalid", str(path))


@given(st.binary(max_size=300))
def test_no_head_breaks_the_client(head: bytes) -> None:
    try:
        parse_head(head)
    except ValueError:
        return
    assert head.startswith(b"HTTP/1.")


class Served:
    """A server in a thread, with a box that long polls wait for."""

    def __init__(self) -> None:
        self.box: list[str] = []
        self.seen: list[Request] = []
        self.server = Server("127.0.0.1", 0, self.answer)
        self.bell, self.end = os.pipe()
        self.server.watch(self.bell)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def answer(self, request: Request) -> Response | DeferredResponse:
        self.seen.append(request)
        if request.path == "/wait":
            seconds = float(request.query["seconds"])
            return DeferredResponse(
                lambda: Response(200, {"box": self.box}) if self.box else None, seconds, Response(200, {})
            )
        if request.path == "/put":
            self.box.append(request.body["text"])
            self.server.wake()
        return Response(200, {"path": request.path, "length": len(str(request.body))})

    def run(self) -> None:
        while self.bell not in self.server.turn(30.0):
            pass

    def client(self) -> Client:
        return Client(f"http://127.0.0.1:{self.server.port}", "token")

    def raw(self, data: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.server.port)) as peer:
            peer.sendall(data)
            peer.shutdown(socket.SHUT_WR)
            return b"".join(iter(lambda: peer.recv(65536), b""))

    def close(self) -> None:
        os.write(self.end, b"!")
        self.thread.join()
        self.server.close()
        os.close(self.bell)
        os.close(self.end)


@pytest.fixture
def served() -> Iterator[Served]:
    one = Served()
    yield one
    one.close()


def test_requests_share_a_connection_and_carry_token_and_body(served: Served) -> None:
    client = served.client()
    for _ in range(3):
        assert client.request("POST", "/x?a=b&c=", {"text": "grüße"}).body["path"] == "/x"
    request = served.seen[-1]
    assert (request.method, request.query, request.token, request.body) == (
        "POST",
        {"a": "b", "c": ""},
        "token",
        {"text": "grüße"},
    )
    client.close()


def test_megabytes_pass_in_both_directions(served: Served) -> None:
    client = served.client()
    assert client.request("POST", "/put", {"text": "x" * 5_000_000}).status == 200
    assert len(client.request("GET", "/wait?seconds=0").body["box"][0]) == 5_000_000
    client.close()


def test_a_long_poll_is_answered_when_something_happens(served: Served) -> None:
    answers: list[Any] = []
    waiting = threading.Thread(target=lambda: answers.append(served.client().request("GET", "/wait?seconds=60")))
    waiting.start()
    while not served.seen:
        pass
    other = served.client()
    other.request("POST", "/put", {"text": "news"})
    waiting.join(20)
    assert answers[0].body == {"box": ["news"]}
    other.close()


def test_a_long_poll_ends_when_its_time_is_over(served: Served) -> None:
    client = served.client()
    assert client.request("GET", "/wait?seconds=0.01").body == {}
    client.close()


def test_bearer_tokens_are_understood_too(served: Served) -> None:
    served.raw(b"GET /x HTTP/1.1\r\nAuthorization: Bearer abc\r\n\r\n")
    assert served.seen[-1].token == "abc"


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /x HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"GET /x HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\n{x}",
        b"POST /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n[]",
        b"GET /" + b"x" * 100_000,
    ],
)
def test_what_is_no_request_is_refused_and_the_server_lives(served: Served, data: bytes) -> None:
    assert served.raw(data).startswith(b"HTTP/1.1 400 ")
    assert served.raw(b"GET /x HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 ")


def test_requests_in_one_packet_and_in_many_are_answered_in_order(served: Served) -> None:
    one = b"GET /a HTTP/1.1\r\n\r\n"
    answers = served.raw(one + one.replace(b"/a", b"/b"))
    assert answers.index(b'"/a"') < answers.index(b'"/b"')


def test_a_server_that_went_away_is_an_away_error_and_a_new_one_is_found() -> None:
    first = Served()
    port = first.server.port
    client = first.client()
    client.request("GET", "/x")
    first.close()
    with pytest.raises(UnreachableError):
        client.request("GET", "/x", timeout_seconds=1)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(UnreachableError):
        client.request("GET", "/x", timeout_seconds=0.05)
    client.close()


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1\r\n\r\n", b"SMTP\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"]
)
def test_a_peer_that_speaks_something_else_is_away(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as peer:

        def speak() -> None:
            connection, _ = peer.accept()
            connection.recv(65536)
            connection.sendall(answer)
            connection.close()

        thread = threading.Thread(target=speak)
        thread.start()
        with pytest.raises(UnreachableError):
            Client(f"http://127.0.0.1:{peer.getsockname()[1]}").request("GET", "/x", timeout_seconds=5)
        thread.join()


def test_the_entry_knows_its_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    assert main.main(["fly"]) == 2
    assert "fly: no such program; choose one of " in capsys.readouterr().err
    for module in main.PROGRAMS.values():
        assert (ROOT / "workflows" / "programs" / f"{module.replace('.', '/')}.py").is_file()


def make_archive(folder: Path) -> Path:
    archive = folder / "programs.pyz"
    with zipfile.ZipFile(archive, "w") as writer:
        for path in [
            *(ROOT / "workflows" / "programs").rglob("*.py"),
            *(ROOT / "workflows" / name for name in ("status.py", "wire.py")),
        ]:
            writer.write(path, path.relative_to(ROOT))
        writer.writestr("workflows/__init__.py", "")
        writer.writestr(
            "__main__.py", "import sys\nfrom workflows.programs.main import main\nsys.exit(main(sys.argv[1:]))\n"
        )
    return archive


def test_the_archive_copies_itself_whole_and_the_copy_runs(tmp_path: Path) -> None:
    archive = make_archive(tmp_path)
    python = [sys.executable, "-I", "-S"]
    for _ in range(2):
        subprocess.run([*python, str(archive), "copy", f"--to={tmp_path / 'to' / 'here'}"], check=True)
    copied = tmp_path / "to" / "here" / "programs.pyz"
    assert copied.read_bytes() == archive.read_bytes()
    assert [path.name for path in copied.parent.iterdir()] == ["programs.pyz"]
    again = subprocess.run([*python, str(copied), "launch", "--role=t", "--", "true"], check=False, cwd=tmp_path)
    assert again.returncode == 0


def test_copying_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert copy.parse(copy.Options("/x").argv()) == copy.Options("/x")
    with pytest.raises(UsageError, match="--to: must name a folder"):
        copy.parse(["--to="])
    assert copy.main(["--to=/x"]) == 2
    assert "does not run from an archive" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        copy.copy(__file__, str(tmp_path / "file"))


def old_python() -> str:
    found = sorted(Path.home().glob(".pyenv/versions/3.9.*/bin/python3.9"))
    return str(found[0]) if found else ""


def test_all_programs_are_python_3_9() -> None:
    for path in [
        *(ROOT / "workflows" / "programs").rglob("*.py"),
        *(ROOT / "workflows" / name for name in ("status.py", "wire.py")),
    ]:
        ast.parse(path.read_text(), filename=str(path), feature_version=(3, 9))


@pytest.mark.skipif(not old_python(), reason="no Python 3.9 on this machine")
def test_a_gang_runs_on_python_3_9(tmp_path: Path) -> None:
    gang = GangOnLoopback(tmp_path)
    try:
        gang.python = old_python()
        coordinator = gang.coordinate(pods=2)
        pods = [gang.launch(index, "--steps=5", pods=2, STEPS="5") for index in (0, 1)]
        assert [pod.end() for pod in pods] == [0, 0]
        assert gang.ask("/status")["step"] == 5
        terminate(coordinator)
        assert coordinator.end() == 0
    finally:
        gang.close()
