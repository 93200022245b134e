"""A host is made what it is to be, once; in check mode nothing is written and the same is said."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
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
