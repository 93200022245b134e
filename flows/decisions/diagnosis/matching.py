"""Which rules hold for a line, found without trying most of them.

A rule is tried only where one of its words stands in the line (`Index`). Lines that differ in numbers alone are read
once where no rule looks at the numbers; Xid 79 is another matter than Xid 43. To know that, a pattern is tried with any
numbers in the place of its own: where it still does not match, no line that differs in numbers alone is matched by it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property

from flows.decisions.diagnosis.clues import Rule
from flows.decisions.diagnosis.lines import believed, level_of
from flows.decisions.diagnosis.prefilter import Words, template
from flows.decisions.diagnosis.rules import (
    amd,
    checkpoints,
    clouds,
    collectives,
    configuration,
    cuda,
    fabric,
    hangs,
    healthy,
    host,
    notices,
    nvidia,
    orchestration,
    power,
    storage,
)
from profiles.vocabulary import FaultClass

_KEPT = re.compile(r"(\\.|\{\d*,?\d*\}|\(\?P?<\w+>|\(\?P=\w+\)|\[(?:\\.|[^\]\\])*\])")
"""Escapes, repetitions, names of groups, sets of characters."""
MAX_FAILED = 4096
"""Texts, with 0 for every digit, that are remembered of one pattern."""
_PARENTHESIS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|[()]")
_BACK = re.compile(r"\(\?P=|\\[1-9]")
"""What asks for the same text, and with it the same number, again."""
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LOOK = re.compile(r"\(\?<?[!=]")


def numbers_matter(pattern: str, text: str) -> bool:
    """False where the pattern holds or fails for all lines that differ from the text in numbers alone."""
    if not _has_numbers(pattern):
        return False
    relaxed = _with_any_numbers(pattern)
    return relaxed is None or relaxed.search(text) is not None


def blind(pattern: str) -> bool:
    """True where the pattern takes every digit for any other: it holds for a text as for its `zeroed` form."""
    return not _has_numbers(pattern)


class Seldom:
    """A pattern that looks at no digit and seldom holds: of texts that differ in digits alone one is tried.

    Raises:
        ValueError: some digit matters to the pattern.
    """

    def __init__(self, pattern: str) -> None:
        if not blind(pattern):
            raise ValueError(f"some digit matters to {pattern}")
        self.regex = re.compile(pattern)
        self._failed: set[bytes] = set()

    def search(self, text: str) -> re.Match[str] | None:
        """As the pattern itself."""
        key = zeroed(text)
        if key in self._failed:
            return None
        hit = self.regex.search(text)
        if hit is None:
            if len(self._failed) >= MAX_FAILED:
                self._failed.clear()
            self._failed.add(key)
        return hit


def zeroed(text: str) -> bytes:
    """The text with 0 for every digit."""
    return text.encode("utf-8", "replace").translate(_ZEROS)


@cache
def _has_numbers(pattern: str) -> bool:
    parts = enumerate(_KEPT.split(pattern))
    return _BACK.search(pattern) is not None or any(
        _some_digits(part) if place % 2 else _any_digit(part) for place, part in parts
    )


def _any_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _some_digits(kept: str) -> bool:
    """A set of characters with some digits, and not all of them."""
    return kept.startswith("[") and _any_digit(kept.replace("0-9", "").replace(r"\d", ""))


@cache
def _with_any_numbers(pattern: str) -> re.Pattern[str] | None:
    """The pattern with any numbers for those that stand in it; None where that cannot be had so simply."""
    if _BACK.search(pattern) is not None:
        return None
    parts = _KEPT.split(_without_looks(pattern))
    made: list[str] = []
    for place, part in enumerate(parts):
        if place % 2:
            if _some_digits(part) and part.startswith("[^"):
                return None
            made.append(f"[\\d{part[1:]}" if _some_digits(part) else part)
            continue
        following = parts[place + 1] if place + 1 < len(parts) else ""
        if part[-1:].isdigit() and following.startswith("{"):
            return None
        made.append(re.sub(r"\d+([?*+]?)", lambda number: r"\d*" if number[1] else r"\d+", part))
    return re.compile("".join(made))


def _without_looks(pattern: str) -> str:
    """The pattern without what looks around for numbers: it matches more, which is safe."""
    opened: list[int] = []
    taken: list[tuple[int, int]] = []
    for hit in _PARENTHESIS.finditer(pattern):
        if hit[0] == "(":
            opened.append(hit.start())
        elif hit[0] == ")":
            start = opened.pop()
            if _LOOK.match(pattern, start) and _has_numbers(pattern[start : hit.end()]):
                taken = [*(piece for piece in taken if piece[0] < start), (start, hit.end())]
    for start, end in reversed(taken):
        pattern = pattern[:start] + pattern[end:]
    return pattern


MAX_CHARACTERS = 2000
"""Longer lines are cut before matching: no message of use is longer, and hostile ones cost nothing."""

RULES: tuple[Rule, ...] = (
    *healthy.NOISE_RULES,
    *healthy.BENIGN_RULES,
    *nvidia.NVIDIA_RULES,
    *nvidia.XID_RULES,
    *nvidia.NVIDIA_TOOL_RULES,
    *nvidia.DCGM_RULES,
    *power.RULES,
    *cuda.CUDA_RULES,
    *cuda.GPU_MEMORY_RULES,
    *amd.AMD_RULES,
    *amd.ROCM_RULES,
    *fabric.FABRIC_RULES,
    *fabric.LINK_RULES,
    *fabric.PORT_RULES,
    *fabric.RDMA_RULES,
    *hangs.STALL_RULES,
    *hangs.WATCHER_RULES,
    *hangs.LAGGARD_RULES,
    *notices.NOTICE_RULES,
    *configuration.MESSAGE_RULES,
    *fabric.ADAPTER_RULES,
    *collectives.TRANSPORT_RULES,
    *collectives.COLLECTIVE_RULES,
    *hangs.HANG_RULES,
    *collectives.RENDEZVOUS_RULES,
    *host.HOST_RULES,
    *host.HOST_MEMORY_RULES,
    *host.KILLED_RULES,
    *host.NODE_RULES,
    *storage.STORAGE_RULES,
    *storage.OBJECT_STORE_RULES,
    *checkpoints.CHECKPOINT_RULES,
    *checkpoints.DATA_RULES,
    *checkpoints.NUMERIC_RULES,
    *configuration.SETTING_RULES,
    *configuration.PYTHON_RULES,
    *orchestration.KUBERNETES_RULES,
    *orchestration.SCHEDULER_RULES,
    *clouds.SLURM_RULES,
    *clouds.CLOUD_RULES,
    *clouds.PLATFORM_RULES,
    *orchestration.CONTROL_PLANE_RULES,
    *notices.ENDING_RULES,
)
"""Every rule. Noise comes first: a line that is noise says nothing."""


@dataclass(frozen=True)
class RuleMatch:
    """A rule that holds for a line."""

    rule: Rule
    peer: str = ""
    """Host, address or ranks that the line blames; "" where it names none."""


@cache
def rule_by_name(name: str) -> Rule | None:
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

    def matches(self, rules: Iterable[Rule], text: str) -> list[RuleMatch]:
        """Those of the rules that hold for the text."""
        peers = ((rule, self.search(rule, text)) for rule in rules)
        return [RuleMatch(rule, peer) for rule, peer in peers if peer is not None]

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
        """The words that a text (`flows.decisions.diagnosis.prefilter.template`) holds."""
        return self._search.within(key)

    def announced(self, words: Iterable[bytes]) -> tuple[Rule, ...]:
        """The rules that the words announce, in their order."""
        numbers = {number for word in words for number in self.words.get(word, ())}
        return tuple(self.rules[number] for number in sorted(numbers))


NOTHING = Index(())
ALL = Index(RULES)


def match_line(text: str, origin: str = "", index: Index = ALL, *, noise: bool = True) -> tuple[RuleMatch, ...]:
    """All rules that hold for one cleaned line; healthy noise alone where the line is noise.

    `text` has no prefixes and colours (`flows.decisions.diagnosis.lines.clean`); `origin`: `LogLine.source`, "" where
    it is not known. `noise`: whether it must be known of lines that no other rule holds for that they are noise.
    """
    text = text[:MAX_CHARACTERS]
    return _matches(text, origin, index.alike(text), noise)


def match_rules(text: str, origin: str, rules: Iterable[Rule]) -> tuple[RuleMatch, ...]:
    """The same, where the rules that may hold are known, in the order of `RULES`."""
    return _matches(text, origin, Alike(list(rules)))


def _matches(text: str, origin: str, alike: Alike, noise: bool = True) -> tuple[RuleMatch, ...]:
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
        return (RuleMatch(quiet),)
    found = found or alike.matches(loud, text)
    if found:
        level = level_of(text)
        found = [match for match in found if believed(match.rule, level)]
    return _most_specific(found)


def _most_specific(found: list[RuleMatch]) -> tuple[RuleMatch, ...]:
    specific = [match for match in found if not match.rule.fallback] or found
    superseded = {name for match in specific for name in match.rule.supersedes}
    return tuple(match for match in specific if match.rule.name not in superseded)
