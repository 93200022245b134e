"""The past of nodes, read the slow way: verdict by verdict and reason by reason. What is fast is compared with it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from flows.decisions.node_tests.grading.comparisons import OUTCOMES, History, reach_days
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from flows.decisions.node_tests.grading.model import CheckRule, Depth, Fall
from profiles.vocabulary import VerdictWord
from workflows.model.records import VerdictRecord

NOW = 1e9
NODES = ("a", "b", "stranger")
RULES = (
    CheckRule("copy", Depth.DEVICE, "bandwidth", "GB/s", limits=(Fall(5.0, days=40),)),
    CheckRule("version", Depth.SMOKE, "driver", direction="text_equal"),
    CheckRule("latency", Depth.DEVICE, "latency", "us", "lower_is_better"),
)


@dataclass(frozen=True)
class Slow:
    """What the past is, by (check, node)."""

    figures: Mapping[tuple[str, str], Mapping[int, float]]
    """Days ago -> the last good figure of that day."""
    ends: Mapping[tuple[str, str], Sequence[int]]


def slowly(
    records: Iterable[VerdictRecord],
    rules: Sequence[CheckRule],
    nodes: Sequence[str],
    now: float,
    since: Mapping[str, float] | None = None,
) -> Slow:
    figures: dict[tuple[str, str], dict[int, float]] = {}
    ends: dict[tuple[str, str], list[int]] = {}
    units = {rule.name: rule.unit for rule in rules}
    first = now - reach_days(rules) * DAY_SECONDS
    for record in sorted(records, key=lambda item: item.at):
        if record.node not in nodes or not max(first, (since or {}).get(record.node, first)) < record.at <= now:
            continue
        for reason in record.reasons:
            key = (str(reason.get("check")), record.node)
            if key[0] not in units:
                continue
            if reason.get("flaps") or reason.get("verdict") == "pass":
                ends.setdefault(key, []).append(1)
                told = reason.get("measured")
                number = isinstance(told, (int, float)) and not isinstance(told, bool) and math.isfinite(told)
                if number and reason.get("unit", "") == units[key[0]]:
                    figures.setdefault(key, {})[int((now - record.at) // DAY_SECONDS)] = told
            elif reason.get("verdict") == "fail" or reason.get("repeat"):
                ends.setdefault(key, []).append(-1)
    return Slow(figures, {key: found[-OUTCOMES:] for key, found in ends.items()})


def as_slow(history: History) -> Slow:
    """The same of a history that was read the fast way."""
    figures: dict[tuple[str, str], dict[int, float]] = {}
    ends: dict[tuple[str, str], list[int]] = {}
    assert history.values is not None
    assert history.outcomes is not None
    for (row, check), (place, node) in itertools.product(enumerate(history.checks), enumerate(history.nodes)):
        column = history.values[row, :, place]
        days = np.flatnonzero(np.isfinite(column)).tolist()
        if days:
            figures[check, node] = {len(column) - 1 - day: float(column[day]) for day in days}
        codes = history.outcomes[row, :, place].tolist()
        known = [code for code in codes if code]
        assert codes == [0] * (len(codes) - len(known)) + known, "what is known stands at the end"
        if known:
            ends[check, node] = known
    return Slow(figures, ends)


def _reason(check: str, verdict: str, measured: Any, unit: Any, more: dict[str, Any]) -> dict[str, Any]:
    return {"check": check, "verdict": verdict, "measured": measured, "limit": 1, "unit": unit, "evidence": "", **more}


REASONS = st.builds(
    _reason,
    check=st.sampled_from([*(rule.name for rule in RULES), "another"]),
    verdict=st.sampled_from(["pass", "pass", "pass", "fail", "unknown"]),
    measured=st.one_of(st.sampled_from([None, "5.15", True, 7, math.inf, math.nan]), st.floats(1.0, 99.0)),
    unit=st.sampled_from(["GB/s", "GB/s", "us", "", "TB/s"]),
    more=st.sampled_from([{}, {}, {"flaps": True}, {"repeat": True}, {"severity": "warning"}]),
)
RECORDS = st.builds(
    VerdictRecord,
    cluster=st.just("c"),
    node=st.sampled_from(NODES),
    verdict=st.sampled_from(list(VerdictWord)),
    depth=st.sampled_from(["gate", "smoke", "device"]),
    at=st.one_of(
        st.integers(-1, 45).map(lambda days: NOW - days * DAY_SECONDS),
        st.integers(0, 9).map(lambda hours: NOW - hours * 3600.0),
        st.floats(-0.1, 42.0).map(lambda days: NOW - days * DAY_SECONDS),
    ),
    reasons=st.lists(REASONS, max_size=4).map(tuple),
    source=st.sampled_from(["t", "u"]),
)
