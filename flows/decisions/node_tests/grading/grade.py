"""From readings of many nodes to verdicts: limits first, then peers, then the node's own past. Pure.

A check passes where something judged it, nothing spoke against it and nothing is missing. A failure of what was read
counts even where something else could not be read. A noisy figure that failed is measured again before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flows.decisions.node_tests.grading.columns import (
    Absolute,
    CheckColumn,
    Flags,
    Stage,
    absolute,
    column,
    tool_stage,
)
from flows.decisions.node_tests.grading.comparisons import (
    FLAPS,
    OUTCOMES,
    History,
    Past,
    by_majority,
    by_peers,
    failed_last,
    falls,
    past_of,
)
from flows.decisions.node_tests.grading.comparisons import by_drift as drift
from flows.decisions.node_tests.grading.comparisons import by_fall as fall
from flows.decisions.node_tests.grading.model import (
    CheckRule,
    Drift,
    Fall,
    Majority,
    NodeGrade,
    NodeReadings,
    Peers,
    Word,
)
from flows.decisions.recovery.nodes import natural
from profiles.vocabulary import VerdictWord
from workflows.model.records import Json, VerdictRecord
from workflows.model.verdict_history import BAD, GOOD

UNKNOWN = 0


@dataclass(frozen=True, eq=False)
class _Judgement:
    """One check of all nodes."""

    column: CheckColumn
    stages: tuple[Stage, ...]
    codes: NDArray[np.int8]
    """[nodes] 1 pass, -1 fail, 0 unknown."""
    repeat: Flags
    """[nodes] it failed once and is to be measured again."""
    again: Flags
    """[nodes] it failed, and had failed the time before."""
    flaps: NDArray[np.int64]


def grade(
    rules: Sequence[CheckRule], readings: Sequence[NodeReadings], history: History | None = None
) -> dict[str, NodeGrade]:
    """What the checks say about each node, in the natural order of their names.

    The order of `rules` is that of the reasons; the order of `readings` changes nothing.
    The worst check decides; a warning decides nothing, and a node without a fatal check is unknown. What was read is
    never compared across kinds of hardware.

    Raises:
        ValueError: two checks or two nodes of one name.
    """
    nodes = sorted(readings, key=lambda item: natural(item.node))
    _refuse_doubles("rules", [rule.name for rule in rules])
    _refuse_doubles("readings", [item.node for item in nodes])
    names = tuple(item.node for item in nodes)
    past = history or History()
    judged = [_judge(column(rule, nodes), past_of(past, rule.name, names)) for rule in rules]
    reasons = zip(*(_reasons(item) for item in judged), strict=True) if rules else (() for _ in nodes)
    words = _words(judged, len(nodes))
    again = _repeats(judged)
    return {
        name: NodeGrade(name, word, tuple(node_reasons), again.get(index, ()))
        for index, (name, word, node_reasons) in enumerate(zip(names, words, reasons, strict=True))
    }


def records_of(
    found: NodeGrade, rules: Sequence[CheckRule], cluster: str, at: float, source: str = ""
) -> tuple[VerdictRecord, ...]:
    """What is written into the ledger: one verdict a depth, the shallowest first, each with its own checks."""
    depths = sorted({rule.depth for rule in rules}, key=list(type(rules[0].depth)).index) if rules else []
    records: list[VerdictRecord] = []
    for depth in depths:
        own = {rule.name for rule in rules if rule.depth is depth}
        reasons = tuple(reason for reason in found.reasons if reason["check"] in own)
        word = worst([VerdictWord(one["verdict"]) for one in reasons if one.get("severity") != "warning"])
        records.append(VerdictRecord(cluster, found.node, word, str(depth), at, reasons, source))
    return tuple(records)


def worst(words: Sequence[VerdictWord]) -> VerdictWord:
    """One failure fails, one unknown makes unknown; of nothing nothing is known."""
    if VerdictWord.FAIL in words:
        return VerdictWord.FAIL
    return VerdictWord.UNKNOWN if VerdictWord.UNKNOWN in words or not words else VerdictWord.PASS


def _refuse_doubles(what: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{what}: must name each once, got {double} twice")


def _judge(column: CheckColumn, past: Past) -> _Judgement:
    stages = _stages(column, past)
    some = np.zeros(len(column.values), dtype=np.bool_)
    fails = np.logical_or.reduce([stage.fails for stage in stages] or [some])
    spoke = np.logical_or.reduce([stage.applies for stage in stages] or [some])
    lacking = np.logical_or.reduce([~stage.applies for stage in stages if stage.missing] or [some])
    known = spoke & column.whole & ~lacking
    now = np.where(fails, BAD, np.where(known, GOOD, UNKNOWN)).astype(np.int8)
    fell = np.where(now == UNKNOWN, 0, falls(past, now))
    again = fails & failed_last(past)
    repeat = fails & ~again & (fell < FLAPS) if column.rule.noisy else some
    codes = np.where(repeat, UNKNOWN, np.where(fell >= FLAPS, BAD, now)).astype(np.int8)
    return _Judgement(column, tuple(stages), codes, repeat, again, fell)


def _stages(column: CheckColumn, past: Past) -> list[Stage]:
    """What each limit says, in the order in which they count."""
    judged = tool_stage(column)
    stages = [judged] if judged is not None else []
    stages += [absolute(column, limit) for limit in column.rule.limits if isinstance(limit, Absolute)]
    bad = np.logical_or.reduce([stage.fails for stage in stages] or [~column.whole])
    sound = column.whole & ~bad
    stages += [by_peers(column, limit, sound) for limit in column.rule.limits if isinstance(limit, Peers)]
    stages += [by_majority(column, limit, sound) for limit in column.rule.limits if isinstance(limit, Majority)]
    stages += [fall(column, past, limit) for limit in column.rule.limits if isinstance(limit, Fall)]
    return stages + [drift(column, past, limit) for limit in column.rule.limits if isinstance(limit, Drift)]


def _words(judged: Sequence[_Judgement], count: int) -> list[VerdictWord]:
    fatal = [item.codes for item in judged if item.column.rule.severity == "fatal"]
    lowest = np.minimum.reduce(fatal) if fatal else np.zeros(count, dtype=np.int8)
    table = {GOOD: VerdictWord.PASS, UNKNOWN: VerdictWord.UNKNOWN, BAD: VerdictWord.FAIL}
    return [table[code] for code in lowest.tolist()]


def _repeats(judged: Sequence[_Judgement]) -> dict[int, tuple[str, ...]]:
    """Index of a node -> its fatal checks that are to be measured again."""
    found: dict[int, tuple[str, ...]] = {}
    for item in judged:
        if item.column.rule.severity == "fatal":
            for index in np.flatnonzero(item.repeat).tolist():
                found[index] = (*found.get(index, ()), item.column.rule.name)
    return found


def _reasons(item: _Judgement) -> list[Json]:
    """One reason a node, as the ledger keeps it."""
    rule, cells = item.column.rule, item.column.cells
    reasons: list[Json] = [
        {
            "check": rule.name,
            "verdict": "pass",
            "measured": measured,
            "limit": limit,
            "unit": rule.unit,
            "evidence": "" if cell is None else cell.line,
        }
        for cell, measured, limit in zip(cells, _measured(item.column), _plain_limits(item), strict=True)
    ]
    for index in np.flatnonzero(item.codes != GOOD).tolist():
        _explain(item, index, reasons[index])
    if rule.severity == "warning":
        for reason in reasons:
            reason["severity"] = "warning"
    return reasons


def _measured(column: CheckColumn) -> list[Any]:
    """For each node the figure or the word that counts; None where there is none."""
    if column.rule.direction == "text_equal":
        return [None if cell is None else cell.word or None for cell in column.cells]
    figures: list[Any] = column.values.tolist()
    for index in np.flatnonzero(~np.isfinite(column.values)).tolist():
        cell = column.cells[index]
        figures[index] = None if cell is None else cell.word or None
    return figures


def _plain_limits(item: _Judgement) -> list[Any]:
    """The limit to show for a node where nothing failed: the first that judged it and is a figure or a word."""
    word = next((" or ".join(limit.good) for limit in item.column.rule.limits if isinstance(limit, Word)), None)
    if word is not None:
        return [word] * len(item.codes)
    bounds = np.full(len(item.codes), np.nan)
    for stage in item.stages:
        if stage.bound is not None:
            bounds = np.where(np.isfinite(bounds), bounds, stage.bound)
    limits: list[Any] = bounds.tolist()
    for index in np.flatnonzero(~np.isfinite(bounds)).tolist():
        limits[index] = None
    return limits


def _explain(item: _Judgement, index: int, reason: Json) -> None:
    """Write into a reason why the check did not pass."""
    cell = item.column.cells[index]
    subject = f"{cell.subject}: " if cell is not None and cell.subject else ""
    line = f"; {cell.line}" if cell is not None and cell.line else ""
    stage = next((stage for stage in item.stages if stage.fails[index]), None)
    why = "" if stage is None else subject + stage.words(index)
    if stage is not None and stage.bound is not None:
        reason["limit"] = float(stage.bound[index])
    reason["verdict"] = "fail" if item.codes[index] == BAD else "unknown"
    if reason["verdict"] == "fail":
        rule = item.column.rule
        reason |= {key: value for key, value in (("class", rule.fault_class), ("what_to_do", rule.what_to_do)) if value}
    if item.repeat[index]:
        reason["repeat"] = True
        reason["evidence"] = f"{why}; one bad measurement, to be repeated{line}"
    elif item.flaps[index] >= FLAPS:
        if stage is None:
            reason["flaps"] = True
        times = f"it went from pass to fail {item.flaps[index]} times in its last {OUTCOMES} tests"
        reason["evidence"] = f"{why}; {times}{line}" if why else f"{times}; now it passes{line}"
    elif stage is not None:
        reason["evidence"] = f"{why}{'; the time before too' if item.again[index] else ''}{line}"
    else:
        reason["evidence"] = item.column.gaps[index] or _undecided(item, index)


def _undecided(item: _Judgement, index: int) -> str:
    lacking = [stage.missing for stage in item.stages if stage.missing and not stage.applies[index]]
    return lacking[0] if lacking else "nothing to judge it by: too few peers, and too little of its own past"
