"""A host is made what it is to be, once; in check mode nothing is written and the same is said."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

import workflows.programs.hosts.put as put_module
from workflows.programs.hosts.put import Put

SOURCE = Path(str(put_module.__file__)).read_text()


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def wanted(folder: Path, **more: Any) -> dict[str, Any]:
    return {"files": [{"path": str(folder / "a" / "b.conf"), "content": "x = 1\n", "mode": 0o640}], **more}


def digests(folder: Path) -> dict[str, str]:
    return {str(path): sha256(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}


def program(name: str, content: bytes, target: Path, url: str = "") -> dict[str, Any]:
    paths = {"target": str(target), "at": str(target), "stamp": ""}
    return {"name": name, "url": url, "sha256": sha256(content), "unpack": False, **paths}


@pytest.fixture
def mirror(tmp_path: Path) -> Any:
    """A folder that is served, and its URL."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    folder = tmp_path / "mirror"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_is_sent_to_a_host_runs_there_by_itself(tmp_path: Path) -> None:
    def run(*flags: str) -> dict[str, Any]:
        argv = [sys.executable, "-I", "-c", SOURCE, *flags]
        text = json.dumps(wanted(tmp_path / "host"))
        return json.loads(subprocess.run(argv, input=text, capture_output=True, text=True, check=True).stdout)

    path = str(tmp_path / "host" / "a" / "b.conf")
    assert run("--check") == {"changed": [path], "lacking": []}
    assert not (tmp_path / "host").exists(), "it only said so"
    assert run()["changed"] == [path]
    assert (Path(path).read_text(), Path(path).stat().st_mode & 0o777) == ("x = 1\n", 0o640)
    assert run() == {"changed": [], "lacking": []}, "what is right is not touched"


