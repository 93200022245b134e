"""Limits of checks: figures with their sources, and what they come to on one kind of hardware.

All limits that hold must be kept. A hardware's peak bounds them: a floor above it fails every healthy device, a ceiling
above it never fails one, and a floor far below it is a slip of the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from pydantic import Field, model_validator

from profiles.checks.catalogue import FIGURES, PAST_DAYS, SCALES, Direction, Unit
from profiles.hardware import HardwareProfile, Peak
from profiles.values import Text, Value, did_you_mean, wrong

UNIT_SLIP_SHARE = 0.01
"""A floor below this share of the peak is refused. The laxest one in public use (AMD's validation cluster, 5 GB/s for
an all-reduce of 448) stays above it; figures of the wrong unit (2.3 GB/s for the memory of an H200) lie below."""
MIN_PEERS = 4
"""With fewer, one bad node moves the median."""
SIGNS: dict[Direction, tuple[str, str]] = {
    "higher_is_better": ("at_least", "at least"),
    "lower_is_better": ("at_most", "at most"),
    "equal": ("equals", "equal to"),
    "text_equal": ("words", "one of"),
}
"""Which field of an absolute limit holds for which direction, and how it is said."""


class AbsoluteLimit(Value):
    """A figure or a word by itself. Exactly the one of the four that the check's direction asks for."""

    at_least: float | None = None
    """`higher_is_better`: the least that passes, in the check's unit."""
    at_most: float | None = None
    """`lower_is_better`: the most that passes, in the check's unit."""
    equals: float | None = None
    """`equal`: what alone passes, in the check's unit."""
    words: tuple[Text, ...] = ()
    """`text_equal`: the words that pass."""
    hardware: tuple[str, ...] = ()
    """Hardware profiles it holds for; empty: all that no other entry of this list names."""
    source: Text
    """Who says so: a document's title, a program's own figure, a measurement; `our own: …` with the reason."""


class PeakLimit(Value):
    """A share of the hardware's peak (the check's `peak`)."""

    percent: float = Field(gt=0, le=100)
    """Per cent of the peak that passes at least (`lower_is_better`: at most)."""
    hardware: tuple[str, ...] = ()
    """Hardware profiles it holds for; empty: all that no other entry of this list names."""
    source: Text
    """Who says so; see `AbsoluteLimit`."""


class FigureLimit(Value):
    """A figure that the hardware profile states, e.g. how many GPUs a node has."""

    figure: Literal["gpus_per_node", "gpu_memory_gib", "nics_per_node", "nic_gbit_per_second", "cpus_per_node"]
    """Field of the hardware profile."""
    percent: float = Field(default=100.0, gt=0, le=100)
    """Per cent of it."""
    source: Text
    """Who says so; see `AbsoluteLimit`."""


class PeerLimit(Value):
    """Against nodes of the same hardware that pass every other limit. With fewer of them it says nothing."""

    robust_z: float | None = Field(default=None, gt=0)
    """Distance to the worse side in robust standard deviations that still passes; none for words: the majority's word
    passes."""
    nodes: int = Field(default=MIN_PEERS, ge=MIN_PEERS)
    """With fewer peers it says nothing."""
    source: Text
    """Who says so; see `AbsoluteLimit`."""


class HistoryLimit(Value):
    """Against the node's own past. Without a past it says nothing."""

    worse_by_percent: float = Field(gt=0, lt=100)
    """How much worse than the median of its good results within `days` still passes."""
    days: float = Field(gt=0, le=PAST_DAYS)
    """How far back; figures are kept for 90 days."""
    source: Text
    """Who says so; see `AbsoluteLimit`."""


class ToolLimit(Value):
    """The tool's own judgement: what it says failed fails, of which it says neither is unknown."""

    source: Text
    """By what it judges; see `AbsoluteLimit`."""


