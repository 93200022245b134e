"""The account of all runs of a cluster over a stretch of time. Pure; `primus report --since` shows it.

Definitions (docs/reports.md): capacity is what the cluster profile has, used is what gangs held from their JobSet to
their end, productive is the tile of that name. Goodput is productive over capacity, and over used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pandas  # pyright: ignore[reportMissingTypeStubs] - see Frame

from flows.decisions.accounting.advice import NO_FAILURE_ACTIONS, NO_FAILURE_CLASSES, failure_probability, spares
from flows.decisions.accounting.reliability import believed_rate, failure_rate
from flows.decisions.accounting.report import UNDIAGNOSED, clip
from flows.decisions.policy import FaultPolicy, classes_where
from flows.decisions.text import timestamp
from profiles.vocabulary import FaultClass, Tile
from workflows.model.runs import LedgerWindow, RunSummary

Json = dict[str, Any]
Frame = Any
"""A pandas.DataFrame: pandas says too little about its types for a strict check."""
pd = cast("Any", pandas)
HOUR, DAY = 3600.0, 86400.0
DIGITS = 6
_RUN_COLUMNS = ["run", "begin", "end", "gpus", "nodes", "price", "currency"]


def fleet_account(
    window: LedgerWindow, summaries: Sequence[RunSummary], capacity_gpus: int, cluster: str = "", nodes: int = 0
) -> Json:
    """The document of `primus report --since … --json`.

    `summaries` are of whole runs and are cut to the window here; `capacity_gpus`, `nodes`: 0 where not known.
    """
    runs = _run_frame([clip(item, window.since, window.until) for item in summaries])
    held = _held_frame(window, runs)
    incidents = _incident_frame(window)
    runs["held"] = runs.index.map(held.groupby("run")["gpu_seconds"].sum()).fillna(0.0)
    used = float(runs["held"].sum())
    return {
        "cluster": cluster,
        "since": timestamp(window.since),
        "until": timestamp(window.until),
        "run_count": len(runs),
        "goodput": _goodput(runs, used, capacity_gpus * (window.until - window.since)),
        "states": _states(runs),
        "causes": _causes(runs, incidents),
        "failures": _failures(incidents, float(held["node_seconds"].sum()) / DAY, nodes),
        "incidents_by_day": _by_day(incidents),
        "nodes": _nodes(incidents),
        "cost": _cost(runs),
        "runs": _run_rows(window, runs, incidents),
    }


def _run_frame(summaries: Sequence[RunSummary]) -> Frame:
    """One row a run; a column of seconds a state, and of lost seconds a class."""
    known = [
        (item.run, item.begin, item.end, item.gpus, item.nodes, item.price_per_gpu_hour, item.currency)
        for item in summaries
    ]
    frame = pd.DataFrame(known, columns=_RUN_COLUMNS)
    states = pd.DataFrame([item.by_state for item in summaries], columns=[state.value for state in Tile])
    lost = pd.DataFrame([item.lost_by_class for item in summaries], columns=[word.value for word in FaultClass])
    frame = pd.concat(
        [frame, states.astype(float).fillna(0.0), lost.astype(float).fillna(0.0).add_prefix("lost_")], axis=1
    )
    frame["price"] = frame["price"].astype(float)
    frame["wall"] = frame["end"] - frame["begin"]
    return frame.set_index("run", drop=False)


def _held_frame(window: LedgerWindow, runs: Frame) -> Frame:
    frame = pd.DataFrame(window.held, columns=["run", "begin", "end"]).astype({"begin": float, "end": float})
    frame = frame[frame["run"].isin(runs.index)]
    seconds = frame["end"].fillna(window.until).clip(upper=window.until) - frame["begin"].clip(lower=window.since)
    frame["seconds"] = seconds.clip(lower=0.0)
    frame["gpu_seconds"] = frame["seconds"] * frame["run"].map(runs["gpus"]).astype(float)
    frame["node_seconds"] = frame["seconds"] * frame["run"].map(runs["nodes"]).astype(float)
    return frame


def _incident_frame(window: LedgerWindow) -> Frame:
    columns = ["run", "at", "class", "action", "nodes"]
    frame = pd.DataFrame(window.incidents, columns=columns).astype({"at": float})
    frame["class"] = frame["class"].astype(object).where(frame["class"].notna(), UNDIAGNOSED)
    counts = ~frame["action"].isin(NO_FAILURE_ACTIONS) & ~frame["class"].isin(NO_FAILURE_CLASSES)
    frame["failure"] = counts.astype(bool)
    return frame


def _goodput(runs: Frame, used: float, capacity: float) -> Json:
    productive = float((runs[Tile.PRODUCTIVE.value] * runs["gpus"]).sum())
    wall = float((runs["wall"] * runs["gpus"]).sum())
    known = capacity > 0
    idle = max(0.0, capacity - used)
    return {
        "capacity_gpu_hours": _hours(capacity) if known else None,
        "used_gpu_hours": _hours(used),
        "productive_gpu_hours": _hours(productive),
        "of_capacity": _share(productive, capacity) if known else None,
        "of_used": _share(productive, used),
        "ettr": _share(productive, wall),
        "idle_gpu_hours": _hours(idle) if known else None,
        "idle_share": _share(idle, capacity) if known else None,
    }


def _states(runs: Frame) -> Json:
    """State -> GPU-hours, the largest first; states that took nothing are left out."""
    sums = {state.value: float((runs[state.value] * runs["gpus"]).sum()) for state in Tile}
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return {name: _hours(value) for name, value in ordered if value > 0}


def _causes(runs: Frame, incidents: Frame) -> list[Json]:
    """By class: how often, and the GPU-hours from the first lost step to the first new one; the dearest first."""
    counts: dict[str, int] = incidents["class"].value_counts().to_dict()
    rows: list[Json] = []
    for word in FaultClass:
        lost = float((runs[f"lost_{word.value}"] * runs["gpus"]).sum())
        if counts.get(word.value) or lost > 0:
            count = int(counts.get(word.value, 0))
            rows.append({"class": word.value, "count": count, "lost_gpu_hours": _hours(lost)})
    whole = sum(row["lost_gpu_hours"] for row in rows)
    for row in rows:
        row["share"] = _share(row["lost_gpu_hours"], whole)
    return sorted(rows, key=lambda row: (-row["lost_gpu_hours"], -row["count"], row["class"]))


def _failures(incidents: Frame, node_days: float, nodes: int) -> Json:
    """How often nodes that train fail, with the interval that such a count allows (95 %), and what covers it."""
    rate = failure_rate(int(incidents["failure"].sum()), node_days)
    low, high = rate.mttf_interval_hours(1)
    in_a_day = failure_probability(believed_rate(rate.failures, node_days), 1.0)
    return {
        "count": rate.failures,
        "node_days": round(node_days, DIGITS),
        "per_node_day": _number(rate.per_node_day),
        "per_node_day_low": _number(rate.low),
        "per_node_day_high": _number(rate.high),
        "node_mttf_hours": _number(rate.mttf_hours(1)),
        "node_mttf_hours_low": _number(low),
        "node_mttf_hours_high": _number(high),
        "nodes": nodes or None,
        "spares_for_a_day": spares(nodes, in_a_day) if nodes and node_days else None,
    }


def _is_the_programs(policy: FaultPolicy) -> bool:
    return policy.exception_blames_code


def _by_day(incidents: Frame) -> list[Json]:
    """Failures of each day (UTC) that had one, by class."""
    failures = incidents[incidents["failure"]]
    days = (failures["at"] // DAY * DAY).rename("day")
    counted = failures.groupby([days, "class"]).size().items()
    found: dict[float, dict[str, int]] = {}
    for (day, word), count in counted:
        found.setdefault(day, {})[word] = int(count)
    return [{"day": cast("str", timestamp(day))[:10], "classes": classes} for day, classes in sorted(found.items())]


def _nodes(incidents: Frame) -> list[Json]:
    """Nodes that were blamed, the most often blamed first."""
    where = (incidents["nodes"].map(len) > 0) & ~incidents["class"].isin(classes_where(_is_the_programs))
    blamed = incidents[where].explode("nodes")
    rows: list[Json] = []
    for node, mine in blamed.groupby("nodes"):
        classes: dict[str, int] = mine["class"].value_counts().to_dict()
        rows.append(
            {
                "node": node,
                "count": len(mine),
                "classes": {str(name): int(count) for name, count in classes.items()},
                "last_at": timestamp(float(mine["at"].max())),
            }
        )
    return sorted(rows, key=lambda row: (-row["count"], row["node"]))


def _cost(runs: Frame) -> list[Json]:
    """By currency: what the held GPU-hours of priced pools cost, and how much of that trained nothing."""
    priced = runs[runs["price"].notna()]
    rows: list[Json] = []
    for currency, mine in priced.groupby("currency"):
        used = float((mine["held"] / HOUR * mine["price"]).sum())
        productive = float((mine[Tile.PRODUCTIVE.value] * mine["gpus"] / HOUR * mine["price"]).sum())
        lost = max(0.0, used - productive)
        rows.append(
            {"currency": currency, "used": _money(used), "productive": _money(productive), "lost": _money(lost)}
        )
    return rows


def _run_rows(window: LedgerWindow, runs: Frame, incidents: Frame) -> list[Json]:
    """Every run, the largest first."""
    counts = incidents["run"].value_counts()
    known = {item.run: item for item in window.runs}
    frame = pd.DataFrame(
        {
            "gpu_hours": runs["wall"] * runs["gpus"] / HOUR,
            "held_gpu_hours": runs["held"] / HOUR,
            "productive": runs[Tile.PRODUCTIVE.value],
            "wall": runs["wall"],
            "queue": runs[Tile.QUEUE.value],
            "gpus": runs["gpus"],
            "price": runs["price"],
            "incidents": runs.index.map(counts).fillna(0).astype(int),
        },
        index=runs.index,
    ).sort_values("gpu_hours", ascending=False, kind="stable")
    return [
        {
            "run": name,
            "cluster": known[name].cluster,
            "state": known[name].state,
            "submitted_at": timestamp(known[name].begin),
            "ended_at": timestamp(known[name].end),
            "gpus": int(gpus),
            "gpu_hours": _number(hours),
            "held_gpu_hours": _number(held),
            "ettr": _share(productive, wall),
            "ettr_without_queue": _share(productive, wall - queue),
            "incidents": int(count),
            "cost": None if pd.isna(price) else _money(held * price),
        }
        for name, hours, held, productive, wall, queue, gpus, price, count in frame.itertuples(name=None)
    ]


def _hours(gpu_seconds: float) -> float:
    return round(gpu_seconds / HOUR, DIGITS)


def _share(part: float, whole: float) -> float:
    return round(min(1.0, max(0.0, part / whole)), DIGITS) if whole > 0 else 0.0


def _number(value: float | None) -> float | None:
    return None if value is None else round(float(value), DIGITS)


def _money(value: float) -> float:
    return round(value, 2)
