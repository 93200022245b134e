"""The workflow of one attempt: gate and checkpoint check side by side, then it applies the JobSet and ends.

`manifests` is everything that is sent for an attempt: what `primus render` prints, golden tests hold and the flow
submits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hera.workflows import Container, Step, Steps, Workflow

from profiles.errors import ProfileError
from workflows import labels
from workflows.attempt import commands, pods, templates
from workflows.attempt.commands import whole_seconds
from workflows.attempt.gang_pods import PIPELINE
from workflows.attempt.jobset import jobset
from workflows.attempt.kubeflow import pytorchjob, trainjob
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.pods import Part
from workflows.attempt.templates import ProgramStep
from workflows.programs.probes.gpu_count import FAKE_VARIABLE
from workflows.wire import GateReport, ResumeChoice, to_json

GATE = "gate"
VERIFY = "verify"
APPLY = "apply"
VERIFY_SECONDS = 600
"""Re-checking a proof reads headers and file sizes only; ten minutes allow for a slow shared file system."""
DEEP_VERIFY_SECONDS = 4 * 3600
"""Every byte of terabytes."""
APPLY_SECONDS = 60
GATE_STEP_NODES = 64
"""Nodes in one fan-out: whole racks, up to so many."""
GATE_WORKFLOW_NODES = 512
"""Gate pods in one Workflow: with 1 to 2 kB of status each, the object stays under 1 MiB while it runs."""
NO_REPORT = "the gate's pod ended without a report"
NO_CHOICE = "the pod that checks the checkpoints ended without an answer"


def training_workflow(plan: AttemptPlan) -> Workflow:
    """The main Workflow of the attempt, called like it.

    Gangs of more than `GATE_WORKFLOW_NODES` nodes have their gate in Workflows of their own (`gate_workflows`): submit
    this one after all of those succeeded.

    Raises:
        ProfileError: the profile asks for something that cannot be written down.
    """
    gated = plan.nodes if len(plan.nodes) <= GATE_WORKFLOW_NODES else ()
    verify_seconds = DEEP_VERIFY_SECONDS if plan.deep_verify else VERIFY_SECONDS
    longest = max(verify_seconds, _gate_seconds(plan)) + APPLY_SECONDS + templates.REFUSED_SECONDS
    with templates.workflow(plan, plan.name, PIPELINE, longest) as workflow:
        if gated:
            _gate_template(plan)
        _verify_template(plan, verify_seconds)
        _apply_template(plan)
        with Steps(name=templates.MAIN) as steps:
            with steps.parallel():
                _gate_steps(plan, gated)
                Step(name=VERIFY, template=VERIFY)
            Step(
                name=APPLY,
                template=APPLY,
                when=f"{_of_verify('verdict')} == pass",
                arguments={name: _of_verify(name) for name in ("resume-from", "resume-step")},
            )
    return workflow


def gate_workflows(plan: AttemptPlan) -> list[Workflow]:
    """The gate of a gang too large for one Workflow, whole racks together; empty for smaller ones."""
    if len(plan.nodes) <= GATE_WORKFLOW_NODES:
        return []
    groups = _chunks(plan.nodes, _whole_racks(plan, GATE_WORKFLOW_NODES))
    return [_gate_workflow(plan, number, nodes) for number, nodes in enumerate(groups, start=1)]


def gate_name(run: str, attempt: int, number: int) -> str:
    """Name of a large gang's gate Workflow, e.g. `demo-1-a2-g1`."""
    return f"{labels.attempt_name(run, attempt)}-g{number}"


def _gate_workflow(plan: AttemptPlan, number: int, nodes: Sequence[str]) -> Workflow:
    name = gate_name(plan.run, plan.attempt, number)
    with templates.workflow(plan, name, PIPELINE, _gate_seconds(plan)) as workflow:
        _gate_template(plan)
        with Steps(name=templates.MAIN) as steps, steps.parallel():
            _gate_steps(plan, nodes)
    return workflow


def _gate_steps(plan: AttemptPlan, nodes: Sequence[str]) -> None:
    groups = _chunks(nodes, _whole_racks(plan, GATE_STEP_NODES))
    for index, group in enumerate(groups):
        name = GATE if len(groups) == 1 else f"{GATE}-{index}"
        Step(name=name, template=GATE, arguments={"node": "{{item}}"}, with_items=list(group))


def _gate_template(plan: AttemptPlan) -> Container:
    # A gate that does not pass ends with an error: its step fails, and the JobSet is never applied. A condition on the
    # verdicts of a fan-out cannot be written: they are a JSON list, and its quotes end any text in Argo's expressions.
    unknown = GateReport(
        node="", verdict="unknown", checks=[{"check": GATE, "verdict": "unknown", "evidence": NO_REPORT}]
    )
    outputs = {"report": to_json(unknown), "verdict": "unknown"}
    gpus = plan.resolved.gpus_per_pod
    # Embedded nodes have no devices: there, what the placement counted is all that there is to see.
    fake = [pods.variable(FAKE_VARIABLE, str(gpus))] if plan.resolved.cluster.engine == "embedded" and gpus else []
    step = ProgramStep(
        GATE,
        commands.gate(plan),
        outputs,
        _gate_seconds(plan),
        on_node=True,
        resources=_gate_resources(plan),
        environment=fake,
    )
    return templates.program(plan, step)


def _gate_resources(plan: AttemptPlan) -> Part:
    """The gate takes the GPUs that a rank's pod will take: this tests their plug-in, and that they are free."""
    devices = (
        {plan.resolved.hardware.resource_name: str(plan.resolved.gpus_per_pod)} if plan.resolved.gpus_per_pod else {}
    )
    return {key: value | devices for key, value in pods.OWN_RESOURCES.items()}


def _verify_template(plan: AttemptPlan, deadline_seconds: int) -> Container:
    unknown = ResumeChoice(resume_from="", resume_step=None, looked_at=[], verdict="unknown", why=NO_CHOICE)
    outputs = {"choice": to_json(unknown), "verdict": "unknown", "resume-from": "", "resume-step": ""}
    owner = pods.owner_environment(plan)
    step = ProgramStep(VERIFY, commands.verify(plan), outputs, deadline_seconds, environment=owner)
    return templates.program(plan, step)


def _apply_template(plan: AttemptPlan) -> None:
    inputs = ("resume-from", "resume-step")
    manifest = jobset(plan, *(f"{{{{inputs.parameters.{name}}}}}" for name in inputs))
    templates.apply(APPLY, manifest, inputs, APPLY_SECONDS)


def _of_verify(parameter: str) -> str:
    return f"{{{{steps.{VERIFY}.outputs.parameters.{parameter}}}}}"


def _gate_seconds(plan: AttemptPlan) -> int:
    return whole_seconds(plan.resolved.run.recovery.gate_timeout_seconds)


def _whole_racks(plan: AttemptPlan, limit: int) -> int:
    rack = plan.resolved.pool.topology.nodes_per_rack
    return max(1, limit // rack) * rack if rack <= limit else limit


def _chunks(items: Sequence[str], size: int) -> list[Sequence[str]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


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
