"""When nothing is wrong: logs in which nothing speaks of a failure."""

from __future__ import annotations

from collections.abc import Sequence

from flows.decisions.clues import Weighed
from flows.decisions.steps import done, step_of
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

SPEAKS_OF_FAILURE = 0.15
"""A clue of less weight was outlived, or an echo of something that is known."""
ENDED_WELL, GOES_ON, SILENT = 0.92, 0.8, 0.65
"""Confidence that nothing is wrong: the training says that it came to its end; it trains; nothing is said at all."""


def or_healthy(weighed: Weighed, lines: Sequence[LogLine]) -> Weighed:
    """`none` instead of `unknown` where nothing in the lines speaks of a failure; no line at all stays unknown."""
    told = [line for line in lines if line.text.strip()]
    if weighed.fault_class is not FaultClass.UNKNOWN or not told:
        return weighed
    if any(clue.weight >= SPEAKS_OF_FAILURE for clue in weighed.others):
        return weighed
    if any(done(line) for line in told):
        confidence = ENDED_WELL
    elif any(step_of(line) is not None for line in told):
        confidence = GOES_ON
    else:
        confidence = SILENT
    return Weighed(FaultClass.NONE, confidence, weighed.alternatives, (), weighed.others)
