"""Zip files, as `torch.save` and numpy write them: their directory, and the ranges of their checksums.

A zip may be a part of a larger file: a shard of a Distributed Checkpoint is one `torch.save` after the other.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import BinaryIO, List, Sequence, Tuple

from workflows.programs.checkpoints.digest import Part

END_OF_ZIP = b"PK\x05\x06"
END_OF_ZIP64 = b"PK\x06\x06"
LOCATOR_OF_ZIP64 = b"PK\x06\x07"
ENTRY_OF_ZIP = b"PK\x01\x02"
LOCAL_HEADER = b"PK\x03\x04"
ZIP_SUFFIXES = (".pt", ".pth", ".ckpt", ".npz", ".zip")
TAIL_BYTES = 65557
"""The end record of a zip file lies in here: 22 bytes and a comment of at most 65,535."""
DIRECTORY_LIMIT_BYTES = 256 << 20
ZIP64_FIELD = 0xFFFFFFFF


class UnsoundFileError(ValueError):
    """The file is not what its name says."""


@dataclass(frozen=True)
class Region:
    """A range of an open file, addressed from its own start."""

    file: BinaryIO
    start: int
    size: int

    def read(self, offset: int, count: int) -> bytes:
        """At most `count` bytes from `offset`, never beyond the region's end."""
        count = min(count, self.size - offset)
        if offset < 0 or count <= 0:
            return b""
        self.file.seek(self.start + offset)
        return self.file.read(count)


@dataclass(frozen=True)
class ZipEntry:
    """One member of a zip file."""

    name: str
    method: int
    """0: stored."""
    crc32: int
    packed_bytes: int
    offset: int
    """Where its local header starts."""


def whole_file(file: BinaryIO) -> Region:
    """All of an open file."""
    return Region(file, 0, os.fstat(file.fileno()).st_size)


def entries(region: Region) -> List[ZipEntry]:
    """The central directory of a zip file.

    Raises:
        Unsound: there is none, or it is cut off or points outside of the file.
    """
    offset, length, count = _find_directory(region)
    if length > DIRECTORY_LIMIT_BYTES or offset + length > region.size:
        raise UnsoundFileError("its zip directory lies outside of the file")
    data = region.read(offset, length)
    found: List[ZipEntry] = []
    at = 0
    while len(found) < count:
        if data[at : at + 4] != ENTRY_OF_ZIP or at + 46 > len(data):
            raise UnsoundFileError(f"its zip directory is broken after {len(found)} of {count} entries")
        entry, at = _zip_entry(data, at)
        if entry.offset + entry.packed_bytes > offset:
            raise UnsoundFileError(f"its member {entry.name!r} lies outside of the file")
        found.append(entry)
    return found


def checksummed_parts(path: str, pieces: Sequence[Tuple[int, int]] = ()) -> Tuple[Part, ...]:
    """Where the members of zip files lie that are stored as they are and whose checksum is stated.

    Empty for other files, and for a `torch.save` that was told to leave checksums out (they are then all zero).

    `pieces` are offset and length of each zip inside the file; none: the file is one itself if its name says so.

    Raises:
        Unsound: a member does not start where the directory says.
        OSError: the storage cannot be read.
    """
    if not pieces and not path.lower().endswith(ZIP_SUFFIXES):
        return ()
    parts: List[Part] = []
    with open(path, "rb") as file:
        size = whole_file(file).size
        for start, length in pieces or ((0, size),):
            region = Region(file, start, min(length, size - start))
            if region.read(0, 4) == LOCAL_HEADER:
                parts += _parts_of(region)
    return tuple(parts)


def _parts_of(region: Region) -> List[Part]:
    parts: List[Part] = []
    for entry in entries(region):
        head = region.read(entry.offset, 30)
        if len(head) < 30 or head[:4] != LOCAL_HEADER:
            raise UnsoundFileError(f"its member {entry.name!r} does not start where the directory says")
        name_length, extra_length = struct.unpack_from("<HH", head, 26)
        name = region.read(entry.offset + 30, name_length).decode("utf-8", "replace")
        if name != entry.name or struct.unpack_from("<H", head, 8)[0] != entry.method:
            raise UnsoundFileError(f"its member {entry.name!r} is called or stored otherwise where it starts")
        start = entry.offset + 30 + name_length + extra_length
        if start + entry.packed_bytes > region.size:
            raise UnsoundFileError(f"its member {entry.name!r} lies outside of the file")
        if entry.method == 0 and entry.crc32:
            parts.append(Part(region.start + start, entry.packed_bytes, entry.crc32, entry.name))
    return parts


def _find_directory(region: Region) -> Tuple[int, int, int]:
    """Offset, length and number of entries of the central directory."""
    tail = region.read(max(0, region.size - TAIL_BYTES), TAIL_BYTES)
    at = tail.rfind(END_OF_ZIP)
    if at < 0 or at + 22 > len(tail):
        raise UnsoundFileError("has no zip directory at its end: it was cut off")
    count, length, offset = struct.unpack_from("<HII", tail, at + 10)
    locator = at - 20
    if locator >= 0 and tail[locator : locator + 4] == LOCATOR_OF_ZIP64:
        (record,) = struct.unpack_from("<Q", tail, locator + 8)
        big = region.read(record, 56)
        if len(big) < 56 or big[:4] != END_OF_ZIP64:
            raise UnsoundFileError("its zip64 record is broken or lies outside of the file")
        count, length, offset = struct.unpack_from("<QQQ", big, 32)
    return offset, length, count


def _zip_entry(data: bytes, at: int) -> Tuple[ZipEntry, int]:
    method, crc = struct.unpack_from("<H4xI", data, at + 10)
    packed, unpacked, name_length, extra_length, comment_length = struct.unpack_from("<IIHHH", data, at + 20)
    (offset,) = struct.unpack_from("<I", data, at + 42)
    name = data[at + 46 : at + 46 + name_length].decode("utf-8", "replace")
    extra = data[at + 46 + name_length : at + 46 + name_length + extra_length]
    wide = _zip64_numbers(extra)
    if unpacked == ZIP64_FIELD and wide:
        wide.pop(0)
    if packed == ZIP64_FIELD and wide:
        packed = wide.pop(0)
    if offset == ZIP64_FIELD and wide:
        offset = wide.pop(0)
    return ZipEntry(name, method, crc, packed, offset), at + 46 + name_length + extra_length + comment_length


def _zip64_numbers(extra: bytes) -> List[int]:
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            body = extra[at + 4 : at + 4 + length]
            return [struct.unpack_from("<Q", body, index)[0] for index in range(0, len(body) // 8 * 8, 8)]
        at += 4 + length
    return []
