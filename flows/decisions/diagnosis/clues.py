"""Clues and rules, and how clues are weighed: which class the evidence speaks for, and how surely.

Each witness says how probable its class is if it alone were known. Consequences are dropped or discounted once their
cause is known; what is left of one class adds up as independent witnesses do. A rule never decides alone: the tables
are in `flows.decisions.diagnosis.rules`, `matching` finds them, and `diagnose` weighs everything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from flows.decisions.diagnosis.literals import literals_of
from flows.decisions.policy import POLICY
from profiles.vocabulary import FaultClass

Blames = Literal["rank", "node", "peer", "code", "nobody"]
"""Who is to blame if the rule is right: the rank or node that printed the line, the one it names, the code, nobody."""

GPU_CONSEQUENCES = tuple(kind.value for kind, policy in POLICY.items() if policy.follows_broken_gpu)
"""Words of the classes that a broken GPU makes everybody else print."""

KNOWN_ORIGINAL = 0.45
"""A clue of at least this weight that is no echo counts as a known cause."""
ECHO_FACTOR = 0.12
"""What an echo is worth as soon as an original is known."""
VICTIM_FACTOR = 0.1
"""What a rank says that ended because others did."""
LATER_FACTOR = 0.4
"""What a rank says after another one had failed of its own."""
LATER_SECONDS = 0.05
"""Failures of two ranks closer than this are simultaneous."""
TELLING = 0.3
"""Below this nothing is claimed: the class is unknown."""
RIVAL_FACTOR = 0.5
"""How much the next class takes from the confidence in the first."""
END_TOLD = "how it ended"
"""The one witness that all reports of an end are together."""
ENDS_TOLD = frozenset({
    "killed-by-shell", "killed-exit-code", "killed-signal", "ended-minus-nine", "kubernetes-exit-137", "segfault-shell",
    "crashed-exit-code", "crashed-signal", "dataloader-worker-crashed", "dataloader-worker-ended",
    "pool-process-died", "slurm-job-killed", "ended-by-sigterm",
})  # fmt: skip
"""Rules of lines that say how a process ended, and no more."""
_END = re.compile(r"(?:signal|exit)-\d{1,3}")
"""Names of the witnesses of ends that launchers and records tell."""


@dataclass(frozen=True)
class Rule:
    """One kind of line."""

    name: str
    """Unique, kebab case; appears beside the line as evidence."""
    pattern: str
    """Regular expression searched in the cleaned line, without nested repetition. Group `peer`, or any other with a
    name: who is blamed."""
    fault_class: FaultClass
    """`none`: healthy noise; the line says nothing, whatever else matches."""
    weight: float
    """Probability, 0 to 1, that the class is right where only this line is known."""
    blames: Blames
    example: str
    """A line that programs really print; the tests replay it."""
    near_miss: str
    """A similar line that must not match."""
    source: str
    """Where the fact comes from."""
    supersedes: tuple[str, ...] = ()
    """Names of rules or words of fault classes that are consequences of this: no longer counted once this is known."""
    vendor: Literal["any", "nvidia", "amd"] = "any"
    echo: bool = False
    """A consequence that others than the culprit print: hardly counted as soon as an original is known."""
    wraps: bool = False
    """It carries whatever failed beneath it: as soon as anything else says what that is, it says nothing."""
    fallback: bool = False
    """Counts only where no other rule matches the line."""
    origins: tuple[str, ...] = ()
    """Sources of lines it applies to, e.g. `kernel`; empty: all."""
    advice: str = ""
    """What a person can do, where the class alone does not say it."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern (compiled at first use)."""
        return re.compile(self.pattern)

    @property
    def literals(self) -> tuple[str, ...]:
        """Lower-case words of which every match holds at least one; they let long logs be skipped quickly."""
        return literals_of(self.pattern)


@dataclass(frozen=True)
class Clue:
    """Something that speaks for a class."""

    fault_class: FaultClass
    weight: float
    """Probability, 0 to 1, that the class is right where only this is known."""
    text: str
    """The line or the fact, for people."""
    rule: str
    """Name of the rule or witness."""
    blames: Blames = "nobody"
    node: str = ""
    rank: int | None = None
    at: float | None = None
    echo: bool = False
    """A consequence that others than the culprit show."""
    supersedes: tuple[str, ...] = ()
    advice: str = ""
    peer: str = ""
    """Node or ranks the line blames, as it names them."""
    file: str = ""
    line: int = 0
    wraps: bool = False
    """It carries what failed beneath it."""

    @property
    def tells_end(self) -> bool:
        """It says only how a process ended: by which signal, with which code."""
        return self.rule in ENDS_TOLD or _END.fullmatch(self.rule) is not None

    @property
    def original(self) -> bool:
        """Strong enough to be a cause, and no echo."""
        return not self.echo and self.weight >= KNOWN_ORIGINAL


