"""Observers: what many lines say together that no single line says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from flows.decisions.clues import Clue
from flows.decisions.observers import (
    absentees,
    boxes,
    collectives,
    controllers,
    devices,
    glued,
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
    threads,
)
from flows.decisions.steps import ends
from profiles.vocabulary import FaultClass
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
    threads.waiting,
    interrupted.interrupted,
    glued.glued,
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
    kernels.unstarted,
    boxes.wrapped,
    controllers.killed,
    losses.not_finite,
    losses.underflow,
    mounts.unanswered,
)


SUFFERED_NOTHING_FACTOR = 0.15
"""What a straggler is worth, seen in numbers alone, beside whom the training came to its end."""
NAMED = "straggler-named"
"""Somebody else's judgement, not ours."""


def observe(lines: Sequence[LogLine]) -> tuple[Clue, ...]:
    """What every observer sees."""
    return tuple(_weighed(clue, lines) for observer in OBSERVERS for clue in observer(lines))


def _weighed(clue: Clue, lines: Sequence[LogLine]) -> Clue:
    """A straggler is one where the gang suffers: not beside a training of the same file that came to its end."""
    if clue.fault_class is not FaultClass.STRAGGLER or clue.rule == NAMED or clue.line == 0:
        return clue
    if not any(line.line > clue.line and line.file == clue.file for line in ends(lines)):
        return clue
    return replace(clue, weight=clue.weight * SUFFERED_NOTHING_FACTOR)
