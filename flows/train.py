"""The train flow: from a profile to a run that survives its faults.

One loop over moves that the ledger alone determines, so that the flow may be killed at any line and started again.
Every move is a Prefect task or a few of them, named by what they do: the UI shows the story of the run.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import assert_never

from prefect import flow

from flows.decisions.accounting.advice import believed_mttf_seconds, interval_for_next_attempt
from flows.decisions.recovery.assess import Case, WatchFinding, assess, settled
from flows.decisions.recovery.liveness import Progressing, Undecided, judge
from flows.decisions.recovery.moves import (
    AwaitAnswer,
    CarryOut,
    Done,
    Finish,
    Plan,
    Recover,
    Rest,
    Submit,
    Watch,
    judge_end,
    next_move,
)
from flows.decisions.recovery.nodes import need_of
from flows.decisions.recovery.resume_rule import lineage, resume_proof
from flows.failover import act, recover, see_out
from flows.publishing import publish_page
from flows.report import summary_of
from flows.testing.admission import admitted
from profiles.errors import Conflict, Foreign, NotFound, PrimusError, Refused
from profiles.request import TrainRequest
from profiles.resolve import Resolved
from profiles.vocabulary import OUTCOME_STOPPED, OUTCOME_SUCCEEDED, RunState
from tasks.context import on_cluster, session, tell_waiting, world
from tasks.lease import driving, taken_by_another
from tasks.nodes.by_hand import keep_verdicts
from tasks.runs.clear import clear_attempt
from tasks.runs.evidence import open_incident, refuse
from tasks.runs.examine import leave_nothing, post_flight
from tasks.runs.open import resolved_of
from tasks.runs.state import await_answer, begin, look_for_answer, read_story, rest, set_state, take_back, version_of
from tasks.runs.submit import end_attempt, let_start, submit_attempt, watch_attempt, write_attempt
from workflows.model.attempt import LIVING, AttemptView, Signal
from workflows.model.gang_status import lent_restarts
from workflows.model.records import ActionRecord, ApprovalRecord, AttemptRecord, Constraints, RunRecord, Story
from workflows.programs.launcher.options import STEPLESS

Act = Plan | Submit | Watch | Recover | CarryOut | AwaitAnswer | Finish
"""Moves that do something."""


@flow(name="train", flow_run_name="train {request.name}", validate_parameters=True)
async def train(request: TrainRequest) -> str:
    """Train until the run is done or its budget is spent; the same name again continues it.

    Args:
        request: which profile, on which cluster, under which name.

    Returns:
        How the run ended: `succeeded`, `failed` or `stopped`.
    """
    with session() as here:
        run = begin(request)
        resolved = resolved_of(run)
        with publish_page(run.name, resolved), driving(run.name), on_cluster(resolved, here):
            return await drive(run, resolved)


async def drive(run: RunRecord, resolved: Resolved) -> str:
    """Make move after move, until the run has ended."""
    while True:
        version = version_of(run.name)
        move = next_move(read_story(run.name))
        if isinstance(move, Done):
            return move.state.value
        if isinstance(move, Rest):
            rest(run.name, move.why, version)
        else:
            await make(move, run.name, resolved)


async def make(move: Act, run: str, resolved: Resolved) -> None:
    """Make one move of a run without trouble; all others go to `bring_back`."""
    match move:
        case Plan():
            await plan(move, run, resolved)
        case Submit(attempt):
            await submit(resolved, attempt)
        case Watch(attempt):
            await see(resolved, attempt)
        case Finish(state, why):
            await finish(run, resolved, state, why)
        case Recover() | CarryOut() | AwaitAnswer():
            await bring_back(move, run, resolved)
        case _:
            assert_never(move)


async def bring_back(move: Recover | CarryOut | AwaitAnswer, run: str, resolved: Resolved) -> None:
    """Make one move after something went wrong."""
    match move:
        case Recover(incident):
            await recover(resolved, incident)
        case CarryOut(incident, actions):
            await act(resolved, incident, actions)
        case AwaitAnswer(approval):
            set_state(run, RunState.WAITING_FOR_APPROVAL, approval.question)
            ask(approval, resolved)
        case _:
            assert_never(move)


def ask(approval: ApprovalRecord, resolved: Resolved) -> None:
    """Wait until a person answers, the time is up, or the living attempt that is asked about needs no answer."""
    story = read_story(approval.run)
    incident = next(item for item in story.incidents if item.id == approval.incident)
    attempt = next(item for item in story.attempts if item.number == incident.attempt)
    if attempt.ended_at is not None or incident.signal not in LIVING:
        await_answer(approval)
        return

    def over(view: AttemptView, seen: AttemptRecord) -> str | None:
        if view.woken or look_for_answer(approval) is not None:
            return ""  # who asks for a new look gets one: the next move asks on where the question still stands
        return settled(view, seen, incident, Case(resolved, seen)) or None

    name = "waits for an answer, and watches attempt {attempt.number}"
    (why, _) = watch_attempt.with_options(task_run_name=name)(resolved, attempt, over)
    if why:
        take_back(incident, why)


async def plan(move: Plan, run: str, resolved: Resolved) -> None:
    """Write the next attempt down; where the run of another ledger has its name on this cluster, it ends instead.

    Attempts that answer a failure are not asked about: who was there first goes on.
    """
    taken = taken_by_another(run) if move.incident is None else ""
    if taken:
        await finish(run, resolved, RunState.FAILED, taken)
    elif (planned := next_attempt(resolved, read_story(run), move)) is not None:
        write_attempt(planned)


def next_attempt(resolved: Resolved, story: Story, plan: Plan) -> AttemptRecord | None:
    """The next attempt (nodes, newest proven checkpoint, reason), to be written down before any of it exists.

    None: nothing begins yet, since too few nodes are proven or a person wants something else.
    """
    action = decisive(story, plan)
    kept = lineage(story.attempts, tuple((item.step, item.path) for item in story.checkpoints))
    heed = action.constraints if action else Constraints(kept.max_step, kept.exclude)
    previous = story.attempt
    need = need_of(resolved, previous.nodes if previous else (), heed.avoid_nodes)
    choice = admitted(resolved, story.run.name, plan.number, need)
    if choice is None:
        return None
    now, interval = world().now(), interval_for_next_attempt(resolved.run.checkpoint, story.attempts)
    saves = "" if interval is None else f", saves every {interval} steps as advised"
    return AttemptRecord(
        run=story.run.name,
        number=plan.number,
        planned_at=now,
        why=f"{plan.why} ({choice.why}{saves})",
        incident=plan.incident.id if plan.incident else "",
        nodes=choice.nodes,
        avoid_nodes=heed.avoid_nodes,
        max_resume_step=heed.max_resume_step,
        excluded_checkpoints=heed.excluded_checkpoints,
        restarts_lent=lent_restarts(resolved.run.recovery, story.run.mode, paused=story.paused),
        mttf_seconds=believed_mttf_seconds(story, resolved, now),
        interval_steps=interval,
    )


def decisive(story: Story, plan: Plan) -> ActionRecord | None:
    """The action on the run that asked for this attempt."""
    if plan.incident is None:
        return None
    mine = [item for item in story.actions if item.incident == plan.incident.id and not item.target]
    return mine[-1] if mine else None


async def submit(resolved: Resolved, attempt: AttemptRecord) -> None:
    """Create or adopt the attempt, wait until the one before it is gone, and only then let ranks start.

    An attempt that the cluster refuses is an incident, not a crash; one whose name another ledger took ends the run.
    """
    state = RunState.PENDING if attempt.number == 1 else RunState.RECOVERING
    set_state(attempt.run, state, f"submits attempt {attempt.number}")
    try:
        submitted_at = submit_attempt(resolved, attempt)
    except Foreign as error:
        await finish(attempt.run, resolved, RunState.FAILED, str(error))
    except (Refused, NotFound, Conflict) as error:
        see_out(resolved, attempt)
        refuse(attempt, str(error))
    else:
        see_out(resolved, attempt)
        let_start(attempt, submitted_at)


async def see(resolved: Resolved, attempt: AttemptRecord) -> None:
    """Watch the attempt until something happens, and write down what."""
    handled = frozenset(
        Signal(item.signal)
        for item in read_story(attempt.run).incidents
        if item.attempt == attempt.number and not item.went_on
    )
    (finding, view) = watch_attempt(resolved, attempt, partial(notice, resolved, handled))
    keep_verdicts(resolved, view.workflow.gate, f"{attempt.run}-a{attempt.number}")
    story = read_story(attempt.run)
    seen = story.attempt or attempt
    if view.woken or story.open_incident is not None:
        return  # what somebody else saw stands in the ledger: the next move goes by that, or watches anew
    if finding.signal is not None:
        open_incident(seen, finding.signal, finding.why, view)
    elif view.stop_requested and view.jobset != "Completed":
        clear_attempt(resolved, seen, resolved.run.save_grace_seconds, ())
        end_attempt(seen, OUTCOME_STOPPED, view.now, resume_proof(seen, resolved.run))
    else:
        _ended_well(resolved, seen, view)


def notice(
    resolved: Resolved, handled: frozenset[Signal], view: AttemptView, attempt: AttemptRecord
) -> WatchFinding | None:
    """What `assess` finds, without signals that need nothing by an earlier decision; or a request for a new look.

    Who does not answer meanwhile stands in the run's `why`.
    """
    tell(view, resolved)
    if view.woken:
        return WatchFinding(None, view.woken)
    finding = assess(view, Case(resolved, attempt))
    return None if finding is None or finding.signal in handled else finding


def tell(view: AttemptView, resolved: Resolved) -> None:
    """Write down that the cluster is away, or what is known of a gang whose coordinator is silent."""
    judged = judge(view, resolved.run)
    if view.waits_for:
        tell_waiting(view.waits_for)
    elif isinstance(judged, Progressing):
        tell_waiting(judged.why, judged.about, goes_on=True)
    else:
        tell_waiting(judged.why, judged.about) if isinstance(judged, Undecided) else tell_waiting("")


def _ended_well(resolved: Resolved, attempt: AttemptRecord, view: AttemptView) -> None:
    run = resolved.run
    # Of a program that tells no steps only its exit code is known.
    tells_steps = run.progress.framework not in STEPLESS or attempt.last_step is not None
    end = judge_end(view, attempt, run.steps if tells_steps else 0, run.progress.every_steps)
    if end.succeeded:
        end_attempt(attempt, OUTCOME_SUCCEEDED, end.at, resume_proof(attempt, run))
    else:
        open_incident(attempt, Signal.ENDED_EARLY, end.why, view)


async def finish(run: str, resolved: Resolved, state: RunState, why: str) -> None:
    """Collect what was left, leave nothing running, and write down the end."""
    story = read_story(run)
    attempt = story.attempt
    if attempt is not None:
        if attempt.submitted_at is None:
            see_out(resolved, attempt)
        if attempt.ended_at is None:
            clear_attempt(resolved, attempt, 0.0, ())
            end_attempt(attempt, OUTCOME_STOPPED, world().now(), resume_proof(attempt, resolved.run))
        post_flight(resolved, run, story.attempts)
        leave_nothing(resolved, attempt, keep_completed=state is RunState.SUCCEEDED)
    set_state(run, state, why)
    with suppress(PrimusError):  # a report makes up for it; the run has ended either way
        summary_of(world().ledger, run, world().now())
