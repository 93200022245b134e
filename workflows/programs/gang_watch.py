"""A member of a group reports whatever happens: what hangs at its deadline hangs no longer.

Standard library only, Python 3.9.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Callable

from workflows.programs import checkpoint_proofs


def reported(
    program: str,
    seconds: float,
    out_dir: str,
    measure: Callable[[], str],
    late: Callable[[], str],
    end: Callable[[], object],
) -> int:
    """Print and write what `measure` tells; after `seconds` what `late` tells, and then this process ends.

    Args:
        program: its name, for what it says of itself.
        seconds: until the deadline.
        out_dir: folder for the output parameter `report`; "": standard output only.
        measure: the report, once everything is known; never raises.
        late: the report as it stands.
        end: ends the processes that were started for the measurement; called once the late report is written.

    Returns:
        The exit code: 3 where the report cannot be written.
    """
    written = threading.Lock()

    def too_late() -> None:
        if written.acquire(blocking=False):
            code = _write(program, late(), out_dir)
            end()
            os._exit(code)

    watchdog = threading.Timer(seconds, too_late)
    watchdog.daemon = True
    watchdog.start()
    report = measure()
    if not written.acquire(blocking=False):
        watchdog.join()
    watchdog.cancel()
    return _write(program, report, out_dir)


def _write(program: str, report: str, out_dir: str) -> int:
    print(report, flush=True)
    if out_dir:
        try:
            os.makedirs(out_dir, exist_ok=True)
            checkpoint_proofs.write_atomically(os.path.join(out_dir, "report"), report.encode())
        except OSError as error:
            print(f"{program}: cannot write {out_dir}: {error}", file=sys.stderr)
            return 3
    return 0
