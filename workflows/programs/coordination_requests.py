"""What launchers send, as values of the coordinator; what is missing or of the wrong kind raises (answered 400)."""

from __future__ import annotations

from typing import Any, Mapping

from workflows.programs import coordination_journal as journal
from workflows.programs.coordination_events import Meeting, Member, Reported
from workflows.programs.coordination_orders import Key

LONGEST_WAIT_SECONDS = 60.0
LENT = "lent"
"""What the flow says with a look at `/status` while the right that it has lent holds; else it says why not."""


def key_of(body: Mapping[str, Any]) -> Key:
    """Whose request it is."""
    return str(body["role"]), int(body["pod_index"])


def member_of(body: Mapping[str, Any]) -> Member:
    """The launcher that presents itself."""
    role, index = key_of(body)
    step = body.get("resume_step")
    return Member(
        role=role,
        pod_index=index,
        pod=str(body.get("pod", "")),
        node=str(body.get("node", "")),
        address=str(body.get("address", "")),
        pods=int(body.get("pods", 1)),
        processes=int(body.get("processes", 1)),
        essential=bool(body.get("essential", True)),
        pids=dict(body.get("pids") or {}),
        incarnation=int(body.get("incarnation", 1)),
        heard_order=int(body.get("heard_order", 0)),
        resume_from=str(body.get("resume_from") or ""),
        resume_step=None if step is None else int(step),
    )


def meeting_in(body: Mapping[str, Any]) -> Meeting:
    """Where ranks meet."""
    return Meeting(int(body["incarnation"]), str(body["master_addr"]), int(body["master_port"]))


def reported_of(body: Mapping[str, Any], at: float, following: int) -> Reported:
    """A batch of reports.

    Args:
        body: of the request.
        at: Unix time in seconds.
        following: its number, where it has none.
    """
    return Reported(
        at=at,
        key=key_of(body),
        sequence=int(body.get("sequence") or following),
        reports=tuple(journal.reports_of(body.get("reports"))),
        state=str(body.get("state") or ""),
        why=str(body.get("why") or ""),
        pids=dict(body.get("pids") or {}),
        incarnation=int(body.get("incarnation", 1)),
    )


def wait_of(query: Mapping[str, str]) -> float:
    """Seconds for which the one who asks waits for an answer."""
    return min(LONGEST_WAIT_SECONDS, max(0.0, float(query.get("wait") or 0)))
