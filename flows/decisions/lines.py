"""Lines as programs print them, made comparable: colours, progress bars, launchers' prefixes, tracebacks, wording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from workflows.evidence import Evidence, LogLine

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PREFIXES = (
    re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?"),
    re.compile(r"^\[?(?:rank|default|trainer|worker)[ _-]?(?P<rank>\d{1,7})\]?: ?", re.IGNORECASE),
    re.compile(r"^\[\d{1,4},(?P<rank>\d{1,7})\]<std(?:out|err)>: ?"),
    re.compile(r"^(?P<rank>\d{1,6}): (?=\S|$)"),
)
"""Kubernetes, torchrun and our own launcher, mpirun, srun --label; applied in turn, each at most twice."""

_TRACEBACK = "Traceback (most recent call last):"
_LOGGING = "--- Logging error ---"
_CHAINS = ("During handling of the above exception", "The above exception was the direct cause")
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]{0,120})(?:: (?P<message>.*))?$")
_FRAME = re.compile(r'^ {2,}File "(?P<file>[^"]{1,400})", line \d+, in (?P<function>.{1,200})$')


@dataclass(frozen=True)
class Raised:
    """One exception of a traceback."""

    type: str
    message: str
    where: str
    """`file:function` of the innermost frame."""
    line: LogLine
    """The line that names the exception."""
    consequence: bool
    """True where it was raised while handling an earlier one, or caused by it."""


def clean(line: LogLine) -> LogLine:
    """The line without colours, overwritten progress bars and launchers' prefixes; a rank named there is taken over."""
    text = _COLOUR.sub("", line.text[:8000]).rstrip("\r\n").rsplit("\r", 1)[-1]
    rank = line.rank
    for prefix in _PREFIXES * 2:
        hit = prefix.match(text)
        if hit is not None:
            text = text[hit.end() :]
            named = hit.groupdict().get("rank")
            rank = int(named) if rank is None and named is not None else rank
    return replace(line, text=text, rank=rank)


def gather(evidence: Evidence) -> tuple[LogLine, ...]:
    """Every line of the evidence, cleaned: those given, the ranks' last ones, and the workflow's message; no copies."""
    lines = list(evidence.lines)
    for termination in evidence.terminations:
        for end in termination.ranks:
            lines += (LogLine(x, "rank", end.rank, termination.node, None) for x in end.last_lines)
        if termination.detail:
            lines.append(LogLine(termination.detail, "launcher", None, termination.node, None))
    if evidence.workflow_message:
        lines.append(LogLine(evidence.workflow_message, "event"))
    if evidence.detail:
        lines.append(LogLine(evidence.detail, "event"))
    return _without_copies(clean(line) for line in lines)


def tracebacks(lines: Sequence[LogLine]) -> tuple[Raised, ...]:
    """The exceptions in the lines of one source, in order."""
    found: list[Raised] = []
    inside, chained, where, before = False, False, "", ""
    for line in lines:
        text = line.text
        if text.lstrip().startswith(_TRACEBACK):
            # A message that the logging module could not print is not an end.
            inside, where = not before.startswith(_LOGGING), ""
        elif text.startswith(_CHAINS):
            chained = True
        elif inside and text.startswith(" "):
            frame = _FRAME.match(text)
            where = f"{frame['file'].rsplit('/', 1)[-1]}:{frame['function']}" if frame else where
        elif inside and text:
            hit = _RAISED.match(text)
            if hit is not None:
                found.append(Raised(hit["type"], hit["message"] or "", where, line, chained))
            inside, chained = False, False
        before = text
    return tuple(found)


def by_stream(lines: Iterable[LogLine]) -> tuple[tuple[LogLine, ...], ...]:
    """Lines grouped by where they came from, the order within each kept."""
    streams: dict[tuple[str, str, int | None, str], list[LogLine]] = {}
    for line in lines:
        streams.setdefault((line.source, line.node, line.rank, line.file), []).append(line)
    return tuple(tuple(stream) for stream in streams.values())


def _without_copies(lines: Iterable[LogLine]) -> tuple[LogLine, ...]:
    """A rank's last lines usually stand in its log too: a copy without a time gives way to the one that has it."""
    lines = tuple(lines)
    timed = {(line.text, line.rank) for line in lines if line.at is not None or line.file}
    return tuple(x for x in lines if x.at is not None or x.file or (x.text, x.rank) not in timed)
