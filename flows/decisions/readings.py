"""Clues from lines: which rules hold, and what a line is worth where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from flows.decisions.clues import Clue
from flows.decisions.gang import dying
from flows.decisions.lines import by_stream
from flows.decisions.matching import ALL, MAX_CHARACTERS, Match, match_line
from flows.decisions.places import agent_node, rank_of
from flows.decisions.raised import Told, second_tier
from flows.decisions.standing import lessened, lived_with, standing
from flows.decisions.steps import step_of
from flows.decisions.tracebacks import Raised, tracebacks
from profiles.vocabulary import FaultClass
from workflows.evidence import Evidence, LogLine, Signal
from workflows.reports import RankEnd

WINDOW_SECONDS = (900.0, 300.0)
"""Kernel lines and events count from so long before the detection until so long after it (attribution window of the
reliability study: 10 minutes before the end of the job to 5 after, and the time it takes to notice)."""
CONSEQUENCE_FACTOR = 0.3
"""What an exception is worth that was raised while another one was handled, or that a telling one was raised after."""
KILLED_FACTOR = 0.3
"""What an exception is worth that a rank printed before it was killed: it had survived it."""
OUTLIVED_FACTOR = 0.15
"""What a line is worth after which the same program went on training."""
LASTING = frozenset(
    {
        FaultClass.STRAGGLER,
        FaultClass.STARTED_OVER,
        FaultClass.THERMAL_POWER,
        FaultClass.GPU_HARDWARE,
        FaultClass.HANG,
        FaultClass.PREEMPTED,
        FaultClass.NODE_LOST,
    }
)
"""Classes that going on does not disprove: training goes on with them, or another attempt's lines follow."""


def readings(evidence: Evidence, lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Clues from lines. Of chained exceptions the first is the cause, unless only a later one says what it was."""
    ends = {end.rank: (record.node, end) for record in evidence.terminations for end in record.ranks}
    streams = by_stream(line for line in lines if _in_window(line, evidence))
    for stream in streams:
        told = _told(stream)
        lived = lived_with(stream, streams) if told else 0
        where = standing(stream if told else ())
        for line, matches, factor in told:
            node, end = ends.get(line.rank, ("", None)) if line.rank is not None else ("", None)
            for match in matches:
                if match.rule.fault_class is not FaultClass.NONE:
                    yield lessened(_outlived(_reading(line, match, node, end, factor), line, lived), where)


def _told(stream: Sequence[LogLine]) -> list[tuple[LogLine, tuple[Match, ...], float]]:
    """Lines that say something, with their rules, and what chained exceptions leave of their weight."""
    raised = {id(item.line): item for item in tracebacks(stream)}
    index = ALL.within(line.text[:MAX_CHARACTERS] for line in stream)
    if not index.rules and not raised:
        return []
    begun = _begun(stream)
    told: dict[int, tuple[LogLine, Told]] = {}
    for line in stream:
        item = raised.get(id(line))
        matches = match_line(line.text, line.source, index, noise=item is not None)
        if matches or item is not None:
            told[id(line)] = (line, second_tier(matches, line.text, item, 0 < begun < line.line))
    factors = _chained([item for item in raised.values() if item.consequence], told)
    return [(line, found.matches, factors.get(key, 1.0)) for key, (line, found) in told.items()]


def _begun(stream: Sequence[LogLine]) -> int:
    """Number of the line with the first step, 0 where none was made."""
    return next((line.line for line in stream if step_of(line) is not None), 0)


def _chained(consequences: Sequence[Raised], told: dict[int, tuple[LogLine, Told]]) -> dict[int, float]:
    """Factors of the lines of chained exceptions: the consequence is discounted, or the cause where it says nothing."""
    factors: dict[int, float] = {}
    for item in consequences:
        line, cause = id(item.line), id(item.cause.line) if item.cause is not None else 0
        said = told[cause][1].sure if cause in told else False
        if cause and not said and line in told and told[line][1].sure:
            factors[cause] = CONSEQUENCE_FACTOR
        else:
            factors[line] = CONSEQUENCE_FACTOR
    return factors


def _reading(line: LogLine, match: Match, node: str, end: RankEnd | None, factor: float) -> Clue:
    rule = match.rule
    weight = rule.weight * factor
    if end is not None and end.signal in (9, 15) and rule.blames == "code" and not dying(end):
        weight *= KILLED_FACTOR
    return Clue(
        fault_class=rule.fault_class,
        weight=weight,
        text=line.text[:400],
        rule=rule.name,
        blames=rule.blames,
        node=line.node or node or agent_node(line.text),
        rank=rank_of(line) if rule.blames == "rank" else line.rank,
        at=line.at if line.at is not None else (end.at if end is not None else None),
        echo=rule.echo or factor < 1.0,
        supersedes=rule.supersedes,
        advice=rule.advice,
        peer=match.peer,
        file=line.file,
        line=line.line,
    )


def _outlived(clue: Clue, line: LogLine, lived_until_line: int) -> Clue:
    if line.line == 0 or line.line >= lived_until_line or clue.fault_class in LASTING or line.source == "kernel":
        return clue
    return replace(clue, weight=clue.weight * OUTLIVED_FACTOR)


def _in_window(line: LogLine, evidence: Evidence) -> bool:
    if line.at is None or line.source not in ("kernel", "event") or evidence.signal is Signal.LOGS:
        return True
    before, after = WINDOW_SECONDS
    return evidence.detected_at - before <= line.at <= evidence.detected_at + after
