"""Logs that stop: a bar that never moved, a silence far longer than any step that somebody had to end."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.lines import by_stream
from flows.decisions.steps import done, steps
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

BAR_WEIGHT = 0.45
"""A progress bar at its beginning after so long: it hangs, or its first step is very slow."""
SILENCE_WEIGHT = 0.5
"""Nothing was printed for so long, and then it was ended from outside."""
BAR_SECONDS = 600.0
"""Time without a first step from which a bar counts: a first step may compile, load, and warm up for minutes."""
SILENCE_SECONDS = 1800.0
"""The usual limit of a collective: whoever is silent for longer does not wait for one that anybody watches."""
SILENCE_STEPS = 30
"""And so many times the usual distance of two steps."""
FEWEST_STEPS = 3
"""Steps that must be known before their distance means anything."""
_BAR = re.compile(r"\b0%\|[^|]{0,200}\| 0/\d{1,9} \[(?:(?P<hours>\d{1,3}):)?(?P<minutes>\d\d):(?P<seconds>\d\d)<\?")
_ENDED = re.compile(
    r"CANCELLED AT|\bSIGTERM\b|\bSIGINT\b|KeyboardInterrupt|[Tt]erminated\b|signal (?:15|2)\b|[Kk]illed by user|scancel"
)
_SAYS_BAR = Cue("0%|", of=(_BAR,))
_SAYS_ENDED = Cue("cancelled at", "sigterm", "sigint", "keyboardinterrupt", "terminated", "signal", "killed by user",
                  "scancel", of=(_ENDED,))  # fmt: skip


def bars(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Progress bars that stand at zero where their log ends."""
    for stream in by_stream(lines) if _SAYS_BAR.anywhere(lines) else ():
        told = [line for line in stream[-3:] if line.text.strip()]
        hit = _BAR.search(told[-1].text) if told else None
        if hit is None:
            continue
        seconds = int(hit["hours"] or 0) * 3600 + int(hit["minutes"]) * 60 + int(hit["seconds"])
        if seconds >= BAR_SECONDS:
            yield _clue(told[-1], BAR_WEIGHT, f"no step in {seconds} s: {told[-1].text.strip()[-120:]}", "bar-at-zero")


def silences(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Steps, then a long silence, then an end from outside."""
    for stream in by_stream(lines) if _SAYS_ENDED.anywhere(lines) else ():
        if not _SAYS_ENDED.anywhere(stream):
            continue
        timed = [found.line for found in steps(stream) if found.line.at is not None]
        if len(timed) < FEWEST_STEPS or any(done(line) for line in stream):
            continue
        moments = [line.at or 0.0 for line in timed]
        usual = statistics.median(later - earlier for earlier, later in itertools.pairwise(moments))
        after = [line for line in stream if line.line > timed[-1].line and line.at is not None]
        limit = max(SILENCE_SECONDS, SILENCE_STEPS * usual)
        before = moments[-1]
        for line in after:
            silence = (line.at or 0.0) - before
            if silence > limit and _ENDED.search(line.text):
                text = f"no line for {silence:.0f} s after the last step, then: {line.text.strip()[:200]}"
                yield _clue(line, SILENCE_WEIGHT, text, "silence-ended")
                break
            before = line.at or before


def _clue(line: LogLine, weight: float, text: str, rule: str) -> Clue:
    """A hang has a cause: this counts little once one is known."""
    return Clue(FaultClass.HANG, weight, text[:400], rule, node=line.node, echo=True, file=line.file, line=line.line)
