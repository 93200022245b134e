"""Readings of many nodes by check: the figure that counts for each node, and limits that need no peers. Pure.

What is not known of a node stands beside its figure. The limits are figures, words, shares of a peak, and the tool's
own judgement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flows.decisions.node_tests.grading.model import (
    AtLeast,
    AtMost,
    CheckRule,
    Equals,
    NodeReadings,
    PeakShare,
    ToolJudges,
    Word,
)
from workflows.programs.parsers.text import ParsedOutput, Reading, is_absent

Found = tuple[Reading | None, str]
Absolute = AtLeast | AtMost | Equals | Word | PeakShare

GPU = re.compile(r"\bgpu ([0-9A-Fa-f:.]{1,20})")
"""A GPU in a subject: `gpu 3 link 7`, `gpu 00000000:1b:00.0 dram`, `gpu 0 -> gpu 1`."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CheckColumn:
    """One check of all nodes; every sequence and array has one entry a node, in the same order."""

    rule: CheckRule
    hardware: tuple[str, ...]
    cells: list[Reading | None]
    """The reading that counts: the worst subject after its attempts were combined; None: nothing readable."""
    gaps: list[str]
    """Why not everything is known; "" where it is."""
    values: Floats
    """[nodes] in the rule's unit; NaN: no figure. Of a check of words: how far off, 0 or 1."""
    whole: Flags
    """[nodes] nothing is missing."""


@dataclass(frozen=True, eq=False)
class Stage:
    """What one limit says about all nodes."""

    fails: Flags
    applies: Flags
    """It had what it needs to judge the node."""
    missing: str = ""
    """Why it cannot do without what it lacks, where it did not speak; "": then it says nothing."""
    bound: Floats | None = None
    """[nodes] the limit in the rule's unit as people see it; None: it is no figure."""
    words: Callable[[int], str] = lambda _: ""
    """From the index of a node to why it fails."""


def column(rule: CheckRule, nodes: Sequence[NodeReadings]) -> CheckColumn:
    """The readings of one check."""
    measure = badness(rule)
    cells = _singles(rule, nodes)
    gaps = [""] * len(cells)
    for index, item in enumerate(nodes):
        if cells[index] is None or max(rule.subjects.get(item.hardware, 0), rule.gpus.get(item.hardware, 0)) > 1:
            cells[index], gaps[index] = _cell(rule, item.hardware, item.parsed.get(rule.name), measure)
    if rule.direction == "text_equal":
        figures = [math.nan if cell is None or is_absent(cell) else measure(cell) for cell in cells]
    else:
        figures = [math.nan if cell is None or cell.value is None else cell.value for cell in cells]
    values = np.array(figures, dtype=np.float64)
    whole = np.array([not gap for gap in gaps], dtype=np.bool_)
    return CheckColumn(rule, tuple(item.hardware for item in nodes), cells, gaps, values, whole)


def _singles(rule: CheckRule, nodes: Sequence[NodeReadings]) -> list[Reading | None]:
    """[nodes] the only reading of the only attempt, where it can be judged: nearly all of a fleet's."""
    if rule.attempts != 1:
        return [None] * len(nodes)
    name, quantity, found = rule.name, rule.quantity, list[Reading | None]()
    for item in nodes:
        attempts = item.parsed.get(name, ())
        readings: tuple[Reading, ...] = attempts[0].readings if len(attempts) == 1 and not attempts[0].unknown else ()
        reading = readings[0] if len(readings) == 1 else None
        fit = reading is not None and reading.quantity == quantity and not unreadable(rule, reading)
        found.append(reading if fit else None)
    return found


