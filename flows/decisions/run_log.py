"""The moments of a run that its log tells, one line each. Pure."""

from __future__ import annotations

from flows.decisions.console_words import blame
from profiles.vocabulary import FINISHED
from workflows.records import AttemptRecord, IncidentRecord, Story
from workflows.told import TOLD

Moment = tuple[str, str]
"""What it is, the same whenever it is looked at; and what is said."""


def moments(story: Story) -> tuple[Moment, ...]:
    """Everything worth a line so far: attempts, incidents, decisions, questions, the end."""
    told: list[Moment] = []
    for attempt in story.attempts:
        mine = [incident for incident in story.incidents if incident.attempt == attempt.number]
        told += _begun(attempt)
        told += [moment for incident in mine if incident.went_on for moment in _of_living(incident)]
        told += _ended(attempt)
        told += [moment for incident in mine if not incident.went_on for moment in _of_incident(incident)]
    for asked in story.approvals:
        told.append(
            (f"{asked.id} asked", f'waits for an answer: {asked.question} (primus approve {asked.id} --why "...")')
        )
        if asked.state != "waiting":
            told.append((f"{asked.id} {asked.state}", f"{asked.state} by {asked.answered_by or 'nobody'}: {asked.why}"))
    if story.run.state in FINISHED:
        told.append((f"end {story.run.resumes}", f"{story.run.name} {story.run.state}: {story.run.why}"))
    return tuple(told)


def _begun(attempt: AttemptRecord) -> list[Moment]:
    name = f"attempt {attempt.number}"
    told = [(f"{name} planned", f"{name} begins on {attempt.where}: {attempt.why}")]
    if attempt.first_step is not None:
        begins = "from the beginning" if attempt.resumed_from_step is None else f"from step {attempt.resumed_from_step}"
        told.append((f"{name} trains", f"{name} trains {begins}, first step {attempt.first_step}"))
    return told


def _ended(attempt: AttemptRecord) -> list[Moment]:
    if attempt.ended_at is None:
        return []
    name = f"attempt {attempt.number}"
    return [(f"{name} ended", f"{name} ended: {attempt.outcome}, last step {attempt.last_step}")]


def _of_incident(incident: IncidentRecord) -> list[Moment]:
    told = [(f"{incident.id} opened", f"incident {incident.id}: {incident.signal}: {incident.seen}")]
    if incident.fault_class is not None:
        blamed = ", ".join(blame({"node": node, "rank": rank}) for node, rank in incident.culprits[:8]) or "nobody"
        said = f"{incident.id} is {incident.fault_class} ({incident.confidence:.2f}), blamed: {blamed}"
        told.append((f"{incident.id} {incident.fault_class}", said))
    if incident.action is not None:
        told.append((f"{incident.id} {incident.action}", f"{incident.id}: {incident.action}, because {incident.why}"))
    back = incident.resumed_at
    if back is not None:
        told.append(
            (f"{incident.id} resumed", f"{incident.id} is over: it trains again {back - incident.at:.1f} s after it")
        )
    return told


def _of_living(incident: IncidentRecord) -> list[Moment]:
    """What an attempt lives on after was decided when it was written down: one line, and one when it is over."""
    if incident.signal in TOLD:
        return _of_note(incident)
    told = [(f"{incident.id} opened", f"{incident.why}: {incident.seen} ({incident.fault_class})")]
    if incident.resumed_at is not None:
        took = incident.resumed_at - incident.at
        told.append((f"{incident.id} resumed", f"attempt {incident.attempt} trains again {took:.2f} s after it"))
    return told


def _of_note(incident: IncidentRecord) -> list[Moment]:
    told = [(f"{incident.id} opened", f"{incident.why} ({incident.fault_class})")]
    if incident.over_at is not None:
        took = incident.over_at - incident.at
        told.append((f"{incident.id} over", f"{incident.signal} is over after {took:.1f} s: {incident.seen}"))
    return told
