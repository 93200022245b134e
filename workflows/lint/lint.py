"""Our own check of every manifest: what neither the API server nor Argo finds before it does harm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import yaml

from workflows.attempt.plan import AttemptPlan
from workflows.lint import pods, workflow
from workflows.lint.subject import SCHEMAS, Finding, Part, Subject, part, parts, schema_errors

_Loader = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


WORKFLOW = ("Workflow",)
HELD = ("JobSet", "TrainingRuntime", "PyTorchJob")
"""What holds the pods of a gang."""
PODS = (*WORKFLOW, *HELD, "Job")
"""What has templates of pods."""
PROGRAMS = (*PODS, "TrainJob")
"""What says which program runs."""


@dataclass(frozen=True)
class Rule:
    """One thing that must hold."""

    name: str
    """Stands in each finding."""
    kinds: tuple[str, ...]
    """What it is about."""
    why: str
    """What goes wrong where it does not hold."""
    check: Callable[[Subject], Iterable[tuple[str, str]]]
    """Path and message of everything that is wrong."""


ANYBODYS = (
    Rule("size", tuple(SCHEMAS), "the API server refuses more than 1.5 MiB, status included", pods.size),
    Rule("name", tuple(SCHEMAS), "a name too long or illegal is refused when its pods are made", pods.names),
    Rule("references", WORKFLOW, "Argo says it after the submission, or runs into it", workflow.references),
    Rule("unreached", WORKFLOW, "a template that no step uses was forgotten", workflow.unreached),
    Rule("command", PROGRAMS, "without a command Argo asks the image's registry for one", pods.commands),
    Rule("default", WORKFLOW, "a skipped step without one fails the step that reads it", workflow.defaults),
    Rule("mounts", PODS, "a mount without its volume never starts", pods.mounts),
    Rule("secret", PROGRAMS, "manifests are read by many", pods.secrets),
    Rule("gpus", (*WORKFLOW, *HELD), "a dropped request runs the ranks without GPUs", pods.gpus),
)
"""What must hold of every manifest."""
OURS = (
    Rule("labels", tuple(SCHEMAS), "what carries no label of ours is not found again", pods.marks),
    Rule("deadline", WORKFLOW, "a step without a limit waits for ever", workflow.deadlines),
    Rule("deadline", ("TrainJob", "PyTorchJob"), "no flow ends what is beyond its budget", workflow.kubeflow_deadlines),
    Rule("resource", WORKFLOW, "a step that waits or owns ends the training with itself", workflow.resources),
    Rule("limits", PODS, "without limits one pod takes the node of another", pods.limits),
    Rule("gang", ("JobSet",), "anything else restarts or ends pods behind the flow's back", pods.shape),
    Rule("gang", ("TrainingRuntime",), "the controller would restart it or leave pods out", workflow.runtime),
    Rule("gang", ("TrainJob",), "the controller would take another runtime, or another size", workflow.trainjob),
    Rule("gang", ("PyTorchJob",), "the operator would restart pods or lose their last words", workflow.pytorchjob),
    Rule("gang", ("Job",), "the gang would end with its coordinator, or wait for it", workflow.coordinator),
)
"""What must hold of those that this product makes; of others it is advice (`primus lint --strict`)."""
RULES = (*ANYBODYS, *OURS)


def lint(manifest: Part, plan: AttemptPlan | None = None, *, ours: bool = True) -> list[Finding]:
    """Everything that is wrong with a manifest, and with the JobSet inside a Workflow's resource step.

    `plan`: what it was built from; without it GPUs are not compared. `ours`: made by this product, so that what we
    promise of our own manifests must hold too.
    """
    # Rules may lean on the structure, so they are asked only where it holds.
    if findings := schema_errors(manifest):
        return findings
    subject = Subject(manifest, plan)
    rules = [rule for rule in (RULES if ours else ANYBODYS) if subject.kind in rule.kinds]
    found = [Finding(path, rule.name, message) for rule in rules for path, message in rule.check(subject)]
    return found + [finding for path, inner in applied(manifest) for finding in _inside(path, inner, plan, ours)]


def applied(manifest: Part) -> Iterable[tuple[str, Any]]:
    """Path and content of every manifest that a Workflow's resource steps apply."""
    for index, template in enumerate(parts(part(manifest, "spec"), "templates")):
        text = part(template, "resource").get("manifest")
        if text:
            path = f"spec.templates[{index}].resource.manifest"
            try:
                yield path, yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe loader
            except yaml.YAMLError as error:
                yield path, f"is not YAML: {error}"


def _inside(path: str, inner: Any, plan: AttemptPlan | None, ours: bool) -> list[Finding]:
    if not isinstance(inner, dict):
        return [Finding(path, "resource", str(inner))]
    return [Finding(f"{path}:{item.path}", item.rule, item.message) for item in lint(inner, plan, ours=ours)]  # pyright: ignore[reportUnknownArgumentType]
