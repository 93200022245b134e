"""A question to people as a page: what is asked and why, what each answer does, and how to give one. Pure."""

from __future__ import annotations

import re

from flows.decisions.approval_lines import if_no, if_yes
from flows.decisions.console_words import blame
from flows.decisions.spans import timestamp
from workflows.console import Sheet
from workflows.overview import ApprovalLine
from workflows.records import ApprovalRecord, IncidentRecord, Story

LINES = 30
"""Of evidence."""


def approval_sheet(approval: ApprovalRecord, story: Story | None = None) -> Sheet:
    """The page of a question, answered or not; its key holds the question's id.

    Args:
        approval: the question.
        story: of the run that it is about; None: it is about nodes.
    """
    incident = next((item for item in story.incidents if item.id == approval.incident), None) if story else None
    actions = tuple(item for item in story.actions if item.incident == approval.incident) if story else ()
    line = ApprovalLine(approval, story.run.state if story else None, actions)
    about, _, rest = _plain(approval.question).partition("? ")
    parts = [f"# {about}? ({_plain(approval.run) or 'nodes'})" if rest else f"# {about}", _standing(approval), rest]
    if incident is not None:
        parts += _reasons(incident)
    parts += _answers(line)
    parts = [part for part in parts if part]
    says = f"{approval.state}: {_plain(approval.question)}"
    return Sheet(approval_key(approval.id), "markdown", "\n\n".join(parts) + "\n", says[:400])


def approval_key(identity: str) -> str:
    """Key of the artifact: `approval-<id>`, with a dash for whatever a key may not hold."""
    return "approval-" + re.sub("[^a-z0-9]+", "-", identity.lower()).strip("-")


def _standing(approval: ApprovalRecord) -> str:
    asked, until = timestamp(approval.asked_at), timestamp(approval.expires_at)
    if approval.state == "waiting":
        return f"**Waits for an answer** since {asked}, until {until}."
    who = f" by {_plain(approval.answered_by)}" if approval.answered_by else ""
    return f"**{approval.state.capitalize()}**{who} at {timestamp(approval.answered_at)}: {_plain(approval.why)}"


def _reasons(incident: IncidentRecord) -> list[str]:
    blamed = ", ".join(blame({"node": node, "rank": rank}) for node, rank in incident.culprits) or "nobody"
    parts = [
        "## Why",
        _plain(incident.why or incident.seen),
        f"Incident `{incident.id}`: {incident.fault_class or 'not diagnosed'} ({incident.confidence:.2f}), "
        f"blamed: {_plain(blamed)}.",
    ]
    if incident.would_change:
        parts.append(f"Otherwise: {_plain(incident.would_change)}")
    if incident.evidence:
        lines = "\n".join(line.replace("```", "'''") for line in incident.evidence[:LINES])
        parts.append(f"## Evidence\n\n```\n{lines}\n```")
    return parts


def _answers(line: ApprovalLine) -> list[str]:
    approval = line.approval
    if approval.state != "waiting":
        return []
    rows = (
        ("yes", if_yes(line)),
        ("no", if_no(line)),
        (f"no answer until {timestamp(approval.expires_at)}", "the same as no: the safe default"),
    )
    return [
        "## What an answer does",
        "\n".join(f"* **{answer}**: {_plain(then)}" for answer, then in rows),
        "## How to answer",
        f'```\nprimus approve {approval.id} --why "..."\nprimus deny {approval.id} --why "..."\n```',
        f"Or here: Deployments, `approve`, Quick run, with approval `{approval.id}`, your answer and why.",
    ]


def _plain(text: str) -> str:
    return " ".join(text.split()).replace("<", "&lt;").replace("|", "\\|")
