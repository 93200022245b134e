"""The page of all runs of a cluster (`primus report --since 7d --html FILE`), and the artifact that points to it.

The artifact stands on the Prefect server, with the main numbers and the place of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from flows.pages.frame import (
    PLOT_HEIGHT,
    PLOT_WIDTH,
    Html,
    TableColumn,
    at,
    document,
    duration,
    facts,
    moment,
    money,
    number,
    plot,
    plural,
    section,
    sentence,
    share,
    table,
)
from flows.pages.plots import waterfall
from workflows.model.events import Sheet

Json = dict[str, Any]
MOST_RUNS, MOST_NODES = 50, 20
"""Longer lists are cut, with the number of what is left out; --json has them all."""
HOUR, DAY = 3600.0, 86400.0
_CAUSES = (
    TableColumn("class", "class"),
    TableColumn("count", "incidents", number=True),
    TableColumn("lost_gpu_hours", "lost GPU-hours", number=True),
    TableColumn("share", "share of loss", number=True),
    TableColumn("bar", ""),
)
_NODES = (
    TableColumn("node", "node"),
    TableColumn("count", "blamed", number=True),
    TableColumn("classes", "for", long=True),
    TableColumn("last_at", "last"),
)
_RUNS = (
    TableColumn("run", "run"),
    TableColumn("state", "state"),
    TableColumn("gpus", "GPUs", number=True),
    TableColumn("gpu_hours", "GPU-hours", number=True),
    TableColumn("ettr", "productive", number=True),
    TableColumn("ettr_without_queue", "without queue", number=True),
    TableColumn("incidents", "incidents", number=True),
    TableColumn("cost", "cost", number=True),
)

KEY = "fleet-report"
MOST_CAUSES, MOST_RUNS_OF_SHEET = 5, 10


def fleet_page(account: Json) -> str:
    """The page of an account. `account` is what `primus report --since … --json` prints."""
    name = account["cluster"] or "all clusters"
    title = f"{name}: {moment(account['since'])[:10]} to {moment(account['until'])[:10]}"
    if not account["run_count"]:
        return document(title, [f"<h1>{escape(title)}</h1>", sentence("No run lived in this time.")])
    lost = {state: hours for state, hours in account["states"].items() if state != "productive"}
    body = [
        f"<h1>{escape(title)}</h1>",
        sentence(in_words(account)),
        facts(_first_numbers(account)),
        section("Where the time went", waterfall(account["states"].get("productive", 0.0), lost, 1.0, "GPU-hours")),
        section("Causes", _causes(account["causes"])),
        section("Failures", sentence(failures_in_words(account["failures"])), _by_day(account)),
        section("Nodes that were blamed", _nodes(account["nodes"])),
        section("Runs", _runs(account["runs"])),
        section("Cost", _cost(account["cost"])),
    ]
    return document(title, body)


def in_words(account: Json) -> str:
    """The main numbers in one sentence."""
    goodput, count = account["goodput"], account["run_count"]
    said = f"{plural(count, 'run')} used {number(goodput['used_gpu_hours'])} GPU-hours"
    if goodput["of_capacity"] is not None:
        said += f" of {number(goodput['capacity_gpu_hours'])}"
    said += f"; {share(goodput['of_used'])} of what was used was productive"
    if goodput["of_capacity"] is not None:
        said += f", {share(goodput['of_capacity'])} of what there is"
    top = account["causes"][0] if account["causes"] else None
    if top and top["lost_gpu_hours"] > 0:
        said += f"; {top['class']} cost most, {number(top['lost_gpu_hours'])} GPU-hours"
    return f"{said}."


def failures_in_words(failures: Json) -> str:
    """How often nodes fail, with the interval that so many failures allow to state."""
    if not failures["node_days"]:
        return "No gang held a node in this time."
    said = f"{plural(failures['count'], 'failure')} in {number(failures['node_days'])} node-days"
    low, high = failures["node_mttf_hours_low"], failures["node_mttf_hours_high"]
    if failures["node_mttf_hours"] is None:
        return f"{said}: the mean time to failure of a node is at least {duration(low * HOUR)} (95 %)."
    between = f"between {duration(low * HOUR)} and {duration(high * HOUR)} (95 %)"
    said = f"{said}: a node fails every {duration(failures['node_mttf_hours'] * HOUR)}, {between}."
    if failures["spares_for_a_day"] is None:
        return said
    return f"{said} {failures['spares_for_a_day']} spares cover a day of {failures['nodes']} nodes in 99 % of all days."


def _first_numbers(account: Json) -> list[tuple[str, str]]:
    goodput, failures = account["goodput"], account["failures"]
    pairs = [
        ("goodput of used GPUs", share(goodput["of_used"])),
        ("goodput of the cluster", share(goodput["of_capacity"])),
        ("productive since submission", share(goodput["ettr"])),
        ("idle GPUs", share(goodput["idle_share"])),
        ("runs", f"{account['run_count']:,}"),
        ("failures", f"{failures['count']:,}"),
    ]
    pairs += [("cost", money(item["used"], item["currency"])) for item in account["cost"]]
    return [(name, "not known" if text == "-" else text) for name, text in pairs]


def _causes(causes: Sequence[Json]) -> str:
    if not causes:
        return sentence("Nothing went wrong.")
    rows = [{**row, "share": share(row["share"]), "bar": _bar(row["share"])} for row in causes]
    return table("What cost GPU-hours, the dearest first", _CAUSES, rows)


def _bar(part: float) -> Html:
    width = max(1.5, part * PLOT_WIDTH)
    return Html(
        f'<div class=bar><svg aria-hidden=true focusable=false viewBox="0 0 {PLOT_WIDTH:g} 14" '
        f'preserveAspectRatio=none><rect width="{width:.1f}" height="14" fill="#0072b2"/></svg></div>'
    )


def _by_day(account: Json) -> str:
    """Failures of each day as bars."""
    days: list[Json] = account["incidents_by_day"]
    if not days:
        return sentence("There was no failure to draw.")
    first = at(account["since"]) // DAY
    count = max(1, round(at(account["until"]) // DAY - first) + 1)
    sums = {item["day"]: sum(item["classes"].values()) for item in days}
    most, width = max(sums.values()), PLOT_WIDTH / count
    rects = "".join(
        f'<rect x="{(at(day + "T00:00:00Z") // DAY - first) * width:.2f}" y="{PLOT_HEIGHT * (1 - value / most):.1f}" '
        f'width="{max(0.5, width * 0.85):.2f}" height="{PLOT_HEIGHT * value / most:.1f}" fill="#d55e00">'
        f"<title>{day}: {value}</title></rect>"
        for day, value in sums.items()
    )
    worst = max(sums, key=lambda day: sums[day])
    label = f"Failures of each day: {sum(sums.values())} on {len(sums)} of {count} days, most on {worst} ({most})"
    return plot(label, rects, (str(most), "0"), (account["since"][:10], account["until"][:10])) + sentence(label + ".")


def _nodes(nodes: Sequence[Json]) -> str:
    if not nodes:
        return sentence("No node was blamed for anything.")
    rows = [{**row, "classes": _counted(row["classes"]), "last_at": moment(row["last_at"])} for row in nodes]
    return table("Nodes, the most often blamed first", _NODES, rows[:MOST_NODES]) + _left_out(len(rows) - MOST_NODES)


def _counted(classes: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}x" if count > 1 else name for name, count in classes.items())


def _runs(runs: Sequence[Json]) -> str:
    rows = [
        {
            **row,
            **{key: share(row[key]) for key in ("ettr", "ettr_without_queue")},
            "cost": None if row["cost"] is None else money(row["cost"]),
        }
        for row in runs[:MOST_RUNS]
    ]
    return table("Runs, the largest first", _RUNS, rows) + _left_out(len(runs) - MOST_RUNS)


def _left_out(count: int) -> str:
    return sentence(f"{count} more are not shown; --json has them all.", muted=True) if count > 0 else ""


def _cost(cost: Sequence[Json]) -> str:
    if not cost:
        return sentence("No pool has a price: give it price_per_gpu_hour in the cluster profile to see the cost.")
    columns = (
        TableColumn("currency", "currency"),
        TableColumn("used", "used", number=True),
        TableColumn("productive", "productive", number=True),
        TableColumn("lost", "lost", number=True),
    )
    rows = [{name: money(value) if isinstance(value, float) else value for name, value in row.items()} for row in cost]
    return table("What gangs held, by the prices of their pools", columns, rows)


def page_name(account: Json) -> str:
    """Name of the page's file: one for each cluster and window, by days."""
    return f"{account['cluster'] or 'all'}-{account['since'][:10]}-to-{account['until'][:10]}"


