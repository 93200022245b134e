"""One record of progress in a line: what it holds, as printed, before counting. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Dict, List, Match, Optional, Pattern, Tuple

from workflows.programs.progress_formats import Format

_GROUPS = ("loss", "seconds", "tokens_per_second", "compute_seconds", "gradient_norm")


@dataclass(frozen=True)
class Record:
    """One record as printed, before counting."""

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
        self._groups = frozenset(self._record.groupindex)
        self._fields: Tuple[Tuple[str, Pattern[str]], ...] = tuple(
            (name, re.compile(pattern)) for name, pattern in form.fields
        )
        self._world_size = world_size

    def find(self, text: str) -> List[Record]:
        """Every record in the line, in order."""
        hits = list(self._record.finditer(text))
        return [
            self._read(hit, text, hits[index + 1].start() if index + 1 < len(hits) else len(text))
            for index, hit in enumerate(hits)
        ]

    def _read(self, hit: Match[str], text: str, end: int) -> Record:
        fields: Dict[str, float] = {}
        for name in _GROUPS:
            if name in self._groups:
                self._take(fields, name, number_of(hit[name]))
        for name, pattern in self._fields:
            found = pattern.search(text, hit.start(), end)
            if found is not None:
                self._take(fields, name, number_of(found["value"]))
        return Record(
            counter=self._whole(hit, "step"),
            epoch=self._whole(hit, "epoch"),
            total=self._whole(hit, "total"),
            loss=fields.get("loss"),
            seconds=fields.get("seconds"),
            tokens_per_second=fields.get("tokens_per_second"),
            compute_seconds=fields.get("compute_seconds"),
            gradient_norm=fields.get("gradient_norm"),
            kind=self.kind,
        )

    def _whole(self, hit: Match[str], name: str) -> Optional[int]:
        value = number_of(hit[name]) if name in self._groups else None
        return None if value is None or not math.isfinite(value) else int(value)

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
