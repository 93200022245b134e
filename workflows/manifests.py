"""Everything that is sent for an attempt: what `primus render` prints, golden tests hold and the flow submits."""

from __future__ import annotations

from typing import Any

from profiles.errors import ProfileError
from workflows.jobset import jobset
from workflows.plan import AttemptPlan
from workflows.training import gate_workflows, training_workflow

Form = str
"""What a gang is written as; see `gang`."""

JOBSET = "jobset"
KNOWN_FORMS = (JOBSET, "trainjob", "pytorchjob")


def manifests(plan: AttemptPlan) -> list[dict[str, Any]]:
    """The Workflows of the attempt in the order they are sent, each below 1 MiB; no secret is in them.

    The last one is the attempt's own and applies the JobSet. Those before it, if any, are the gate of a large gang:
    the last one is sent only after all of them succeeded.

    Raises:
        ProfileError: the profile asks for something that cannot be written down.
    """
    return [workflow.to_dict() for workflow in (*gate_workflows(plan), training_workflow(plan))]


def gang(plan: AttemptPlan, form: Form = JOBSET) -> dict[str, Any]:
    """The gang alone, as `primus render train --as <form>` prints it, with nothing to resume from.

    Raises:
        ProfileError: the form is unknown or not offered.
    """
    if form == JOBSET:
        return jobset(plan)
    if form in KNOWN_FORMS:
        raise ProfileError("as", f"{form} is not offered yet; use {JOBSET}")
    raise ProfileError("as", f"{form!r} is unknown; choose {JOBSET}")
