"""Checks files against the format in their name: headers and directories only, without torch, safe on any bytes.

`probe` returns "" for a sound file or one sentence about the fault; the content of a file never makes it raise.

* Zip files, as `torch.save` and numpy write them: their directory, and the ranges of their checksums. A zip may be a
  part of a larger file: a shard of a Distributed Checkpoint is one `torch.save` after the other.
* Pickles are read as data: their operation codes are listed, nothing is ever constructed or imported.
* Files of `torch.save` before version 1.6: five pickles, then the tensors' bytes, without a directory. The pickles say
  how many numbers of which width follow, so a cut is seen; a flipped byte is not.
"""

from __future__ import annotations

import ast
import json
import os
import pickle
import pickletools
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, cast

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


_ATOMS = frozenset(
    {"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "INT", "LONG"}
    | {"SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "SHORT_BINSTRING", "BINSTRING", "STRING"}
)
_PUTS = frozenset({"BINPUT", "LONG_BINPUT", "PUT"})
_GETS = frozenset({"BINGET", "LONG_BINGET", "GET"})


class PickleError(ValueError):
    """Not a whole pickle."""


def atoms(data: bytes) -> Iterator[Any]:
    """Every string and whole number in the order in which they are pushed; repeated ones are resolved.

    Raises:
        PickleError: cut off, or no pickle.
    """
    memo: Dict[int, Any] = {}
    top: Any = None
    try:
        for operation, argument, _ in pickletools.genops(data):
            name = operation.name
            if name == "MEMOIZE":
                memo[len(memo)] = top
            elif name in _PUTS:
                memo[int(str(argument))] = top
            else:
                top = _pushed_value(name, argument, memo)
                if top is not None:
                    yield top
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeError, MemoryError) as error:
        raise PickleError(f"not a whole pickle: {error}") from error


def storage_needs(data: bytes) -> Dict[str, int]:
    """Files that a Distributed Checkpoint's `.metadata` names, with the least size each must have.

    Raises:
        PickleError: cut off, or no pickle.
    """
    return {
        path: max((offset + length for offset, length in pieces), default=0)
        for path, pieces in storage_pieces(data).items()
    }


def storage_pieces(data: bytes) -> Dict[str, List[Tuple[int, int]]]:
    """Where the pieces of a Distributed Checkpoint lie, by file: offset and length of each.

    Its `.metadata` holds one record `{relative_path, offset, length}` for each piece of a tensor.

    Raises:
        PickleError: cut off, or no pickle.
    """
    found: Dict[str, List[Tuple[int, int]]] = {}
    key: Optional[str] = None
    path, offset = "", 0
    for atom in atoms(data):
        if isinstance(atom, str):
            if key == "relative_path":
                path = atom
                found.setdefault(path, [])
            key = atom
            continue
        if key == "offset" and path:
            offset = int(atom)
        elif key == "length" and path:
            found[path].append((offset, int(atom)))
            path = ""
        key = None
    return found


def _pushed_value(name: str, argument: Any, memo: Dict[int, Any]) -> Any:
    if name in _ATOMS:
        return argument
    if name in _GETS:
        return memo.get(int(str(argument)))
    return None


LEGACY_PICKLES = 5
"""Magic number, protocol, system, the object, and the keys of the storages that follow."""
STORAGE_WIDTH_BYTES = {
    "DoubleStorage": 8,
    "LongStorage": 8,
    "ComplexFloatStorage": 8,
    "ComplexDoubleStorage": 16,
    "FloatStorage": 4,
    "IntStorage": 4,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "ShortStorage": 2,
    "ByteStorage": 1,
    "CharStorage": 1,
    "BoolStorage": 1,
    "UntypedStorage": 1,
}
"""Bytes of one number, by the class of its storage."""


def check_legacy_torch(file: BinaryIO, size: int) -> None:
    """Walk over the whole file.

    Raises:
        Unsound: cut off, or not such a file.
    """
    file.seek(0)
    try:
        pickles = [list(pickletools.genops(file)) for _ in range(LEGACY_PICKLES)]
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeError, MemoryError) as error:
        raise UnsoundFileError(f"is not a whole torch file of the old kind: {error}") from error
    widths = dict(_storages(pickles[3]))
    keys = [str(argument) for operation, argument, _ in pickles[4] if "UNICODE" in operation.name]
    for key in keys:
        head = file.read(8)
        if len(head) < 8:
            raise UnsoundFileError("ends before its tensors: it was cut off")
        (count,) = struct.unpack("<q", head)
        if count < 0 or file.tell() + count * widths.get(key, 1) > size:
            raise UnsoundFileError(f"ends inside of its tensor {key}: it was cut off")
        file.seek(count * widths.get(key, 1), os.SEEK_CUR)


