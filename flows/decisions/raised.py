"""The second tier: exceptions that no rule names, judged by their type, their words and the files of their frames.

Most programs end with an exception that nobody wrote a rule for. What kind it is shows anyway: a `KeyError` under
`load_state_dict` is another matter than one under `__getitem__` of a data set or in `os.environ`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from flows.decisions.hint_words import MESSAGES
from flows.decisions.hints import (
    CONFIG,
    CORRUPT,
    DATA,
    FRAMES,
    MISMATCH,
    OTHER,
    PEERS,
    STORAGE,
    TYPES,
    USER,
    Hint,
    Part,
)
from flows.decisions.matching import MAX_CHARACTERS, Match, rule_named
from flows.decisions.rules import Blames, Rule
from flows.decisions.tracebacks import WRAPPER, Raised, named
from profiles.vocabulary import FaultClass

HINTS: tuple[Hint, ...] = (*TYPES, *MESSAGES, *FRAMES)
ANYBODY = 2.0
"""Points of the user's own code where nothing else is known."""
NOTHING = 1.85
"""Weight of everything that no hint thinks of, so that no hint at all leaves the user's code at 0.8."""
MOST = 0.93
"""No such judgement is surer."""
TRAINED: tuple[tuple[FaultClass, float], ...] = ((CONFIG, -1.5), (MISMATCH, -1.0), (DATA, 0.5), (STORAGE, 0.5))
"""What changes once steps were made: settings and resumed checkpoints were good, data and disks may go bad any time."""
NAMELESS = ("python-exception", "logged-exception")
"""Rules that know an exception by its form alone."""
WRAPPED_FACTOR = 0.5
"""What an exception is worth that only tells of a worker's: the worker's own stands beside it, unless it was cut."""
VAGUE = ("connection-error",)
"""Rules of exceptions with several owners: replaced only where the hints are surer."""
_REPLACED = frozenset({*NAMELESS, *VAGUE})
BLAMES: dict[FaultClass, Blames] = {USER: "code", CONFIG: "code", DATA: "code", MISMATCH: "code"}


@dataclass(frozen=True)
class Judged:
    """What an exception is."""

    fault_class: FaultClass
    weight: float
    """Probability, 0 to 1, that the class is right where only the exception is known."""
    sure: bool
    """Some hint spoke for the class: it is more than a default."""


@dataclass(frozen=True)
class Told:
    """A line's matches after the second tier."""

    matches: tuple[Match, ...]
    sure: bool


@lru_cache(maxsize=4096)
def judge(type_name: str, message: str, frames: tuple[str, ...] = (), trained: bool = False, code: str = "") -> Judged:
    """The class that an exception speaks for.

    Args:
        type_name: name of the exception with its module.
        message: its message, as far as the log has it.
        frames: `path:function` of the last frames, the innermost last.
        trained: steps were made before it.
        code: source lines of the innermost frames, where the log holds them.
    """
    parts: dict[Part, str] = {
        "type": type_name,
        "message": message[:MAX_CHARACTERS],
        "frames": "\n".join(frames),
        "inner": frames[-1] if frames else "",
        "code": code,
    }
    points: dict[FaultClass, float] = {USER: ANYBODY}
    spoken: set[FaultClass] = set()
    for hint in HINTS:
        if all(_found(regex.search(parts[part])) for part, regex in hint.regexes):
            for kind, value in hint.points:
                points[kind] = points.get(kind, 0.0) + value
                spoken |= {kind} if value > 0 else set()
    for kind, value in TRAINED if trained else ():
        if kind in points:
            points[kind] += value
    best = max(points, key=lambda kind: (points[kind], kind.value))
    total = math.fsum(math.exp(value) for value in points.values()) + NOTHING
    return Judged(best, round(min(math.exp(points[best]) / total, MOST), 3), best in spoken)


def _found(hit: object) -> bool:
    return hit is not None


def second_tier(matches: tuple[Match, ...], text: str, raised: Raised | None, trained: bool) -> Told:
    """The matches of a line, an exception that no rule names judged by what it says.

    Args:
        matches: the rules that hold for the line.
        text: the line.
        raised: the exception whose traceback ends with the line; None where it ends none.
        trained: steps were made before it.
    """
    if raised is None and matches and matches[0].rule.name not in _REPLACED:
        return Told(matches, True)
    names = {match.rule.name for match in matches}
    if names - _REPLACED or not (names or raised):
        return Told(matches, bool(matches))
    base = rule_named(NAMELESS[0])
    type_name, message = (raised.type, raised.message) if raised is not None else named(text)
    if base is None or not type_name:
        return Told(matches, False)
    judged = (
        judge(type_name, message, raised.frames, trained, raised.code)
        if raised is not None
        else judge(type_name, message, (), trained)
    )
    if names & set(VAGUE) and not _surer(judged, matches):
        return Told(matches, False)
    form = next((match.rule for match in matches if match.rule.name in NAMELESS), base)
    share = form.weight / base.weight * (WRAPPED_FACTOR if message.startswith(WRAPPER) else 1.0)
    return Told((Match(_rule(form, judged, share)),), judged.sure)


def _surer(judged: Judged, matches: Sequence[Match]) -> bool:
    others = {USER, PEERS, OTHER}
    return judged.fault_class not in others and judged.weight > max(match.rule.weight for match in matches)


def _rule(base: Rule, judged: Judged, said: float) -> Rule:
    """The rule that a judgement stands for; `said` is what the form of the line leaves of its weight."""
    kind = judged.fault_class
    weight = judged.weight * min(said, 1.0)
    if kind is USER:
        return replace(base, weight=weight)
    echo = kind in (OTHER, PEERS)
    return replace(
        base,
        name=f"exception-{kind.value.replace('_', '-')}",
        fault_class=kind,
        weight=min(weight, 0.25) if kind is OTHER else weight,
        blames=BLAMES.get(kind, "nobody"),
        echo=echo,
        advice="the file that could not be read is named beside it" if kind is CORRUPT else "",
    )
