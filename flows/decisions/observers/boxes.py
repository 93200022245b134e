"""Tables of DCGM's diagnostics, whose cells are wrapped: the rows of one cell read as one line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.lines import by_stream
from flows.decisions.matching import match_line
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

_ROW = re.compile(r"^\|(?P<name>[^|]{1,60})\|(?P<said>[^|]{1,200})\|?$")
_TELLING = ("Warning", "Error", "Info")
"""Names of rows that hold words; the others hold results."""
MAX_ROWS = 40
_SAYS_CELL = Cue(*(f"|{word}" for word in _TELLING))


def wrapped(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """What cells say that are wrapped over several rows, by the rules for lines."""
    if not _SAYS_CELL.anywhere(lines):
        return
    for stream in by_stream(line for line in lines if line.text.startswith("|") or line.text[:1].islower()):
        for cell in _cells(stream):
            yield from _read(cell)


def _cells(stream: Sequence[LogLine]) -> Iterator[list[LogLine]]:
    """The rows of every cell that holds words, in order; a cell's name stands in its first row only."""
    cell: list[LogLine] = []
    for line in stream:
        row = _ROW.match(line.text)
        if row is not None and row["name"].strip().startswith(_TELLING):
            if cell:
                yield cell
            cell = [line]
        elif cell and row is not None and not row["name"].strip() and len(cell) < MAX_ROWS:
            cell.append(line)
        elif row is not None and cell:
            yield cell
            cell = []
    if cell:
        yield cell


def _read(cell: Sequence[LogLine]) -> Iterator[Clue]:
    if len(cell) < 2:
        return
    rows = [_ROW.match(line.text) for line in cell]
    whole = "".join(row["said"][1:-2] if len(row["said"]) > 45 else row["said"].strip() for row in rows if row)
    known = {match.rule.name for line in cell for match in match_line(line.text)}
    for match in match_line(whole.strip()):
        rule = match.rule
        if rule.name not in known and rule.fault_class is not FaultClass.NONE:
            first = cell[0]
            yield Clue(
                rule.fault_class, rule.weight, whole.strip()[:400], rule.name, rule.blames, first.node, first.rank,
                first.at, rule.echo, rule.supersedes, rule.advice, match.peer, first.file, first.line,
            )  # fmt: skip