def _storages(operations: List[Tuple[Any, Any, Any]]) -> Iterator[Tuple[str, int]]:
    """Key and width of each storage: `('storage', <class>, <key>, …)` as the pickle pushes it."""
    memo: Dict[Any, Any] = {}
    top: Any = None
    width = 0
    for operation, argument, _ in operations:
        if "PUT" in operation.name:
            memo[argument] = top
            continue
        top = memo.get(argument) if "GET" in operation.name else argument
        if not isinstance(top, str):
            continue
        name = top.rpartition(" ")[2]
        if name in STORAGE_WIDTH_BYTES:
            width = STORAGE_WIDTH_BYTES[name]
        elif width:
            yield top, width
            width = 0


HEADER_LIMIT_BYTES = 256 << 20
HEAD_BYTES = 512
WALKED_BYTES = 64 << 20
"""A larger pickle is only looked at at its end: walking over it would take seconds."""
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
TABLE_MAGIC = bytes.fromhex("57fb808b247547db")
"""End of a table of TensorFlow (and LevelDB)."""
LEGACY_MAGIC = bytes.fromhex("6cfc9c46f9206aa85019")
"""The magic number of `torch.save` before version 1.6, as its first pickle holds it."""
HOLD_STATE = (".bin", ".tar", ".pkl", ".pickle", ".h5", ".hdf5", ".msgpack", ".ubj", ".distcp", ".index")


def probe(path: str) -> str:
    """What is wrong with the file at `path`, or "".

    Raises:
        OSError: the storage cannot be read.
    """
    size = os.stat(path).st_size
    name = os.path.basename(path).lower()
    check = next((check for suffix, check in CHECKS if name.endswith(suffix)), None)
    if size == 0:
        return "is empty" if check is not None or name.endswith(NEVER_EMPTY) else ""
    with open(path, "rb") as file:
        check = check or _check_by_content(file, name)
        try:
            if check is not None:
                check(file, size)
        except UnsoundFileError as error:
            return str(error)
    return ""


def _check_by_content(file: BinaryIO, name: str) -> Optional[Callable[[BinaryIO, int], None]]:
    """The check for a file whose name says no format, by its first bytes (a `.pth.tar` or `.bin` of `torch.save`)."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    if head.startswith(LOCAL_HEADER):
        return _zip
    if head.startswith(HDF5_MAGIC):
        return _hdf5
    if head[257:262] == b"ustar":
        return _tar
    if head[:1] == b"\x80" and 2 <= int.from_bytes(head[1:2], "big") <= 5:
        return _pickle
    if name.endswith(HOLD_STATE) and not head.strip(b"\0"):
        return _zeros
    return None


def _zeros(_file: BinaryIO, _size: int) -> None:
    raise UnsoundFileError("begins with zeros only: it was never written")


def _pickle(file: BinaryIO, size: int) -> None:
    """A file of the old `torch.save`, or one pickle, which ends with its stop code."""
    if LEGACY_MAGIC in file.read(HEAD_BYTES):
        check_legacy_torch(file, size)
        return
    if size > WALKED_BYTES:
        file.seek(size - 1)
        whole = file.read(1) == pickle.STOP
    else:
        file.seek(0)
        try:
            whole = all(operation for operation in pickletools.genops(file))
        except (ValueError, IndexError, KeyError, OverflowError, UnicodeError, MemoryError):
            whole = False
    if not whole:
        raise UnsoundFileError("is a pickle without its end: it was cut off")


def _tar(file: BinaryIO, size: int) -> None:
    file.seek(max(0, size - 1024))
    if file.read(1024).strip(b"\0"):
        raise UnsoundFileError("is a tar archive without its end: it was cut off")


def _hdf5(file: BinaryIO, size: int) -> None:
    head = file.read(64)
    place = {0: 40, 1: 44, 2: 28, 3: 28}.get(head[8] if len(head) == 64 else -1)
    if place is None:
        raise UnsoundFileError("is shorter than an HDF5 header, or of an unknown version")
    (end,) = struct.unpack_from("<Q", head, place)
    if end > size:
        raise UnsoundFileError(f"has {size} bytes where its HDF5 header says {end}: it was cut off")


def _ubjson(file: BinaryIO, size: int) -> None:
    file.seek(size - 1)
    if file.read(1) != b"}":
        raise UnsoundFileError("is UBJSON without its end: it was cut off")


def _index_of_tensors(file: BinaryIO, size: int) -> None:
    file.seek(max(0, size - len(TABLE_MAGIC)))
    if file.read() != TABLE_MAGIC:
        raise UnsoundFileError("is an index without its end: it was cut off")


def _torch(file: BinaryIO, size: int) -> None:
    """A `torch.save` file: a zip with `data.pkl`, or pickles as versions before 1.6 and plain `pickle` write them."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    if head[:1] == b"\x80" and 2 <= int.from_bytes(head[1:2], "big") <= 5:
        _pickle(file, size)
        return
    if not head.strip(b"\0"):
        _zeros(file, size)
    if not head.startswith(LOCAL_HEADER) and not _may_be_cut_zip(head):
        return  # a format of the program's own: nothing can be said
    names = [entry.name for entry in entries(whole_file(file))]
    if not any(name.endswith("data.pkl") or name.endswith(".npy") for name in names):
        raise UnsoundFileError("is a zip file without data.pkl")


