"""Images without a daemon: the same bytes every time, all of it listed, nobody runs as root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from deployments.images import contents
from deployments.images.__main__ import Built, build, main
from deployments.images.oci import Layer
from profiles.errors import Refused
from tests.support.harness.image_files import Image, read

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build("programs", tmp_path_factory.mktemp("one"), ["team/programs:2", "team/programs:latest"])


@pytest.fixture(scope="module")
def image(built: Built) -> Image:
    return read(built.archive)


@pytest.fixture(scope="module")
def listed(built: Built) -> dict[str, Any]:
    return json.loads(built.components.read_text(encoding="utf-8"))


def test_the_same_content_gives_the_same_layer_in_any_order(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("text")
    source.chmod(0o700)
    one, other = Layer(), Layer()
    one.file("/b/file", source)
    one.link("/a/link", "../b/file")
    os.utime(source, (1e9, 1e9))
    other.link("/a/link", "../b/file")
    other.file("/b/file", source)
    assert one.content() == other.content()


def test_what_was_there_first_stays() -> None:
    layer = Layer()
    layer.data("/file", b"first", of="one")
    layer.data("/file", b"second", of="two")
    assert b"first" in layer.content()
    assert b"second" not in layer.content()
    assert layer.components == {"/file": "one"}


def test_building_again_gives_the_same_bytes(built: Built, tmp_path: Path) -> None:
    """In another process with another order of sets, from another folder."""
    command = [sys.executable, "-m", "deployments.images", "build", "programs", "--out", str(tmp_path)]
    tags = ["--tag", "team/programs:2", "--tag", "team/programs:latest"]
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT), "TZ": "Asia/Kathmandu"}
    told = subprocess.run([*command, *tags], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert built.digest in told.stdout
    for path in (built.archive, built.components):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {built.archive.name, built.components.name}


def test_times_are_those_of_the_source(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {entry.mtime for entry, _ in image.entries()} == {0}
    assert image.config["created"] == "1970-01-01T00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    layer = Layer()
    layer.data("/file", b"")
    assert layer.content() != Layer().content()
    assert b"00000250600" in layer.content(), "86400 in octal"


def test_the_layout_agrees_with_itself(image: Image, built: Built) -> None:
    assert image.wrong() == []
    index = json.loads(image.blobs["index.json"])
    assert {item["digest"] for item in index["manifests"]} == {built.digest}
    names = [item["annotations"]["io.containerd.image.name"] for item in index["manifests"]]
    assert names == ["team/programs:2", "team/programs:latest"]


def test_a_changed_byte_would_be_seen(image: Image) -> None:
    name = max(image.blobs, key=lambda one: len(image.blobs[one]))
    broken = Image({**image.blobs, name: image.blobs[name][:-1] + b"x"})
    assert broken.wrong() == [name]


def test_nobody_is_root_and_nothing_can_be_written(image: Image) -> None:
    settings = image.config["config"]
    assert (settings["User"], settings["Entrypoint"]) == ("65532:65532", ["primus-programs"])
    entries = [entry for entry, _ in image.entries()]
    assert [entry.name for entry in entries if not entry.issym() and entry.mode & 0o022] == ["tmp"]
    assert {(entry.uid, entry.gid) for entry in entries} == {(0, 0)}
    assert [entry.name for entry in entries if entry.mode & 0o6000] == []
    assert "bin/sh" not in {entry.name for entry in entries}


def test_the_list_names_every_file_once_and_nothing_else(image: Image, listed: dict[str, Any]) -> None:
    inside = {f"/{entry.name}" for entry, _ in image.entries() if not entry.isdir()}
    parts = [listed["metadata"]["component"], *listed["components"]]
    told = Counter(place["location"] for part in parts for place in part["evidence"]["occurrences"])
    assert set(told) == inside
    assert set(told.values()) == {1}
    own = [place["location"] for place in parts[0]["evidence"]["occurrences"]]
    assert own == ["/etc/group", "/etc/nsswitch.conf", "/etc/passwd"]


def test_the_list_tells_versions_and_licences(listed: dict[str, Any], built: Built) -> None:
    parts = {part["name"]: part for part in listed["components"]}
    python = sysconfig.get_python_version()
    assert parts["python"]["version"].startswith(python)
    assert parts["python"]["licenses"] == [{"expression": "PSF-2.0"}]
    assert parts["primus-flows"]["licenses"] == [{"expression": "Apache-2.0"}]
    assert all(part["version"] and part["purl"] == part["bom-ref"] for part in parts.values())
    assert listed["metadata"]["component"]["hashes"][0]["content"] == built.digest.removeprefix("sha256:")
    if Path("/var/lib/dpkg/status").exists():
        libc = parts["libc6"]
        assert libc["purl"].startswith("pkg:deb/")
        assert any("libc.so" in place["location"] for place in libc["evidence"]["occurrences"])


def test_no_folder_of_this_machine_is_told(image: Image) -> None:
    built = str(sysconfig.get_config_var("abs_srcdir") or ROOT)
    folders = [str(ROOT), built] + ([sys.base_prefix] if not sys.base_prefix.startswith("/usr") else [])
    told = [
        (entry.name, folder)
        for entry, content in image.entries()
        for folder in folders
        if folder.encode() in content and not content.startswith(b"\x7fELF")
    ]
    assert told == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change its root: the image was NOT started")
def test_it_starts_as_its_user_with_nothing_of_this_machine(image: Image, tmp_path: Path) -> None:
    inside = image.unpack(tmp_path / "root")
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder.name.startswith("pytest-"):
            folder.chmod(0o755)
    (inside / "tmp" / "pod").mkdir(mode=0o777)
    (inside / "tmp" / "pod").chmod(0o777)

    def start(*words: str) -> subprocess.CompletedProcess[str]:
        command = ["chroot", "--userspec=65532:65532", str(inside), *words]
        return subprocess.run(
            command, env={"PATH": "/usr/sbin:/usr/bin:/bin"}, capture_output=True, text=True, check=False
        )

    copied = start("/usr/bin/primus-programs", "copy", "--to=/tmp/pod")
    assert (copied.returncode, copied.stdout) == (0, "copy: /tmp/pod/programs.pyz\n"), copied.stderr
    archive = inside / "tmp" / "pod" / "programs.pyz"
    assert archive.read_bytes() == (inside / "opt" / "primus" / "programs.pyz").read_bytes()
    assert archive.stat().st_uid == 65532
    modules = "import ssl, sqlite3, hashlib, ctypes, lzma, bz2, uuid, zoneinfo, json, http.server"
    assert start("/usr/bin/python3", "-c", f"{modules}; print(hashlib.new('sha256').name)").stdout == "sha256\n"


def test_what_cannot_be_written_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["build", "programs", "--out", str(tmp_path / "file" / "inside")]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_the_control_image_gets_what_the_product_requires_and_no_tool_for_tests() -> None:
    names = {one.metadata["Name"].lower().replace("_", "-") for one in contents.chosen()}
    assert {"primus-flows", "prefect", "kubernetes", "hera-workflows", "psycopg-binary", "numpy"} <= names
    assert names.isdisjoint({"pytest", "hypothesis", "ruff", "pyright", "import-linter", "vowpalwabbit", "pip"})


def test_another_version_than_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (tmp_path / "constraints.txt").write_text(pins.replace("prefect==", "prefect==0.").replace("rich==", "poor=="))
    monkeypatch.setattr(contents, "ROOT", tmp_path)
    with pytest.raises(Refused, match=r"prefect \S+ instead of 0\..*; rich \S+ instead of none"):
        contents.chosen()


def test_our_own_folders_are_those_of_the_wheel() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert list(contents.FOLDERS) == settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
