"""What a look at an attempt adds to its record."""

from __future__ import annotations

from workflows.evidence import AttemptView
from workflows.gang_news import alike
from workflows.records import AttemptRecord


def changes_of(attempt: AttemptRecord, view: AttemptView) -> dict[str, object]:
    """Fields of the record that the view changes, by name."""
    changes: dict[str, object] = {}
    choice, coordinator = view.workflow.choice, view.coordinator
    if attempt.applied_at is None and view.jobset is not None:
        changes["applied_at"] = view.now
    if not attempt.resume_path and choice is not None and choice.resume_from:
        changes |= {"resumed_from_step": choice.resume_step, "resume_path": choice.resume_from}
    if attempt.running_at is None and view.pods and all(pod.phase == "Running" for pod in view.pods):
        changes["running_at"] = view.now
    nodes = tuple(sorted({pod.node for pod in view.pods if pod.node and pod.ranks}))
    if not attempt.nodes and nodes:
        changes["nodes"] = nodes
    if attempt.first_step is None and coordinator is not None and coordinator.first_step is not None:
        changes |= {"first_step": coordinator.first_step, "first_step_at": coordinator.first_step_at}
    restarts = 0 if coordinator is None else max((item.number for item in coordinator.news.restarts), default=0)
    if restarts > attempt.restarts_in_place:
        changes["restarts_in_place"] = restarts
    advised = None if coordinator is None else coordinator.news.advised_steps
    if advised is not None and not alike(advised, attempt.advised_steps):
        changes["advised_steps"] = advised
    return changes