def _may_be_cut_zip(head: bytes) -> bool:
    return LOCAL_HEADER.startswith(head[: len(LOCAL_HEADER)])


def _zip(file: BinaryIO, _size: int) -> None:
    if not entries(whole_file(file)):
        raise UnsoundFileError("is a zip file without members")


def _safetensors(file: BinaryIO, size: int) -> None:
    head = file.read(8)
    if len(head) < 8:
        raise UnsoundFileError("is shorter than a safetensors header")
    (length,) = struct.unpack("<Q", head)
    if length > min(HEADER_LIMIT_BYTES, size - 8):
        raise UnsoundFileError("its safetensors header lies outside of the file: it was cut off")
    header = _json_object(file.read(length), "safetensors header")
    ends = [_tensor_end(name, tensor) for name, tensor in header.items() if name != "__metadata__"]
    expected = 8 + length + max(ends, default=0)
    if expected != size:
        raise UnsoundFileError(f"has {size} bytes where its safetensors header says {expected}")


def _tensor_end(name: str, tensor: Any) -> int:
    offsets = cast("Dict[str, Any]", tensor).get("data_offsets") if isinstance(tensor, dict) else None
    if not isinstance(offsets, list) or len(cast("List[Any]", offsets)) != 2:
        raise UnsoundFileError(f"its safetensors header gives no place for {name!r}")
    end = cast("List[Any]", offsets)[1]
    if not isinstance(end, int) or end < 0:
        raise UnsoundFileError(f"its safetensors header gives no place for {name!r}")
    return end


def _npy(file: BinaryIO, size: int) -> None:
    head = file.read(10)
    if len(head) < 10 or head[:6] != b"\x93NUMPY":
        raise UnsoundFileError("does not start as an array file")
    width, start = ("<H", 10) if head[6] == 1 else ("<I", 12)
    (length,) = struct.unpack(width, (head[8:] + file.read(start - 10))[: start - 8])
    if start + length > size:
        raise UnsoundFileError("its array header lies outside of the file: it was cut off")
    try:
        described = ast.literal_eval(file.read(length).decode("latin-1").strip())
        width_bytes = int("".join(c for c in described["descr"] if c.isdigit()))
        count = 1
        for extent in described["shape"]:
            count *= int(extent)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise UnsoundFileError("its array header cannot be read") from error
    if start + length + count * width_bytes != size:
        raise UnsoundFileError(f"has {size} bytes where its array header says {start + length + count * width_bytes}")


def _json(file: BinaryIO, size: int) -> None:
    _json_object(file.read(min(size, HEADER_LIMIT_BYTES)), "JSON")


def _json_object(data: bytes, what: str) -> Dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnsoundFileError(f"its {what} cannot be read") from error
    if not isinstance(found, dict):
        raise UnsoundFileError(f"its {what} is no object")
    return cast("Dict[str, Any]", found)


NEVER_EMPTY = (".bin", ".distcp")
"""Files without a header that we know, which still must hold something."""
CHECKS: Tuple[Tuple[str, Callable[[BinaryIO, int], None]], ...] = (
    (".safetensors", _safetensors),
    (".npz", _zip),
    (".npy", _npy),
    (".json", _json),
    (".ubj", _ubjson),
    (".index", _index_of_tensors),
    (".pt", _torch),
    (".pth", _torch),
    (".ckpt", _torch),
)
"""By the end of the file's name."""
