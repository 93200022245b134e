"""`primus report`: where every second of a run went, as text, JSON or a page with plots."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from deployments.edge import GOOD, out, out_json, say
from deployments.report_page import page
from deployments.views import incident_lines, steps_by_attempt, table
from flows.decisions.report import report_of
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

Json = dict[str, Any]


def report_document(run: str, ledger: Ledger) -> Json:
    """The document of `primus report RUN --json`."""
    story = ledger.story(run)
    gpus = Resolved.model_validate(story.run.resolved).gpus
    return report_of(story, steps_by_attempt(story, ledger), gpus, time.time())


def show_report(run: str, html: str, *, as_json: bool) -> int:
    """Print the report, or write it as a page."""
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    document = report_document(run, ledger)
    if html:
        path = Path(html)
        steps = [row for row in ledger.steps(run) if row.loss is not None]
        path.write_text(page(document, [(row.step, row.at, row.loss) for row in steps]), encoding="utf-8")
        say(f"wrote {path}")
    if as_json:
        out_json(document)
    elif not html:
        out(report_text(document))
    return GOOD


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
    attempts = [{**row, "nodes": " ".join(row["nodes"])} for row in document["attempts"]]
    columns = ("number", "outcome", "resumed_from_step", "resume_proof", "first_step", "last_step", "nodes")
    lines += ["", table(attempts, columns)]
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
