"""The signal that a Python process answers with the stacks of all its threads: see `stacks.collect`, which asks."""

from __future__ import annotations

import fcntl
import os

SIGNAL = 61
"""Linux's SIGRTMAX - 3: nobody's; shells, Python and the libraries of GPUs use none of those near it. A number, since
the module that has the name takes longer to import than all that is done here."""
MEMORY_FILE = "primus-stacks"


def install() -> bool:
    """Make this process, and what it forks, answer `SIGNAL` with its stacks; False where the system cannot."""
    import faulthandler as library

    try:
        if _installed():
            return True
        number = os.memfd_create(MEMORY_FILE)  # nothing on a disk, gone with the process, closed by exec
        fcntl.fcntl(number, fcntl.F_SETFL, fcntl.fcntl(number, fcntl.F_GETFL) | os.O_APPEND)
        library.register(SIGNAL, file=number, all_threads=True, chain=False)
    except (OSError, AttributeError, ValueError, RuntimeError):
        return False
    return True


def _installed() -> bool:
    """By this process, whoever of it asked (Python's start, the program), or by the one that it was forked from."""
    for number in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{number}").startswith(f"/memfd:{MEMORY_FILE}"):
                return True
        except OSError:
            continue  # the listing itself, closed by now
    return False
