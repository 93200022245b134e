"""How an attempt ended that nobody complained about: exit 0 alone is no success."""

from __future__ import annotations

from dataclasses import dataclass

from workflows.evidence import AttemptView
from workflows.records import AttemptRecord


@dataclass(frozen=True)
class End:
    """The end of an attempt."""

    succeeded: bool
    why: str
    at: float
    """When it ended, Unix seconds."""


def judge_end(view: AttemptView, attempt: AttemptRecord, steps: int, stride: int = 1) -> End:
    """Did an attempt whose deciding role completed reach its goal?

    Args:
        view: the last look at it.
        attempt: its record.
        steps: planned last step; 0: not known, then exit 0 is success.
        stride: largest distance between two steps that the program reports: with 10, step 300 of 305 is the last seen.
    """
    ended = [pod.finished_at for pod in view.pods if pod.finished_at is not None]
    at = max(ended, default=view.now)
    seen = [
        step for step in (attempt.last_step, view.coordinator.step if view.coordinator else None) if step is not None
    ]
    last = max(seen, default=None)
    if view.jobset != "Completed":
        return End(False, f"the JobSet is {view.jobset or 'gone'}, not completed", at)
    if not steps:
        return End(True, "the program ended with exit code 0; no number of steps was planned", at)
    if last is None:
        resumed = attempt.resumed_from_step
        if resumed is not None and resumed >= steps:
            return End(True, f"the checkpoint of step {resumed} was the last planned one", at)
        return End(False, f"the program ended with exit code 0, but not one of {steps} planned steps was seen", at)
    if last + stride > steps:
        return End(True, f"step {last} of {steps} was completed", at)
    return End(False, f"the program ended with exit code 0 after step {last} of {steps} planned ones", at)
