"""The command line and the environment that `/proc` shows of a process, where it was forked and not executed.

People, `ps` and tools that look for a rank by its `RANK` read them there.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from typing import List, Mapping, Sequence

PR_SET_MM = 35
PR_SET_MM_MAP = 14
_NO_FILE = 0xFFFFFFFF
_FIELDS = (26, 27, 45, 46, 47)
"""Of `/proc/self/stat`: start and end of the code, start and end of the data, start of the heap."""
_START_OF_STACK = 28
_kept: List[mmap.mmap] = []
"""The kernel reads from there as long as the process lives."""


def show(argv: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Show these; False where the kernel does not let a process say so (`CONFIG_CHECKPOINT_RESTORE`): the old stay."""
    words = b"".join(os.fsencode(word) + b"\0" for word in argv)
    pairs = b"".join(os.fsencode(f"{name}={text}") + b"\0" for name, text in environment.items())
    # Private: the kernel reads arguments from no other kind of memory.
    area = mmap.mmap(-1, len(words) + len(pairs) + 1, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.write(words + pairs)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(area))
    library = ctypes.CDLL(None)
    library.sbrk.restype = ctypes.c_void_p
    library.sbrk.argtypes = [ctypes.c_long]
    with open("/proc/self/stat", "rb") as file:
        stat = file.read().rpartition(b")")[2].split()
    places = [*(int(stat[number - 3]) for number in _FIELDS), int(library.sbrk(0) or 0), int(stat[_START_OF_STACK - 3])]
    ends = [begin, begin + len(words), begin + len(words), begin + len(words) + len(pairs)]
    told = struct.pack("=12QII", *places, *ends, 0, 0, _NO_FILE)  # as struct prctl_mm_map of linux/prctl.h
    if library.prctl(PR_SET_MM, PR_SET_MM_MAP, ctypes.c_char_p(told), ctypes.c_ulong(len(told)), 0) != 0:
        return False
    _kept.append(area)
    return True
