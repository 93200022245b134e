"""Laggards: the clue that a rank, a device or a host is slow; and what is no list of such."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flows.decisions.clues import Clue
from flows.decisions.going_on import position
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

MOST_APART = 32
"""Numbers of the members of a listing lie at most so far apart for each of them."""
_SETTINGS = re.compile(
    r"(?i)(?<![a-z])(?:batch|batch_?size|bs|seq(?:_?len(?:gth)?)?|size|bytes|count|elements|hidden|layers?|stage|pp|tp|"
    r"params|model|world_?size|nnodes|n?gpus|nodes|nproc|dtype|expert|depth|width)['\"]?\s{0,3}[:= ]\s{0,3}['\"]?"
    r"(?P<of>[\w.]{1,30})(?![\w.])(?! ?(?:[mun]?s|sec\w{0,5})\b)"
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


def sparse(names: Sequence[str]) -> bool:
    """Are the members' numbers no numbers of members? Those of a gang lie close, those of anything else far apart."""
    numbers = [name.rpartition(" ")[2] for name in names]
    if not all(number.isdigit() for number in numbers):
        return False
    known = sorted(map(int, numbers))
    return known[-1] - known[0] > MOST_APART * len(known)


def in_turn(texts: Sequence[str]) -> bool:
    """Do the rows count on? Then they are moments of one program: peers are compared at the same step."""
    told = [position(text) for text in texts]
    steps = {(found[0], found[1][:1]) for found in told if found is not None}
    return None not in told and len(steps) == len(texts)


def laggard(member: str, line: LogLine, text: str, rule: str, weight: float) -> Clue:
    """A clue that a rank, a device (which stands for its rank) or a host is slow."""
    kind, _, number = member.rpartition(" ")
    if number.isdigit() and kind in ("node", "host", "machine", "server", "pod", "instance", "hostname"):
        return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, "node", line.node, file=line.file,
                    line=line.line)  # fmt: skip
    if number.isdigit():
        return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, "rank", line.node, int(number), file=line.file,
                    line=line.line)  # fmt: skip
    if "/" in member:  # a rank within its node: which one of the gang that is, the row does not say
        return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, "nobody", line.node, file=line.file,
                    line=line.line)  # fmt: skip
    return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, "node", member, file=line.file,
                line=line.line)  # fmt: skip
