"""Tracebacks of several processes that were printed through each other: an exception's name and its message torn apart.

Nothing ends such a traceback properly: the name stands before somebody else's frame or source line, and the message
begins with a colon on a later line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.exceptions import NAMELESS, judge
from flows.decisions.diagnosis.lines import by_stream
from flows.decisions.diagnosis.matching import rule_by_name
from flows.decisions.diagnosis.observers.outliers import Lived
from flows.decisions.diagnosis.prefilter import Cue
from workflows.model.attempt import LogLine

NEAR = 6
"""Lines after the name within which its message stands."""
_FRAME = re.compile(r'^\s{0,40}File "(?P<file>[^"]{1,400})", line \d{1,7}, in (?P<function>[\w<>.]{1,100})')
_NAME = re.compile(
    r"^\s{0,8}(?P<type>[A-Z]\w{2,40}(?:Error|Exception))"
    r"(?:\s{0,8}$|(?=[A-Z]\w{2,40}(?:Error|Exception)|\s{0,8}File \"|\s{0,8}[a-z_][\w.]{0,60}(?: [=+(]|[.(\[=])))"
)
_MESSAGE = re.compile(r"^\s{0,8}: ?(?P<message>.{0,400})$")
_SAYS = Cue(of=(_NAME,))


def interleaved(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Streams that end with exceptions whose names and messages stand apart."""
    if not _SAYS.anywhere(lines):
        return
    lived = Lived(lines)
    for stream in by_stream(lines):
        frames = [f"{hit['file']}:{hit['function']}" for line in stream if (hit := _FRAME.match(line.text)) is not None]
        if not frames:
            continue
        for place, line in enumerate(stream):
            hit = _NAME.match(line.text) if _SAYS.holds(line.text) else None
            message = _message(stream[place + 1 : place + 1 + NEAR]) if hit is not None else ""
            if hit is not None and message and not lived.outlived(line):
                yield _clue(line, hit["type"], message, tuple(frames[-3:]))
                break


def _message(after: Sequence[LogLine]) -> str:
    """The message that begins with a colon; "" where none does. A bare colon's message stands on the next line."""
    for place, line in enumerate(after):
        hit = _MESSAGE.match(line.text)
        if hit is not None:
            following = after[place + 1].text.strip() if place + 1 < len(after) else ""
            return hit["message"].strip() or following
    return ""


def _clue(line: LogLine, kind: str, message: str, frames: tuple[str, ...]) -> Clue:
    judged = judge(kind, message, frames)
    base = rule_by_name(NAMELESS[0])
    weight = judged.weight * 0.9
    return Clue(judged.fault_class, weight, f"{kind}: {message}"[:400], base.name if base else NAMELESS[0], "code",
                line.node, line.rank, line.at, file=line.file, line=line.line)  # fmt: skip
