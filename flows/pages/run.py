"""The page of one run: `primus report RUN --html FILE`."""

from __future__ import annotations

from typing import Any

from flows.decisions.accounting.report import Curve
from flows.decisions.recovery.incarnations import began_from
from flows.decisions.views.status import note_sentences, troubles_of
from flows.pages.frame import duration, moment, money, number, plural, render, share
from flows.pages.plots import Waterfall, checkpoint_age, loss, share_by_hour, throughput, timeline, waterfall
from workflows.model.records import TOLD

Json = dict[str, Any]
HOUR = 3600.0
MOST_NODES, MOST_CHECKPOINTS = 8, 40
"""Longer lists are cut, with the number of what is left out."""


def run_page(report: Json, curve: Curve) -> str:
    """The page of a report.

    `report` is what `primus report RUN --json` prints, `curve` every step in the order of completion.
    """
    return render(
        "run.html",
        title=f"{report['run']}: report",
        report=report,
        first_numbers=_first_numbers(report),
        timeline=timeline(report),
        waterfall=_waterfall(report["totals"]),
        loss=loss(curve),
        throughput=throughput(curve),
        share_by_hour=share_by_hour(report),
        assumed=_assumed(report["advice"]),
        troubles=troubles_of(report["incidents"]),
        notes=[row for row in report["incidents"] if row["signal"] in TOLD],
        notes_in_short=note_sentences(report["incidents"]),
        attempts=[{**row, "nodes": _few(row["nodes"])} for row in report["attempts"]],
        incarnations=_incarnations(report["attempts"]),
        checkpoint_age=checkpoint_age(report),
        checkpoints=[
            {**row, "at": moment(row["at"]), "size": row["bytes"] / 1e6}
            for row in report["checkpoints"][-MOST_CHECKPOINTS:]
        ],
    )


def _first_numbers(report: Json) -> list[tuple[str, str]]:
    totals: Json = report["totals"]
    pairs = [
        ("productive", share(totals["ettr"])),
        ("productive, without queue", share(totals["ettr_without_queue"])),
        ("wall time", duration(totals["wall_seconds"])),
        ("devices", f"{totals['gpus']:,}"),
        ("attempts", str(len(report["attempts"]))),
        ("incidents", str(len(troubles_of(report["incidents"])))),
    ]
    if report["cost"]:
        pairs.append(("cost", money(report["cost"]["total"], report["cost"]["currency"])))
    return pairs


def _waterfall(totals: Json) -> Waterfall:
    long = totals["wall_seconds"] * totals["gpus"] >= HOUR
    unit = (HOUR, "device-hours") if long else (1.0, "device-seconds")
    return waterfall(totals["productive_gpu_seconds"], totals["lost"], *unit)


def _assumed(advice: Json) -> str:
    seen = f"{plural(advice['failures'], 'failure')} in {number(advice['node_days'])} node-days"
    low, high = advice["counted_mttf_hours_low"], advice["counted_mttf_hours_high"]
    between = "not known" if low is None else f"at least {duration(low * HOUR)}"
    if low is not None and high is not None:
        between = f"between {duration(low * HOUR)} and {duration(high * HOUR)}"
    text = f"Seen: {seen}; by that count alone the mean time to failure of the gang is {between} (95 %). "
    text += f"The expectation uses {duration(advice['mttf_hours'] * HOUR)}"
    if advice["restart_seconds"] is None:
        return text + "; this run has not come back from a failure yet, so nothing can be expected."
    return text + f", and {duration(advice['restart_seconds'])} for coming back, as measured."


def _incarnations(attempts: list[Json]) -> list[Json]:
    """Of attempts whose ranks began again inside their pods."""
    return [
        {**item, "attempt": row["number"], "began_at": moment(item["began_at"]), "from": began_from(item)}
        for row in attempts
        if len(row["incarnations"]) > 1
        for item in row["incarnations"]
    ]


def _few(nodes: list[str]) -> str:
    if not nodes:
        return "the scheduler's choice"
    more = len(nodes) - MOST_NODES
    return ", ".join(nodes[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")