def significant(values: Floats) -> Floats:
    """Six significant digits, for people: a limit that was computed has no more that mean anything."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        shift = 10.0 ** (5.0 - np.floor(np.log10(np.abs(values))))
        rounded: Floats = np.round(values * shift) / shift
    return np.where(np.isfinite(rounded), rounded, values)


def badness(rule: CheckRule) -> Callable[[Reading], float]:
    """From a reading to how bad it is; larger is worse, equal is equal."""
    match rule.direction:
        case "higher_is_better":
            return lambda reading: -_value(reading)
        case "lower_is_better":
            return _value
        case "equal":
            return lambda reading: _off(rule, _value(reading))
        case "text_equal":
            wanted = {word for limit in rule.limits if isinstance(limit, Word) for word in limit.good}
            return lambda reading: float(bool(wanted) and reading.word not in wanted and not is_absent(reading))


def _value(reading: Reading) -> float:
    return math.nan if reading.value is None else reading.value


def _off(rule: CheckRule, value: float) -> float:
    """How far a figure lies outside of what is allowed."""
    off = 0.0
    for limit in rule.limits:
        match limit:
            case Equals():
                off = max(off, abs(value - limit.value))
            case AtLeast():
                off = max(off, limit.value - value)
            case AtMost():
                off = max(off, value - limit.value)
            case _:
                pass
    return off


def unreadable(rule: CheckRule, reading: Reading) -> str:
    """Why a reading cannot be judged; "" where it can. A tool's own `fail` needs no figure."""
    if reading.said == "fail":
        return ""
    if rule.direction == "text_equal":
        return "" if reading.word or judged_by_tool(rule, reading) else "no word was reported"
    if reading.value is None:
        text = f"no figure: {reading.word}" if reading.word else "no figure was reported"
        return "" if judged_by_tool(rule, reading) else text
    if not math.isfinite(reading.value):
        return f"{reading.value} is no figure"
    if reading.unit == rule.unit:
        return ""
    return f"reported in {reading.unit or 'no unit'}, but judged in {rule.unit or 'none'}"


def judged_by_tool(rule: CheckRule, reading: Reading) -> bool:
    """Whether no figure is needed, since all is well by the tool's word alone, or the model has no such thing."""
    return is_absent(reading) or (
        reading.said == "pass" and all(isinstance(limit, ToolJudges) for limit in rule.limits)
    )


def _cell(
    rule: CheckRule, hardware: str, attempts: tuple[ParsedOutput, ...] | None, measure: Callable[[Reading], float]
) -> Found:
    """The reading that counts, and why not everything is known."""
    if not attempts:
        return None, "the check did not run"
    cell, gap = _combined(rule, rule.subjects.get(hardware, 0), attempts, measure)
    return cell, gap or _silent_gpus(rule, hardware, attempts)


def _silent_gpus(rule: CheckRule, hardware: str, attempts: Iterable[ParsedOutput]) -> str:
    """That some GPUs are missing from a tool's output: a list that broke off between two of them looks whole."""
    wanted = rule.gpus.get(hardware, 0)
    if not wanted:
        return ""
    subjects = {one.subject for parsed in attempts for one in parsed.readings if one.quantity == rule.quantity}
    reporting = {gpu for subject in subjects for gpu in GPU.findall(subject)}
    return f"{len(reporting)} of {wanted} GPUs reported a value" if 0 < len(reporting) < wanted else ""


def _combined(
    rule: CheckRule, wanted: int, attempts: tuple[ParsedOutput, ...], measure: Callable[[Reading], float]
) -> Found:
    """Several attempts or subjects: each subject's attempts become one reading, the worst subject counts."""
    good: dict[str, list[Reading]] = {}
    gaps: list[str] = []
    for parsed in attempts:
        for reading in parsed.readings:
            if reading.quantity != rule.quantity:
                continue
            mine = good.setdefault(reading.subject, [])
            if why := unreadable(rule, reading):
                gaps.append(f"{reading.subject}: {why}" if reading.subject else why)
            else:
                mine.append(reading)
    of_subjects = [_of_attempts(rule, found, measure) for found in good.values()]
    readings = [reading for reading, _ in of_subjects if reading is not None]
    readings = [reading for reading in readings if not is_absent(reading)] or readings[:1]
    worst = max(readings, key=lambda reading: (reading.said == "fail", measure(reading)), default=None)
    if worst is not None and rule.direction == "text_equal" and measure(worst) == 0.0:
        worst = _in_one(readings, worst)
    lacks = ((about, gap) for about, (_, gap) in zip(good, of_subjects, strict=True) if gap)
    short = next((f"{about}: {gap}" if about else gap for about, gap in lacks), "")
    if short and gaps:
        short = gaps[0] if rule.attempts == 1 else f"{short} ({gaps[0]})"
    return worst, _lacking(rule, wanted, attempts, len(good)) or short


