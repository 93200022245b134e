"""A fleet as a map of characters: a cell a node, a group a rack or a pool, as many as a screen holds. Pure.

Each symbol means the same without any colour. Where the map does not fit, groups in which every node is good are told
as a number, so that what is wrong stays in sight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.fleet import FleetNode, Standing
from profiles.vocabulary import VerdictWord

GOOD, UNTESTED, FAILED = ".", "-", "x"
SYMBOLS: Mapping[Standing, str] = {
    Standing.QUARANTINED: "Q",
    Standing.TESTING: "T",
    Standing.CORDONED: "C",
    Standing.TAINTED: "t",
    Standing.NOT_READY: "!",
    Standing.UNKNOWN: "?",
}
"""Of nodes that pods do not go to; the others by their verdict."""
MEANINGS: Mapping[str, str] = {
    GOOD: "schedulable, passed",
    UNTESTED: "schedulable, verdict unknown",
    FAILED: "schedulable, failed its test",
    "Q": "quarantined",
    "T": "under test",
    "C": "cordoned",
    "t": "tainted",
    "!": "not ready",
    "?": "unknown",
}
LABEL_GAP = 2


@dataclass(frozen=True)
class MapLine:
    """One line: parts of text, of which cells are symbols of nodes and the others words."""

    parts: tuple[tuple[str, bool], ...]
    """Text, and whether it is cells."""

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(text for text, _ in self.parts).rstrip()


@dataclass(frozen=True)
class FleetMap:
    """The map and what it left out."""

    lines: tuple[MapLine, ...]
    folded_groups: int = 0
    folded_nodes: int = 0


def symbol(node: FleetNode) -> str:
    """The cell of a node."""
    if node.state is not Standing.SCHEDULABLE:
        return SYMBOLS[node.state]
    return {VerdictWord.PASS: GOOD, VerdictWord.FAIL: FAILED, VerdictWord.UNKNOWN: UNTESTED}[node.word]


def fleet_map(groups: Mapping[str, Sequence[FleetNode]], width: int, height: int) -> FleetMap:
    """The map of `groups` in lines of at most `width` characters.

    Args:
        groups: nodes by name of their group.
        width: of the screen.
        height: lines that there are for the map; 0: as many as it takes. Where it takes more, groups of which every
            node is good are left out.
    """
    cells = {name: "".join(map(symbol, nodes)) for name, nodes in groups.items()}
    lines = _lines(cells, width)
    if not height or len(lines) <= height:
        return FleetMap(lines)
    shown = {name: text for name, text in cells.items() if text.strip(GOOD)}
    folded = [text for name, text in cells.items() if name not in shown]
    return FleetMap(_lines(shown, width), len(folded), sum(map(len, folded)))


def _lines(cells: Mapping[str, str], width: int) -> tuple[MapLine, ...]:
    """Groups side by side in columns of one width; one that is wider than the screen goes on in the next line."""
    if not cells:
        return ()
    label = max(map(len, cells)) + 1
    widest = max(map(len, cells.values()))
    column = label + min(widest, max(1, width - label))
    across = max(1, (width + LABEL_GAP) // (column + LABEL_GAP))
    blocks = [_block(name, text, label, column - label) for name, text in cells.items()]
    lines: list[MapLine] = []
    for start in range(0, len(blocks), across):
        row = blocks[start : start + across]
        for level in range(max(map(len, row))):
            parts: list[tuple[str, bool]] = []
            for block in row:
                name, text = block[level] if level < len(block) else ("", "")
                gap = " " * (column - label - len(text) + LABEL_GAP)
                parts += [(name.ljust(label), False), (text, True), (gap, False)]
            lines.append(MapLine(tuple(parts)))
    return tuple(lines)


def _block(name: str, text: str, label: int, room: int) -> list[tuple[str, str]]:
    pieces = [text[start : start + room] for start in range(0, len(text), room)]
    return [(name if not index else " " * label, piece) for index, piece in enumerate(pieces)]
