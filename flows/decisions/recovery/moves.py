"""What the train flow does next, read from the ledger alone: a flow may therefore die at any line. Pure.

Every move leaves the ledger in a state from which `next_move` names the following one. Exit code 0 alone is no success:
`judge_end` compares the last step with the planned ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from profiles.vocabulary import FINISHED, OUTCOME_SUCCEEDED, Action, Mode, RunState
from workflows.model.attempt import AttemptView
from workflows.model.records import ActionRecord, ApprovalRecord, AttemptRecord, IncidentRecord, Story


@dataclass(frozen=True)
class Plan:
    """Write down the next attempt."""

    number: int
    why: str
    incident: IncidentRecord | None
    """The decision that asked for it; None: the first attempt, or the first after a person resumed the run."""


@dataclass(frozen=True)
class Submit:
    """Create or adopt the attempt's objects."""

    attempt: AttemptRecord


@dataclass(frozen=True)
class Watch:
    """Wait until something about the attempt is worth acting on."""

    attempt: AttemptRecord


@dataclass(frozen=True)
class Recover:
    """Examine, diagnose and decide."""

    incident: IncidentRecord


@dataclass(frozen=True)
class CarryOut:
    """Do what was decided, in this order."""

    incident: IncidentRecord
    actions: tuple[ActionRecord, ...]


@dataclass(frozen=True)
class AwaitAnswer:
    """A person is asked."""

    approval: ApprovalRecord


@dataclass(frozen=True)
class Rest:
    """Touch nothing until a person changes something (paused, or mode observe)."""

    why: str


@dataclass(frozen=True)
class Finish:
    """Write down how the run ended."""

    state: RunState
    why: str


@dataclass(frozen=True)
class Done:
    """The run has ended."""

    state: RunState
    why: str


Move = Plan | Submit | Watch | Recover | CarryOut | AwaitAnswer | Rest | Finish | Done


def next_move(story: Story) -> Move:
    """The next move of a run with this story."""
    if story.run.state in FINISHED:
        return Done(story.run.state, story.run.why)
    attempt = story.attempt
    if attempt is not None and not _resumed_after(story, attempt):
        mine = (item for item in reversed(story.incidents) if item.attempt == attempt.number)
        # After a restart in place, or a note, the attempt continues: nothing is left to be done about it.
        incident = next((item for item in mine if not item.went_on), None)
        if incident is not None and incident.action is not Action.NONE:
            return _recovery(story, attempt, incident)
    return _progress(story, attempt)


def _progress(story: Story, attempt: AttemptRecord | None) -> Move:
    if attempt is not None and attempt.submitted_at is not None and attempt.ended_at is None:
        return Watch(attempt)
    stop = _stop(story)
    if stop is not None:
        return stop
    if attempt is None:
        return Plan(1, "first", None)
    if attempt.ended_at is None:
        return _rest_reason(story, "submit", requested=not attempt.incident) or Submit(attempt)
    if _resumed_after(story, attempt):
        return Plan(attempt.number + 1, "resumed by a person", None)
    if attempt.outcome == OUTCOME_SUCCEEDED:
        return Finish(RunState.SUCCEEDED, f"attempt {attempt.number} completed")
    return Finish(RunState.STOPPED, "stopped by a person")


def _resumed_after(story: Story, attempt: AttemptRecord) -> bool:
    resumed = story.run.resumed_at
    return resumed is not None and attempt.ended_at is not None and resumed >= attempt.ended_at


def _recovery(story: Story, attempt: AttemptRecord, incident: IncidentRecord) -> Move:
    if incident.action is None:
        return Recover(incident)
    approval = next((item for item in story.approvals if item.incident == incident.id), None)
    if approval is not None and approval.state == "waiting":
        return _stop(story) or AwaitAnswer(approval)
    mine = tuple(item for item in story.actions if item.incident == incident.id)
    undone = tuple(item for item in mine if item.state in ("planned", "waiting", "recorded"))
    undone = tuple(sorted(undone, key=lambda item: not item.target))  # nodes first: the run's own action plans anew
    stop = _stop(story)
    if undone:
        held = _rest_reason(story, str(undone[0].kind))
        return CarryOut(incident, undone) if held is None else stop or held
    if approval is not None and approval.state in ("denied", "expired"):
        return Finish(RunState.STOPPED, f"{approval.question} {approval.state}: {approval.why or 'nobody answered'}")
    if stop is not None:
        return stop
    if incident.action is Action.GIVE_UP:
        return Finish(RunState.FAILED, incident.why)
    return Plan(attempt.number + 1, f"{incident.action}: {incident.why}", incident)


def _stop(story: Story) -> Finish | None:
    """The end that a person asked for: neither a pause nor a mode holds it."""
    stop_request = next(
        (request for request in story.requests if request.kind == "stop" and request.done_at is None), None
    )
    return None if stop_request is None else Finish(RunState.STOPPED, stop_request.why or "stopped by a person")


def _rest_reason(story: Story, what: str, *, requested: bool = False) -> Rest | None:
    """Why nothing is done now; `asked`: a person asked for it, so it is no decision of ours that a mode holds."""
    if story.paused:
        return Rest(f"paused: {what} waits for `primus unpause {story.run.name}`")
    if story.run.mode is Mode.OBSERVE and not requested:
        return Rest(f"mode observe: {what} is recorded but not carried out")
    return None


@dataclass(frozen=True)
class End:
    """The end of an attempt."""

    succeeded: bool
    why: str
    at: float
    """When it ended, Unix seconds."""


def judge_end(view: AttemptView, attempt: AttemptRecord, steps: int, stride: int = 1) -> End:
    """Did an attempt whose deciding role completed reach its goal?

    `steps`: planned last step, 0: not known, then exit 0 is success. `stride`: largest distance between two reported
    steps: with 10, step 300 of 305 is the last seen.
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
