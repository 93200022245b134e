"""One record of progress in a line: what it holds, as printed, before counting. Pure."""

from __future__ import annotations

import math
import re
from typing import Dict, List, Match, NamedTuple, Optional, Pattern, Tuple

from workflows.programs.progress_formats import Format

_GROUPS = ("loss", "seconds", "tokens_per_second", "compute_seconds", "gradient_norm")


class Record(NamedTuple):
    """One record as printed, before counting; a tuple, since it is made in a fifth of a dataclass's time."""

    counter: Optional[int]
    epoch: Optional[int] = None
    total: Optional[int] = None
    loss: Optional[float] = None
    seconds: Optional[float] = None
    tokens_per_second: Optional[float] = None
    compute_seconds: Optional[float] = None
    gradient_norm: Optional[float] = None
    kind: str = "absolute"


class Finder:
    """A compiled format. A thousand lines a second must cost next to nothing, so nothing is looked up twice."""

    def __init__(self, form: Format, world_size: int) -> None:
        self.kind = form.counter
        self.hint = form.hint
        self._record: Pattern[str] = re.compile(form.record)
        groups = self._record.groupindex
        self._groups = tuple((name, groups[name]) for name in _GROUPS if name in groups)
        self._counter, self._epoch, self._total = (groups.get(name, 0) for name in ("step", "epoch", "total"))
        self._fields: Tuple[Tuple[str, Pattern[str]], ...] = tuple(
            (name, re.compile(pattern)) for name, pattern in form.fields
        )
        self._world_size = world_size

    def find(self, text: str) -> List[Record]:
        """Every record in the line, in order."""
        hits = list(self._record.finditer(text))
        if len(hits) == 1:
            return [self._read(hits[0], text, len(text))]
        ends = [hit.start() for hit in hits[1:]] + [len(text)]
        return [self._read(hit, text, ends[index]) for index, hit in enumerate(hits)]

    def _read(self, hit: Match[str], text: str, end: int) -> Record:
        fields: Dict[str, float] = {}
        for name, group in self._groups:
            self._take(fields, name, number_of(hit[group]))
        start = hit.start()
        for name, pattern in self._fields:
            found = pattern.search(text, start, end)
            if found is not None:
                self._take(fields, name, number_of(found["value"]))
        say = fields.get
        return Record(
            _whole(hit, self._counter),
            _whole(hit, self._epoch),
            _whole(hit, self._total),
            say("loss"),
            say("seconds"),
            say("tokens_per_second"),
            say("compute_seconds"),
            say("gradient_norm"),
            self.kind,
        )

    def _take(self, fields: Dict[str, float], name: str, value: Optional[float]) -> None:
        if value is None:
            return
        if name == "bad":
            if value > 0:
                fields["loss"] = float("nan")
        elif name == "milliseconds":
            fields["seconds"] = value / 1000
        elif name == "tokens_per_second_per_rank":
            fields["tokens_per_second"] = value * self._world_size
        else:
            fields.setdefault(name, value)


def _whole(hit: Match[str], group: int) -> Optional[int]:
    """The whole number in a group; 0: there is no such group."""
    word = hit[group] if group else None
    if word is None:
        return None
    if word.isdecimal() and len(word) < 16:
        return int(word)
    value = number_of(word)
    return None if value is None or not math.isfinite(value) else int(value)


def number_of(text: Optional[str]) -> Optional[float]:
    """The number that a program printed; None: it is none."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
