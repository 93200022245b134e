"""The page of one run: `primus report RUN --html FILE`."""

from __future__ import annotations

from html import escape
from typing import Any

from flows.decisions.accounting.report import Curve
from flows.decisions.recovery.incarnations import began_from
from flows.decisions.text import blame
from flows.pages.frame import (
    TableColumn,
    document,
    duration,
    facts,
    moment,
    money,
    number,
    plural,
    section,
    sentence,
    share,
    table,
)
from flows.pages.plots import checkpoint_age, loss, share_by_hour, throughput, timeline, waterfall

Json = dict[str, Any]
HOUR = 3600.0
_ATTEMPTS = (
    TableColumn("number", "no.", number=True),
    TableColumn("outcome", "outcome"),
    TableColumn("nodes", "nodes", long=True),
    TableColumn("resumed_from_step", "resumed from", number=True),
    TableColumn("resume_proof", "proof"),
    TableColumn("first_step", "first step", number=True),
    TableColumn("last_step", "last step", number=True),
    TableColumn("restarts_in_place", "restarts in place", number=True),
    TableColumn("why", "why it exists", long=True),
)
_INCARNATIONS = (
    TableColumn("attempt", "attempt", number=True),
    TableColumn("number", "no.", number=True),
    TableColumn("began_at", "began"),
    TableColumn("from", "went on"),
    TableColumn("first_step", "first step", number=True),
    TableColumn("last_step", "last step", number=True),
    TableColumn("why", "why it began", long=True),
)
_CHECKPOINTS = (
    TableColumn("step", "step", number=True),
    TableColumn("at", "looked at"),
    TableColumn("tier", "tier"),
    TableColumn("verdict", "verdict"),
    TableColumn("size", "MB", number=True),
    TableColumn("why", "why", long=True),
)
MOST_NODES, MOST_CHECKPOINTS = 8, 40
"""Longer lists are cut, with the number of what is left out."""


def run_page(report: Json, curve: Curve) -> str:
    """The page of a report.

    `report` is what `primus report RUN --json` prints, `curve` every step in the order of completion.
    """
    name = report["run"]
    body = [
        f"<h1>{escape(name)}: {escape(report['state'])}</h1>",
        sentence(report["why"], muted=True),
        facts(_first_numbers(report)),
        section("Where the time went", timeline(report), _waterfall(report["totals"])),
        section("Loss", loss(curve)),
        section("Throughput", throughput(curve)),
        section("Productive share", _expectation(report), share_by_hour(report)),
        section("Incidents", _incidents(report["incidents"])),
        section("Attempts", _attempts(report["attempts"])),
        section("Checkpoints", sentence(report["advice"]["text"]), checkpoint_age(report), _checkpoints(report)),
        section("Cost", _cost(report["cost"])),
    ]
    return document(f"{name}: report", body)


def _first_numbers(report: Json) -> list[tuple[str, str]]:
    totals: Json = report["totals"]
    pairs = [
        ("productive", share(totals["ettr"])),
        ("productive, without queue", share(totals["ettr_without_queue"])),
        ("wall time", duration(totals["wall_seconds"])),
        ("devices", f"{totals['gpus']:,}"),
        ("attempts", str(len(report["attempts"]))),
        ("incidents", str(len(report["incidents"]))),
    ]
    if report["cost"]:
        pairs.append(("cost", money(report["cost"]["total"], report["cost"]["currency"])))
    return pairs


def _waterfall(totals: Json) -> str:
    long = totals["wall_seconds"] * totals["gpus"] >= HOUR
    unit = (HOUR, "device-hours") if long else (1.0, "device-seconds")
    return waterfall(totals["productive_gpu_seconds"], totals["lost"], *unit)


