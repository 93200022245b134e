"""Which rules hold for a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property

from flows.decisions.levels import believed, level_of
from flows.decisions.rulebook import (
    adapters,
    amd,
    benign,
    checkpoints,
    clouds,
    collectives,
    control,
    cuda,
    data,
    dcgm,
    endings,
    fabric,
    hangs,
    host,
    host_memory,
    killed,
    kubernetes,
    laggards,
    links,
    memory,
    nodes,
    noise,
    numeric,
    nvidia,
    nvidia_tools,
    objects,
    platforms,
    ports,
    power,
    python,
    rdma,
    rendezvous,
    rocm,
    schedulers,
    settings,
    slurm,
    stalls,
    storage,
    transports,
    watchers,
    xids,
)
from flows.decisions.rules import Rule
from flows.decisions.words import Words, template
from profiles.vocabulary import FaultClass

MAX_CHARACTERS = 2000
"""Longer lines are cut before matching: no message that tells something is longer, and hostile ones cost nothing."""

RULES: tuple[Rule, ...] = (
    *noise.RULES,
    *benign.RULES,
    *nvidia.RULES,
    *xids.RULES,
    *nvidia_tools.RULES,
    *dcgm.RULES,
    *power.RULES,
    *cuda.RULES,
    *memory.RULES,
    *amd.RULES,
    *rocm.RULES,
    *fabric.RULES,
    *links.RULES,
    *ports.RULES,
    *rdma.RULES,
    *stalls.RULES,
    *watchers.RULES,
    *laggards.RULES,
    *adapters.RULES,
    *transports.RULES,
    *collectives.RULES,
    *hangs.RULES,
    *rendezvous.RULES,
    *host.RULES,
    *host_memory.RULES,
    *killed.RULES,
    *nodes.RULES,
    *storage.RULES,
    *objects.RULES,
    *checkpoints.RULES,
    *data.RULES,
    *numeric.RULES,
    *settings.RULES,
    *python.RULES,
    *kubernetes.RULES,
    *schedulers.RULES,
    *slurm.RULES,
    *clouds.RULES,
    *platforms.RULES,
    *control.RULES,
    *endings.RULES,
)
"""Every rule. Noise comes first: a line that is noise tells nothing."""


@dataclass(frozen=True)
class Match:
    """A rule that holds for a line."""

    rule: Rule
    peer: str = ""
    """Host, address or ranks that the line blames; "" where it names none."""


@cache
def rule_named(name: str) -> Rule | None:
    """The rule of that name, or None (witnesses other than lines use names of their own)."""
    return next((rule for rule in RULES if rule.name == name), None)


MAX_FOUND = 16_384
"""Lines, as they are compared, whose likely rules are remembered."""
MANY = 300
"""Different lines after which it is worth the time to prepare for more of them."""


class Index:
    """Rules, and the words that announce them: those that cannot hold for a text are not tried."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        words: dict[bytes, set[int]] = {}
        for number, rule in enumerate(self.rules):
            for word in rule.literals:
                words.setdefault(template(word.encode()), set()).add(number)
        self.words = {word: tuple(numbers) for word, numbers in words.items()}
        self._found: dict[bytes, tuple[Rule, ...]] = {}
        self._read = 0

    @cached_property
    def _search(self) -> Words:
        return Words(self.words)

    def likely(self, text: str) -> tuple[Rule, ...]:
        """The rules that may hold for a text, in their order; the others need not be tried on it."""
        key = template(text.encode("utf-8", "replace"))
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= MAX_FOUND:
                self._found.clear()
            found = self._found[key] = self.announced(self.words_in(key))
        return found

    def within(self, texts: Iterable[str]) -> Index:
        """These rules, or none where none may hold for any of these lines."""
        return self if any(self.likely(text) for text in texts) else NOTHING

    def words_in(self, key: bytes) -> list[bytes]:
        """The words that a text (`flows.decisions.words.template`) holds."""
        self._read += 1
        if self._read > MANY < len(self.words):
            return self._search.within(key)
        return [word for word in self.words if word in key]

    def announced(self, words: Iterable[bytes]) -> tuple[Rule, ...]:
        """The rules that the words announce, in their order."""
        numbers = {number for word in words for number in self.words.get(word, ())}
        return tuple(self.rules[number] for number in sorted(numbers))


NOTHING = Index(())
ALL = Index(RULES)


def match_line(text: str, origin: str = "", index: Index = ALL) -> tuple[Match, ...]:
    """All rules that hold for one cleaned line; healthy noise alone where the line is noise.

    Args:
        text: the line without prefixes and colours (`flows.decisions.lines.clean`).
        origin: `LogLine.source`; "" where it is not known.
        index: the rules to be tried, in the order of `RULES`.
    """
    text = text[:MAX_CHARACTERS]
    return match_rules(text, origin, index.likely(text))


def match_rules(text: str, origin: str, rules: Iterable[Rule]) -> tuple[Match, ...]:
    """The same, where the rules that may hold are known, in the order of `RULES`."""
    found: list[Match] = []
    for rule in rules:
        if rule.origins and origin and origin not in rule.origins:
            continue
        hit = rule.regex.search(text)
        if hit is None:
            continue
        if rule.fault_class is FaultClass.NONE:
            return (Match(rule),)
        found.append(Match(rule, hit.groupdict().get("peer") or ""))
    if found:
        level = level_of(text)
        found = [match for match in found if believed(match.rule, level)]
    return _most_specific(found)


def _most_specific(found: list[Match]) -> tuple[Match, ...]:
    specific = [match for match in found if not match.rule.fallback] or found
    superseded = {name for match in specific for name in match.rule.supersedes}
    return tuple(match for match in specific if match.rule.name not in superseded)
