"""What is judged and by what: checks with their limits, the readings of nodes, and the depths of tests. Pure values.

The callers make them from a suite's profile; nothing here knows of profiles' files.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from profiles.vocabulary import VerdictWord
from workflows.model.records import Json
from workflows.programs.parsers.text import ParsedOutput

Direction = Literal["higher_is_better", "lower_is_better", "equal", "text_equal"]
Combine = Literal["best", "median", "worst", "all"]
Severity = Literal["fatal", "warning"]


class Depth(StrEnum):
    """How deep a test looks, the shallowest first."""

    GATE = "gate"
    SMOKE = "smoke"
    DEVICE = "device"
    FABRIC = "fabric"
    STORAGE = "storage"
    TRAINING = "training"


DEEPER: Mapping[Depth, frozenset[Depth]] = {
    Depth.GATE: frozenset(Depth),
    Depth.SMOKE: frozenset({Depth.SMOKE, Depth.DEVICE, Depth.TRAINING}),
    Depth.DEVICE: frozenset({Depth.DEVICE, Depth.TRAINING}),
    Depth.FABRIC: frozenset({Depth.FABRIC, Depth.TRAINING}),
    Depth.STORAGE: frozenset({Depth.STORAGE, Depth.TRAINING}),
    Depth.TRAINING: frozenset({Depth.TRAINING}),
}
"""Depths whose pass speaks for a depth too: the equal and the deeper ones. Fabric and storage look at other things than
a node's own devices: a file that was written well says nothing for a GPU that multiplied wrongly."""
DEEP = frozenset(Depth) - {Depth.GATE, Depth.SMOKE}
"""Tests that need a node for themselves."""


@dataclass(frozen=True)
class AtLeast:
    """A smaller figure fails."""

    value: float


@dataclass(frozen=True)
class AtMost:
    """A larger figure fails."""

    value: float


@dataclass(frozen=True)
class Equals:
    """Any other figure fails."""

    value: float
    tolerance: float = 0.0
    """So far off it still is the same."""


@dataclass(frozen=True)
class Word:
    """Any other word fails."""

    expected: str
    others: tuple[str, ...] = ()
    """Words that are as good."""

    @property
    def good(self) -> tuple[str, ...]:
        """All that pass."""
        return (self.expected, *self.others)


@dataclass(frozen=True)
class PeakShare:
    """So many per cent of the hardware's peak: at least where higher is better, at most where lower is."""

    percent: float
    peaks: Mapping[str, float]
    """Kind of hardware -> its peak in the check's unit. A kind that is missing here makes the check unknown."""


@dataclass(frozen=True)
class Peers:
    """Far worse than other nodes of the same hardware, by a robust z of median and MAD. Too few peers say nothing."""

    z: float = 3.5
    """Modified z-score from which on a figure is called an outlier (Iglewicz and Hoaglin, 1993)."""
    spread_floor_share: float = 0.015
    """The spread counts as at least this share of the median: with z = 3.5 nobody is blamed for less than 5.25 %.

    SuperBench's rules call a figure defective from 5 % off its baseline on; healthy nodes that are nearly equal have a
    MAD near 0, and would accuse each other of rounding.
    """
    least: int = 4
    """So many others are needed; of fewer the median and the MAD are too easily one sick node's."""


@dataclass(frozen=True)
class Majority:
    """Any other word than that of most peers fails: of more than half of the other nodes of the same hardware.

    Without such a majority, or with too few peers, it says nothing.
    """

    least: int = 4
    """So many others are needed."""


@dataclass(frozen=True)
class ToolJudges:
    """The tool's own judgement is asked for: where it says neither `pass` nor `fail` the check is unknown.

    What a tool says of its own accord counts without this too, but nobody waits for it.
    """


@dataclass(frozen=True)
class Fall:
    """So many per cent worse than the median of the node's own last good figures."""

    percent: float
    good: int = 7
    """So many of the last good ones; with one test a night that is a week."""
    days: int = 30
    """Older ones are not looked at."""