class Limits(Value):
    """What a check's reading must keep: all of those that are given."""

    absolute: tuple[AbsoluteLimit, ...] = ()
    """Figures or words, at most one entry for a kind of hardware."""
    percent_of_peak: tuple[PeakLimit, ...] = ()
    """Shares of the peak, at most one entry for a kind of hardware."""
    hardware_figure: FigureLimit | None = None
    """What the hardware profile states."""
    tool_judges: ToolLimit | None = None
    """Commands only: what the tool says of its own reading."""
    peers: PeerLimit | None = None
    """Other nodes of the same hardware."""
    history: HistoryLimit | None = None
    """The node's own past."""

    @model_validator(mode="after")
    def _one_entry_for_a_hardware(self) -> Limits:
        for name, entries in (("absolute", self.absolute), ("percent_of_peak", self.percent_of_peak)):
            seen: set[str] = set()
            for index, entry in enumerate(entries):
                named = set(entry.hardware or ("",))
                if seen & named:
                    what = ", ".join(sorted(seen & named)) or "no hardware"
                    raise wrong(f"{name}[{index}].hardware", f"names {what}, as an entry above does; join the two")
                seen |= named
        return self


@dataclass(frozen=True)
class Measure:
    """What a check measures, as far as its limits are concerned."""

    quantity: str
    unit: Unit
    direction: Direction
    peak: str
    """Quantity of the hardware's peak that bounds it."""


@dataclass(frozen=True)
class Bound:
    """A limit as it holds on one kind of hardware."""

    field: str
    """Where it stands, seen from the check, e.g. `limits.absolute[0].at_least`."""
    direction: Direction
    figure: float | None
    """In the check's unit; None for words."""
    words: tuple[str, ...]
    """Words that pass."""
    source: str
    """Who says so."""


@dataclass(frozen=True)
class Problem:
    """Why a suite cannot be used on some hardware."""

    field: str
    """Path of the field, e.g. `checks.hbm-bandwidth.limits.absolute[0].at_least`."""
    reason: str
    """What is wrong and what to do."""


def check_words(limits: Limits, measure: Measure) -> None:
    """Whether limits and direction speak of the same.

    Raises:
        PydanticCustomError: names the field below the check.
    """
    field, words = SIGNS[measure.direction]
    if limits == Limits():
        raise wrong("limits", "must hold at least one limit: without any the check would pass whatever it reads")
    for index, entry in enumerate(limits.absolute):
        given = [name for name, _ in SIGNS.values() if getattr(entry, name) not in (None, ())]
        if given != [field]:
            other = next((name for name in given if name != field), field)
            have = " and ".join(given) or "none"
            reason = f"must give {field} and nothing else, since direction is {measure.direction}; it gives {have}"
            raise wrong(f"limits.absolute[{index}].{other}", reason)
    text = measure.direction == "text_equal"
    ordered = measure.direction in ("higher_is_better", "lower_is_better")
    if limits.percent_of_peak and not ordered:
        raise wrong("limits.percent_of_peak", f"is for figures that have a better side, not for direction {words!r}")
    if limits.history is not None and not ordered:
        raise wrong("limits.history", "is for figures that have a better side; take it out")
    if limits.hardware_figure is not None and FIGURES[limits.hardware_figure.figure] != measure.unit:
        unit = FIGURES[limits.hardware_figure.figure]
        raise wrong("limits.hardware_figure.figure", f"is told in {unit}, but the check's unit is {measure.unit!r}")
    if limits.peers is not None and (limits.peers.robust_z is None) != text:
        raise wrong("limits.peers.robust_z", "must be given for figures, and only for them: words have a majority")


def bounds_on(limits: Limits, measure: Measure, hardware: HardwareProfile) -> tuple[Bound, ...]:
    """The limits of figures and words that hold on `hardware`; a share of a peak that it has not is left out."""
    bounds: list[Bound] = []
    name = SIGNS[measure.direction][0]
    if (index := _entry(limits.absolute, hardware.name)) is not None:
        entry = limits.absolute[index]
        figure: float | None = None if name == "words" else getattr(entry, name)
        bounds.append(Bound(f"limits.absolute[{index}].{name}", measure.direction, figure, entry.words, entry.source))
    index, peak = _entry(limits.percent_of_peak, hardware.name), peak_of(hardware, measure.peak)
    if index is not None and peak is not None and (whole := _converted(peak, measure.unit)) is not None:
        share = limits.percent_of_peak[index]
        field = f"limits.percent_of_peak[{index}].percent"
        bounds.append(Bound(field, measure.direction, whole * share.percent / 100, (), share.source))
    if (given := limits.hardware_figure) is not None:
        value = float(getattr(hardware, given.figure)) * given.percent / 100
        bounds.append(Bound("limits.hardware_figure.figure", measure.direction, value, (), given.source))
    return tuple(bounds)