@dataclass(frozen=True)
class Weighing:
    """The classes and what is left of the clues."""

    fault_class: FaultClass
    confidence: float
    alternatives: tuple[tuple[FaultClass, float], ...]
    telling: tuple[Clue, ...]
    """Clues for the class, strongest first."""
    others: tuple[Clue, ...]
    """The rest, discounted, strongest first."""


def weigh(clues: Iterable[Clue], victims: frozenset[int], first_failure: float | None = None) -> Weighing:
    """The class that the clues speak for.

    `victims`: ranks that were asked to end, or ended because others did; `first_failure`: Unix seconds of the first
    own one.
    """
    left = _without_consequences(_discounted(_without_wrappers(tuple(clues)), victims, first_failure))
    scores = _scores(left)
    ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0].value))
    strongest = sorted(left, key=_strength)
    named = [(kind, score) for kind, score in ranked if kind is not FaultClass.UNKNOWN]
    if not named or named[0][1] < TELLING:
        nearest = named[0][1] if named else 0.0
        hints = tuple((kind, round(score, 3)) for kind, score in named[:4])
        return Weighing(FaultClass.UNKNOWN, round(1.0 - nearest, 3), hints, (), tuple(strongest))
    (top, score), rivals = named[0], named[1:]
    confidence = score * score / (score + RIVAL_FACTOR * rivals[0][1]) if rivals else score
    total = math.fsum(value for _, value in rivals)
    shares = tuple((kind, _floor((1 - confidence) * value / max(total, 1.0))) for kind, value in rivals[:4])
    return Weighing(
        top,
        _floor(confidence),
        shares,
        tuple(clue for clue in strongest if clue.fault_class is top),
        tuple(clue for clue in strongest if clue.fault_class is not top),
    )


def _floor(share: float) -> float:
    return math.floor(share * 1000 + 1e-6) / 1000


def _strength(clue: Clue) -> tuple[float, bool, bool, float, str, str]:
    """A source line that a traceback quotes says less than the exception that it raised."""
    quoted, at = clue.text[:1].isspace(), math.inf if clue.at is None else clue.at
    return (-clue.weight, clue.echo, quoted, at, clue.rule, clue.text)


def _without_wrappers(clues: Sequence[Clue]) -> tuple[Clue, ...]:
    """The clues without those that only carry what another one names."""
    named = any(
        not clue.wraps and clue.weight >= TELLING and clue.fault_class is not FaultClass.UNKNOWN for clue in clues
    )
    return tuple(clue for clue in clues if not (clue.wraps and named))


def _without_consequences(clues: Sequence[Clue]) -> tuple[Clue, ...]:
    """Drop what another clue, at least as strong, declares to be its consequence."""
    causes: dict[str, float] = {}
    for clue in clues:
        for word in clue.supersedes:
            causes[word] = max(causes.get(word, 0.0), clue.weight)
    return tuple(
        clue
        for clue in clues
        if clue.weight > max(causes.get(clue.rule, -1.0), causes.get(clue.fault_class.value, -1.0))
    )


def _discounted(clues: Sequence[Clue], victims: frozenset[int], first: float | None) -> tuple[Clue, ...]:
    originals = {clue.fault_class for clue in clues if clue.original and clue.rank not in victims}
    left: list[Clue] = []
    for clue in clues:
        factor = ECHO_FACTOR if clue.echo and originals - {clue.fault_class} else 1.0
        if clue.rank is not None and clue.rank in victims:
            factor *= VICTIM_FACTOR
        elif clue.rank is not None and clue.at is not None and first is not None and clue.at > first + LATER_SECONDS:
            factor *= LATER_FACTOR
        left.append(replace(clue, weight=clue.weight * factor))
    return tuple(left)


def _scores(clues: Sequence[Clue]) -> dict[FaultClass, float]:
    """Probability of each class, as of independent witnesses.

    Copies of one line are one witness, and so are several readings of it: what two rules and a launcher's report make
    of one line was said once. How a process ended is one fact as well, in however many lines its launcher tells it.
    """
    missing: dict[FaultClass, float] = {}
    heard: set[tuple[FaultClass, str] | tuple[FaultClass, str, int]] = set()
    for clue in sorted(clues, key=lambda clue: (clue.fault_class.value, *_strength(clue))):
        kind = clue.fault_class
        told = {(kind, END_TOLD if clue.tells_end else clue.rule)}
        place = {(kind, clue.file, clue.line)} if clue.line else set[tuple[FaultClass, str, int]]()
        if not heard.isdisjoint(told) or not heard.isdisjoint(place):
            continue
        heard |= told | place
        missing[kind] = missing.get(kind, 1.0) * (1.0 - min(clue.weight, 0.99))
    return {kind: 1.0 - value for kind, value in missing.items()}
