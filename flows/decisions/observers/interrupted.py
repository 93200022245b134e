"""Interrupted by hand: a program that was stopped where it waited before its first step stood still.

Nobody presses Ctrl-C so early without a reason; where training had made steps, anybody may have stopped it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.lines import by_stream
from flows.decisions.steps import steps
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

WAITING_WEIGHT = 0.8
"""The stack of an interrupted program ends where it waits for others."""
DEEP = 8
"""Innermost lines of the stack that are looked at."""
_STOPPED = re.compile(r"^(?:\S{1,20} )?KeyboardInterrupt\b|Received 2 death signal|closing signal SIGINT\b")
_SAYS = Cue("keyboardinterrupt", "death signal", "closing signal sigint", of=(_STOPPED,))
_FRAME = re.compile(r'^\s*File "[^"]{1,400}", line \d+, in (?P<function>[\w<>.]{1,100})')
_WAITS = re.compile(
    r"(?i)^(?:_try_get_data|_get_data|get|_get|poll|_poll|wait\w{0,20}|_wait\w{0,20}|acquire|recv\w{0,20}|_recv\w{0,20}|"
    r"select|read_bytes|all_?reduce\w{0,20}|all_?gather\w{0,20}|broadcast\w{0,20}|barrier|_create_c10d_store|"
    r"init_process_group|synchronize|join)$"
)


def interrupted(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Streams that were stopped by hand in a wait, before any step."""
    for stream in by_stream(lines) if _SAYS.anywhere(lines) else ():
        stops = [line for line in stream if _SAYS.holds(line.text) and _STOPPED.search(line.text)]
        if not stops or steps(stream):
            continue
        functions = [hit["function"] for line in stream if (hit := _FRAME.match(line.text)) is not None]
        if any(_WAITS.match(name) for name in functions[-DEEP:]):
            line = stops[0]
            text = f"stopped by hand while it waited in {functions[-1]}: {line.text.strip()[:160]}"
            yield Clue(FaultClass.HANG, WAITING_WEIGHT, text, "stopped-in-a-wait", "nobody", line.node, at=line.at,
                       supersedes=("hang-up", "user-interrupt", "elastic-sigterm"), file=line.file,
                       line=line.line)  # fmt: skip
            return