def problems_on(limits: Limits, measure: Measure, hardware: HardwareProfile) -> tuple[Problem, ...]:
    """Why these limits cannot be used on `hardware`; fields are seen from the check."""
    peak = peak_of(hardware, measure.peak)
    bounds = bounds_on(limits, measure, hardware)
    if peak is None:
        return _without_peak(limits, measure, hardware) or _unlimited(limits, bounds, hardware)
    whole = _converted(peak, measure.unit)
    if whole is None:
        theirs = f"{hardware.name} states its peak {peak.quantity} in {peak.unit}"
        return (Problem("unit", f"is {measure.unit!r}, but {theirs}; use one that fits"),)
    found = [problem for bound in bounds if (problem := _beyond(bound, measure, peak, whole, hardware)) is not None]
    return tuple(found) or _unlimited(limits, bounds, hardware)


def peak_of(hardware: HardwareProfile, quantity: str) -> Peak | None:
    """The hardware's peak of that quantity, if it states one."""
    return next((peak for peak in hardware.peaks if peak.quantity == quantity), None)


def _beyond(bound: Bound, measure: Measure, peak: Peak, whole: float, hardware: HardwareProfile) -> Problem | None:
    if bound.figure is None:
        return None
    figure = f"{bound.figure:g} {measure.unit}"
    limit = f"the peak {peak.quantity} of {hardware.name}, {whole:g} {measure.unit} ({peak.source})"
    if bound.figure > whole:
        effect = "would never be missed" if bound.direction == "lower_is_better" else "no healthy one can reach it"
        return Problem(
            bound.field, f"{figure} lies above {limit}: {effect}; lower it, or name the hardware it is meant for"
        )
    if bound.direction == "higher_is_better" and bound.figure < whole * UNIT_SLIP_SHARE:
        return Problem(bound.field, f"{figure} is less than {UNIT_SLIP_SHARE:.0%} of {limit}; look at the unit")
    return None


def _without_peak(limits: Limits, measure: Measure, hardware: HardwareProfile) -> tuple[Problem, ...]:
    index = _entry(limits.percent_of_peak, hardware.name)
    named = measure.peak != measure.quantity
    if index is None and not named:
        return ()
    field = "peak" if index is None else f"limits.percent_of_peak[{index}].percent"
    known = did_you_mean(measure.peak, [peak.quantity for peak in hardware.peaks], "peaks there")
    reason = f'{hardware.name} states no peak "{measure.peak}"{known}; state it there with its source, or leave '
    return (Problem(field, f"{reason}{hardware.name} out"),)


def _unlimited(limits: Limits, bounds: Sequence[Bound], hardware: HardwareProfile) -> tuple[Problem, ...]:
    if bounds or limits.tool_judges is not None or limits.peers is not None or limits.history is not None:
        return ()
    reason = f"hold nothing for {hardware.name}: the check would pass whatever it reads; add one with its source"
    return (Problem("limits", reason),)


Entry = TypeVar("Entry", AbsoluteLimit, PeakLimit)


def _entry(entries: Sequence[Entry], hardware: str) -> int | None:
    """Number of the entry that holds: the one that names the hardware, else the one that names none."""
    named = next((index for index, entry in enumerate(entries) if hardware in entry.hardware), None)
    return named if named is not None else next((i for i, entry in enumerate(entries) if not entry.hardware), None)


def _converted(peak: Peak, unit: str) -> float | None:
    """The peak in `unit`; None where that measures something else."""
    if unit == peak.unit:
        return peak.value
    (kind, scale), (other_kind, other_scale) = SCALES[peak.unit], SCALES.get(unit, ("", 1.0))
    return peak.value * scale / other_scale if kind == other_kind else None
