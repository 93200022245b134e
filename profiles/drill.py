"""Faults that `primus drill` causes: a closed table of what may be broken, and the words for it."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Literal

from profiles.errors import ProfileError

Target = Literal["rank", "node", "none", "newest"]


@dataclass(frozen=True)
class FaultKind:
    """One row of the table."""

    target: Target
    """What stands behind the colon."""
    required: tuple[str, ...] = ()
    """Numbers that must be given, e.g. `seconds`."""
    optional: tuple[str, ...] = ()
    """Numbers that may be given."""
    words: tuple[str, ...] = ()
    """Words that may be given, e.g. `silent`."""
    trainer: bool = False
    """True: only a trainer that polls the fault file can be asked for it."""


KINDS: dict[str, FaultKind] = {
    "kill-rank": FaultKind("rank"),
    "hang-rank": FaultKind("rank"),
    "slow-rank": FaultKind("rank", required=("factor",), optional=("seconds",)),
    "stop-rank": FaultKind("rank", required=("seconds",)),
    "exception-rank": FaultKind("rank", trainer=True),
    "nan-rank": FaultKind("rank", trainer=True),
    "oom-rank": FaultKind("rank", trainer=True),
    "lose-node": FaultKind("node", words=("silent",)),
    "preempt-node": FaultKind("node", required=("notice",)),
    "corrupt-checkpoint": FaultKind("newest"),
    "kill-coordinator": FaultKind("none"),
    "kill-launcher": FaultKind("node"),
    "kill-flow": FaultKind("none"),
    "disk-full": FaultKind("none"),
    "api-away": FaultKind("none", required=("seconds",)),
    "ledger-away": FaultKind("none", required=("seconds",)),
}


@dataclass(frozen=True)
class FaultSpec:
    """One fault to cause."""

    kind: str
    rank: int | None = None
    node: str = ""
    step: int | None = None
    """Cause it as soon as this step was seen; None: now."""
    silent: bool = False
    seconds: float = 0.0
    factor: float = 1.0
    notice_seconds: float = 0.0

    def __str__(self) -> str:
        target = self.node or ("" if self.rank is None else str(self.rank))
        return f"{self.kind}:{target}" if target else self.kind


def parse_fault(text: str) -> FaultSpec:
    """The fault that `kill-rank:1,step=40` and the like name.

    Raises:
        ProfileError: the word, the target or a number is wrong; the message says what would be right.
    """
    head, *options = text.split(",")
    name, colon, target = head.partition(":")
    kind = KINDS.get(name)
    if kind is None:
        close = difflib.get_close_matches(name, KINDS, 1)
        raise ProfileError("--fault", f"{name!r} is unknown{_mean(close)}; there are: {', '.join(KINDS)}")
    if kind.target == "none" and "=" in target:
        options, target = [target, *options], ""  # `api-away:seconds=5`
    numbers, words = _options(options, kind, name)
    missing = [word for word in kind.required if word not in numbers]
    if missing:
        raise ProfileError("--fault", f"{name} needs {missing[0]}=<number>")
    if kind.target != "none" and not target:
        raise ProfileError(
            "--fault", f"{name} needs a {kind.target} behind the colon, e.g. {name}:{_EXAMPLES[kind.target]}"
        )
    if colon and kind.target == "none" and target:
        raise ProfileError("--fault", f"{name} takes nothing behind the colon, got {target!r}")
    step = numbers.get("step")
    return FaultSpec(
        kind=name,
        rank=_rank(name, target) if kind.target == "rank" else None,
        node=target if kind.target == "node" else "",
        step=None if step is None else int(step),
        silent="silent" in words,
        seconds=numbers.get("seconds", 0.0),
        factor=numbers.get("factor", 1.0),
        notice_seconds=numbers.get("notice", 0.0),
    )


def _number(key: str, text: str) -> float:
    """What stands behind a word; steps are whole, a factor slows down."""
    shape = "[0-9]{1,9}" if key == "step" else r"[0-9]{1,9}(\.[0-9]{1,9})?"
    if not re.fullmatch(shape, text):
        kind = "a whole number" if key == "step" else "a number that is not negative, such as 2.5"
        raise ProfileError("--fault", f"{key} must be {kind}, got {text!r}")
    if key == "factor" and float(text) < 1.0:
        raise ProfileError("--fault", f"factor says how many times slower, so it is at least 1, got {text}")
    return float(text)


_EXAMPLES = {"rank": "1", "node": "node-1", "newest": "newest"}


def _mean(close: list[str]) -> str:
    return f", did you mean {close[0]}?" if close else ""


def _rank(name: str, target: str) -> int:
    if not re.fullmatch("[0-9]{1,9}", target):
        raise ProfileError("--fault", f"{name} needs the number of a rank, got {target!r}")
    return int(target)


def _options(options: list[str], kind: FaultKind, name: str) -> tuple[dict[str, float], set[str]]:
    numbers: dict[str, float] = {}
    words: set[str] = set()
    allowed = {"step", *kind.required, *kind.optional}
    for option in options:
        key, equals, value = option.partition("=")
        if not equals and key in kind.words:
            words.add(key)
            continue
        if key not in allowed:
            known = sorted(allowed | set(kind.words))
            raise ProfileError("--fault", f"{name} does not know {key!r}; it knows {', '.join(known)}")
        if key in numbers:
            raise ProfileError("--fault", f"{key} stands there twice")
        numbers[key] = _number(key, value)
    return numbers, words
