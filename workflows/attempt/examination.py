"""The workflows around a failure: what an attempt left, and what is wrong with the suspects."""

from __future__ import annotations

from collections.abc import Sequence

from hera.workflows import Step, Steps, Workflow

from workflows import labels
from workflows.attempt import commands, pods, templates
from workflows.attempt.commands import whole_seconds
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.templates import ProgramStep
from workflows.wire import GateReport, to_json

POST_FLIGHT = "post-flight"
EXAMINATION = "examination"
EXAMINE = "examine"
_TOLERATED = tuple(
    {"key": key, "operator": "Exists"}
    for key in (labels.QUARANTINE_TAINT, labels.HOLD_TAINT, "node.kubernetes.io/unschedulable")
)
"""A suspect may be cordoned or quarantined already; it is examined all the same."""
COLLECT_SECONDS = 300
"""Reading the ends of a few thousand logs on a slow shared file system."""


def post_flight_workflow(plan: AttemptPlan) -> Workflow:
    """Collects what the attempt left in the run's folder; submitted after the JobSet's end.

    Output parameter `collected` of the step `collect`: JSON, `{}` where nothing could be read.
    """
    name = labels.post_flight_name(plan.run, plan.attempt)
    with templates.workflow(plan, name, POST_FLIGHT, COLLECT_SECONDS) as workflow:
        owner, outputs = pods.owner_environment(plan), {"collected": "{}"}
        step = ProgramStep("collect", commands.collect(plan), outputs, COLLECT_SECONDS, environment=owner)
        templates.program(plan, step)
        with Steps(name=templates.MAIN):
            Step(name="collect", template="collect")
    return workflow


def examination_workflow(plan: AttemptPlan, suspects: Sequence[str], number: int, since: float = 0.0) -> Workflow:
    """Looks at the suspects of an attempt: examination number `number`, one pod a node.

    Every pod reports and ends well: output parameters `report` and `verdict` say what it found. The suspects still may
    hold pods of other runs, so no GPUs are taken. `number`: of the incident within its attempt, from 1. `since`: Unix
    seconds; what the nodes' kernels said before is left out.

    Raises:
        ValueError: there is no suspect.
    """
    if not suspects:
        raise ValueError("suspects: must name at least one node to examine")
    seconds = whole_seconds(plan.resolved.run.recovery.gate_timeout_seconds)
    evidence = "the examination's pod ended without a report"
    unknown = GateReport(
        node="", verdict="unknown", checks=[{"check": "gate", "verdict": "unknown", "evidence": evidence}]
    )
    name = labels.examination_name(plan.run, plan.attempt, number)
    with templates.workflow(plan, name, EXAMINATION, seconds) as workflow:
        outputs = {"report": to_json(unknown), "verdict": "unknown"}
        step = ProgramStep(
            EXAMINE,
            commands.examine(plan, since),
            outputs,
            seconds,
            on_node=True,
            tolerations=_TOLERATED,
            reads_kernel_log=plan.resolved.cluster.read_kernel_log,
        )
        templates.program(plan, step)
        with Steps(name=templates.MAIN):
            Step(name=EXAMINE, template=EXAMINE, arguments={"node": "{{item}}"}, with_items=list(suspects))
    return workflow
