"""From what the members of groups told to measurements, and what a group must reach. Pure."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.fabric.model import Floor, Group, Measurement
from flows.decisions.fabric.order import circle, shuffled
from profiles.hardware import HardwareProfile
from profiles.suite_check import Check
from workflows.programs.gang_report import GPUS, GangReport

PEERS_SHARE = 0.5
"""Of the median of the first groups; our own: two sound links of one network differ by less, a bad one by more."""
FEW = 3
"""So few nodes are measured all together at first: pairs of them would leave one alone."""


@dataclass(frozen=True)
class GroupRead:
    """What one group told, all members together."""

    measurement: Measurement
    by: str = ""
    """`gpus` or `sockets`, as far as somebody told; "" where nobody did."""
    wrong: int = 0
    """Values that were not what they should be; then the group counts as one that moves nothing."""
    why: str = ""
    """Why there is no figure: whose answer is missing."""
    notes: tuple[str, ...] = ()
    all_to_all: float | None = None
    """GB/s of the slowest member."""


@dataclass(frozen=True)
class Limit:
    """What groups must reach on each rail."""

    floors: tuple[Floor, ...]
    why: str
    """Where it comes from, for people."""


def read(group: Group, reports: Mapping[str, GangReport], silent: Mapping[str, str]) -> GroupRead:
    """A group's measurement: its slowest member counts, and where one is silent nobody knows anything.

    Args:
        group: its members.
        reports: of those that told something, by node.
        silent: nodes that told nothing, and why.
    """
    told = [reports[node] for node in group if node in reports]
    notes = tuple(dict.fromkeys(note for one in told if (note := one.notes)))
    by = Counter(one.by for one in told if one.rails).most_common(1)
    word = by[0][0] if by else ""
    whys = [*(f"{node}: {why}" for node, why in silent.items()), *_missed(group, told)]
    rails = [one.rails for one in told if one.rails]
    if len(rails) < len(group) or len({len(one) for one in rails}) != 1:
        why = "; ".join(whys[:4]) or "its members do not tell of the same rails"
        return GroupRead(Measurement(group, None), word, 0, why, notes)
    wrong = sum(one.wrong for one in told)
    slowest = tuple(0.0 if wrong else min(rail) for rail in zip(*rails, strict=True))
    others = [one.all_to_all for one in told if one.all_to_all is not None]
    return GroupRead(
        Measurement(group, slowest), word, wrong, "", notes, min(others) if len(others) == len(group) else None
    )


def _missed(group: Group, told: Sequence[GangReport]) -> list[str]:
    """Whom the others missed the most, first."""
    missed = Counter(group[rank] for one in told for rank in one.missed if 0 <= rank < len(group))
    named = [f"{node}: missed by {times} of {len(group)}" for node, times in missed.most_common()]
    return [*named, *(f"{one.node}: {one.why}" for one in told if one.rails is None and not one.missed)]


def first_groups(nodes: Sequence[str], seed: int) -> tuple[Group, ...]:
    """Disjoint pairs by chance, with an odd number one of three; a few nodes all together."""
    if len(nodes) <= FEW:
        return (tuple(nodes),)
    order = shuffled(range(len(nodes)), seed)
    last = order.pop() if len(order) % 2 else None
    groups = [list(pair) for pair in circle(order, 0)]
    if last is not None:
        groups[-1].append(last)
    return tuple(tuple(nodes[member] for member in sorted(group)) for group in groups)


def gang_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Those of all nodes of a group."""
    return tuple(check for check in checks if check.spans == "gang")


def stated_limit(checks: Sequence[Check], hardware: HardwareProfile) -> Limit | None:
    """What the suite's own limits say for each rail of this hardware; None where none does."""
    for check in checks:
        if check.unit != "GB/s" or check.direction != "higher_is_better":
            continue
        figures = [bound.figure for bound in check.bounds_on(hardware) if bound.figure is not None]
        if figures:
            rails = max(1, hardware.gpus_per_node)
            floor = max(figures) / rails
            on = f" on each of {rails} rails" if rails > 1 else ""
            return Limit(
                (Floor(2, floor),), f"{check.name} of the suite asks for {max(figures):g} GB/s: {floor:.4g}{on}"
            )
    return None


def peers_limit(first: Sequence[Measurement], least: Limit | None) -> Limit:
    """Half of the median of the first groups' figures, on any rail; not below the suite's own floor.

    Args:
        first: the first round.
        least: the suite's own; None: it has none.
    """
    figures = [rail for one in first for rail in one.gigabytes_per_second or () if rail > 0]
    floor = least.floors[0].gigabytes_per_second if least else 0.0
    if not figures:
        return Limit((Floor(2, floor),), f"no first group answered; whoever answers with {floor:.4g} GB/s is good")
    median = statistics.median(figures)
    if median * PEERS_SHARE <= floor and least is not None:
        return least
    said = f"half of the median {median:.4g} GB/s of the first {len(first)} groups: {median * PEERS_SHARE:.4g} GB/s"
    return Limit((Floor(2, median * PEERS_SHARE),), said)


def rails_of(first: Sequence[Measurement]) -> int:
    """How many rails most of the first groups told of; 1 where none answered."""
    counted = Counter(len(one.gigabytes_per_second) for one in first if one.gigabytes_per_second)
    return counted.most_common(1)[0][0] if counted else 1


def by_gpus(checks: Sequence[Check]) -> bool:
    """Whether the suite asks for collectives between GPUs."""
    return any("gpus" in check.needs for check in checks)


def was_by_gpus(groups: Sequence[GroupRead]) -> bool:
    """Whether any group was measured between GPUs."""
    return any(one.by == GPUS for one in groups)
