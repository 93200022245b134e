"""`primus incidents` and `primus failover`: the incidents of all runs, and the failover flow by hand.

The newest incident stands last. `primus failover RUN` is for a run that no driver drives; a living driver diagnoses and
decides by itself.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from deployments.cli.app import AsJson, Limit, Run, Since, app
from deployments.cli.approvals import open_ledger, who
from deployments.exit_codes import GOOD, WRONG_USAGE, out, out_json, say
from deployments.processes.console import ensure_console
from deployments.processes.driver import driver_of
from deployments.screen.tables import fitted, terminal_columns
from flows.decisions.text import since_seconds, timestamp
from flows.decisions.views.approvals import headline, incident_document, row
from profiles.errors import ProfileError
from profiles.values import did_you_mean
from profiles.vocabulary import FINISHED, FaultClass
from tasks.ledger.ledger import Ledger
from tasks.prefect.server import quiet_environment
from tasks.settings import Settings
from workflows.model.runs import IncidentLine, IncidentQuery

COLUMNS = ("when", "run", "class", "culprit", "action", "took", "why")
LEFT_OUT = ("took", "action", "culprit")
"""On a narrow terminal, one after the other; `--run` and `--json` have everything."""


@app.command()
def incidents(
    run: Annotated[str, typer.Option("--run", help="Only this run, with everything that is known.")] = "",
    since: Since = "",
    fault_class: Annotated[str, typer.Option("--class", help="Only this class, e.g. node_lost.")] = "",
    open_only: Annotated[bool, typer.Option("--open", help="Only what is not over yet.")] = False,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> int:
    """What happened over all runs, the newest last: class, who is to blame, what we did, why, how long it took.

    Example: primus incidents --since 12h --open
    """
    from workflows.model.runs import IncidentQuery

    query = IncidentQuery(run=run, fault_class=fault_class, open_only=open_only, limit=limit)
    return list_incidents(query, since, as_json=as_json)


@app.command("failover")
def recover_by_hand(run: Run) -> int:
    """Diagnose and decide the open incident of a run that nobody drives; a driver that lives does that by itself.

    Exit code 0: it was decided, or there is nothing to decide; 2: a driver lives.

    Example: primus failover demo-1
    """
    # 0 where it was decided or there is nothing to decide, 2 where a driver lives.
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    story = ledger.story(run)
    driver = driver_of(run, story.lease, settings.home, time.time())
    if story.run.state in FINISHED:
        out(f"{run} has {story.run.state}: nothing is to be decided; go on with it: primus resume {run}")
        return GOOD
    if driver.alive:
        say(
            f"{run} is driven by process {driver.pid} on {driver.host}, which decides by itself; nothing was touched. "
            f"See it: primus status {run}; what waits for you: primus approvals"
        )
        return WRONG_USAGE
    incident = story.open_incident
    if incident is None:
        out(f"{run} has no open incident; nobody drives it: primus resume {run}")
        return GOOD
    ledger.act(run, "failover", f"asked to decide {incident.id}", who())
    say(f"{incident.id}: {incident.signal}: {incident.seen}")
    os.environ.update(quiet_environment(settings.home), PREFECT_API_URL=ensure_console(settings.home))
    from flows.failover import failover  # reads the environment when it is imported

    out(f"{incident.id}: {asyncio.run(failover(run))}")
    say(f"decided and written down; a driver carries it out: primus resume {run}")
    return GOOD


def list_incidents(query: IncidentQuery, since: str, *, as_json: bool) -> int:
    """Incidents of all runs, or of one with everything that is known of each.

    Raises:
        ProfileError: no such class, or a time that is none.
        NotFound: no such run.
    """
    if query.fault_class and query.fault_class not in tuple(FaultClass):
        meant = did_you_mean(query.fault_class, FaultClass, "classes")
        raise ProfileError("--class", f"{query.fault_class!r} is unknown{meant}")
    now, ledger = time.time(), open_ledger()
    if query.run and not ledger.changes(query.run):
        ledger.story(query.run)  # says that there is none
    wanted = IncidentQuery(query.run, since_seconds(since, now), query.fault_class, query.open_only, query.limit)
    lines, total = ledger.incident_lines(wanted)
    if as_json:
        out_json([incident_document(line) for line in lines])
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
    columns = fitted(rows, COLUMNS, width, giving="why", dropped=LEFT_OUT)
    return f"{columns}\n\n{headline(lines, total)}"


def details(lines: Sequence[IncidentLine]) -> str:
    """Everything that is known of each."""
    from deployments.screen.views import incident_lines

    parts: list[str] = []
    for line in lines:
        incident, found = line.incident, incident_document(line)
        said = [f"{_when(incident.detected_at)}  attempt {incident.attempt}", *incident_lines(found)]
        said += [f"  saw: {text}" for text in incident.evidence]
        others = ", ".join(f"{name} ({share:.2f})" for name, share in incident.alternatives)
        said += [f"  or: {others}"] if others else []
        said += ["  still open: no step was completed since"] if line.is_open else []
        parts.append("\n".join(said))
    return "\n\n".join(parts)


def _when(at: float) -> str:
    """The moment in UTC, to the second."""
    return (timestamp(at) or "")[:19].replace("T", " ")
