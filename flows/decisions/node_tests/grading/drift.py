"""What nodes of one kind should have in common and do not: versions, link widths, clocks. Pure.

Drift fails no node by itself: it names the nodes that differ from most of their kind, and says where there is no
"most". An update that is rolled out looks like drift and is reported as one: two large groups, or another majority than
before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from flows.decisions.recovery.nodes import natural
from flows.decisions.text import first_names

NAMES = 8
"""Nodes that a sentence names; the row holds all of them."""
LARGE_SHARE = 0.1
"""Whoever differs with so many others is no outlier: someone changes the fleet. A rack of 8 among 64 nodes is that."""
LEAST_LARGE = 3
"""Two nodes that differ are two outliers, however small the fleet."""
STEADY_FIGURES = frozenset(
    {
        *("gpu-count", "gpu-bindable", "pcie-width", "pcie-generation", "nic-ports", "nic-link-rate", "numa-balancing"),
        *("gpu-clock-amd", "gpu-clock-nvidia", "memory-clock-amd", "memory-clock-nvidia"),
    }
)
"""Checks of the shipped suites whose figure is a property of the machine. Other figures differ from node to node, and
words are always properties: versions, modes, arguments."""


@dataclass(frozen=True)
class DriftRow:
    """One fact of one kind of hardware."""

    hardware: str
    fact: str
    counts: tuple[tuple[str, int], ...]
    """(word, nodes that reported it), the most frequent first, then by word."""
    majority: str
    """What more than half of those reported; "": no word is that frequent, and nobody is named."""
    outliers: tuple[tuple[str, str], ...] = ()
    """(node, its word) of those that reported another word than the majority."""
    missing: tuple[str, ...] = ()
    """Nodes that reported nothing: whether they differ is unknown."""

    @property
    def same(self) -> bool:
        """Every node reported it, and all the same word."""
        return len(self.counts) == 1 and not self.missing

    @property
    def reporting(self) -> int:
        """How many nodes reported it."""
        return sum(count for _, count in self.counts)

    @property
    def share(self) -> float:
        """Of those that reported it, the share with the most frequent word, 0 to 1."""
        return self.counts[0][1] / self.reporting if self.counts else 0.0

    @property
    def groups(self) -> tuple[tuple[str, int], ...]:
        """Words that so many nodes reported that none of them is an outlier; of most facts one."""
        return tuple(item for item in self.counts if item[1] >= max(LEAST_LARGE, LARGE_SHARE * self.reporting))

    @property
    def changing(self) -> bool:
        """Two groups are large: an update is under way, or has stopped half way."""
        return len(self.groups) > 1

    @property
    def why(self) -> str:
        """In words."""
        counts = ", ".join(f"{word} on {count}" for word, count in self.counts[:NAMES]) or "no node reported it"
        if self.same:
            return counts
        parts = [counts]
        if self.outliers:
            parts.append("different: " + first_names([f"{node} ({word})" for node, word in self.outliers], NAMES))
        elif len(self.counts) > 1:
            tied = self.counts[0][1] == self.counts[1][1]
            parts.append("a tie: no node is named" if tied else "no majority: no node is named")
        if self.missing:
            parts.append("not known of " + first_names(self.missing, NAMES))
        return "; ".join(parts)


def drift_table(facts: Mapping[str, Mapping[str, str]], hardware: Mapping[str, str]) -> tuple[DriftRow, ...]:
    """One row a kind of hardware and fact, by their names.

    `facts`: node -> fact -> word; "" or missing: not known. `hardware`: node -> kind; a fact is expected of each node
    of a kind of which one node reports it.
    """
    kinds: dict[str, list[str]] = {}
    for node in sorted(hardware, key=natural):
        kinds.setdefault(hardware[node], []).append(node)
    rows: list[DriftRow] = []
    for kind in sorted(kinds):
        names = sorted({fact for node in kinds[kind] for fact, word in facts.get(node, {}).items() if word})
        rows += [_row(kind, fact, {node: facts.get(node, {}).get(fact, "") for node in kinds[kind]}) for fact in names]
    return tuple(rows)


@dataclass(frozen=True)
class Shift:
    """Most nodes of a kind report something else than most did the time before."""

    hardware: str
    fact: str
    was: str
    now: str
    """"": there is no majority any more."""
    why: str


def shifts(now: Iterable[DriftRow], before: Iterable[DriftRow]) -> tuple[Shift, ...]:
    """Facts whose majority is another one than before. Where there was none before, nothing has moved."""
    old = {(row.hardware, row.fact): row for row in before}
    found: list[Shift] = []
    for row in now:
        past = old.get((row.hardware, row.fact))
        if past is not None and past.majority and past.majority != row.majority:
            counts = ", ".join(f"{word} on {count}" for word, count in row.counts[:NAMES])
            why = f"was {past.majority} on {past.counts[0][1]} of {past.reporting}, now {counts}"
            found.append(Shift(row.hardware, row.fact, past.majority, row.majority, why))
    return tuple(found)


def facts_of(reasons: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """The properties of one node by check, from its verdict; figures are words with their unit.

    What could not be read is left out, whatever its verdict: a version that nobody could judge is a version, and "no
    tool" is none.
    """
    found: dict[str, str] = {}
    for reason in reasons:
        check, measured, unit = str(reason.get("check", "")), reason.get("measured"), str(reason.get("unit") or "")
        if isinstance(measured, str) and measured and not unit:
            found[check] = measured
        elif check in STEADY_FIGURES and isinstance(measured, (int, float)):
            found[check] = f"{measured:g} {unit}".rstrip()
    return found


def _row(kind: str, fact: str, words: Mapping[str, str]) -> DriftRow:
    tally = Counter(word for word in words.values() if word)
    counts = tuple(sorted(tally.items(), key=lambda item: (-item[1], natural(item[0]))))
    word, most = counts[0]
    majority = word if 2 * most > tally.total() else ""
    outliers = tuple((node, own) for node, own in words.items() if own and majority and own != majority)
    return DriftRow(kind, fact, counts, majority, outliers, tuple(node for node, own in words.items() if not own))
