"""`primus report --since`: all runs of a cluster, as text."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from deployments.edge import say
from deployments.tables import table
from flows.accounts import account_of_all
from flows.decisions.ages import since_seconds
from flows.pages.fleet_page import failures_in_words, in_words
from flows.pages.frame import money, number, share
from flows.pages.time_bars import SEEN
from profiles.load import load_cluster
from tasks.ledger import Ledger
from tasks.opening import localised

MOST_RUNS, MOST_NODES = 20, 5
Json = dict[str, Any]


def fleet_document(since: str, cluster: str, home: Path, ledger: Ledger) -> Json:
    """The document of `primus report --since … --json`."""
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
    shown = table(rows, ("run", "state", "gpus", "gpu_hours", "ettr", "incidents", "cost"))
    left = len(runs) - len(rows)
    return f"{shown}\n{left} more runs: --json or --html" if left > 0 else shown
