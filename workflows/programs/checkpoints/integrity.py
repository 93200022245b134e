"""Checks files against the format in their name: headers and directories only, without torch, safe on any bytes.

`probe` returns "" for a sound file or one sentence about the fault; the content of a file never makes it raise.

* Zip files by `zip_files`.
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
from typing import Any, BinaryIO, Callable, Dict, Iterator, List, Optional, Tuple, cast

from workflows.programs.checkpoints.names import HOLDS_STATE
from workflows.programs.checkpoints.zip_files import LOCAL_HEADER, UnsoundFileError, entries, whole_file

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
    if head.startswith(LOCAL_HEADER) and not name.endswith(".distcp"):  # which is one zip after the other
        return _zip
    if head.startswith(HDF5_MAGIC):
        return _hdf5
    if head[257:262] == b"ustar":
        return _tar
    if head[:1] == b"\x80" and 2 <= int.from_bytes(head[1:2], "big") <= 5:
        return _pickle
    if HOLDS_STATE.search(name) and not head.strip(b"\0"):
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
    if end != size:
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
    if size <= HEADER_LIMIT_BYTES:
        _parse_json(file.read(), "JSON")


def _json_object(data: bytes, what: str) -> Dict[str, Any]:
    found = _parse_json(data, what)
    if not isinstance(found, dict):
        raise UnsoundFileError(f"its {what} is no object")
    return cast("Dict[str, Any]", found)


def _parse_json(data: bytes, what: str) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise UnsoundFileError(f"its {what} cannot be read") from error


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
