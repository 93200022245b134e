"""The account of all runs as an artifact of the Prefect server: the main numbers, and where the page is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.pages.fleet_page import failures_in_words, in_words
from flows.pages.frame import moment, money, number, share
from workflows.console import Sheet

Json = dict[str, Any]
KEY = "fleet-report"
MOST_CAUSES, MOST_RUNS = 5, 10


def page_name(account: Json) -> str:
    """Name of the page's file: one for each cluster and window, by days."""
    return f"{account['cluster'] or 'all'}-{account['since'][:10]}-to-{account['until'][:10]}"


def sheet_of(account: Json, page: Path) -> Sheet:
    """The artifact, in Markdown.

    Args:
        account: as `primus report --since … --json` prints it.
        page: where its page lies.
    """
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
        f"| goodput of the cluster | {_known(share(goodput['of_capacity']))} |",
        f"| idle GPUs | {_known(share(goodput['idle_share']))} |",
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
            for row in account["runs"][:MOST_RUNS]
        ]
    lines += ["", f"The page with plots: [{page}]({page.as_uri()}), on the machine of the flow."]
    return Sheet(KEY, "markdown", "\n".join(lines))


def _known(text: str) -> str:
    return "not known" if text == "-" else text
