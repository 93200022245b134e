"""How a command ends: every error becomes one line and an exit code, and the whole traceback goes to the log."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import typer
from typer.exceptions import TyperException

GOOD, FAILED, WRONG_USAGE, UNKNOWN, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass
class Outcome:
    """Exit code of a command."""

    code: int = GOOD


@contextmanager
def shown() -> Generator[Outcome]:
    """Turn every error into a line on standard error and the promised exit code."""
    outcome = Outcome()
    try:
        yield outcome
    except typer.Exit as exit_:
        outcome.code = exit_.exit_code
    except (typer.Abort, KeyboardInterrupt):
        outcome.code = INTERRUPTED
    except TyperException as error:
        say(f"primus: {error.format_message()} (see primus --help)")
        outcome.code = WRONG_USAGE
    except BrokenPipeError:
        _silence_stdout()
    except SystemExit as exit_:
        if not isinstance(exit_.__context__, BrokenPipeError):
            raise
        _silence_stdout()  # typer turns it into an exit of its own
    except Exception as error:  # the edge: whatever it is, a person gets one line and the log gets the rest
        outcome.code = _explain(error)


def _explain(error: Exception) -> int:
    from profiles.errors import Conflict, NotFound, PrimusError, ProfileError, Refused, Transient

    log = _write_log(error)
    if isinstance(error, PrimusError):
        say(f"primus: {error}")
        if isinstance(error, ProfileError | Refused | Conflict | NotFound):
            return WRONG_USAGE
        return UNKNOWN if isinstance(error, Transient) else FAILED
    if isinstance(error, OSError) and error.errno in OF_THE_MACHINE:
        say(f"primus: {_of_the_machine(error)}")
        return UNKNOWN
    say(f"primus: this is a mistake of ours: {type(error).__name__}: {error}; the whole of it is in {log}")
    return UNKNOWN


OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE)
"""What a disk or the limits of a machine refuse: no mistake of ours, and these words are known."""


def _of_the_machine(error: OSError) -> str:
    from tasks.processes import FULL, unwritten

    if error.errno not in FULL:
        return f"{error.filename}: {error.strerror}" if error.filename else str(error)
    named = error.filename if isinstance(error.filename, str) else os.environ.get("PRIMUS_HOME") or "~/.primus"
    where = Path(named).expanduser()
    return unwritten(next((one for one in (where, *where.parents) if one.is_dir()), where), error)


def _write_log(error: Exception) -> Path:
    home = Path(os.environ.get("PRIMUS_HOME") or Path.home() / ".primus")
    path = home / "logs" / "primus.log"
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as log:
            log.write(f"--- {datetime.now(UTC).isoformat()} primus {' '.join(sys.argv[1:])}\n")
            log.writelines(traceback.format_exception(error))
    return path


def say(text: str) -> None:
    """One line for people, on standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def out(text: str) -> None:
    """What was asked for, on standard output."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")


def out_json(document: object) -> None:
    """One JSON document on standard output."""
    import json

    sys.stdout.write(json.dumps(document, indent=1 if sys.stdout.isatty() else None, default=str) + "\n")


def _silence_stdout() -> None:
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