@dataclass(frozen=True)
class Drift:
    """Slowly worse: a rank test (Mann-Kendall) sees a trend, and it is large enough to matter."""

    percent: float
    """Median of the last third of the figures against that of the first third. Of a steady fall it sees two thirds."""
    z: float = 3.09
    """Of the rank test, one-sided: a chance of 1 in 1,000 without a trend. With a thousand nodes and sixty checks the
    test alone would accuse sixty a night; `percent` is what keeps those silent."""


Limit = AtLeast | AtMost | Equals | Word | PeakShare | ToolJudges | Peers | Majority | Fall | Drift


@dataclass(frozen=True)
class CheckRule:
    """One check: what is read, and when it is good.

    Raises:
        ValueError: limits that speak against the direction.
    """

    name: str
    depth: Depth
    quantity: str
    """Of the readings that it is about; others are left out."""
    unit: str = ""
    direction: Direction = "higher_is_better"
    limits: tuple[Limit, ...] = ()
    """Empty: as with `ToolJudges` alone."""
    attempts: int = 1
    combine: Combine = "worst"
    """How attempts become one figure. `best`, `worst`: of those that could be read. `median`: a real one, of an even
    number the worse of the two in the middle; more than half must be readable. `all`: the worst, and none may lack."""
    severity: Severity = "fatal"
    """A `warning` is reported and never changes the node's verdict."""
    noisy: bool = True
    """One bad measurement is none: it is repeated before it counts. False: counters, states, versions."""
    subjects: Mapping[str, int] = field(default_factory=dict[str, int])
    """Kind of hardware -> how many GPUs, ports or folders of a node must be reported; missing: those that are."""
    gpus: Mapping[str, int] = field(default_factory=dict[str, int])
    """Kind of hardware -> of how many GPUs a tool that tells several things of each must have told; missing: any."""
    fault_class: str = ""
    """What a node has that fails; stands in the reason as `class`."""
    what_to_do: str = ""
    """For people; stands in the reason of a failure."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts of {self.name}: must be at least 1, got {self.attempts}")
        for limit in self.limits:
            if self.direction not in FITTING[type(limit)]:
                raise ValueError(f"limits of {self.name}: {type(limit).__name__} does not fit {self.direction}")
            if isinstance(limit, (AtLeast, AtMost, Equals)) and not math.isfinite(limit.value):
                raise ValueError(f"limits of {self.name}: must be finite, got {limit.value}")


FITTING: Mapping[type, frozenset[Direction]] = {
    AtLeast: frozenset({"higher_is_better", "equal"}),
    AtMost: frozenset({"lower_is_better", "equal"}),
    Equals: frozenset({"equal"}),
    Word: frozenset({"text_equal"}),
    Majority: frozenset({"text_equal"}),
    ToolJudges: frozenset({"higher_is_better", "lower_is_better", "equal", "text_equal"}),
    PeakShare: frozenset({"higher_is_better", "lower_is_better"}),
    Peers: frozenset({"higher_is_better", "lower_is_better"}),
    Fall: frozenset({"higher_is_better", "lower_is_better"}),
    Drift: frozenset({"higher_is_better", "lower_is_better"}),
}
"""Directions with which a limit makes sense: otherwise a better figure could get a worse verdict."""


@dataclass(frozen=True)
class NodeReadings:
    """The values that the checks of one node reported."""

    node: str
    hardware: str
    """Name of its hardware profile: peers are of one kind."""
    parsed: Mapping[str, tuple[ParsedOutput, ...]]
    """Name of a check -> the values of each attempt. A check that is missing did not run."""


@dataclass(frozen=True)
class NodeGrade:
    """What the checks say about one node."""

    node: str
    verdict: VerdictWord
    reasons: tuple[Json, ...]
    """One a check, in the order of the rules, as in `VerdictRecord.reasons`: `{"check", "verdict", "measured",
    "limit", "unit", "evidence"}`; with `"severity": "warning"` and `"repeat": true` where those hold, and with
    `"class"` and `"what_to_do"` where it failed."""
    repeat: tuple[str, ...] = ()
    """Fatal checks that failed once and must be measured again before the node is blamed."""
