"""Clues from lines: which rules hold, and what a line is worth where it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from flows.decisions.clues import Clue
from flows.decisions.gang import dying
from flows.decisions.lines import by_stream, tracebacks
from flows.decisions.matching import MAX_CHARACTERS, Match, likely, match_line, rule_named
from flows.decisions.steps import lived_until
from profiles.vocabulary import FaultClass
from workflows.evidence import Evidence, LogLine, Signal
from workflows.reports import RankEnd

WINDOW_SECONDS = (900.0, 300.0)
"""Kernel lines and events count from so long before the detection until so long after it (attribution window of the
reliability study: 10 minutes before the end of the job to 5 after, and the time it takes to notice)."""
CONSEQUENCE_FACTOR = 0.3
"""What an exception is worth that was raised while another one was handled."""
KILLED_FACTOR = 0.3
"""What an exception is worth that a rank printed before it was killed: it had survived it."""
OUTLIVED_FACTOR = 0.15
"""What a line is worth after which the same program went on training."""
LASTING = frozenset(
    {
        FaultClass.NUMERIC,
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
    """Clues from lines; of chained exceptions the first is the cause."""
    ends = {end.rank: (record.node, end) for record in evidence.terminations for end in record.ranks}
    for stream in by_stream(line for line in lines if _in_window(line, evidence)):
        raised = {id(item.line): item.consequence for item in tracebacks(stream)}
        rules = likely("\n".join(line.text[:MAX_CHARACTERS] for line in stream))
        lived = lived_until(stream) if rules or raised else 0
        for line in stream if rules or raised else ():
            node, end = ends.get(line.rank, ("", None)) if line.rank is not None else ("", None)
            for match in match_line(line.text, line.source, rules) or _nameless(id(line) in raised):
                if match.rule.fault_class is not FaultClass.NONE:
                    clue = _reading(line, match, node, end, raised.get(id(line), False))
                    yield _outlived(clue, line, lived)


def _nameless(raised: bool) -> tuple[Match, ...]:
    """An exception whose name no rule knows is the user's own."""
    rule = rule_named("python-exception") if raised else None
    return () if rule is None else (Match(rule),)


def _reading(line: LogLine, match: Match, node: str, end: RankEnd | None, consequence: bool) -> Clue:
    rule = match.rule
    weight = rule.weight * (CONSEQUENCE_FACTOR if consequence else 1.0)
    if end is not None and end.signal in (9, 15) and rule.blames == "code" and not dying(end):
        weight *= KILLED_FACTOR
    return Clue(
        fault_class=rule.fault_class,
        weight=weight,
        text=line.text[:400],
        rule=rule.name,
        blames=rule.blames,
        node=line.node or node,
        rank=line.rank,
        at=line.at if line.at is not None else (end.at if end is not None else None),
        echo=rule.echo or consequence,
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
