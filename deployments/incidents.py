"""`primus incidents`: what happened, over all runs, the newest last."""

from __future__ import annotations

import time
from collections.abc import Sequence

from deployments.edge import GOOD, out, out_json, say
from deployments.people import open_ledger
from deployments.tables import fitted, terminal_columns
from flows.decisions.ages import since_seconds
from flows.decisions.incident_lines import document, headline, row
from flows.decisions.spans import timestamp
from profiles.errors import ProfileError
from profiles.vocabulary import FaultClass
from workflows.overview import IncidentLine, IncidentQuery

COLUMNS = ("when", "run", "class", "culprit", "action", "took", "why")
LEFT_OUT = ("took", "action", "culprit")
"""On a narrow terminal, one after the other; `--run` and `--json` have everything."""


def list_incidents(query: IncidentQuery, since: str, *, as_json: bool) -> int:
    """Incidents of all runs, or of one with everything that is known of each.

    Raises:
        ProfileError: no such class, or a time that is none.
        NotFound: no such run.
    """
    if query.fault_class and query.fault_class not in tuple(FaultClass):
        raise ProfileError("--class", f"{query.fault_class!r} is unknown; choose one of {', '.join(FaultClass)}")
    if query.limit < 0:
        raise ProfileError("--limit", "is the number of incidents to show; 0 shows all")
    now, ledger = time.time(), open_ledger()
    if query.run and not ledger.changes(query.run):
        ledger.story(query.run)  # says that there is none
    wanted = IncidentQuery(query.run, since_seconds(since, now), query.fault_class, query.open_only, query.limit)
    lines, total = ledger.incident_lines(wanted)
    if as_json:
        out_json([document(line) for line in lines])
        if total > len(lines):
            say(f"the newest {len(lines)} of {total}; all of them: --limit 0")
    elif query.run:
        out(details(lines) if lines else f"nothing happened to {query.run}")
    else:
        out(text(lines, total, now, terminal_columns()))
    return GOOD


def text(lines: Sequence[IncidentLine], total: int, now: float, width: int) -> str:
    """One line each, in at most `width` characters (0: as wide as they are), and how many there are."""
    if not lines:
        return "no incident" if not total else headline(lines, total)
    rows = [{"when": _when(line.incident.detected_at), **row(line, now)} for line in lines]
    shown = fitted(rows, COLUMNS, width, giving="why", dropped=LEFT_OUT)
    return f"{shown}\n\n{headline(lines, total)}"


def details(lines: Sequence[IncidentLine]) -> str:
    """Everything that is known of each."""
    from deployments.views import incident_lines

    parts: list[str] = []
    for line in lines:
        incident, found = line.incident, document(line)
        said = [f"{_when(incident.detected_at)}  attempt {incident.attempt}", *incident_lines(found)]
        said += [f"  saw: {text}" for text in incident.evidence]
        others = ", ".join(f"{name} ({share:.2f})" for name, share in incident.alternatives)
        said += [f"  or: {others}"] if others else []
        said += ["  open: no step was made since"] if line.is_open else []
        parts.append("\n".join(said))
    return "\n\n".join(parts)


def _when(at: float) -> str:
    """The moment in UTC, to the second."""
    return (timestamp(at) or "")[:19].replace("T", " ")
