"""Files that travel between steps: stored and laid out as Argo's own executor does."""

from __future__ import annotations

import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from profiles.errors import Refused
from tasks.embedded.runtime.artifacts import (
    RESULT_LIMIT_BYTES,
    ArtifactError,
    Capture,
    keep,
    lay_out,
    mounts,
    store_folder,
)
from tasks.embedded.schema.validate import refuse_unreachable_mounts

ANNOTATION = "primus-flows.io/artifacts"


def pod(inputs: list[dict[str, Any]] | None = None, outputs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A pod whose annotation names these artifacts."""
    files = {"store": "u", "inputs": inputs or [], "outputs": outputs or []}
    return {"metadata": {"annotations": {ANNOTATION: json.dumps(files)}}}


def place(key: str) -> dict[str, Any]:
    return {"plugin": {"name": "x", "configuration": "", "key": key}}


def nowhere(path: str) -> str | None:
    return None


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = Path(store_folder(str(tmp_path), "u"))
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a container left at /out."""
    folder = tmp_path / "left" / "out"
    (folder / "deep").mkdir(parents=True)
    (folder / "a").write_text("A")
    (folder / "deep" / "b").write_text("B")
    (folder / "link").symlink_to("a")
    return folder


def laid(tmp_path: Path, *inputs: dict[str, Any]) -> Path:
    lay_out(str(tmp_path), pod(list(inputs)), str(tmp_path / "in"), nowhere)
    return tmp_path / "in"


@pytest.mark.parametrize(
    ("archive", "key", "kind"),
    [
        ({}, "n/x.tgz", tarfile.is_tarfile),
        ({"archive": {"tar": {"compressionLevel": 9}}}, "n/x.tgz", tarfile.is_tarfile),
        ({"archive": {"zip": {}}}, "n/x.zip", zipfile.is_zipfile),
        ({"archive": {"none": {}}}, "n/x/out", os.path.isdir),
    ],
)
def test_a_folder_comes_back_as_it_was(
    tmp_path: Path, store: Path, tree: Path, archive: dict[str, Any], key: str, kind: Any
) -> None:
    output = {"name": "x", "path": "/out", "key": key, **archive}
    assert keep(str(tmp_path), pod(outputs=[output]), lambda path: str(tree)) == {"x": key}
    assert kind(store / key)
    found = laid(tmp_path, {"name": "x", "path": "/in", **archive, **place(key)}) / "x"
    assert (found / "a").read_text() == "A"
    assert (found / "deep" / "b").read_text() == "B"
    assert sorted(path.name for path in (tmp_path / "in").iterdir()) == ["x"], "nothing half done is left"
    if "zip" not in archive.get("archive", {}):
        assert (found / "link").readlink() == Path("a")


def test_what_is_not_there_is_told_and_what_is_kept_twice_is_replaced(tmp_path: Path, store: Path) -> None:
    file = tmp_path / "file"
    outputs = [{"name": "x", "path": "/file", "key": "n/x/file", "archive": {"none": {}}}]
    assert keep(str(tmp_path), pod(outputs=outputs), lambda path: str(file)) == {"x": None}
    for text in ("one", "two"):
        file.write_text(text)
        keep(str(tmp_path), pod(outputs=outputs), lambda path: str(file))
        assert (store / "n" / "x" / "file").read_text() == text
    assert (laid(tmp_path, {"name": "x", "path": "/i", **place("n/x/file")}) / "x").read_text() == "two"


def test_only_a_tar_file_is_unpacked_unasked(tmp_path: Path, store: Path) -> None:
    (store / "text.gz").write_bytes(b"\x1f\x8bnot really")
    (store / "plain").write_text("p")
    with tarfile.open(store / "many.bin", "w:gz") as packed:
        packed.add(store / "plain", "one")
        packed.add(store / "plain", "two")
    given = [{"name": name, "path": f"/{name}", **place(name)} for name in ("text.gz", "plain", "many.bin")]
    found = laid(tmp_path, *given)
    assert (found / "text.gz").read_bytes().endswith(b"not really")
    assert (found / "plain").read_text() == "p"
    assert sorted(path.name for path in (found / "many.bin").iterdir()) == ["one", "two"], "several stay in a folder"


@pytest.mark.parametrize(
    "given",
    [
        place("not/there"),
        place("../../../../etc/hostname"),
        {**place("plain"), "archive": {"tar": {}}},
        {**place("plain"), "archive": {"zip": {}}},
    ],
)
def test_what_can_never_be_laid_out_is_an_error_of_its_own(tmp_path: Path, store: Path, given: dict[str, Any]) -> None:
    (store / "plain").write_text("p")
    with pytest.raises(ArtifactError, match="artifact x failed to load"):
        laid(tmp_path, {"name": "x", "path": "/x", **given})
    assert not (tmp_path / "in" / "x").exists()


def test_raw_texts_modes_volumes_and_mounts(tmp_path: Path, store: Path) -> None:
    (tmp_path / "volume").mkdir()
    given = pod(
        [
            {"name": "program", "path": "/p", "mode": 0o755, "raw": {"data": "#!/bin/sh\n"}},
            {"name": "inside", "path": "/work/f", "raw": {"data": "v"}},
        ]
    )

    def inside(path: str) -> str | None:
        return str(tmp_path / "volume" / path.removeprefix("/work/")) if path.startswith("/work/") else None

    for _ in range(2):  # a supervisor that is asked twice does it once
        lay_out(str(tmp_path), given, str(tmp_path / "in"), inside)
    assert os.stat(tmp_path / "in" / "program").st_mode & 0o777 == 0o755
    assert (tmp_path / "volume" / "f").read_text() == "v"
    assert [(m.source, m.target, m.is_file) for m in mounts(given, str(tmp_path / "in"), inside)] == [
        (str(tmp_path / "in" / "program"), "/p", True)
    ]


def test_where_nothing_can_be_mounted_an_input_is_refused_by_its_path() -> None:
    template = {"name": "t", "inputs": {"artifacts": [{"name": "a"}, {"name": "b", "path": "/b"}]}}
    manifest = {"kind": "Workflow", "spec": {"templates": [{"name": "m"}, template]}}
    refuse_unreachable_mounts(manifest, lambda: "user")
    with pytest.raises(Refused) as error:
        refuse_unreachable_mounts(manifest, lambda: "none")
    assert error.value.path == "spec.templates[1].inputs.artifacts[1].path"


@pytest.mark.parametrize("end", ["", "\n"])
def test_of_a_long_result_the_last_bytes_are_kept(tmp_path: Path, end: str) -> None:
    """Argo's executor takes off one newline, then all but the last 256 KiB."""
    written = f"first{'x' * RESULT_LIMIT_BYTES}last"
    capture = Capture(os.open(tmp_path / "log", os.O_CREAT | os.O_WRONLY))
    for start in range(0, len(written + end), 60_000):  # a pipe holds no more
        os.write(capture.writing, f"{written}{end}"[start : start + 60_000].encode())
        capture.pump()
    os.close(capture.writing)
    capture.finish()
    assert capture.text() == written[-RESULT_LIMIT_BYTES:]
    assert (tmp_path / "log").read_text() == written + end