def _in_one(readings: Sequence[Reading], worst: Reading) -> Reading:
    """Parts of a node that report different words, none of them wrong by itself: all words as the node's own."""
    words = sorted({reading.word for reading in readings if reading.word})
    return worst if len(words) < 2 else replace(worst, word=", ".join(words), subject="")


def _of_attempts(rule: CheckRule, found: list[Reading], measure: Callable[[Reading], float]) -> Found:
    """One reading of one subject's attempts."""
    ordered = sorted(found, key=lambda reading: (reading.said == "fail", measure(reading)))
    text = f"{len(ordered)} of {rule.attempts} attempts could be read"
    if not ordered:
        return None, text
    match rule.combine:
        case "best":
            return ordered[0], ""
        case "median":
            return ordered[len(ordered) // 2], "" if 2 * len(ordered) > rule.attempts else text
        case "worst":
            return ordered[-1], ""
        case "all":
            return ordered[-1], "" if len(ordered) >= rule.attempts else text


def _lacking(rule: CheckRule, wanted: int, attempts: tuple[ParsedOutput, ...], subjects: int) -> str:
    """Why subjects may be missing altogether; a tool that broke off may have hidden some."""
    reasons = [parsed.unknown for parsed in attempts if parsed.unknown]
    if wanted and subjects < wanted:
        return f"{subjects} of {wanted} reported" + (f": {reasons[0]}" if reasons else "")
    if not subjects:
        return reasons[0] if reasons else f"nothing was reported for {rule.quantity}"
    broken = len(reasons) == len(attempts) or (reasons and rule.combine == "all")
    return reasons[0] if broken and subjects != wanted else ""  # one of each GPU, and all are there: nothing is hidden


def tool_stage(column: CheckColumn) -> Stage | None:
    """What the tools judged by themselves; None where none did and none was asked to.

    A tool's `fail` counts whatever the figure.
    """
    messages = [cell.said if cell is not None else "" for cell in column.cells]
    limits = column.rule.limits
    tool_judges = not limits or any(isinstance(limit, ToolJudges) for limit in limits)
    if not tool_judges and not any(messages):
        return None
    words = np.array(messages, dtype=np.str_)
    spoke = (words == "fail") | (words == "pass")
    missing = "the tool should have judged it and did not" if tool_judges else ""
    return Stage(words == "fail", spoke, missing, words=lambda _: "the tool itself says that it failed")


def absolute(column: CheckColumn, limit: Absolute) -> Stage:
    """What a limit says that stands by itself."""
    values = column.values
    match limit:
        case AtLeast(value):
            return _below(column, np.full_like(values, value), f"at least {_value_text(value, column)}")
        case AtMost(value):
            return _above(column, np.full_like(values, value), f"at most {_value_text(value, column)}")
        case Equals(value, tolerance):
            off = np.abs(values - value) > tolerance
            more = f" within {tolerance:g}" if tolerance else ""
            words = f"must be {_value_text(value, column)}{more}"
            return Stage(off, np.isfinite(values), bound=np.full_like(values, value), words=lambda _: words)
        case Word():
            return Stage(values > 0, np.isfinite(values), words=lambda _: f"must be {' or '.join(limit.good)}")
        case PeakShare():
            return _of_peak(column, limit)


def _of_peak(column: CheckColumn, limit: PeakShare) -> Stage:
    peaks = np.array([limit.peaks.get(kind, np.nan) for kind in column.hardware], dtype=np.float64)
    bound, words = peaks * (limit.percent / 100.0), f"{limit.percent:g} % of the hardware's peak"
    higher = column.rule.direction == "higher_is_better"
    missing = "the hardware profile names no such peak"
    return (_below if higher else _above)(column, bound, f"{'at least' if higher else 'at most'} {words}", missing)


def _below(column: CheckColumn, bound: Floats, words: str, missing: str = "") -> Stage:
    spoke = np.isfinite(bound) & np.isfinite(column.values)
    return Stage(column.values < bound, spoke, missing, significant(bound) if missing else bound, lambda _: words)


def _above(column: CheckColumn, bound: Floats, words: str, missing: str = "") -> Stage:
    spoke = np.isfinite(bound) & np.isfinite(column.values)
    return Stage(column.values > bound, spoke, missing, significant(bound) if missing else bound, lambda _: words)


def _value_text(value: float, column: CheckColumn) -> str:
    return f"{value:g} {column.rule.unit}".rstrip()
