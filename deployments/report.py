"""`primus report`: where every second of a run went, as text, JSON or a page with plots."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deployments.edge import GOOD, out, out_json, say
from deployments.views import incident_lines, steps_by_attempt, table
from flows.decisions.incarnations import lines as incarnation_lines
from flows.decisions.report import Curve, curve_of, report_of
from flows.pages.fleet_page import fleet_page
from flows.pages.run_page import run_page
from profiles.errors import ProfileError
from profiles.resolve import Resolved
from tasks.ledger import Ledger
from tasks.settings import Settings

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

Json = dict[str, Any]


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
    resolved = Resolved.model_validate(story.run.resolved)
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
    from deployments.report_fleet import fleet_document, fleet_text

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
    for incident in document["incidents"]:
        lines += ["", *incident_lines(incident)]
    return "\n".join(lines)


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
