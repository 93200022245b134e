"""Is a file readable as what its name says? Headers and directories only, without torch, safe on any bytes.

Every probe answers with "" for sound or with one sentence about what is wrong; none raises on what the file holds.
"""

from __future__ import annotations

import ast
import json
import os
import struct
from typing import Any, BinaryIO, Callable, Dict, List, Tuple, cast

from workflows.programs import checkpoint_legacy
from workflows.programs.checkpoint_zip import Unsound, entries, whole

HEADER_LIMIT_BYTES = 256 << 20


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
    if check is None:
        return ""
    with open(path, "rb") as file:
        try:
            check(file, size)
        except Unsound as error:
            return str(error)
    return ""


def _torch(file: BinaryIO, size: int) -> None:
    """A `torch.save` file: a zip with `data.pkl`, or several pickles as versions before 1.6 wrote it."""
    if file.read(2) == b"\x80\x02":
        checkpoint_legacy.check(file, size)
        return
    names = [entry.name for entry in entries(whole(file))]
    if not any(name.endswith("data.pkl") or name.endswith(".npy") for name in names):
        raise Unsound("is a zip file without data.pkl")


def _zip(file: BinaryIO, _size: int) -> None:
    if not entries(whole(file)):
        raise Unsound("is a zip file without members")


def _safetensors(file: BinaryIO, size: int) -> None:
    head = file.read(8)
    if len(head) < 8:
        raise Unsound("is shorter than a safetensors header")
    (length,) = struct.unpack("<Q", head)
    if length > min(HEADER_LIMIT_BYTES, size - 8):
        raise Unsound("its safetensors header lies outside of the file: it was cut off")
    header = _json_object(file.read(length), "safetensors header")
    ends = [_tensor_end(name, tensor) for name, tensor in header.items() if name != "__metadata__"]
    expected = 8 + length + max(ends, default=0)
    if expected != size:
        raise Unsound(f"has {size} bytes where its safetensors header says {expected}")


def _tensor_end(name: str, tensor: Any) -> int:
    offsets = cast("Dict[str, Any]", tensor).get("data_offsets") if isinstance(tensor, dict) else None
    if not isinstance(offsets, list) or len(cast("List[Any]", offsets)) != 2:
        raise Unsound(f"its safetensors header gives no place for {name!r}")
    end = cast("List[Any]", offsets)[1]
    if not isinstance(end, int) or end < 0:
        raise Unsound(f"its safetensors header gives no place for {name!r}")
    return end


def _npy(file: BinaryIO, size: int) -> None:
    head = file.read(10)
    if len(head) < 10 or head[:6] != b"\x93NUMPY":
        raise Unsound("does not start as an array file")
    width, start = ("<H", 10) if head[6] == 1 else ("<I", 12)
    (length,) = struct.unpack(width, (head[8:] + file.read(start - 10))[: start - 8])
    if start + length > size:
        raise Unsound("its array header lies outside of the file: it was cut off")
    try:
        described = ast.literal_eval(file.read(length).decode("latin-1").strip())
        width_bytes = int("".join(c for c in described["descr"] if c.isdigit()))
        count = 1
        for extent in described["shape"]:
            count *= int(extent)
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise Unsound("its array header cannot be read") from error
    if start + length + count * width_bytes != size:
        raise Unsound(f"has {size} bytes where its array header says {start + length + count * width_bytes}")


def _json(file: BinaryIO, size: int) -> None:
    _json_object(file.read(min(size, HEADER_LIMIT_BYTES)), "JSON")


def _json_object(data: bytes, what: str) -> Dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Unsound(f"its {what} cannot be read") from error
    if not isinstance(found, dict):
        raise Unsound(f"its {what} is no object")
    return cast("Dict[str, Any]", found)


NEVER_EMPTY = (".bin", ".distcp")
"""Files without a header that we know, which still must hold something."""
CHECKS: Tuple[Tuple[str, Callable[[BinaryIO, int], None]], ...] = (
    (".safetensors", _safetensors),
    (".npz", _zip),
    (".npy", _npy),
    (".json", _json),
    (".pt", _torch),
    (".pth", _torch),
    (".ckpt", _torch),
)
"""By the end of the file's name."""
