"""What people say to runs: answers, pauses; and the raw history."""

from __future__ import annotations

import getpass
import os
import re
import time
from dataclasses import asdict
from datetime import UTC, datetime

from deployments.edge import GOOD, out, out_json, say
from deployments.views import table
from flows.decisions.status import timestamp
from profiles.errors import ProfileError
from tasks.ledger import Ledger
from tasks.settings import Settings


def _ledger() -> Ledger:
    return Ledger(Settings.from_environment(os.environ).ledger_url)


def list_approvals(*, as_json: bool) -> int:
    """Open questions."""
    waiting = _ledger().approvals(waiting_only=True)
    rows = [
        {"id": item.id, "run": item.run, "question": item.question, "expires_at": timestamp(item.expires_at)}
        for item in waiting
    ]
    if as_json:
        out_json(rows)
    else:
        out(table(rows, ("id", "run", "question", "expires_at")) if rows else "nothing waits for a person")
    return GOOD


def answer(approval: str, why: str, *, approved: bool) -> int:
    """Answer a question, once."""
    if not why:
        raise ProfileError("--why", "say why in a few words; it stands beside the decision for ever")
    given = _ledger().answer(approval, approved, getpass.getuser(), why, time.time())
    say(f"{given.id}: {given.state}")
    return GOOD


def set_pause(run: str, why: str, *, everything: bool, paused: bool) -> int:
    """Stop or allow automatic actions of a run, or of all."""
    if everything == bool(run):
        raise ProfileError("RUN", "name one run, or say --all")
    ledger, target = _ledger(), None if everything else run
    if target is not None:
        ledger.story(target)
    if paused:
        ledger.pause(target, why or "a person paused it")
    else:
        ledger.unpause(target, why or "a person allowed it again")
    subject = run or "every run"
    say(f"{subject}: automatic actions are {'halted; training goes on' if paused else 'allowed again'}")
    return GOOD


_AGO = re.compile(r"^(\d+(?:\.\d+)?)([smhd])$")
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def since_seconds(text: str, now: float) -> float:
    """Unix seconds of `30m` (ago) or an ISO date and time (UTC unless it says otherwise); 0 for "".

    Raises:
        ProfileError: neither of them.
    """
    if not text:
        return 0.0
    ago = _AGO.match(text)
    if ago:
        return now - float(ago.group(1)) * _UNIT_SECONDS[ago.group(2)]
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ProfileError("--since", f"{text!r} is neither an age like 30m, 6h, 7d nor a date and time") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def show_ledger(run: str, since: str, *, as_json: bool) -> int:
    """The history, oldest first."""
    ledger = _ledger()
    if run:
        ledger.story(run)
    lines = [asdict(line) for line in ledger.history(run or None, since_seconds(since, time.time()))]
    for line in lines:
        line["at"] = timestamp(line["at"])
    if as_json:
        out_json(lines)
    else:
        for line in lines:
            out("  ".join(str(line[key]) for key in ("at", "run", "kind", "subject", "why") if line.get(key)))
    return GOOD
