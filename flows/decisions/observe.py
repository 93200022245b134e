"""Observers: what many lines say together that no single line says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.observers import collectives
from workflows.evidence import LogLine

Observer = Callable[[Sequence[LogLine]], Iterator[Clue]]
"""From all cleaned lines, in any number of streams (`flows.decisions.lines.by_stream`), to clues."""

OBSERVERS: tuple[Observer, ...] = (collectives.lagging,)


def observe(lines: Sequence[LogLine]) -> tuple[Clue, ...]:
    """What every observer sees."""
    return tuple(clue for observer in OBSERVERS for clue in observer(lines))
