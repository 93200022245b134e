"""Files that `torch.save` wrote before version 1.6: five pickles, then the tensors' bytes, without any directory.

The pickles are only listed. They say how many numbers of which width follow, so a cut is seen; a flipped byte is not.
"""

from __future__ import annotations

import os
import pickletools
import struct
from typing import Any, BinaryIO, Dict, Iterator, List, Tuple

from workflows.programs.checkpoint_zip import Unsound

PICKLES = 5
"""Magic number, protocol, system, the object, and the keys of the storages that follow."""
WIDTHS = {
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


def check(file: BinaryIO, size: int) -> None:
    """Walk over the whole file.

    Raises:
        Unsound: cut off, or not such a file.
    """
    file.seek(0)
    try:
        pickles = [list(pickletools.genops(file)) for _ in range(PICKLES)]
    except (ValueError, IndexError, KeyError, OverflowError, UnicodeError, MemoryError) as error:
        raise Unsound(f"is not a whole torch file of the old kind: {error}") from error
    widths = dict(_storages(pickles[3]))
    keys = [str(argument) for operation, argument, _ in pickles[4] if "UNICODE" in operation.name]
    for key in keys:
        head = file.read(8)
        if len(head) < 8:
            raise Unsound("ends before its tensors: it was cut off")
        (count,) = struct.unpack("<q", head)
        if count < 0 or file.tell() + count * widths.get(key, 1) > size:
            raise Unsound(f"ends inside of its tensor {key}: it was cut off")
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
        if name in WIDTHS:
            width = WIDTHS[name]
        elif width:
            yield top, width
            width = 0
