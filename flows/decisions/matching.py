"""Which rules hold for a line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from flows.decisions.rulebook import (
    amd,
    checkpoints,
    collectives,
    cuda,
    fabric,
    host,
    kubernetes,
    noise,
    nvidia,
    python,
    rendezvous,
    storage,
)
from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

MAX_CHARACTERS = 2000
"""Longer lines are cut before matching: no message that tells something is longer, and hostile ones cost nothing."""

RULES: tuple[Rule, ...] = (
    *noise.RULES,
    *nvidia.RULES,
    *cuda.RULES,
    *amd.RULES,
    *fabric.RULES,
    *collectives.RULES,
    *rendezvous.RULES,
    *host.RULES,
    *storage.RULES,
    *checkpoints.RULES,
    *python.RULES,
    *kubernetes.RULES,
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


def likely(text: str) -> tuple[Rule, ...]:
    """The rules that may hold for lines of this text; the others need not be tried on them."""
    lower = text.lower()
    return tuple(rule for rule in RULES if any(word in lower for word in rule.literals))


def match_line(text: str, origin: str = "", rules: Iterable[Rule] = RULES) -> tuple[Match, ...]:
    """All rules that hold for one cleaned line; healthy noise alone where the line is noise.

    Args:
        text: the line without prefixes and colours (`flows.decisions.lines.clean`).
        origin: `LogLine.source`; "" where it is not known.
        rules: those to be tried, in the order of `RULES`.
    """
    text = text[:MAX_CHARACTERS]
    lower = text.lower()
    found: list[Match] = []
    for rule in rules:
        if rule.origins and origin and origin not in rule.origins:
            continue
        hit = rule.regex.search(text) if any(word in lower for word in rule.literals) else None
        if hit is None:
            continue
        if rule.fault_class is FaultClass.NONE:
            return (Match(rule),)
        found.append(Match(rule, hit.groupdict().get("peer") or ""))
    return _most_specific(found)


def _most_specific(found: list[Match]) -> tuple[Match, ...]:
    specific = [match for match in found if not match.rule.fallback] or found
    superseded = {name for match in specific for name in match.rule.supersedes}
    return tuple(match for match in specific if match.rule.name not in superseded)
