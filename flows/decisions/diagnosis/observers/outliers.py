"""What observers share: one value far off its peers, the clue of a slow member, and how far training outlived a line.

`counts`, `sparse` and `in_turn` recognise listings that are none of members.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.lines import by_stream
from flows.decisions.diagnosis.retractions import position
from flows.decisions.diagnosis.steps import lived_until
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine


class Lived:
    """Up to which line each file's own words prove that training went on."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self._until: dict[str, int] = {}
        for stream in by_stream(lines):
            file = stream[0].file
            self._until[file] = max(self._until.get(file, 0), lived_until(stream))

    def outlived(self, line: LogLine) -> bool:
        """True where training went on after this line, in the same file."""
        return bool(line.file) and line.line < self._until.get(line.file, 0)


FEWEST = 3
"""Values below which nothing is said of any of them."""
FAR_OFF = 3.5
"""Robust z beyond which a value is far off its peers (fault tolerance study, 6.5)."""
SLOW_RATIO = 1.5
"""And so many times the median it must be: small differences between ranks are how training is."""
SMALLEST_SPREAD = 0.02
"""Share of the median that the spread is taken to be at least; else equal peers make every difference infinite."""


def slow(
    values: Mapping[int, float], *, low_is_slow: bool = False, ratio_at_least: float = SLOW_RATIO
) -> dict[int, float]:
    """Those far off the slow side of their peers, with how many times slower than the median each is.

    `values`: one number a rank, all of one unit. `low_is_slow`: they are rates or scores, of which the slow one has the
    smallest. `ratio_at_least`: so many times the median (of rates: that part of it) a slow one is off.
    """
    usable = {rank: value for rank, value in values.items() if value > 0}
    if len(usable) < FEWEST:
        return {}
    middle = statistics.median(usable.values())
    spread = statistics.median(abs(value - middle) for value in usable.values())
    spread = max(spread, SMALLEST_SPREAD * middle)
    found: dict[int, float] = {}
    for rank, value in usable.items():
        ratio = middle / value if low_is_slow else value / middle
        z = 0.6745 * (middle - value if low_is_slow else value - middle) / spread
        if z > FAR_OFF and ratio >= ratio_at_least:
            found[rank] = ratio
    return found if len(found) * 2 < len(usable) else {}


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
    positions = [position(text) for text in texts]
    steps = {(found[0], found[1][:1]) for found in positions if found is not None}
    return None not in positions and len(steps) == len(texts)


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
