"""Everything that is sent for an attempt: what `primus render` prints, golden tests hold and the flow submits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from profiles.errors import ProfileError
from workflows.jobset import jobset
from workflows.plan import AttemptPlan
from workflows.pytorchjob import pytorchjob
from workflows.training import gate_workflows, training_workflow
from workflows.trainjob import trainjob

_FORMS: Mapping[str, Callable[[AttemptPlan], list[dict[str, Any]]]] = {
    "jobset": lambda plan: [jobset(plan)],
    "trainjob": trainjob,
    "pytorchjob": pytorchjob,
}
FORMS = tuple(_FORMS)
"""What a gang can be written as. The flow sends JobSets; the others are for clusters that want Kubeflow's."""


def manifests(plan: AttemptPlan) -> list[dict[str, Any]]:
    """The Workflows of the attempt in the order they are sent, each below 1 MiB; no secret is in them.

    The last one is the attempt's own and applies the JobSet. Those before it, if any, are the gate of a large gang:
    the last one is sent only after all of them succeeded.

    Raises:
        ProfileError: the profile asks for something that cannot be written down.
    """
    return [workflow.to_dict() for workflow in (*gate_workflows(plan), training_workflow(plan))]


def gang(plan: AttemptPlan, form: str = "jobset") -> list[dict[str, Any]]:
    """The gang alone, as `primus render train --as <form>` prints it, with nothing to resume from, in order.

    Raises:
        ProfileError: the form is unknown, or it cannot hold what the profile asks for.
    """
    if form not in _FORMS:
        raise ProfileError("as", f"{form!r} is unknown; choose one of {', '.join(FORMS)}")
    return _FORMS[form](plan)
