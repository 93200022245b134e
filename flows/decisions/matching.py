"""Which rules hold for a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property

from flows.decisions.levels import believed, level_of
from flows.decisions.numbers_in_patterns import blind, numbers_matter, zeroed
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
    notices,
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
    sayings,
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
    *notices.RULES,
    *sayings.RULES,
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
MAX_ALIKE = 4096
"""Lines, with 0 for every digit, whose rules are remembered."""
MANY_ALIKE = 8
"""So many of them, and it is worth the time to see whether rules that look at numbers can hold for any."""


@dataclass
class Alike:
    """Texts that differ in digits alone, and the rules that may hold for them: most look at no digit."""

    rules: list[Rule]
    """Those that still need to be looked at, in their order."""
    times: int = 0
    sure: set[str] = field(default_factory=set[str])
    """Names of those that hold for all such texts, and name no peer."""
    open: set[str] = field(default_factory=set[str])
    """Names of those that may hold for some such texts."""

    def search(self, rule: Rule, text: str) -> str | None:
        """The peer that the rule finds in the text, "" for none; None where the rule does not hold."""
        if rule.name in self.sure:
            return ""
        hit = rule.regex.search(text)
        if hit is None and (blind(rule.pattern) or self._fails(rule, text)):
            self.rules = [other for other in self.rules if other is not rule]
        elif hit is not None and not rule.regex.groups and blind(rule.pattern):
            self.sure.add(rule.name)
        return None if hit is None else next(filter(None, hit.groupdict().values()), "")

    def matches(self, rules: Iterable[Rule], text: str) -> list[Match]:
        """Those of the rules that hold for the text."""
        peers = ((rule, self.search(rule, text)) for rule in rules)
        return [Match(rule, peer) for rule, peer in peers if peer is not None]

    def _fails(self, rule: Rule, text: str) -> bool:
        """True where the rule fails whatever the numbers are; asked once, of texts that come again and again."""
        if self.times < MANY_ALIKE or rule.name in self.open:
            return False
        self.open.add(rule.name)
        return not numbers_matter(rule.pattern, text)


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
        self._alike: dict[bytes, Alike] = {}

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

    def alike(self, text: str) -> Alike:
        """What is known of all texts that differ from this one in digits alone: many ranks print them."""
        key = zeroed(text)
        found = self._alike.get(key)
        if found is None:
            if len(self._alike) >= MAX_ALIKE:
                self._alike.clear()
            found = self._alike[key] = Alike(list(self.likely(text)))
        found.times += 1
        return found

    def within(self, texts: Iterable[str]) -> Index:
        """These rules, or none where none may hold for any of these lines."""
        return self if any(self.likely(text) for text in texts) else NOTHING

    def words_in(self, key: bytes) -> list[bytes]:
        """The words that a text (`flows.decisions.words.template`) holds."""
        return self._search.within(key)

    def announced(self, words: Iterable[bytes]) -> tuple[Rule, ...]:
        """The rules that the words announce, in their order."""
        numbers = {number for word in words for number in self.words.get(word, ())}
        return tuple(self.rules[number] for number in sorted(numbers))


NOTHING = Index(())
ALL = Index(RULES)


def match_line(text: str, origin: str = "", index: Index = ALL, *, noise: bool = True) -> tuple[Match, ...]:
    """All rules that hold for one cleaned line; healthy noise alone where the line is noise.

    Args:
        text: the line without prefixes and colours (`flows.decisions.lines.clean`).
        origin: `LogLine.source`; "" where it is not known.
        index: the rules to be tried, in the order of `RULES`.
        noise: whether it must be known of lines that no other rule holds for that they are noise.
    """
    text = text[:MAX_CHARACTERS]
    return _matches(text, origin, index.alike(text), noise)


def match_rules(text: str, origin: str, rules: Iterable[Rule]) -> tuple[Match, ...]:
    """The same, where the rules that may hold are known, in the order of `RULES`."""
    return _matches(text, origin, Alike(list(rules)))


def _matches(text: str, origin: str, alike: Alike, noise: bool = True) -> tuple[Match, ...]:
    rules = [rule for rule in alike.rules if not rule.origins or not origin or origin in rule.origins]
    if not rules:
        return ()
    calm = (rule for rule in rules if rule.fault_class is FaultClass.NONE)
    loud = [rule for rule in rules if rule.fault_class is not FaultClass.NONE]
    found = [] if noise else alike.matches(loud, text)
    if not noise and not found:
        return ()
    quiet = next((rule for rule in calm if alike.search(rule, text) is not None), None)
    if quiet is not None:
        return (Match(quiet),)
    found = found or alike.matches(loud, text)
    if found:
        level = level_of(text)
        found = [match for match in found if believed(match.rule, level)]
    return _most_specific(found)


def _most_specific(found: list[Match]) -> tuple[Match, ...]:
    specific = [match for match in found if not match.rule.fallback] or found
    superseded = {name for match in specific for name in match.rule.supersedes}
    return tuple(match for match in specific if match.rule.name not in superseded)
