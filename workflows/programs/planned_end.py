"""Whether all ranks' end with 0 is the planned end; the last step may have been reported by another pod's rank."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Optional

from workflows.programs import termination
from workflows.programs.launch_options import STEPLESS, Options, Place
from workflows.programs.reporting import StepFilter

GANG_STEP_SECONDS = 2.0
"""How long the last step of another pod's rank may take to arrive at the coordinator."""
TURN_SECONDS = 0.05


def why_early(
    options: Options,
    place: Place,
    steps: StepFilter,
    ask: Callable[[], Optional[Dict[str, Any]]],
    recorded: Callable[[], Optional[int]],
    turn: Callable[[float], None],
) -> str:
    """Why the end came too early; "" where it did not.

    Args:
        options: of the launcher.
        place: with what was resumed last.
        steps: that this pod's ranks reported.
        ask: the coordinator's `/status`; None where no answer came.
        recorded: the last step on the shared storage.
        turn: lets the launcher work for so many seconds.
    """
    sees_steps = options.decides and options.framework not in STEPLESS
    goal = termination.Goal(options.steps, place.resume_step, sees_steps, place.pod_index)
    seen = termination.Seen(steps.last_step, None, True, steps.interval)
    deadline = time.monotonic() + GANG_STEP_SECONDS
    while termination.ended_early(goal, seen) and options.pods > 1:
        seen = termination.with_gang(seen, ask(), recorded)
        if time.monotonic() > deadline:
            break
        turn(TURN_SECONDS)
    return termination.ended_early(goal, seen)
