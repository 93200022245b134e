"""How long nobody complains any more: what a program says in many calm lines after a failure, it has survived.

Programs that fail end within a few lines. Of 850 logs of failures two went on for more than 18 lines after the last
line that told of any trouble, and half of them for none; what healthy programs complain of stands at their beginning.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from workflows.evidence import LogLine

SURVIVED_LINES = 25
"""So many calm lines to the end of a stream, and what stands before them ended nothing."""
MOST_LINES = 500
"""After more lines than this nothing is concluded: in logs of thousands of lines loaders and monitors talk on."""
WEAK_LINES, STRONG_LINES = 6, 16
"""The same for words of failure that no rule knows: mere refusals, and crashes."""
_DUMPED = re.compile(
    r"^(?:\s{4}|[|+│╭╰>*#=~-]|frame\b|[\w./-]{1,200}\([+\w]{0,200}\) ?\[0x|\d{1,3}[:#] )|0x[0-9a-f]{6,}|"
    r"(?i:resource usage|turnaround time|\b(?:cpu|run) time :|\bend of error message\b|closing signal|launcher|"
    r"torchrun|elastic|site-packages|\bFile \")"
)
"""What is printed at an end: stacks, tables, reports of launchers and batch systems."""


def calm_after(stream: Sequence[LogLine], line: int) -> int:
    """How many lines of the stream follow a line that are sentences of their own, and no part of a report."""
    if stream[-1].line - line > MOST_LINES:
        return 0
    return sum(1 for other in stream if other.line > line and other.text and _DUMPED.search(other.text[:400]) is None)


def survived(stream: Sequence[LogLine], loud: Collection[int]) -> int:
    """Number of the line up to which a stream outlived what it told of; 0 where it ends too soon after it.

    Args:
        stream: lines of one source, in order.
        loud: numbers of its lines that tell of trouble.
    """
    last = max(loud, default=0)
    if last == 0 or stream[-1].line - last < SURVIVED_LINES or calm_after(stream, last) < SURVIVED_LINES:
        return 0
    return last + 1
