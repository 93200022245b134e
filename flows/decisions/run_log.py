"""The moments of a run that its log tells, one line each. Pure."""

from __future__ import annotations

from flows.decisions.console_words import blame
from profiles.vocabulary import FINISHED
from workflows.records import AttemptRecord, IncidentRecord, Story

Moment = tuple[str, str]
"""What it is, the same whenever it is looked at; and what is said."""


def moments(story: Story) -> tuple[Moment, ...]:
    """Everything worth a line so far: attempts, incidents, decisions, questions, the end."""
    told: list[Moment] = []
    for attempt in story.attempts:
        told += _of_attempt(attempt)
        for incident in story.incidents:
            if incident.attempt == attempt.number:
                told += _of_incident(incident, story)
    for asked in story.approvals:
        told.append(
            (f"{asked.id} asked", f'waits for an answer: {asked.question} (primus approve {asked.id} --why "...")')
        )
        if asked.state != "waiting":
            told.append((f"{asked.id} {asked.state}", f"{asked.state} by {asked.answered_by or 'nobody'}: {asked.why}"))
    if story.run.state in FINISHED:
        told.append((f"end {story.run.resumes}", f"{story.run.name} {story.run.state}: {story.run.why}"))
    return tuple(told)


def _of_attempt(attempt: AttemptRecord) -> list[Moment]:
    name = f"attempt {attempt.number}"
    told = [(f"{name} planned", f"{name} begins on {attempt.where}: {attempt.why}")]
    if attempt.first_step is not None:
        begins = "from the beginning" if attempt.resumed_from_step is None else f"from step {attempt.resumed_from_step}"
        told.append((f"{name} trains", f"{name} trains {begins}, first step {attempt.first_step}"))
    if attempt.ended_at is not None:
        told.append((f"{name} ended", f"{name} ended: {attempt.outcome}, last step {attempt.last_step}"))
    return told


def _of_incident(incident: IncidentRecord, story: Story) -> list[Moment]:
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