def test_a_changed_file_and_a_changed_mode_are_put_back(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.conf"
    Put(wanted(tmp_path), check=False).run()
    path.chmod(0o777)
    assert Put(wanted(tmp_path), check=False).run()["changed"] == [str(path)]
    path.write_text("x = 2\n")
    assert Put(wanted(tmp_path), check=False).run()["changed"] == [str(path)]
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("x = 1\n", 0o640)


class Killed(BaseException):
    """As SIGKILL: nothing behind it is done."""


def test_what_was_changed_is_told_until_it_was_acted_upon_though_it_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending = tmp_path / "state" / "pending"
    asked = wanted(tmp_path / "host", pending=str(pending))
    path = str(tmp_path / "host" / "a" / "b.conf")
    assert Put(asked, check=True).run()["changed"] == [path]
    assert not pending.exists(), "it only said so"

    def killed(*words: object) -> None:
        raise Killed(*words)

    for where in ("chmod", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(put_module.os, where, killed)
            with pytest.raises(Killed):
                Put(asked, check=False).run()
        assert Put(asked, check=True).run()["changed"] == [path]
    # Now it is right, and whoever was to begin its unit anew is killed.
    assert Put(asked, check=False).run()["changed"] == [path]
    for check in (True, False):
        assert Put(asked, check).run()["changed"] == [path], "as long as nobody says that it was acted upon"
    other = {**asked, "absent": [path]}
    assert Put(other, check=False).run()["changed"] == [path, f"no {path}"]
    pending.unlink()
    Put(wanted(tmp_path / "host"), check=False).run()
    assert Put(asked, check=False).run()["changed"] == []


def test_a_line_that_a_power_cut_tore_does_not_spoil_the_next_one(tmp_path: Path) -> None:
    pending = tmp_path / "pending"
    pending.write_text("/etc/one\n/etc/tw")
    path = str(tmp_path / "a" / "b.conf")
    assert Put(wanted(tmp_path, pending=str(pending)), check=False).run()["changed"] == ["/etc/one", "/etc/tw", path]
    assert Put(wanted(tmp_path, pending=str(pending)), check=True).run()["changed"][-1] == path


def test_a_file_for_few_is_never_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    chmod = put_module.os.chmod

    def seen(path: str, mode: int) -> None:
        modes.append(Path(path).stat().st_mode & 0o777)
        chmod(path, mode)

    monkeypatch.setattr(put_module.os, "chmod", seen)
    Put(wanted(tmp_path), check=False).run()
    assert modes == [0o600]


@pytest.fixture
def broken_mirror() -> Any:
    """A mirror that cuts off so many of its answers, of any kind, and how often it was asked."""
    left: list[str] = []
    asked: list[str] = []

    class Broken(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

        def do_GET(self) -> None:
            asked.append(self.path)
            way = left.pop() if left else "whole"
            self.protocol_version = "HTTP/1.1"
            self.send_response(200)
            self.send_header("Connection", "close")
            if way == "chunked":
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"9\r\na kub")
            else:
                self.send_header("Content-Length", "9")
                self.end_headers()
                self.wfile.write(b"a kubelet" if way == "whole" else b"a kub")

    server = ThreadingHTTPServer(("127.0.0.1", 0), Broken)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield left, asked, f"http://127.0.0.1:{server.server_address[1]}/kubelet"
    server.shutdown()
    thread.join()
    server.server_close()


def test_what_was_cut_off_is_fetched_again_and_told_as_such(tmp_path: Path, broken_mirror: Any) -> None:
    left, asked, url = broken_mirror
    item = program("kubelet", b"a kubelet", tmp_path / "kubelet", url)
    left += ["chunked", "short"]
    Put({"downloads": [item]}, check=False).run()
    assert ((tmp_path / "kubelet").read_bytes(), len(asked)) == (b"a kubelet", 3)
    for way, why in (("short", "cut off by the mirror, 4 bytes before its end"), ("chunked", "IncompleteRead")):
        left[:] = [way] * 3
        item = program("kubelet", b"a kubelet", tmp_path / way, url)
        with pytest.raises(OSError, match=why):
            Put({"downloads": [item]}, check=False).run()
        assert not list(tmp_path.glob(f"{way}*"))


def test_a_proxy_of_the_host_is_not_asked_for_the_site_s_own_mirror(
    tmp_path: Path, mirror: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, url = mirror
    (folder / "kubelet").write_bytes(b"a kubelet")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    item = program("kubelet", b"a kubelet", tmp_path / "kubelet", f"{url}/kubelet")
    assert Put({"downloads": [item]}, check=False).run()["lacking"] == []


def test_a_program_is_fetched_by_its_digest_or_not_at_all(tmp_path: Path, mirror: tuple[Path, str]) -> None:
    folder, url = mirror
    (folder / "kubelet").write_bytes(b"a kubelet")
    target = tmp_path / "bin" / "kubelet"
    item = program("kubelet", b"a kubelet", target, f"{url}/kubelet")
    assert Put({"downloads": [item]}, check=True).run()["changed"] == [f"{target} (kubelet)"]
    assert not target.exists()
    assert Put({"downloads": [item]}, check=False).run()["lacking"] == []
    assert (target.read_bytes(), target.stat().st_mode & 0o111) == (b"a kubelet", 0o111)
    assert Put({"downloads": [item]}, check=False).run()["changed"] == []
    (folder / "kubelet").write_bytes(b"another one")
    newer = {**item, "sha256": sha256(b"a third one")}
    with pytest.raises(OSError, match="it has the SHA-256"):
        Put({"downloads": [newer]}, check=False).run()
    assert target.read_bytes() == b"a kubelet", "what was there stays"
    assert [path.name for path in target.parent.iterdir()] == ["kubelet"]


def test_an_archive_is_unpacked_once(tmp_path: Path, mirror: tuple[Path, str]) -> None:
    folder, url = mirror
    (tmp_path / "bridge").write_bytes(b"a plug-in")
    with tarfile.open(folder / "cni.tgz", "w:gz") as archive:
        archive.add(tmp_path / "bridge", "bridge")
    item = {
        **program("cni-plugins", (folder / "cni.tgz").read_bytes(), tmp_path / "cni", f"{url}/cni.tgz"),
        "unpack": True,
        "at": str(tmp_path / "archives" / "cni-plugins"),
        "stamp": str(tmp_path / "unpacked" / "cni-plugins"),
    }
    Put({"downloads": [item]}, check=False).run()
    assert (tmp_path / "cni" / "bridge").read_bytes() == b"a plug-in"
    assert list((tmp_path / "archives").iterdir()) == []
    before = digests(tmp_path)
    assert Put({"downloads": [item]}, check=False).run()["changed"] == []
    assert digests(tmp_path) == before


def test_what_nobody_brought_is_named_and_nothing_is_done(tmp_path: Path) -> None:
    item = program("kubelet", b"a kubelet", tmp_path / "kubelet")
    assert Put({"downloads": [item]}, check=False).run()["lacking"] == ["kubelet"]
    (tmp_path / "kubelet").write_bytes(b"a kubelet")
    assert Put({"downloads": [item]}, check=False).run() == {"changed": [], "lacking": []}


def test_a_link_stands_for_the_first_folder_that_there_is(tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    link = tmp_path / "opt" / "bin"
    links = {str(link): [str(tmp_path / "one"), str(tmp_path / "two")]}
    assert Put({"links": links}, check=True).run()["changed"]
    assert not link.exists()
    Put({"links": links}, check=False).run()
    assert link.resolve() == tmp_path / "two"
    assert Put({"links": links}, check=False).run()["changed"] == []


def test_files_that_must_go_go(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    absent = [str(tmp_path / name) for name in ("folder", "file", "never")]
    assert len(Put({"absent": absent}, check=True).run()["changed"]) == 2
    assert Put({"absent": absent}, check=False).run()["changed"] == [f"no {path}" for path in absent[:2]]
    assert list(tmp_path.iterdir()) == []


def test_a_parameter_that_is_right_is_left_alone() -> None:
    value = Path("/proc/sys/kernel/pid_max").read_text().strip()
    assert Put({"sysctls": {"kernel.pid_max": value, "-kernel.no_such_thing": "1"}}, check=False).run()["changed"] == []
    assert Put({"sysctls": {"kernel.pid_max": "1"}}, check=True).run()["changed"] == ["sysctl kernel.pid_max=1"]
    assert Path("/proc/sys/kernel/pid_max").read_text().strip() == value
