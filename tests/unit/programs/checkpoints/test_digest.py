"""Digests: the same as hashlib's over the whole file, however it is read; checksums inside are compared on the way."""

from __future__ import annotations

import hashlib
import itertools
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.programs.checkpoints import digest
from workflows.programs.checkpoints.digest import Checksums, Part


@pytest.mark.parametrize("files", [1, 2, 5])
@pytest.mark.parametrize("from_storage", [False, True])
def test_every_file_gets_its_digest(
    files: int, from_storage: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "BLOCK_BYTES", 5000)
    contents = {str(tmp_path / f"{index}"): bytes([index]) * (99999 * (files - index)) for index in range(files)}
    for path, content in contents.items():
        Path(path).write_bytes(content)
    found = digest.digest_files(list(contents), from_storage=from_storage)
    assert found == {
        path: digest.Digest(hashlib.sha256(content).hexdigest(), len(content)) for path, content in contents.items()
    }


def test_a_file_that_cannot_be_read_is_an_answer(tmp_path: Path) -> None:
    gone, folder = str(tmp_path / "gone"), str(tmp_path)
    for paths in ([gone], [folder], [gone, folder, gone + "2"]):
        for found in digest.digest_files(paths).values():
            assert found.sha256 == ""
            assert found.why in ("No such file or directory", "Is a directory")


def test_a_read_error_in_the_middle_is_an_answer() -> None:
    # The first page of a process's memory is not mapped: opening works, reading fails.
    for paths in (["/proc/self/mem"], ["/proc/self/mem"] * 2):
        assert digest.digest_files(paths)["/proc/self/mem"] == digest.Digest("", 0, "Input/output error")


@settings(deadline=None)
@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8), st.integers(1, 30), st.integers(-1, 7))
def test_checksums_of_ranges_do_not_depend_on_blocks(data: bytes, cuts: list[int], block: int, wrong: int) -> None:
    edges = sorted({min(cut, len(data)) for cut in cuts})
    parts = [
        Part(first, last - first, zlib.crc32(data[first:last]) ^ (index == wrong), f"part {index}")
        for index, (first, last) in enumerate(itertools.pairwise(edges))
        if index % 3 != 2  # leave gaps
    ]
    checksums = Checksums(parts)
    outside = b""
    for position in range(0, len(data), block):
        outside += b"".join(checksums.update(position, memoryview(data[position : position + block])))
    expected_outside, at = b"", 0
    for part in parts:
        inside = data[part.offset : part.offset + part.length]
        expected_outside += data[at : part.offset] + zlib.crc32(inside).to_bytes(4, "big")
        at = part.offset + part.length
    # Ranges of nothing at the very end are met only when a block ends there.
    assert outside == expected_outside + data[at:] or not data
    if data:
        expected = f"the checksum of its member 'part {wrong}'" if any(p.name == f"part {wrong}" for p in parts) else ""
        assert checksums.verdict().startswith(expected)
        assert bool(checksums.verdict()) == bool(expected)


def test_a_file_that_ends_before_its_parts_is_said() -> None:
    checksums = Checksums([Part(0, 10, 0, "tensor")])
    checksums.update(0, memoryview(b"12345"))
    assert checksums.verdict() == "ends before its member 'tensor'"


def test_a_changed_byte_is_found_wherever_it_is(tmp_path: Path) -> None:
    """Inside a part the file's own checksum tells, outside the digest does."""
    content = bytearray(b"head" + b"x" * 100 + b"tail")
    parts = {str(tmp_path / "a"): (Part(4, 100, zlib.crc32(b"x" * 100), "tensor"),)}
    (tmp_path / "a").write_bytes(content)
    whole = digest.digest_files(list(parts), parts=parts)[str(tmp_path / "a")]
    assert (whole.sha256, whole.why) == (
        hashlib.sha256(b"head" + zlib.crc32(b"x" * 100).to_bytes(4, "big") + b"tail").hexdigest(),
        "",
    )
    for position in range(len(content)):
        changed = content.copy()
        changed[position] ^= 1
        (tmp_path / "a").write_bytes(changed)
        found = digest.digest_files(list(parts), parts=parts)[str(tmp_path / "a")]
        assert found.sha256 != whole.sha256
        assert bool(found.why) == (4 <= position < 104)
