"""`primus runs`: every run a line, read in one query."""

from __future__ import annotations

import time

from deployments.edge import GOOD, out, out_json
from deployments.people import open_ledger, tell_pause
from deployments.tables import fitted, terminal_columns, terminal_lines
from flows.decisions.ages import since_seconds
from flows.decisions.run_lines import document, headline, row
from profiles.errors import ProfileError
from profiles.vocabulary import RunState

COLUMNS = ("run", "state", "profile", "cluster", "age", "step", "attempts", "why")
LEFT_OUT = ("cluster", "profile", "age", "attempts")
FURNITURE_LINES = 4
"""Of a screen: headings, a blank line, the number of runs, the prompt."""


def list_runs(states: str, since: str, limit: int | None, *, as_json: bool) -> int:
    """Runs, the newest last; at a terminal as many as it holds, else all.

    Raises:
        ProfileError: no such state, or a time that is none.
        Unavailable: the ledger does not answer.
    """
    wanted = _states(states)
    if limit is not None and limit < 0:
        raise ProfileError("--limit", "is the number of runs to show; 0 shows all")
    now, screen = time.time(), 0 if as_json else max(0, terminal_lines() - FURNITURE_LINES)
    most = screen if limit is None else limit
    ledger = open_ledger()
    lines = ledger.run_lines(wanted, since_seconds(since, now), most + 1 if most else 0)
    older = max(0, len(lines) - most) if most else 0
    lines = lines[older:]
    if as_json:
        out_json([document(line) for line in lines])
    elif not lines:
        out("no runs yet" if not (states or since) else "no such run")
    else:
        rows = [row(line, now) for line in lines]
        out(fitted(rows, COLUMNS, terminal_columns(), giving="why", dropped=LEFT_OUT))
        out("\n" + headline(lines, more=bool(older)))
        tell_pause(ledger)
    return GOOD


def _states(text: str) -> tuple[RunState, ...]:
    words = [word for word in text.split(",") if word]
    for word in words:
        if word not in tuple(RunState):
            raise ProfileError("--state", f"{word!r} is unknown; choose one of {', '.join(RunState)}")
    return tuple(RunState(word) for word in words)
