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
    r"CANCELLED AT|\bSIGTERM\b|\bSIGINT\b|KeyboardInterrupt|[Tt]erminated\b|signal (?:15|2)\b|[Kk]illed by user|"
    r"scancel"
)
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)")
ENDLESS_WEIGHT = 0.5
"""A log that ends with nothing but the same line of waiting, for so long or so often."""
ENDLESS_SECONDS, ENDLESS_LINES, OFTEN = 600.0, 4, 8
_WAITS = re.compile(
    r"(?i)\b(?:(?:still )?waiting (?:for|on|at|in)\b(?!.{0,40}\b(?:pods?|schedul\w*|resources?|quota|capacity|"
    r"gpus?|nodes?|"
    r"slots?|approval|allocation)\b)|heart-?beat\b|still (?:alive|running|in progress)\b|no (?:output|update|"
    r"change)\b|"
    r"stall(?:ed|ing)?\b|watchdog\b.{0,40}\bstep\b|unchanged\b|polling\b)"
)
_DIED = re.compile(r"(?i)refused|fail|error|unreachable|timed out|lost|missed|expired")
_STAMP = re.compile(
    r"\d{1,4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?|"
    r"\b\d{1,9}(?:\.\d{1,6})? ?(?:s|sec\w{0,4}|ms|m|min\w{0,4}|h)\b"
)
_SAYS_WAITS = Cue("waiting", "heartbeat", "heart-beat", "still", "no output", "no update", "no change", "stall",
                  "watchdog", "unchanged", "polling", of=(_WAITS,))  # fmt: skip
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


def endless(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Logs whose end is nothing but one line of waiting, again and again, that differs in its times alone."""
    for stream in by_stream(lines) if _SAYS_WAITS.anywhere(lines) else ():
        told = [line for line in stream if line.text.strip()]
        tail: list[LogLine] = []
        for line in reversed(told):
            words = _STAMP.sub("", line.text[:300])
            if not _SAYS_WAITS.holds(line.text) or (tail and words != _STAMP.sub("", tail[0].text[:300])):
                break
            tail.append(line)
        if len(tail) < ENDLESS_LINES or not _WAITS.search(tail[0].text) or _DIED.search(tail[0].text):
            continue
        begun, ended = _moment(tail[-1]), _moment(tail[0])
        if len(tail) >= OFTEN or (begun is not None and ended is not None and ended - begun >= ENDLESS_SECONDS):
            yield _clue(
                tail[0], ENDLESS_WEIGHT, f"{len(tail)} times, and nothing else: {tail[0].text.strip()}", "waits-on"
            )


def _moment(line: LogLine) -> float | None:
    """When a line was printed: what is known of it, or the clock that stands in it."""
    if line.at is not None:
        return line.at
    hit = _CLOCK.search(line.text[:80])
    return int(hit[1]) * 3600.0 + int(hit[2]) * 60.0 + int(hit[3]) if hit else None


def _clue(line: LogLine, weight: float, text: str, rule: str) -> Clue:
    """A hang has a cause: this counts little once one is known."""
    return Clue(FaultClass.HANG, weight, text[:400], rule, node=line.node, echo=True, file=line.file, line=line.line)
