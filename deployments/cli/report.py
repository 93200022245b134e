"""`primus report`: where every second of one run or of all runs went, as text, JSON or a page with plots."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from deployments.cli.app import AsJson, ClusterName, app
from deployments.exit_codes import GOOD, out, out_json, say
from deployments.screen.tables import table
from deployments.screen.views import incident_text, steps_by_attempt
from flows.decisions.accounting.report import Curve, curve_of, report_of
from flows.decisions.recovery.incarnations import lines as incarnation_lines
from flows.decisions.text import since_seconds
from flows.pages.fleet import failures_in_words, fleet_page, in_words
from flows.pages.frame import money, number, share
from flows.pages.plots import SEEN
from flows.pages.run import run_page
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster
from tasks.ledger.ledger import Ledger
from tasks.runs.open import resolved_of
from tasks.settings import Settings, localised

Json = dict[str, Any]

BAR_CELLS = 60
MARKS = {
    "productive": "#",
    "queue": "q",
    "preflight": "p",
    "init": "i",
    "restart": "r",
    "restore": "l",
    "rollback": "x",
    "detect": "d",
    "diagnose": "?",
    "checkpoint_stall": "c",
    "straggler_loss": "s",
    "paused": "|",
}
"""One letter a state in the bar; every other state is a dot."""

FLEET_SINCE = "7d"
"""Window of all runs where none is named."""

MOST_RUNS, MOST_NODES = 20, 5


@app.command()
def report(
    run: Annotated[str, typer.Argument(help="Name of the run; empty: all runs of a cluster.")] = "",
    since: Annotated[
        str, typer.Option("--since", help="All runs since then: 2026-01-31T12:00, or 30m, 6h, 7d ago (7d).")
    ] = "",
    cluster: ClusterName = "",
    html: Annotated[str, typer.Option("--html", help="Write a page with plots to this file.")] = "",
    as_json: AsJson = False,
) -> int:
    """Where every second of a run went, or of all runs of a cluster: goodput, causes, failures, cost.

    The page holds everything it shows and can be mailed (docs/reports.md says what each number means).

    Example: primus report demo-1 --html report.html
    Example: primus report --since 7d
    """
    return show_report(ReportQuery(run, since, cluster, html), as_json=as_json)


@dataclass(frozen=True)
class ReportQuery:
    """What a person asked for."""

    run: str = ""
    """"": all runs of a cluster."""
    since: str = ""
    """For all runs: an age or a date."""
    cluster: str = ""
    html: str = ""
    """File of the page; "": none is written."""


def report_document(run: str, ledger: Ledger) -> Json:
    """The document of `primus report RUN --json`."""
    return _report(run, ledger)[0]


def _report(run: str, ledger: Ledger) -> tuple[Json, Curve]:
    story = ledger.story(run)
    steps = steps_by_attempt(story, ledger)
    resolved = resolved_of(story.run)
    return report_of(story, steps, resolved, time.time()), curve_of(steps)


def show_report(query: ReportQuery, *, as_json: bool) -> int:
    """Print the report of a run or of all, or write it as a page.

    Raises:
        NotFound: no such run.
        ProfileError: a run and a window were named at once, `--since` cannot be read, no such cluster profile, or the
            page cannot be written.
    """
    if query.run and (query.since or query.cluster):
        raise ProfileError("--since", "goes with all runs of a cluster: leave RUN out, or --since and --cluster")
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    if query.run:
        document, curve = _report(query.run, ledger)
        _show(document, lambda: run_page(document, curve), report_text, query.html, as_json=as_json)
        return GOOD
    # Here, not above: pandas takes longer to load than a report of one run.

    document = fleet_document(query.since or FLEET_SINCE, query.cluster or settings.cluster, settings.home, ledger)
    _show(document, lambda: fleet_page(document), fleet_text, query.html, as_json=as_json)
    return GOOD


def _show(document: Json, page: Callable[[], str], text: Callable[[Json], str], html: str, *, as_json: bool) -> None:
    if html:
        try:
            Path(html).write_text(page(), encoding="utf-8")
        except OSError as error:
            raise ProfileError("--html", f"cannot write {html} ({error.strerror}): name another file") from error
        say(f"wrote {html}")
    if as_json:
        out_json(document)
    elif not html:
        out(text(document))


def report_text(document: Json) -> str:
    """The report for a terminal."""
    totals: Json = document["totals"]
    lines = [f"{document['run']}: {document['state']} ({document['why']})", "", bar(document["tiles"]), ""]
    rows = [("productive", totals["productive_gpu_seconds"]), *totals["lost"].items()]
    whole = totals["wall_seconds"] * totals["gpus"] or 1.0
    lines.append(
        table(
            [
                {
                    "": MARKS.get(name, "."),
                    "state": name,
                    "gpu_seconds": round(value, 2),
                    "share": f"{value / whole:.1%}",
                }
                for name, value in rows
            ],
            ("", "state", "gpu_seconds", "share"),
        )
    )
    lines.append(
        f"{totals['wall_seconds']:.2f} s of wall time x {totals['gpus']} devices = {whole:.2f} device-seconds, "
        f"all accounted for; {totals['ettr']:.1%} productive"
    )
    if document["cost"]:
        cost: Json = document["cost"]
        lines.append(f"{cost['total']} {cost['currency']}, of which {cost['productive']} were productive")
    lines.append(document["advice"]["text"])
    attempts = [{**row, "nodes": " ".join(row["nodes"])} for row in document["attempts"]]
    columns = ("number", "outcome", "resumed_from_step", "resume_proof", "first_step", "last_step", "nodes")
    lines += ["", table(attempts, columns), *incarnation_lines(document["attempts"])]
    return "\n".join(lines + incident_text(document))


def bar(tiles: list[Json]) -> str:
    """The wall time as one line: each cell shows the state that took most of it."""
    total = sum(item["gpu_seconds"] for item in tiles)
    if not tiles or total <= 0:
        return "[]"
    cells: list[str] = []
    edges: list[tuple[float, str]] = []
    position = 0.0
    for item in tiles:
        position += item["gpu_seconds"]
        edges.append((position, item["state"]))
    for cell in range(BAR_CELLS):
        low, high = cell * total / BAR_CELLS, (cell + 1) * total / BAR_CELLS
        share: dict[str, float] = {}
        begin = 0.0
        for end, state in edges:
            share[state] = share.get(state, 0.0) + max(0.0, min(end, high) - max(begin, low))
            begin = end
        cells.append(MARKS.get(max(share, key=lambda state: share[state]), "."))
    return f"[{''.join(cells)}]"


def fleet_document(since: str, cluster: str, home: Path, ledger: Ledger) -> Json:
    """The document of `primus report --since … --json`."""
    from flows.report import account_of_all

    now = time.time()
    profile = localised(load_cluster(cluster), home)
    return account_of_all(ledger, profile, since_seconds(since, now), now, say)


def fleet_text(account: Json) -> str:
    """The account for a terminal: numbers, states, causes, nodes, the largest runs."""
    lines = [f"{account['cluster']} since {account['since']}"]
    if not account["run_count"]:
        return f"{lines[0]}: no run lived in this time"
    lines += [in_words(account), failures_in_words(account["failures"])]
    lines += [
        f"cost: {money(item['used'], item['currency'])}, of which {money(item['lost'])} trained nothing"
        for item in account["cost"]
    ]
    whole = sum(account["states"].values()) or 1.0
    states = [
        {"state": name, "gpu_hours": number(hours), "share": share(hours / whole)}
        for name, hours in account["states"].items()
        if hours > whole * SEEN
    ]
    lines += ["", table(states, ("state", "gpu_hours", "share"))]
    causes = [
        {**row, "lost_gpu_hours": number(row["lost_gpu_hours"]), "share": share(row["share"])}
        for row in account["causes"]
    ]
    if causes:
        lines += ["", table(causes, ("class", "count", "lost_gpu_hours", "share"))]
    if account["nodes"]:
        worst = [{**row, "classes": " ".join(row["classes"])} for row in account["nodes"][:MOST_NODES]]
        lines += ["", table(worst, ("node", "count", "classes", "last_at"))]
    return "\n".join([*lines, "", _runs(account["runs"])])


def _runs(runs: list[Json]) -> str:
    rows = [{**row, "gpu_hours": number(row["gpu_hours"]), "ettr": share(row["ettr"])} for row in runs[:MOST_RUNS]]
    text = table(rows, ("run", "state", "gpus", "gpu_hours", "ettr", "incidents", "cost"))
    left = len(runs) - len(rows)
    return f"{text}\n{left} more runs: --json or --html" if left > 0 else text
