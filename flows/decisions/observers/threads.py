"""A debugger's list of threads (`info threads`): a process that somebody stopped to see why nothing moves."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.lines import by_stream
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

ALL_WAIT_WEIGHT = 0.6
"""Nobody lists the threads of a process that works; but why they wait is not seen."""
FEWEST = 3
WAITING_SHARE = 0.8
_LISTED = re.compile(r"^[* ] {1,4}\d{1,4} {1,6}(?:Thread 0x[0-9a-f]{1,16} )?\(?LWP \d{1,9}\)?.{0,60}? (?P<at>\S.*)$")
_WAITS = re.compile(
    r"(?:pthread_cond_(?:timed)?wait|futex\w*|sem_(?:timed)?wait\w*|\w{0,20}poll\w{0,10}|epoll_p?wait|select\w{0,12}|lll_lock_wait\w*|"
    r"\w*lock_wait\w*|accept4?|nanosleep|recv\w{0,4}|read|wait4|waitpid)(?:@@?[\w.]{1,20})?(?:[ .(]|$)"
)
_FELL = re.compile(r"received signal SIG(?!INT|STOP)|Program terminated|Core was generated|core dumped")
_SAYS_LISTED = Cue("lwp", of=(_LISTED,))
_SAYS_FELL = Cue("received signal", "program terminated", "core was generated", "core dumped", of=(_FELL,))


def waiting(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Processes all of whose threads wait, and that did not crash."""
    for stream in by_stream(_SAYS_LISTED.among(lines)):
        listed = [(line, hit["at"]) for line in stream if (hit := _LISTED.match(line.text[:400])) is not None]
        if len(listed) < FEWEST:
            continue
        waits = sum(_WAITS.search(at) is not None for _, at in listed)
        if waits < WAITING_SHARE * len(listed) or any(_FELL.search(x.text) for x in _SAYS_FELL.among(lines)):
            continue
        line = listed[0][0]
        text = f"{waits} of {len(listed)} threads wait: {line.text.strip()[:300]}"
        yield Clue(FaultClass.HANG, ALL_WAIT_WEIGHT, text, "threads-wait", "nobody", line.node, line.rank, echo=True,
                   file=line.file, line=line.line)  # fmt: skip
