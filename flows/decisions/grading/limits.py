"""Limits that need nobody else: figures, words, shares of a peak, and what the tool itself judged. Pure."""

from __future__ import annotations

import numpy as np

from flows.decisions.grading.columns import Column, Floats, Stage, significant
from flows.decisions.grading.model import AtLeast, AtMost, Equals, PeakShare, ToolJudges, Word

Absolute = AtLeast | AtMost | Equals | Word | PeakShare


def said_by_tool(column: Column) -> Stage | None:
    """What the tools judged by themselves; None where none did and none was asked to.

    A tool's `fail` counts whatever the figure.
    """
    said = [cell.said if cell is not None else "" for cell in column.cells]
    limits = column.rule.limits
    asked = not limits or any(isinstance(limit, ToolJudges) for limit in limits)
    if not asked and not any(said):
        return None
    told = np.array(said, dtype=np.str_)
    spoke = (told == "fail") | (told == "pass")
    missing = "the tool was to judge it and did not" if asked else ""
    return Stage(told == "fail", spoke, missing, words=lambda _: "the tool itself says that it failed")


def absolute(column: Column, limit: Absolute) -> Stage:
    """What a limit says that stands by itself."""
    values = column.values
    match limit:
        case AtLeast(value):
            return _below(column, np.full_like(values, value), f"at least {_told(value, column)}")
        case AtMost(value):
            return _above(column, np.full_like(values, value), f"at most {_told(value, column)}")
        case Equals(value, tolerance):
            off = np.abs(values - value) > tolerance
            more = f" within {tolerance:g}" if tolerance else ""
            words = f"must be {_told(value, column)}{more}"
            return Stage(off, np.isfinite(values), bound=np.full_like(values, value), words=lambda _: words)
        case Word():
            return Stage(values > 0, np.isfinite(values), words=lambda _: f"must be {' or '.join(limit.good)}")
        case PeakShare():
            return _of_peak(column, limit)


def _of_peak(column: Column, limit: PeakShare) -> Stage:
    peaks = np.array([limit.peaks.get(kind, np.nan) for kind in column.hardware], dtype=np.float64)
    bound, words = peaks * (limit.percent / 100.0), f"{limit.percent:g} % of the hardware's peak"
    higher = column.rule.direction == "higher_is_better"
    missing = "the hardware profile names no such peak"
    return (_below if higher else _above)(column, bound, f"{'at least' if higher else 'at most'} {words}", missing)


def _below(column: Column, bound: Floats, words: str, missing: str = "") -> Stage:
    spoke = np.isfinite(bound) & np.isfinite(column.values)
    return Stage(column.values < bound, spoke, missing, significant(bound) if missing else bound, lambda _: words)


def _above(column: Column, bound: Floats, words: str, missing: str = "") -> Stage:
    spoke = np.isfinite(bound) & np.isfinite(column.values)
    return Stage(column.values > bound, spoke, missing, significant(bound) if missing else bound, lambda _: words)


def _told(value: float, column: Column) -> str:
    return f"{value:g} {column.rule.unit}".rstrip()
