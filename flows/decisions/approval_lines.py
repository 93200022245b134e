"""Questions that wait for a person: how old, how long still, and what each answer does. Pure."""

from __future__ import annotations

from typing import Any

from flows.decisions.spans import age, timestamp
from workflows.overview import ApprovalLine

Json = dict[str, Any]
NAMED = 6
"""Nodes that a sentence names."""


def document(line: ApprovalLine, now: float) -> Json:
    """One entry of `primus approvals --json`."""
    asked, state = line.approval, line.run_state
    return {
        "id": asked.id,
        "run": asked.run,
        "incident": asked.incident,
        "question": asked.question,
        "asked_at": timestamp(asked.asked_at),
        "age_seconds": round(max(0.0, now - asked.asked_at), 3),
        "expires_at": timestamp(asked.expires_at),
        "seconds_left": round(max(0.0, asked.expires_at - now), 3),
        "run_state": None if state is None else str(state),
        "if_yes": if_yes(line),
        "if_no": if_no(line),
        "approve": f'primus approve {asked.id} --why "..."',
        "deny": f'primus deny {asked.id} --why "..."',
    }


def lines(line: ApprovalLine, now: float) -> list[str]:
    """The same for people."""
    asked = line.approval
    left = asked.expires_at - now
    until = f"{age(left)} left, then it counts as no" if left > 0 else "its time is up: it counts as no"
    state = f" ({line.run_state})" if line.run_state else ""
    return [
        f"{asked.run}{state}: {asked.question}",
        f"  asked {age(now - asked.asked_at)} ago; {until}",
        f'  yes: {if_yes(line)}\n       primus approve {asked.id} --why "..."',
        f'  no:  {if_no(line)}\n       primus deny {asked.id} --why "..."',
    ]


def if_yes(line: ApprovalLine) -> str:
    """What an approval lets happen."""
    by_kind: dict[str, list[str]] = {}
    for action in line.actions:
        if action.target:
            by_kind.setdefault(str(action.kind), []).append(action.target)
    parts = [f"{kind} {_named(nodes)}" for kind, nodes in by_kind.items()]
    parts += [str(action.kind) for action in line.actions if not action.target]
    return ", then ".join(parts) or "what was decided is carried out"


def if_no(line: ApprovalLine) -> str:
    """What a denial, and no answer in time, leaves."""
    run = line.approval.run
    if line.run_state is None:
        return "the nodes stay as they are"
    return f"nothing is done and {run} ends as stopped; `primus resume {run}` goes on later"


def _named(nodes: list[str]) -> str:
    more = f" and {len(nodes) - NAMED} more" if len(nodes) > NAMED else ""
    return ", ".join(nodes[:NAMED]) + more
