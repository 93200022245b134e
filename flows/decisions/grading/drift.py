"""What nodes of one kind should have in common and do not: versions, link widths, clocks. Pure.

Drift accuses nobody by itself: it names who differs from most of its kind, and says where there is no "most".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.nodes import natural
from workflows.programs.readings import Parsed, Reading

NAMES = 8
"""Nodes that a sentence names; the row holds all of them."""


@dataclass(frozen=True)
class DriftRow:
    """One fact of one kind of hardware."""

    hardware: str
    fact: str
    counts: tuple[tuple[str, int], ...]
    """(word, nodes that told it), the most frequent first, then by word."""
    majority: str
    """What more than half of those told; "": no word is that frequent, and nobody is named."""
    outliers: tuple[tuple[str, str], ...] = ()
    """(node, its word) of those that told another word than the majority."""
    missing: tuple[str, ...] = ()
    """Nodes that told nothing: whether they differ is unknown."""

    @property
    def same(self) -> bool:
        """Every node told it, and all the same."""
        return len(self.counts) == 1 and not self.missing

    @property
    def why(self) -> str:
        """In words."""
        told = ", ".join(f"{word} on {count}" for word, count in self.counts[:NAMES]) or "nobody told it"
        if self.same:
            return told
        parts = [told]
        if self.outliers:
            parts.append("different: " + _named([f"{node} ({word})" for node, word in self.outliers]))
        elif len(self.counts) > 1:
            tied = self.counts[0][1] == self.counts[1][1]
            parts.append("a tie: nobody is named" if tied else "no majority: nobody is named")
        if self.missing:
            parts.append("not known of " + _named(self.missing))
        return "; ".join(parts)


def drift_table(facts: Mapping[str, Mapping[str, str]], hardware: Mapping[str, str]) -> tuple[DriftRow, ...]:
    """One row a kind of hardware and fact, by their names.

    Args:
        facts: node -> fact -> word; "" or missing: not known.
        hardware: node -> kind. A fact is expected of each node of a kind of which one node tells it.
    """
    kinds: dict[str, list[str]] = {}
    for node in sorted(hardware, key=natural):
        kinds.setdefault(hardware[node], []).append(node)
    rows: list[DriftRow] = []
    for kind in sorted(kinds):
        names = sorted({fact for node in kinds[kind] for fact, word in facts.get(node, {}).items() if word})
        rows += [_row(kind, fact, {node: facts.get(node, {}).get(fact, "") for node in kinds[kind]}) for fact in names]
    return tuple(rows)


def facts_of(told: Iterable[Parsed], quantities: Iterable[str]) -> dict[str, str]:
    """The words of one node by quantity. Figures are words with their unit; where its parts differ, all are told.

    Args:
        told: what its tools told.
        quantities: those that nodes of one kind should have in common.
    """
    wanted = set(quantities)
    found: dict[str, set[str]] = {}
    for parsed in told:
        for reading in parsed.readings:
            if reading.quantity in wanted and (word := _word(reading)):
                found.setdefault(reading.quantity, set()).add(word)
    return {quantity: ", ".join(sorted(words, key=natural)) for quantity, words in sorted(found.items())}


def _row(kind: str, fact: str, words: Mapping[str, str]) -> DriftRow:
    tally = Counter(word for word in words.values() if word)
    counts = tuple(sorted(tally.items(), key=lambda item: (-item[1], natural(item[0]))))
    word, most = counts[0]
    majority = word if 2 * most > tally.total() else ""
    outliers = tuple((node, own) for node, own in words.items() if own and majority and own != majority)
    return DriftRow(kind, fact, counts, majority, outliers, tuple(node for node, own in words.items() if not own))


def _word(reading: Reading) -> str:
    if reading.word:
        return reading.word
    return "" if reading.value is None else f"{reading.value:g} {reading.unit}".rstrip()


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
