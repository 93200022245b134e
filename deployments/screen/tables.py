"""Rows as aligned text, and the rows that show a node's checks with figure, limit and evidence.

On a terminal a table fits the width: one column gives way first, then the least important columns are left out.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

GAP = 2
WIDEST = 60
"""Characters of a cell where nothing has to fit, before its column stops growing."""
LEAST = 16
"""What is left of the column that gives way."""

FEW = 8
"""Good ones that are still shown line by line."""

Item = TypeVar("Item")
Rows = Sequence[Mapping[str, Any]]
Json = dict[str, Any]
WIDEST_REASON = 32
"""Characters of a figure or a word; all of it stands in the JSON."""


def terminal_columns() -> int:
    """Width of the terminal that reads our standard output; 0: none does."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def terminal_lines() -> int:
    """Height of that terminal; 0: none."""
    return shutil.get_terminal_size().lines if sys.stdout.isatty() else 0


def table(rows: Rows, columns: Sequence[str]) -> str:
    """Rows as aligned text; numbers stand to the right."""
    cells = _cells(rows, columns)
    widths = [min(WIDEST, max(len(line[index]) for line in cells)) for index in range(len(columns))]
    return _aligned(cells, widths, _numeric(rows, columns))


def fitted(rows: Rows, columns: Sequence[str], width: int, *, giving: str, dropped: Sequence[str] = ()) -> str:
    """The same in at most `width` characters.

    Width 0: as wide as it is. The column `giving` is cut; where that is not enough, those of `dropped` are left out one
    after the other.
    """
    kept, spare = list(columns), list(dropped)
    while True:
        cells = _cells(rows, kept)
        widths = [max(len(line[index]) for line in cells) for index in range(len(kept))]
        at = kept.index(giving)
        room = width - (sum(widths) - widths[at]) - GAP * (len(kept) - 1)
        if width == 0 or room >= widths[at]:
            break
        if room >= min(LEAST, widths[at]) or not spare:
            widths[at] = max(1, room)
            break
        kept.remove(spare.pop(0))
    for line in cells:
        line[at] = cut(line[at], widths[at])
    return _aligned(cells, widths, _numeric(rows, kept))


def folded(items: Sequence[Item], good: Callable[[Item], bool], *, every: bool) -> tuple[list[Item], int]:
    """Those that are shown, and how many good ones are only counted: where there are few, or `every` is said, none."""
    count = sum(map(good, items))
    if every or count <= FEW:
        return list(items), 0
    return [item for item in items if not good(item)], count


def cut(text: str, width: int) -> str:
    """The text in at most `width` characters, on one line; an ellipsis says that something is missing."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: max(0, width - 1)].rstrip() + "…"


def _cells(rows: Rows, columns: Sequence[str]) -> list[list[str]]:
    head = [str(name) for name in columns]
    return [head, *(["" if row.get(name) is None else str(row.get(name)) for name in columns] for row in rows)]


def _numeric(rows: Rows, columns: Sequence[str]) -> list[bool]:
    return [all(isinstance(row.get(name), int | float | None) for row in rows) for name in columns]


def _aligned(cells: Sequence[Sequence[str]], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    lines: list[str] = []
    for line in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, numeric, strict=True)
        ]
        lines.append((" " * GAP).join(padded).rstrip())
    return "\n".join(lines)


def rows_of(node: str, verdict: str, reasons: Sequence[Json]) -> list[Json]:
    """What is shown of a node: every check that did not pass; where all passed, each figure that was measured."""
    bad = [reason for reason in reasons if reason["verdict"] != "pass"]
    rows: list[Json] = []
    for number, reason in enumerate(bad or reasons):
        warning = " (warning)" if reason.get("severity") == "warning" else ""
        rows.append(
            {
                "node": "" if number else node,
                "verdict": "" if number else verdict,
                "check": f"{reason['check']}{warning}"
                if not bad
                else f"{reason['check']}: {reason['verdict']}{warning}",
                "measured": figure(reason["measured"], reason["unit"]),
                "limit": figure(reason["limit"], reason["unit"]),
                "evidence": reason["evidence"],
            }
        )
    return rows


def figure(value: Any, unit: str) -> str:
    """A figure or a word with its unit, short."""
    if value is None:
        return "-"
    shown = f"{value:.4g}" if isinstance(value, float) else str(value)
    return cut(f"{shown} {unit}".strip(), WIDEST_REASON)
