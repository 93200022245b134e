"""The drill flow: one fault in a living run, for real, and how the run came back.

A recovery that was never seen is hoped for. So a drill can be scheduled, or asked for on the server's pages, and ends
as Failed where the run did not come back. `primus drill` does the same at a terminal.
"""

from __future__ import annotations

from typing import Any

from prefect import State, flow
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.decisions.recovery.situation import pause_reason
from flows.decisions.views.status import incident_row
from profiles.drill import FaultSpec, parse_fault
from profiles.errors import NotFound, ProfileError, Refused, Unavailable
from profiles.vocabulary import Action
from tasks.context import World, session
from tasks.ledger.ledger import Ledger
from tasks.prefect.automations import present_caller
from tasks.runs.faults import Tell, break_at, wait_for
from tasks.runs.put_back import put_back
from workflows.model.records import Actor, IncidentRecord, MarkRecord, Story

RECOVERY_SECONDS = 300.0
"""A recovery that takes longer is reported as not seen."""
HARMLESS = frozenset({"stop-rank", "slow-rank", "kill-coordinator", "kill-flow", "api-away", "ledger-away"})
"""Faults that training outlives: nothing is to be recovered."""
ASLEEP = {
    "corrupt-checkpoint": "nothing is to be expected until a resume: it was proven when it was written, and is not "
    "read before; a resume goes on from the next older proven one; cause one, e.g. with --fault kill-rank:0"
}
"""Faults that nobody notices by themselves, and why."""

BEGUN = "drill"
"""Kind of the mark that a drill is about to break something; its detail is the flow run's id."""

Json = dict[str, Any]


@flow(name="drill", flow_run_name="{fault} in {run}", validate_parameters=True)
async def drill(run: str, fault: str) -> State[Any]:
    """Break one thing of a living run, for real, and measure how it comes back. Runs of the embedded cluster only.

    At the end what the fault left behind is put back: power, cordon, a rank that is held, a full file system.

    Args:
        run: Name of a run that is training.
        fault: What to break, and at which step: `kill-rank:1,step=40`, `lose-node:node-1`; docs/on-call.md has all.

    Returns:
        A state whose message says what was noticed, decided and done after how many seconds. Failed: the run did not
        come back within five minutes, or there was nothing to break.
    """
    try:
        spec = parse_fault(fault)
        with session() as here:
            at = break_once(str(flow_run.get_id() or ""), run, spec, here)
            found = measured(run, spec, at, here.ledger, present_caller())
    except (ProfileError, NotFound) as error:
        return Failed(message=f"nothing was broken: {error}")
    except Unavailable as error:  # perhaps after the fault was caused: then it stands in the run's history
        return Failed(message=f"the drill did not come to its end: {error}")
    message = "; ".join(filter(None, (f"{spec}: {in_words(found)}", found["put_back"])))
    return Failed(message=message) if found["recovered"] is False else Completed(message=message)


def break_once(drill_id: str, run: str, spec: FaultSpec, here: World) -> float:
    """Cause the fault, however often the flow run is started again; returns when (Unix seconds).

    That it is about to be caused is written down first. Who finds that and no fault after it cannot know whether it
    was caused, and does not break a second thing.

    Raises:
        ProfileError: there is nothing to break, or this trainer cannot be asked for it.
        NotFound: no such run, or what should be broken is not there.
        Unavailable: the step was not seen in time, or an earlier process of this drill died before it said what it did.
    """
    story = here.ledger.story(run)
    begun = [mark.at for mark in story.marks if (mark.kind, mark.detail) == (BEGUN, drill_id)]
    if not begun:
        here.ledger.act(run, f"drill {spec}", "asked for one fault, for real", present_caller())
        newest = max(1, len(story.attempts))
        here.ledger.add_marks(None, [MarkRecord(run, newest, BEGUN, here.now(), drill_id)])
        return break_at(run, spec, here.settings, here.ledger)
    ours = (mark for mark in story.marks if mark.kind == "fault" and mark.detail.partition(":")[0] == spec.kind)
    caused = [mark.at for mark in ours if mark.at >= begun[0]]
    if not caused:
        raise Unavailable("begun before, by a process that died; whether it broke anything is not known: start another")
    return caused[0]


