"""Log files as they lie about: plain, compressed, rotated, in folders, through pipes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
from pathlib import Path

import pytest

from profiles.errors import NotFound, ProfileError
from tasks.log_files import BLOCK_BYTES, LogFile, find_logs

TEXT = b"one\ntwo\nthree\n"


def read(log: LogFile) -> bytes:
    return b"".join(log.blocks())


def names(folder: Path, *given: str) -> list[str]:
    logs, passed = find_logs(given or [str(folder)])
    assert passed == ()
    return [str(Path(log.name).relative_to(folder)) for log in logs]


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("a.log", TEXT),
        ("a.log.gz", gzip.compress(TEXT)),
        ("a.log.bz2", bz2.compress(TEXT)),
        ("a.log.xz", lzma.compress(TEXT)),
        ("compressed without saying so", gzip.compress(TEXT)),
        ("empty", b""),
        ("two members.gz", gzip.compress(b"one\n") + gzip.compress(b"two\nthree\n")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_is_read_as_what_is_in_it(tmp_path: Path, name: str, packed: bytes) -> None:
    (tmp_path / name).write_bytes(packed)
    (log,), _ = find_logs([str(tmp_path / name)])
    assert read(log) == (TEXT if packed else b"")
    assert log.size_bytes == (len(TEXT) if packed == TEXT else None)
    assert log.broken == []


def test_a_file_of_the_kernel_that_calls_itself_empty_is_read() -> None:
    (log,), _ = find_logs(["/proc/version"])
    assert read(log).startswith(b"Linux version")


def test_blocks_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"x" * (3 * BLOCK_BYTES + 5))
    (log,), _ = find_logs([str(tmp_path / "a.log")])
    assert [len(block) for block in log.blocks()] == [BLOCK_BYTES] * 3 + [5]


def test_a_cut_archive_gives_what_is_there_and_says_so(tmp_path: Path) -> None:
    whole = gzip.compress(os.urandom(3 * BLOCK_BYTES))
    (tmp_path / "a.gz").write_bytes(whole[: len(whole) // 2])
    (log,), _ = find_logs([str(tmp_path / "a.gz")])
    assert len(read(log)) >= BLOCK_BYTES
    assert len(log.broken) == 1
    assert "read only in part" in log.broken[0]


def test_of_a_growing_file_what_was_there_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(TEXT)
    (log,), _ = find_logs([str(path)])
    with path.open("ab") as file:
        file.write(b"later\n" * 1000)
    assert read(log) == TEXT


@pytest.mark.parametrize(
    ("size", "end"), [(100, TEXT), (14, TEXT), (13, b"two\nthree\n"), (7, b"three\n"), (6, b""), (1, b"")]
)
def test_the_end_of_a_file_in_whole_lines(tmp_path: Path, size: int, end: bytes) -> None:
    (tmp_path / "a.log").write_bytes(TEXT)
    (log,), _ = find_logs([str(tmp_path / "a.log")])
    assert log.tail(size) == end


def test_a_pipe_has_no_end_to_look_at_and_is_read_once(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, TEXT)
    os.close(writer)
    (log,), _ = find_logs([f"/dev/fd/{reader}"])
    assert (log.size_bytes, log.tail(10)) == (None, b"")
    assert read(log) == TEXT
    os.close(reader)


def test_a_folder_gives_its_texts_in_order(tmp_path: Path) -> None:
    for name in (
        "b/rank-10.log",
        "b/rank-2.log",
        "train.log",
        "train.log.1",
        "train.log.10.gz",
        "train.log.2",
        "stdout",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(gzip.compress(TEXT) if name.endswith(".gz") else TEXT)
    assert names(tmp_path) == [
        "stdout", "train.log.10.gz", "train.log.2", "train.log.1", "train.log", "b/rank-10.log", "b/rank-2.log",
    ]  # fmt: skip


def test_a_folder_s_other_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(b"raise ValueError('x')\n")
    (tmp_path / "model.safetensors").write_bytes(b'{"weight": {"dtype": "BF16"}}' * 200)
    (tmp_path / "dump").write_bytes(os.urandom(5000))
    (tmp_path / "weights.gz").write_bytes(gzip.compress(os.urandom(5000)))
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "log").write_bytes(TEXT)
    (tmp_path / ".hidden").write_bytes(TEXT)
    (tmp_path / "empty.log").write_bytes(b"")
    (tmp_path / "windows.log").write_bytes(TEXT.decode().encode("utf-16"))
    (tmp_path / "colours.log").write_bytes(b"\x1b[31mred\x1b[0m\n" * 100)
    (tmp_path / "crashed.log").write_bytes(TEXT * 100 + b"\0" * 9000)
    os.mkfifo(tmp_path / "pipe")
    os.symlink(tmp_path, tmp_path / "loop")
    os.symlink(tmp_path / "nowhere", tmp_path / "dangling.log")
    assert names(tmp_path) == ["colours.log", "crashed.log", "windows.log"]


def test_a_binary_file_that_is_named_is_read(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\0\1\2" * 1000)
    assert names(tmp_path, str(tmp_path / "core")) == ["core"]


def test_a_file_named_twice_counts_once(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(TEXT)
    os.symlink(tmp_path / "a.log", tmp_path / "latest.log")
    assert names(tmp_path, str(tmp_path / "latest.log"), str(tmp_path / "a.log"), str(tmp_path)) == ["latest.log"]
    assert [log.name for log in find_logs(["-", "-"])[0]] == ["stdin"]


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(TEXT)
    with pytest.raises(NotFound, match=r"b\.log: there is no such file"):
        find_logs([str(tmp_path / "a.log"), str(tmp_path / "b.log")])


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(TEXT)
    deny(monkeypatch, path)
    with pytest.raises(ProfileError, match=r"a\.log cannot be read: Permission denied"):
        find_logs([str(path)])


def test_what_cannot_be_read_inside_a_folder_is_passed_over_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(TEXT)
    deny(monkeypatch, tmp_path / "a.log")
    logs, passed = find_logs([str(tmp_path)])
    assert [Path(log.name).name for log in logs] == ["b.log"]
    assert len(passed) == 1
    assert "a.log" in passed[0]


def deny(monkeypatch: pytest.MonkeyPatch, denied: Path) -> None:
    """As mode 000 does to everybody but root, who runs tests in containers."""
    really, opened = Path.open, io.FileIO

    def open_path(path: Path, *words: object, **more: object) -> object:
        if path == denied:
            raise PermissionError(13, "Permission denied")
        return really(path, *words, **more)  # type: ignore[call-overload]

    def open_file(path: object, *words: object, **more: object) -> io.FileIO:
        if path == denied:
            raise PermissionError(13, "Permission denied")
        return opened(path, *words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "open", open_path)
    monkeypatch.setattr("tasks.log_files.io.FileIO", open_file)
