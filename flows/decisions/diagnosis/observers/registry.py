"""Observers: what many lines say together that no single line says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.observers import (
    collectives,
    hardware,
    interleaved,
    losses,
    members,
    peers,
    resume,
    slowness,
    stacks,
    stalls,
)
from flows.decisions.diagnosis.steps import ends
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

Observer = Callable[[Sequence[LogLine]], Iterator[Clue]]
"""From all cleaned lines, in any number of streams (`flows.decisions.diagnosis.lines.by_stream`), to clues."""

OBSERVERS: tuple[Observer, ...] = (
    collectives.lagging,
    collectives.silent,
    collectives.reported,
    collectives.desync,
    collectives.stalled,
    collectives.tasks,
    collectives.mismatched,
    hardware.down,
    stacks.stuck,
    stacks.waiting,
    stalls.interrupted,
    interleaved.interleaved,
    slowness.named_ranks,
    members.rows,
    members.columns,
    members.mappings,
    hardware.measured,
    peers.peers,
    peers.pairs,
    peers.listed,
    slowness.slowed,
    hardware.spinning,
    slowness.extremes,
    slowness.timers,
    members.alike,
    members.listed,
    resume.started_over,
    resume.rewinds,
    resume.fallen,
    stalls.bars,
    stalls.silences,
    stalls.endless,
    stacks.stuck_in_kernel,
    stacks.fallen,
    stacks.rebooted,
    stacks.unstarted,
    hardware.wrapped,
    collectives.killed,
    losses.not_finite,
    losses.underflow,
    hardware.unanswered,
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
