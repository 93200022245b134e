"""Laggards: the clue that a rank, a device or a host is slow; and what is no list of such."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flows.decisions.clues import Clue
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

_SETTINGS = re.compile(
    r"(?i)(?<![a-z])(?:batch|batch_?size|bs|seq(?:_?len(?:gth)?)?|size|bytes|count|elements|hidden|layers?|stage|pp|tp|"
    r"params|model|world_?size|nnodes|n?gpus|nodes|nproc|dtype|expert|depth|width)['\"]?\s{0,3}[:= ]\s{0,3}['\"]?"
    r"(?P<of>[\w.]{1,30})"
)
"""What is measured: rows of other sizes, models or stages are no peers."""


def settings(text: str) -> str:
    """The sizes, models and stages that a row names; rows are compared only where these are the same."""
    return " ".join(hit["of"] for hit in _SETTINGS.finditer(text))


def counts(names: Sequence[str]) -> bool:
    """Are the members 1, 2, 4, 8 …? Those are how many devices ran, not which."""
    numbers = [name.rpartition(" ")[2] for name in names]
    if not all(number.isdigit() for number in numbers):
        return False
    return all(int(number) > 0 and int(number).bit_count() == 1 for number in numbers)


def laggard(member: str, line: LogLine, text: str, rule: str, weight: float) -> Clue:
    """A clue that a rank, a device (which stands for its rank) or a host is slow."""
    kind, _, number = member.rpartition(" ")
    if number.isdigit() and kind in ("node", "host", "machine", "server", "pod", "instance", "hostname"):
        return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, "node", line.node, file=line.file,
                    line=line.line)  # fmt: skip
    if number.isdigit():
        return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, "rank", line.node, int(number), file=line.file,
                    line=line.line)  # fmt: skip
    return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, "node", member, file=line.file,
                line=line.line)  # fmt: skip
