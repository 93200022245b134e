"""Run a command or wait for a condition, and say clearly what went wrong."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence


class BedError(Exception):
    """The bed cannot go on; the message says what failed and where to look."""


def run(*command: object, stdin: str | None = None, check: bool = True) -> str:
    """What a command printed.

    Raises:
        BedError: it failed, and `check` is set.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    if check and done.returncode != 0:
        raise BedError(
            f"{' '.join(words)[:300]}: exit {done.returncode}: {(done.stderr or done.stdout).strip()[-1500:]}"
        )
    return done.stdout


def succeeds(*command: object) -> bool:
    """Whether a command ends with 0."""
    return subprocess.run([str(word) for word in command], capture_output=True, check=False).returncode == 0


def until(
    what: str,
    reached: Callable[[], bool],
    limit_s: float = 60.0,
    every_s: float = 0.05,
    expected: Sequence[type[Exception]] = (OSError, BedError),
) -> None:
    """Ask until `reached` says yes; exceptions in `expected` count as no.

    Raises:
        BedError: not within `limit_s`; names the last exception.
    """
    deadline = time.monotonic() + limit_s
    last: Exception | None = None
    while True:
        try:
            if reached():
                return
        except tuple(expected) as error:
            last = error
        if time.monotonic() > deadline:
            raise BedError(f"{what}: not within {limit_s:.0f} s" + (f" (last: {last})" if last else ""))
        time.sleep(every_s)