def _expectation(report: Json) -> str:
    """What was measured beside what could be expected."""
    advice, totals = report["advice"], report["totals"]
    rows = [
        {"what": "measured, since submission", "share": share(totals["ettr"])},
        {"what": "measured, without queue", "share": share(totals["ettr_without_queue"])},
        {"what": "expected at the present interval (closed form)", "share": share(advice["expected_ettr"])},
        {"what": "expected at the present interval (simulated)", "share": share(advice["simulated_ettr"])},
        {"what": "expected at the best interval (closed form)", "share": share(advice["best_ettr"])},
    ]
    made = table(
        "Measured and expected", (TableColumn("what", "what"), TableColumn("share", "share", number=True)), rows
    )
    return made + sentence(_assumed(advice), muted=True)


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


def _attempts(attempts: list[Json]) -> str:
    if not attempts:
        return sentence("There was no attempt yet.")
    return table(
        "In order; nodes of the role that decides",
        _ATTEMPTS,
        [{**row, "nodes": _few(row["nodes"])} for row in attempts],
    ) + _incarnations(attempts)


def _incarnations(attempts: list[Json]) -> str:
    """Of attempts whose ranks began again inside their pods."""
    several = [row for row in attempts if len(row["incarnations"]) > 1]
    rows = [
        {**item, "attempt": row["number"], "began_at": moment(item["began_at"]), "from": began_from(item)}
        for row in several
        for item in row["incarnations"]
    ]
    return table("Ranks that began again inside their pods", _INCARNATIONS, rows) if rows else ""


def _few(nodes: list[str]) -> str:
    if not nodes:
        return "the scheduler's choice"
    more = len(nodes) - MOST_NODES
    return ", ".join(nodes[:MOST_NODES]) + (f" and {more} more" if more > 0 else "")


def _checkpoints(report: Json) -> str:
    found = report["checkpoints"]
    if not found:
        return sentence("No checkpoint was looked at yet.")
    rows = [{**row, "at": moment(row["at"]), "size": row["bytes"] / 1e6} for row in found[-MOST_CHECKPOINTS:]]
    left = len(found) - len(rows)
    said = sentence(f"{left} older ones are not shown.", muted=True) if left > 0 else ""
    return table("The newest last", _CHECKPOINTS, rows) + said


def _incidents(incidents: list[Json]) -> str:
    return "".join(_incident(item) for item in incidents) or sentence("Nothing went wrong.")


def _incident(item: Json) -> str:
    blamed = ", ".join(blame(culprit) for culprit in item["culprits"]) or "nobody"
    pairs = [
        ("when", f"{moment(item['at'])}, noticed after {duration(item['detected_after_seconds'])}"),
        ("seen as", item["signal"]),
        ("blamed", blamed),
        ("action", f"{item['action'] or 'not decided'}: {item['why']}" if item["why"] else item["action"] or "-"),
        ("otherwise", item["would_change"]),
        ("first step again", duration(item["resumed_after_seconds"])),
        ("over", moment(item["over_at"]) if item["over_at"] else ""),
        ("restart budget", "charged" if item["charged"] else "not charged"),
    ]
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs if text)
    lines = "\n".join(item["evidence"])
    evidence = f"<pre>{escape(lines)}</pre>" if lines else sentence("No evidence was kept.", muted=True)
    title = f"{item['class'] or 'not diagnosed'} ({item['confidence']:.2f}), attempt {item['attempt']}"
    if item["step"] is not None:
        title += f", step {item['step']}"
    title += f": {item['action'] or 'not decided'}"
    return f"<details><summary>{escape(title)}</summary><dl>{rows}</dl>{evidence}</details>"


def _cost(cost: Json | None) -> str:
    if cost is None:
        return sentence("The pool has no price: give it price_per_gpu_hour in the cluster profile to see the cost.")
    currency = cost["currency"]
    rows = [
        {"what": "held by its gangs", "cost": money(cost["total"])},
        {"what": "productive", "cost": money(cost["productive"])},
        {"what": "lost", "cost": money(cost["lost"])},
    ]
    columns = (TableColumn("what", "what"), TableColumn("cost", currency, number=True))
    return table(f"At {number(cost['price_per_gpu_hour'])} {currency} a device and hour", columns, rows)
