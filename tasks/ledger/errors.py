"""From a database's error messages to ours: what to do, and whether trying again helps. Never repeats a password."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from profiles.errors import Permanent, PrimusError, Unavailable

_WAIT = "training is left alone and the write is tried again"


@dataclass(frozen=True)
class _Rule:
    """One thing a database says."""

    pattern: str
    """Regular expression on its message, letter case ignored."""
    meaning: str
    """What it means and what to do."""
    permanent: bool = False


_RULES = (
    _Rule(r"database( table| schema)? is locked|sqlite_busy", f"another process holds it for long; {_WAIT}"),
    _Rule(r"disk is full|no space left|could not extend file", f"the disk is full: free some space; {_WAIT}"),
    _Rule(
        r"readonly database|read-only", f"it cannot be written: check the file's and folder's owner and mode; {_WAIT}"
    ),
    _Rule(r"unable to open database file", f"it cannot be opened: check that its folder exists and is ours; {_WAIT}"),
    _Rule(r"disk i/o error", f"the disk does not answer properly: look at the kernel log; {_WAIT}"),
    _Rule(
        r"file is not a database|malformed|file is encrypted",
        "the file is damaged or no ledger: put a copy back, or move it away to start a new ledger",
        permanent=True,
    ),
    _Rule(r"no such (table|column)", f"it is not the ledger it was: put the right file back; {_WAIT}"),
    _Rule(
        r"password authentication failed|no password supplied|role \"?.*\"? does not exist|no pg_hba.conf entry",
        "the server does not let us in: check user and password in PRIMUS_LEDGER_URL",
        permanent=True,
    ),
    _Rule(
        r"database \"?.*\"? does not exist",
        "the server has no such database: create it (createdb) or correct PRIMUS_LEDGER_URL",
        permanent=True,
    ),
    _Rule(
        r"permission denied",
        "the user may not do this: grant rights on the database and its schema to the user in PRIMUS_LEDGER_URL",
        permanent=True,
    ),
    _Rule(r"deadlock detected|could not serialize", "two writers met; the write is tried again"),
    _Rule(r"timeout|timed out", f"it answers too slowly; {_WAIT}"),
    _Rule(
        r"connection|server closed|terminating|starting up|shutting down|recovery mode|could not translate|not known",
        f"the server does not answer: check that it runs and can be reached; {_WAIT}",
    ),
)
_OTHERWISE = _Rule("", f"it failed in a way that has no rule; {_WAIT}")


def place_of(url: URL) -> str:
    """How messages call the ledger: the file's path, or the URL without its password."""
    if url.get_backend_name() == "sqlite":
        return f"ledger {url.database}"
    shown = url.difference_update_query([key for key in url.query if "pass" in key])
    return f"ledger {shown.render_as_string(hide_password=True)}"


def explain(message: str, url: URL) -> PrimusError:
    """The error to raise for a database's `message`: `Permanent` where a person must act, else `Unavailable`."""
    rule = next((rule for rule in _RULES if re.search(rule.pattern, message, re.IGNORECASE)), _OTHERWISE)
    text = f"{place_of(url)}: {rule.meaning} ({_without_secrets(message, url)})"
    return Permanent(text) if rule.permanent else Unavailable(text, retry_after_seconds=1.0)


@contextmanager
def translated(url: URL) -> Generator[None]:
    """Errors of the database library inside the block leave it as ours.

    Raises:
        Unavailable: locked, full, unreachable, vanished: nothing was written, try again.
        Permanent: wrong password, damaged file, missing rights.
    """
    try:
        yield
    except DBAPIError as error:
        raise explain(str(error.orig), url) from error
    except PoolTimeoutError as error:
        raise explain(f"timeout: all connections are busy ({error})", url) from error
    except OSError as error:
        raise explain(f"unable to open database file: {error}", url) from error
    except (SQLAlchemyError, sqlite3.Error) as error:
        raise explain(str(error), url) from error


def _without_secrets(message: str, url: URL) -> str:
    secrets = [str(url.password or "")]
    secrets += [value for key, value in url.query.items() if "pass" in key and isinstance(value, str)]
    for secret in filter(None, secrets):
        message = message.replace(secret, "***")
    return " ".join(message.split())[:300]
