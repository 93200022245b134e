"""The signal that a Python process answers with the stacks of all its threads: see `stacks`, which asks."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import List

SIGNAL = int(signal.SIGRTMAX) - 3
"""Nobody's; shells, Python and the libraries of GPUs use none of those near it."""
MEMORY_FILE = "primus-stacks"
_files: List[int] = []
"""The file in memory, of this process or of the one that it was forked from."""


def install() -> bool:
    """Make this process, and what it forks, answer `SIGNAL` with its stacks; False where the system cannot."""
    import faulthandler as library

    if _files:
        return True
    try:
        number = os.memfd_create(MEMORY_FILE)  # nothing on a disk, gone with the process, closed by exec
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
        library.register(SIGNAL, file=number, all_threads=True, chain=False)
    except (OSError, AttributeError, ValueError, RuntimeError):
        return False
    _files.append(number)
    return True
