"""Questions that wait for a person and incidents of all runs: lists for a terminal, the page of a question. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from flows.decisions import text as decisions_text
from flows.decisions.text import age, blame, first_names, markdown_text, timestamp
from flows.decisions.views.status import incident_row
from workflows.model.events import Sheet
from workflows.model.records import ApprovalRecord, IncidentRecord, Story
from workflows.model.runs import ApprovalLine, IncidentLine

Json = dict[str, Any]
NAMED = 6
"""Nodes that a sentence names."""

LINES = 30
"""Of evidence."""


def approval_document(line: ApprovalLine, now: float) -> Json:
    """One entry of `primus approvals --json`."""
    approval, state = line.approval, line.run_state
    return {
        "id": approval.id,
        "run": approval.run,
        "incident": approval.incident,
        "question": approval.question,
        "asked_at": timestamp(approval.asked_at),
        "age_seconds": round(max(0.0, now - approval.asked_at), 3),
        "expires_at": timestamp(approval.expires_at),
        "seconds_left": round(max(0.0, approval.expires_at - now), 3),
        "run_state": None if state is None else str(state),
        "if_yes": if_yes(line),
        "if_no": if_no(line),
        "approve": f'primus approve {approval.id} --why "..."',
        "deny": f'primus deny {approval.id} --why "..."',
    }


def lines(line: ApprovalLine, now: float) -> list[str]:
    """The same for people."""
    approval = line.approval
    left = approval.expires_at - now
    until = f"{age(left)} left, then it counts as no" if left > 0 else "its time is up: it counts as no"
    state = f" ({line.run_state})" if line.run_state else ""
    return [
        f"{approval.run}{state}: {approval.question}",
        f"  asked {age(now - approval.asked_at)} ago; {until}",
        f'  yes: {if_yes(line)}\n       primus approve {approval.id} --why "..."',
        f'  no:  {if_no(line)}\n       primus deny {approval.id} --why "..."',
    ]


def if_yes(line: ApprovalLine) -> str:
    """What an approval lets happen."""
    by_kind: dict[str, list[str]] = {}
    for action in line.actions:
        if action.target:
            by_kind.setdefault(str(action.kind), []).append(action.target)
    parts = [f"{kind} {first_names(nodes, NAMED)}" for kind, nodes in by_kind.items()]
    parts += [str(action.kind) for action in line.actions if not action.target]
    return ", then ".join(parts) or "what was decided is carried out"


def if_no(line: ApprovalLine) -> str:
    """What a denial, and no answer in time, leaves."""
    run = line.approval.run
    if line.run_state is None:
        return "the nodes stay as they are"
    return f"nothing is done and {run} ends as stopped; `primus resume {run}` goes on later"


def approval_sheet(approval: ApprovalRecord, story: Story | None = None, form: str = "") -> Sheet:
    """The page of a question, answered or not; its key holds the question's id.

    `story` is None where the question is about nodes.
    """
    incident = next((item for item in story.incidents if item.id == approval.incident), None) if story else None
    actions = tuple(item for item in story.actions if item.incident == approval.incident) if story else ()
    line = ApprovalLine(approval, story.run.state if story else None, actions)
    about, _, rest = markdown_text(approval.question).partition("? ")
    parts = [
        f"# {about}? ({markdown_text(approval.run) or 'nodes'})" if rest else f"# {about}",
        _standing(approval),
        rest,
    ]
    if incident is not None:
        parts += _reasons(incident)
    parts += _answers(line, form)
    parts = [part for part in parts if part]
    says = f"{approval.state}: {markdown_text(approval.question)}"
    return Sheet(approval_key(approval.id), "markdown", "\n\n".join(parts) + "\n", says[:400])


def approval_key(identity: str) -> str:
    """Key of the artifact: `approval-<id>`, with a dash for whatever a key may not hold."""
    return "approval-" + re.sub("[^a-z0-9]+", "-", identity.lower()).strip("-")


def _standing(approval: ApprovalRecord) -> str:
    asked_at, until = timestamp(approval.asked_at), timestamp(approval.expires_at)
    if approval.state == "waiting":
        return f"**Waits for an answer** since {asked_at}, until {until}."
    who = f" by {markdown_text(str(approval.answerer))}" if approval.answerer else ""
    return f"**{approval.state.capitalize()}**{who} at {timestamp(approval.answered_at)}: {markdown_text(approval.why)}"


def _reasons(incident: IncidentRecord) -> list[str]:
    blamed = ", ".join(blame({"node": node, "rank": rank}) for node, rank in incident.culprits) or "nobody"
    parts = [
        "## Why",
        markdown_text(incident.why or incident.seen),
        f"Incident `{incident.id}`: {incident.fault_class or 'not diagnosed'} ({incident.confidence:.2f}), "
        f"blamed: {markdown_text(blamed)}.",
    ]
    if incident.would_change:
        parts.append(f"Otherwise: {markdown_text(incident.would_change)}")
    if incident.evidence:
        lines = "\n".join(line.replace("```", "'''") for line in incident.evidence[:LINES])
        parts.append(f"## Evidence\n\n```\n{lines}\n```")
    return parts


def answer_links(approval: str, form: str) -> str:
    """Links to the form, filled in but for why; "" where there is no form."""

    def link(answer: str) -> str:
        filled = quote(json.dumps({"approval": approval, "answer": answer, "why": ""}), safe="")
        return f"[{answer} it]({form}?parameters={filled})"

    return f"{link('approve')} or {link('deny')}: the form is filled in but for why; Submit sends it." if form else ""


def _answers(line: ApprovalLine, form: str) -> list[str]:
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
        "\n".join(f"* **{answer}**: {markdown_text(then)}" for answer, then in rows),
        "## How to answer",
        f'```\nprimus approve {approval.id} --why "..."\nprimus deny {approval.id} --why "..."\n```',
        answer_links(approval.id, form)
        or f"Or here: Deployments, `approve`, Run, with approval `{approval.id}`, your answer and why.",
    ]


def incident_document(line: IncidentLine) -> Json:
    """The incident as `primus status` shows it, with its run and whether it is over."""
    state = line.run_state
    return {
        "run": line.incident.run,
        **incident_row(line.incident),
        "run_state": None if state is None else str(state),
        "open": line.is_open,
    }


def row(line: IncidentLine, now: float) -> Json:
    """The incident in one line."""
    incident = line.incident
    known = f"{incident.fault_class} ({incident.confidence:.2f})" if incident.fault_class else "not diagnosed yet"
    return {
        "run": f"{incident.run}/{incident.attempt}",
        "class": known,
        "culprit": culprits(incident),
        "action": "not decided yet" if incident.action is None else str(incident.action),
        "took": took(line, now),
        "why": incident.why or incident.seen or incident.signal,
    }


def culprits(incident: IncidentRecord) -> str:
    """The culprits in a word: the first one, and how many more."""
    named = [node or f"rank {rank}" for node, rank in incident.culprits]
    distinct = list(dict.fromkeys(named))
    if not distinct:
        return "-"
    return distinct[0] if len(distinct) == 1 else f"{distinct[0]} +{len(distinct) - 1}"


def took(line: IncidentLine, now: float) -> str:
    """From the fault to the first step after it: `2.4 s`; `5.0 min so far` while it is open; `-`: no step came.

    Of a note: how long it lasted; `-`: it was a moment, or is so still.
    """
    if line.incident.over_at is not None:
        return decisions_text.duration_text(line.incident.over_at - line.incident.at)
    if line.incident.resumed_at is not None:
        return decisions_text.duration_text(line.incident.resumed_at - line.incident.at)
    return f"{decisions_text.age(now - line.incident.at)} so far" if line.is_open else "-"


def headline(lines: Sequence[IncidentLine], total: int) -> str:
    """How many there are, and how many of them are not over."""
    count = sum(line.is_open for line in lines)
    text = f"{total} incident{'s' if total != 1 else ''}"
    more = f", the newest {len(lines)} are shown" if total > len(lines) else ""
    return f"{text}{more}; {count} not over" if count else f"{text}{more}; none is open"
