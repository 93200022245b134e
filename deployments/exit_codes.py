"""How a command ends and what it says: every error becomes one line and an exit code, its traceback goes to the log.

What is said goes through `out`, `out_json`, `write` and `say`, which let nothing of others' texts reach a terminal that
it would obey, and no encoding, full disk or closed descriptor change how the command ends.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import select
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import typer
from typer.exceptions import TyperException

from workflows.programs.runtime.text import visible, with_colours_ended

GOOD, FAILED, WRONG_USAGE, UNKNOWN, INTERRUPTED = 0, 1, 2, 3, 130
SPELT_OUT = "primus-spelt-out"
_SIGNS = dict(zip("✔✖⚠●◷○│├└─\ufffd", "+x!*~o||`-?", strict=True)) | {"…": "...", "→": "->"}
"""Our own signs for terminals that know ASCII alone; other characters are written as `\\uNNNN`."""


@dataclass
class Outcome:
    """How a command ended."""

    code: int = GOOD
    acts: bool = False
    """Whether it does something: its exit code then tells how that ended, also where nobody could read what it said."""
    goes_on: str = ""
    """What goes on where it is interrupted now, and how to stop that."""
    lost: OSError | None = None
    """Why standard output could not be written."""


class _OutputLostError(Exception):
    """Whoever was to read it is gone, or there is no room: a command that only reads has nothing left to do."""


_running = Outcome()


@contextmanager
def shown() -> Generator[Outcome]:
    """Turn every error into a line on standard error and the promised exit code."""
    global _running  # noqa: PLW0603 - a process runs one command
    outcome = _running = Outcome()
    try:
        yield outcome
    except typer.Exit as exit_:
        outcome.code = exit_.exit_code  # typer makes one of Ctrl-C
    except (typer.Abort, KeyboardInterrupt):
        outcome.code = INTERRUPTED
    except TyperException as error:
        say(f"primus: {error.format_message()} (see primus --help)")
        outcome.code = WRONG_USAGE
    except _OutputLostError:
        pass
    except Exception as error:  # the edge: whatever it is, a person gets one line and the log gets the rest
        outcome.code = _explain(error)
    if outcome.code == INTERRUPTED and outcome.goes_on:
        say(f"\n{outcome.goes_on}")
    _end_output(outcome)


def _end_output(outcome: Outcome) -> None:
    """Where standard output was lost, it is said, and a command that only reads has not found out.

    A reader that has gone, such as `head`, had what it wanted.
    """
    sys.stdout.flush()
    if outcome.lost is None or outcome.lost.errno == errno.EPIPE:
        return
    say(f"primus: standard output cannot be written ({outcome.lost.strerror}): what stands there is not whole")
    if not outcome.acts and outcome.code == GOOD:
        outcome.code = UNKNOWN


def _explain(error: Exception) -> int:
    from profiles.errors import Conflict, NotFound, PrimusError, ProfileError, Refused, Transient

    log = _write_log(error)
    if "pydantic" in sys.modules:
        from profiles.loading.validation import complained

        error = complained(error)
    if isinstance(error, PrimusError):
        say(f"primus: {error}")
        if isinstance(error, ProfileError | Refused | Conflict | NotFound):
            return WRONG_USAGE
        return UNKNOWN if isinstance(error, Transient) else FAILED
    if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
        say(f"primus: {_of_the_machine(error)}")
        return UNKNOWN
    whole = f"the whole of it is in {log}" if log else f"the whole of it:\n{_trace(error)}"
    say(f"primus: this is a mistake of ours: {type(error).__name__}: {error}; {whole}")
    return UNKNOWN


OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE)
"""What a disk or the limits of a machine refuse: no mistake of ours, and these words are known."""


def _of_the_machine(error: OSError) -> str:
    from tasks.processes import FULL, unwritten

    if error.errno not in FULL:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    named = error.filename if isinstance(error.filename, str) else os.environ.get("PRIMUS_HOME") or "~/.primus"
    where = Path(os.path.expanduser(named))
    return unwritten(next((one for one in (where, *where.parents) if one.is_dir()), where), error)


def _write_log(error: Exception) -> Path | None:
    """Append the traceback to the home's log; None where that cannot be, for whatever reason."""
    try:
        home = Path(os.environ.get("PRIMUS_HOME") or Path(os.environ["HOME"]) / ".primus").expanduser()
        path = home / "logs" / "primus.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8", errors="backslashreplace") as log:
            log.write(f"--- {datetime.now(UTC).isoformat()} primus {' '.join(sys.argv[1:])}\n{_trace(error)}")
    except Exception:  # a second error must never hide the first
        return None
    return path


def _trace(error: Exception) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception:  # of an error that cannot be printed
        return f"{type(error).__name__}\n"


def hold_streams() -> None:
    """Make the three standard streams what every command may use; called before anything is opened.

    A closed descriptor would be given to the next file that is opened, the ledger for one, and what is printed would be
    written into it: so each is taken by one that can be neither read nor written.
    """
    for number, flags in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_RDONLY)):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, flags)
    codecs.register_error(SPELT_OUT, _spelt_out)
    if sys.stdin is sys.__stdin__ is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - until the end
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Stream(1, "w", closefd=False), sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Stream(2, "w", closefd=False), sys.stderr)


class _Stream(io.FileIO):
    """A descriptor to which writing never fails, whoever writes: that it was lost is known for standard output."""

    def write(self, data: Any, /) -> int:
        """Write some of the bytes; returns how many were taken."""
        try:
            while (taken := super().write(data)) is None:
                select.select((), (self,), ())  # somebody else has made it one that does not wait
        except OSError as error:
            if self.fileno() == 1:
                _running.lost = _running.lost or error
            return len(data)
        return taken


def _text(stream: _Stream, before: TextIO | None) -> TextIO:
    encoding = "utf-8" if before is None else before.encoding
    lines = stream.fileno() == 2 or stream.isatty()
    return io.TextIOWrapper(io.BufferedWriter(stream), encoding, SPELT_OUT, line_buffering=lines)


def _spelt_out(error: UnicodeError) -> tuple[str, int]:
    """Our signs in ASCII, other characters by their numbers: what is said is never lost for an encoding."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    told = "".join(_SIGNS.get(sign) or sign.encode("ascii", "backslashreplace").decode() for sign in _part(error))
    return told, error.end


def _part(error: UnicodeEncodeError) -> str:
    return error.object[error.start : error.end]


def goes_on(text: str) -> str:
    """Whoever presses Ctrl-C from now on is told this: what goes on, and how to see and to stop it; returns the old."""
    before, _running.goes_on = _running.goes_on, text
    return before


def say(text: str) -> None:
    """One line for people, on standard error; where nobody can read it, nothing else changes."""
    with suppress(OSError, ValueError):
        sys.stderr.write(_safe(text) + "\n")
        sys.stderr.flush()


def out(text: str) -> None:
    """What was asked for, on standard output."""
    text = _safe(text)
    write(text if text.endswith("\n") else text + "\n")


def out_json(document: object) -> None:
    """One JSON document on standard output."""
    import json

    write(json.dumps(document, indent=1 if sys.stdout.isatty() else None, default=str) + "\n")


def write(text: str) -> None:
    """Text of our own making on standard output, as it is; a command that only reads ends where it is lost."""
    if _running.lost is None:
        sys.stdout.write(text)
    if _running.lost is not None and not _running.acts:
        raise _OutputLostError


def _safe(text: str) -> str:
    text = visible(text)
    return "\n".join(map(with_colours_ended, text.split("\n"))) if "\x1b" in text else text
