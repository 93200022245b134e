"""The page of all runs of a cluster (`primus report --since 7d --html FILE`), and the artifact that points to it.

The artifact stands on the Prefect server, with the main numbers and the place of the page.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.decisions.text import markdown_text
from flows.pages.frame import PLOT_WIDTH, duration, moment, money, number, plural, render, share
from flows.pages.plots import Bar, by_day, waterfall
from flows.pages.style import BLUE
from workflows.model.events import Sheet

Json = dict[str, Any]
MOST_RUNS, MOST_NODES = 50, 20
"""Longer lists are cut, with the number of what is left out; --json has them all."""
HOUR = 3600.0

KEY = "fleet-report"
MOST_CAUSES, MOST_RUNS_OF_SHEET = 5, 10


def fleet_page(account: Json) -> str:
    """The page of an account. `account` is what `primus report --since … --json` prints."""
    name = account["cluster"] or "all clusters"
    title = f"{name}: {moment(account['since'])[:10]} to {moment(account['until'])[:10]}"
    if not account["run_count"]:
        return render("fleet.html", title=title, account=account)
    lost = {state: hours for state, hours in account["states"].items() if state != "productive"}
    return render(
        "fleet.html",
        title=title,
        account=account,
        in_words=in_words(account),
        first_numbers=_first_numbers(account),
        waterfall=waterfall(account["states"].get("productive", 0.0), lost, 1.0, "GPU-hours"),
        causes=[
            {**row, "share": share(row["share"]), "bar": Bar(0.0, max(1.5, row["share"] * PLOT_WIDTH), BLUE)}
            for row in account["causes"]
        ],
        failures_in_words=failures_in_words(account["failures"]),
        by_day=by_day(account),
        nodes=[
            {**row, "classes": _counted(row["classes"]), "last_at": moment(row["last_at"])} for row in account["nodes"]
        ],
        most_nodes=MOST_NODES,
        runs=[_run(row) for row in account["runs"]],
        most_runs=MOST_RUNS,
        cost=[
            {name: money(value) if isinstance(value, float) else value for name, value in row.items()}
            for row in account["cost"]
        ],
    )


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


def _counted(classes: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}x" if count > 1 else name for name, count in classes.items())


def _run(row: Json) -> Json:
    shares = {key: share(row[key]) for key in ("ettr", "ettr_without_queue")}
    return {**row, **shares, "cost": None if row["cost"] is None else money(row["cost"])}


def page_name(account: Json) -> str:
    """Name of the page's file: one for each cluster and window, by days."""
    return f"{account['cluster'] or 'all'}-{account['since'][:10]}-to-{account['until'][:10]}"


def sheet_of(account: Json, page: Path) -> Sheet:
    """The artifact, in Markdown. `page` is where the page of the same account lies."""
    goodput = account["goodput"]
    lines = [
        f"# {markdown_text(account['cluster'] or 'all clusters')}, "
        f"{moment(account['since'])} to {moment(account['until'])}",
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
    lines += ["", f"The page with plots: [{markdown_text(page)}]({page.as_uri()}), on the machine of the flow."]
    return Sheet(KEY, "markdown", "\n".join(lines))


def _or_unknown(text: str) -> str:
    return "not known" if text == "-" else text
