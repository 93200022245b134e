"""Observers: what many lines say together that no single line says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.observers import (
    absentees,
    boxes,
    collectives,
    controllers,
    devices,
    interrupted,
    kernels,
    links,
    listings,
    losses,
    members,
    mounts,
    pairs,
    peers,
    progress,
    rewinds,
    slowing,
    stacks,
    stalls,
    stragglers,
    tables,
)
from workflows.evidence import LogLine

Observer = Callable[[Sequence[LogLine]], Iterator[Clue]]
"""From all cleaned lines, in any number of streams (`flows.decisions.lines.by_stream`), to clues."""

OBSERVERS: tuple[Observer, ...] = (
    collectives.lagging,
    collectives.silent,
    collectives.reported,
    collectives.desync,
    absentees.stalled,
    absentees.tasks,
    absentees.mismatched,
    links.down,
    stacks.stuck,
    interrupted.interrupted,
    stragglers.named,
    tables.rows,
    tables.columns,
    tables.mappings,
    devices.measured,
    peers.peers,
    pairs.pairs,
    pairs.listed,
    slowing.slowed,
    devices.spinning,
    stragglers.extremes,
    stragglers.timers,
    members.alike,
    members.listed,
    progress.started_over,
    rewinds.rewinds,
    listings.fallen,
    stalls.bars,
    stalls.silences,
    stalls.endless,
    kernels.stuck,
    kernels.fallen,
    kernels.rebooted,
    boxes.wrapped,
    controllers.killed,
    losses.not_finite,
    losses.underflow,
    mounts.unanswered,
)


def observe(lines: Sequence[LogLine]) -> tuple[Clue, ...]:
    """What every observer sees."""
    return tuple(clue for observer in OBSERVERS for clue in observer(lines))