def measured(run: str, spec: FaultSpec, at: float, ledger: Ledger, by: Actor, tell: Tell = lambda _: None) -> Json:
    """`measure`, and put back at its end what the fault left behind, whatever came of it; `put_back` says what.

    Settings and ledger of the work come from `tasks.context`.
    """
    said = ""
    try:
        found = measure(run, spec, at, ledger, tell)
    finally:
        try:
            said = put_back(spec, run, by)
        except (Unavailable, Refused, NotFound) as error:
            said = f"not put back: {error}; `primus drill {run} --put-back` tries again"
        if said:
            tell(said)
    return {**found, "put_back": said}


def measure(run: str, spec: FaultSpec, at: float, ledger: Ledger, tell: Tell = lambda _: None) -> Json:
    """Wait for what follows a fault that was caused at `at` (Unix seconds), no longer than anything can follow.

    Returns:
        The shape of `primus drill --json`. `recovered` is None where nothing is to be recovered yet; where a person
        must act before it can be, `waits_for` says what.
    """
    if spec.kind in ASLEEP:
        return {"fault": str(spec), "recovered": None, "why": ASLEEP[spec.kind]}
    if spec.kind in HARMLESS:
        return _next_step(run, spec, at, ledger, tell)
    tell(f"waiting until {run} trains again, at most {RECOVERY_SECONDS:g} s")
    told: list[str] = []

    def is_answered(story: Story) -> bool:
        found = _troubles(story, at)
        for line in _course(found[:1]):
            if line not in told:
                told.append(line)
                tell(line)
        return any(incident.resumed_at is not None for incident in found[:1]) or bool(waits_for(story, found))

    try:
        story = wait_for(ledger, run, is_answered, RECOVERY_SECONDS)
    except Unavailable as error:
        rows = [incident_row(incident) for incident in _troubles(ledger.story(run), at)]
        return {"fault": str(spec), "recovered": False, "why": str(error), **(rows[0] if rows else {})}
    found = _troubles(story, at)
    row = {"fault": str(spec), "recovered": True, **incident_row(found[0])}
    held = waits_for(story, found)
    return {**row, "recovered": None, "waits_for": held} if held else row


def _troubles(story: Story, since: float) -> list[IncidentRecord]:
    return [incident for incident in story.troubles if incident.detected_at >= since]


def _course(found: list[IncidentRecord]) -> list[str]:
    """What became of an incident so far, a line each."""
    lines = [f"noticed after {item.detected_at - item.at:.1f} s: {item.seen or item.signal}" for item in found]
    return lines + [f"decided: {item.action}: {item.why}" for item in found if item.action is not None]


def waits_for(story: Story, found: list[IncidentRecord]) -> str:
    """What a person must do before the run can come back from these incidents; "" where nobody is waited for."""
    for incident in found:
        asked = [item for item in story.approvals if (item.incident, item.state) == (incident.id, "waiting")]
        if asked:
            return f"a person's answer: {asked[0].question}: `primus approve {asked[0].id} --why …`"
        held = pause_reason(story)
        if held and incident.resumed_at is None and incident.action not in (None, Action.NONE, Action.RESTART_IN_PLACE):
            name = story.run.name
            end = f"`primus unpause {name}`" if story.paused else f"`primus resume {name} --mode act`"
            return f"{end}: {held}; it would be {incident.action}"
    return ""


def _next_step(run: str, spec: FaultSpec, at: float, ledger: Ledger, tell: Tell) -> Json:
    over = at + spec.seconds
    tell(f"waiting for the next step of {run}, at most {RECOVERY_SECONDS:g} s")

    def stepped(story: Story) -> bool:
        return any(row.at > over for row in ledger.steps(story.run.name))

    try:
        story = wait_for(ledger, run, stepped, RECOVERY_SECONDS)
    except Unavailable as error:
        return {"fault": str(spec), "recovered": False, "why": str(error)}
    after = next(row for row in ledger.steps(run) if row.at > over)
    return {
        "fault": str(spec),
        "recovered": True,
        "why": "training went on by itself",
        "next_step": after.step,
        "next_step_after_seconds": round(after.at - at, 3),
        "attempts": len(story.attempts),
    }


def in_words(found: Json) -> str:
    """The figures of a drill in one sentence."""
    if found.get("resumed_after_seconds") is not None:
        return (
            f"noticed after {found['detected_after_seconds']:g} s as {found['class']}, answered with "
            f"{found['action']}, training again after {found['resumed_after_seconds']:g} s"
        )
    if found.get("waits_for"):
        return (
            f"noticed after {found['detected_after_seconds']:g} s as {found['class']}, waits for {found['waits_for']}"
        )
    if "next_step_after_seconds" in found:
        return f"{found['why']}, the next step came after {found['next_step_after_seconds']:g} s"
    return found["why"]
