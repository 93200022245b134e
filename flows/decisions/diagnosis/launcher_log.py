"""How ranks ended, from our own launcher's log where its record is missing; and notices that reached a part of a gang.

A launcher logs each end at once and leaves its record when it ends itself. In between it may be killed, its node lost,
or its coordinator away, and saved logs have no records at all. A notice is passed on through the coordinator; where
that is away or on the node that is emptied, ranks of the other pods seem to end by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from flows.decisions.diagnosis.lines import Clock, stamp
from workflows.model.attempt import Evidence, LogLine
from workflows.programs.launcher.lifecycle import is_failure
from workflows.programs.launcher.termination import EXIT_TERMINATED
from workflows.wire import LINE_PREFIX, RankEnd, Termination, from_line

MARK = f'{LINE_PREFIX}{{"report":"RankEnd",'
MOST_BEFORE = 120
"""Characters that log collectors may put before a line."""
_LINES = ',"last_lines":'
_SAVING = "launcher: saving: "
_NOTICE = re.compile(r"SIG[A-Z0-9]{1,10} reached the launcher")
"""How a launcher says that its pod was given notice of its end."""

ANSWERS = (0, EXIT_TERMINATED)
"""How a program may end that heeds a notice. One that ends with 0 before its last step has failed otherwise."""
CLOCKS_SECONDS = 0.5
"""Clocks of two nodes differ by less."""


@dataclass
class _LauncherLog:
    """What one log holds: the ends of the newest incarnation."""

    node: str
    incarnation: int = 0
    ends: dict[int, RankEnd] = field(default_factory=dict[int, RankEnd])
    noticed: str = ""
    """The launcher's own words; "" where it was given no notice."""
    noticed_at: float = 0.0
    """Unix seconds."""

    def add(self, end: RankEnd) -> None:
        """One more end; of a rank that is reported twice the first one counts."""
        if end.incarnation > self.incarnation:
            self.incarnation, self.ends = end.incarnation, {}
        if end.incarnation == self.incarnation:
            self.ends.setdefault(end.rank, end)


def with_logged_ends(evidence: Evidence) -> Evidence:
    """The evidence with a record of every pod (a log of its own) that left none, made from its launcher's log."""
    recorded = {record.pod for record in evidence.terminations}
    ends = logged_ends(line for line in evidence.lines if not line.file or line.file not in recorded)
    return replace(evidence, terminations=(*evidence.terminations, *ends)) if ends else evidence


def logged_ends(lines: Iterable[LogLine]) -> tuple[Termination, ...]:
    """Records made from lines, one for each log with an end or a notice, in the order of the logs."""
    logs: dict[str, _LauncherLog] = {}
    for line in lines:
        end = end_of(line.text)
        if end is not None:
            logs.setdefault(line.file, _LauncherLog(line.node)).add(end)
        elif (noticed := notice_of(line)) is not None:
            log = logs.setdefault(line.file, _LauncherLog(line.node))
            log.noticed, log.noticed_at = noticed
    return tuple(_record(name, log) for name, log in logs.items())


def end_of(text: str) -> RankEnd | None:
    """The end that a line reports; None for every other line. Of a line that was cut the last words are missing."""
    at = text.find(MARK, 0, MOST_BEFORE + len(MARK))
    if at < 0:
        return None
    found = from_line(text[at:])
    if found is None and (cut := text.find(_LINES, at)) >= 0:
        found = from_line(text[at:cut] + "}")
    return found if isinstance(found, RankEnd) else None


def notice_of(line: LogLine) -> tuple[str, float] | None:
    """What the line of a launcher says of a notice, and when (Unix seconds); None for every other line."""
    head, saving, rest = line.text.partition(_SAVING)
    said = _NOTICE.match(rest) if saving and line.source != "rank" else None
    if said is None:
        return None
    at = stamp(head, Clock()) if line.at is None else line.at
    return None if at is None else (said[0], at)


def first_failed(ends: Iterable[RankEnd]) -> RankEnd | None:
    """Of the ranks that ended wrongly by themselves the first one; None where none did."""
    return min(filter(is_failure, ends), key=lambda end: (end.at, end.rank), default=None)


def _record(name: str, log: _LauncherLog) -> Termination:
    ends = [log.ends[rank] for rank in sorted(log.ends)]
    first = first_failed(ends)
    reason = _reason(first, log)
    steps = [end.last_step for end in ends if end.last_step is not None]
    return Termination(
        run="",
        attempt=0,
        role="",
        node=log.node,
        pod=name,
        reason=reason,
        ranks=ends,
        first_failing_rank=first.rank if first else None,
        last_step=max(steps, default=None),
        at=max((end.at for end in ends), default=log.noticed_at),
        detail=log.noticed if reason == "signalled" else "",
    )


def _reason(first: RankEnd | None, log: _LauncherLog) -> str:
    if first is not None:
        return "rank-failed"
    if log.noticed:
        return "signalled"
    return "told-to-stop" if any(end.requested for end in log.ends.values()) else "completed"


def with_passed_notices(evidence: Evidence) -> Evidence:
    """The evidence in which ranks that ended by another pod's notice count as asked to end, which they were."""
    began = _noticed_at(evidence)
    if began is None:
        return evidence
    return replace(evidence, terminations=tuple(_passed(record, began) for record in evidence.terminations))


def _noticed_at(evidence: Evidence) -> float | None:
    """Since when a part of the gang had notice to end (Unix seconds; 0: not known when); None where none had."""
    if any(node.cordoned and _is_emptied(node.name, evidence) for node in evidence.nodes):
        return 0.0
    said = [noticed[1] for line in evidence.lines if (noticed := notice_of(line)) is not None]
    # Whoever is stopped by the gang's end is killed; only a notice lets a rank end as it wants to.
    ended = [
        end.at
        for record in evidence.terminations
        for end in record.ranks
        if end.requested and end.exit_code == EXIT_TERMINATED
    ]
    return min([*said, *ended], default=None)


def _is_emptied(node: str, evidence: Evidence) -> bool:
    """Whether all of the gang that was on the node leaves it, or has left: an evicted pod that has ended is gone."""
    return all(pod.deleted or pod.disrupted for pod in evidence.pods if pod.node == node)


def _passed(record: Termination, began: float) -> Termination:
    if record.reason != "rank-failed" or not any(_by_notice(end, began) for end in record.ranks):
        return record
    ranks = [replace(end, requested=True) if _by_notice(end, began) else end for end in record.ranks]
    first = first_failed(ranks)
    if first is None:
        return replace(record, ranks=ranks, reason="told-to-stop", first_failing_rank=None)
    return replace(record, ranks=ranks, first_failing_rank=first.rank)


def _by_notice(end: RankEnd, began: float) -> bool:
    return not end.requested and end.exit_code in ANSWERS and end.at >= began - CLOCKS_SECONDS
