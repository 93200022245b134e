"""What a driver does that was forked from a warm process: be as a freshly started one, drive, and end."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn


def end_with(drive: Callable[[], int]) -> NoReturn:
    """Drive in a session of its own and end this process with what comes of it, without unwinding into who forked it.

    Args:
        drive: the work; its result is the exit code, 1 where it raises.
    """
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        code = drive()
    except BaseException:
        traceback.print_exc()
    finally:
        # Not sys.exit: that would unwind into the loop that forked it.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