def sheet_of(account: Json, page: Path) -> Sheet:
    """The artifact, in Markdown. `page` is where the page of the same account lies."""
    goodput = account["goodput"]
    lines = [
        f"# {account['cluster'] or 'all clusters'}, {moment(account['since'])} to {moment(account['until'])}",
        "",
        in_words(account),
        "",
        failures_in_words(account["failures"]),
        "",
        "| | |",
        "|---|---|",
        f"| goodput of used GPUs | {share(goodput['of_used'])} |",
        f"| goodput of the cluster | {_or_unknown(share(goodput['of_capacity']))} |",
        f"| idle GPUs | {_or_unknown(share(goodput['idle_share']))} |",
        f"| runs | {account['run_count']} |",
        f"| failures | {account['failures']['count']} |",
        *(f"| cost | {money(item['used'], item['currency'])} |" for item in account["cost"]),
    ]
    if account["causes"]:
        lines += ["", "| cause | incidents | lost GPU-hours |", "|---|---|---|"]
        lines += [
            f"| {row['class']} | {row['count']} | {number(row['lost_gpu_hours'])} |"
            for row in account["causes"][:MOST_CAUSES]
        ]
    if account["runs"]:
        lines += ["", "| run | state | GPU-hours | productive |", "|---|---|---|---|"]
        lines += [
            f"| {row['run']} | {row['state']} | {number(row['gpu_hours'])} | {share(row['ettr'])} |"
            for row in account["runs"][:MOST_RUNS_OF_SHEET]
        ]
    lines += ["", f"The page with plots: [{page}]({page.as_uri()}), on the machine of the flow."]
    return Sheet(KEY, "markdown", "\n".join(lines))


def _or_unknown(text: str) -> str:
    return "not known" if text == "-" else text
