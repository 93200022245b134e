"""Lint rules about the steps of a Workflow, and about a gang that Kubeflow's controllers run.

Rules of the second kind find what those controllers would do without our asking.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflows.attempt import gang_pods
from workflows.attempt.gang_pods import QUEUE
from workflows.attempt.jobset import KEEP_SECONDS
from workflows.attempt.kubeflow import ANCESTOR, GROUP, TRAINJOB_CONTAINER
from workflows.attempt.kubeflow import PYTORCHJOB_CONTAINER as PYTORCH
from workflows.lint import pods
from workflows.lint.subject import Part, Subject, at, part, parts

Wrong = Iterator[tuple[str, str]]

DAY_SECONDS = 24 * 3600
TAG = re.compile(r"\{\{\s*([^{}=\s][^{}]*?)\s*\}\}")
"""A simple tag; `{{=` starts an expression, which Argo's own validation reads."""
ENGINE_TAGS = ("workflow.", "pod.name", "node.name", "retries", "lastRetry.")
"""What Argo itself fills in."""
STEP_FACTS = ("id", "ip", "status", "exitCode", "startedAt", "finishedAt", "hostNodeName", "outputs.result")

WORKER = "spec.pytorchReplicaSpecs.Worker"


def references(subject: Subject) -> Wrong:
    """Entry points, templates, arguments and tags point at something that is there, and that ran before."""
    templates = {template["name"]: template for template in parts(subject.spec, "templates")}
    for key in ("entrypoint", "onExit"):
        name = subject.spec.get(key)
        if (name or key == "entrypoint") and name not in templates:
            yield f"spec.{key}", f"there is no template {name!r}"
    for path, template in at("spec", "templates", parts(subject.spec, "templates")):
        for where, step, before in _steps(path, template):
            yield from _step(where, step, templates)
            yield from _tags(where, step, template, before, templates)
        own = {key: value for key, value in template.items() if key not in ("steps", "dag")}
        yield from _tags(path, own, template, {}, templates)


def _step(path: str, step: Part, templates: Mapping[str, Part]) -> Wrong:
    target = templates.get(step.get("template", ""))
    if target is None:
        yield f"{path}.template", f"there is no template {step.get('template')!r}"
        return
    given = {item["name"] for item in parts(part(step, "arguments"), "parameters")}
    inputs = parts(part(target, "inputs"), "parameters")
    needed = {item["name"] for item in inputs if not {"value", "valueFrom", "default"} & item.keys()}
    for name in sorted(needed - given):
        yield f"{path}.arguments", f"{target['name']} needs the parameter {name!r}"
    for name in sorted(given - {item["name"] for item in inputs}):
        yield f"{path}.arguments", f"{target['name']} takes no parameter {name!r}"


def _steps(path: str, template: Part) -> Iterator[tuple[str, Part, dict[str, str]]]:
    """Path and content of every step or DAG task, with the templates of those it may read, by `steps.<name>`."""
    groups: list[list[Part]] = template.get("steps") or []
    before: dict[str, str] = {}
    for number, group in enumerate(groups):
        for index, step in enumerate(group):
            yield f"{path}.steps[{number}][{index}]", step, dict(before)
        before |= {f"steps.{step['name']}": step.get("template", "") for step in group}
    tasks = parts(part(template, "dag"), "tasks")
    for where, task in at(f"{path}.dag", "tasks", tasks):
        earlier = {name for name in re.findall(r"[\w-]+", task.get("depends", ""))} | set(
            task.get("dependencies") or []
        )
        yield (
            where,
            task,
            {f"tasks.{item['name']}": item.get("template", "") for item in tasks if item["name"] in earlier},
        )


def _tags(path: str, content: Part, template: Part, before: Mapping[str, str], templates: Mapping[str, Part]) -> Wrong:
    inputs = {f"inputs.parameters.{item['name']}" for item in parts(part(template, "inputs"), "parameters")}
    fans_out = bool({"withItems", "withParam", "withSequence"} & content.keys())
    for tag in sorted(set(TAG.findall(json.dumps(content)))):
        engine = tag.startswith(ENGINE_TAGS) or (fans_out and (tag == "item" or tag.startswith("item.")))
        if not engine and tag not in inputs and not _is_output(tag, before, templates):
            yield path, f"{{{{{tag}}}}} names nothing that is there by then"


def _is_output(tag: str, before: Mapping[str, str], templates: Mapping[str, Part]) -> bool:
    step, _, rest = ".".join(tag.split(".")[:2]), "", ".".join(tag.split(".")[2:])
    if step not in before:
        return False
    outputs = parts(part(templates.get(before[step], {}), "outputs"), "parameters")
    known = {f"outputs.parameters.{item['name']}" for item in outputs}
    return rest in known or rest in STEP_FACTS or rest == "outputs.parameters"


def unreached(subject: Subject) -> Wrong:
    """Every template is reached from an entry point."""
    templates = {template["name"]: template for template in parts(subject.spec, "templates")}
    waiting = [subject.spec.get("entrypoint", ""), subject.spec.get("onExit", "")]
    waiting += [hook.get("template", "") for hook in part(subject.spec, "hooks").values()]
    reached: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in templates and name not in reached:
            reached.add(name)
            waiting += [step.get("template", "") for _, step, _ in _steps("", templates[name])]
    for path, template in at("spec", "templates", parts(subject.spec, "templates")):
        if template["name"] not in reached:
            yield path, f"no step uses the template {template['name']!r}"


def deadlines(subject: Subject) -> Wrong:
    """The workflow and each pod have a time limit; what ended goes within a day."""
    spec = subject.spec
    for key in ("activeDeadlineSeconds", "serviceAccountName", "podGC"):
        if not spec.get(key):
            yield f"spec.{key}", "must be set"
    ttl = part(spec, "ttlStrategy")
    if not 0 < ttl.get("secondsAfterCompletion", 0) <= DAY_SECONDS:
        yield "spec.ttlStrategy.secondsAfterCompletion", f"must be set, at most {DAY_SECONDS}"
    for path, template in at("spec", "templates", parts(spec, "templates")):
        is_pod = bool({"container", "script", "resource"} & template.keys())
        if is_pod and not (template.get("activeDeadlineSeconds") or template.get("timeout")):
            yield f"{path}.activeDeadlineSeconds", "must be set"


def defaults(subject: Subject) -> Wrong:
    """Every output that something reads has a value for the case that it is missing."""
    for path, template in at("spec", "templates", parts(subject.spec, "templates")):
        for where, item in at(f"{path}.outputs", "parameters", parts(part(template, "outputs"), "parameters")):
            source: Any = item.get("valueFrom")
            if source is not None and "default" not in source:
                yield f"{where}.valueFrom.default", "must be set: the step may be skipped or die"


def resources(subject: Subject) -> Wrong:
    """A resource step applies by a fixed name, waits for nothing and owns nothing."""
    for path, template in at("spec", "templates", parts(subject.spec, "templates")):
        resource = part(template, "resource")
        for key in ("successCondition", "failureCondition", "setOwnerReference"):
            if resource.get(key):
                yield f"{path}.resource.{key}", "must not be set: the object's life would hang on this step"
        if resource and resource.get("action") != "apply":
            yield f"{path}.resource.action", "must be apply: it may be repeated"


def kubeflow_deadlines(subject: Subject) -> Wrong:
    """The gang ends with the wall time of the run's budget, and without one it does not end by itself."""
    field = "activeDeadlineSeconds"
    path, spec = ("spec", subject.spec) if subject.kind == "TrainJob" else _run_policy(subject)
    if subject.plan is not None and spec.get(field) != gang_pods.deadline(subject.plan).get(field):
        yield f"{path}.{field}", "must be the wall time of the budget, and not set without one"
    if subject.kind == "PyTorchJob" and spec.get("ttlSecondsAfterFinished") != KEEP_SECONDS:
        yield f"{path}.ttlSecondsAfterFinished", f"must be {KEEP_SECONDS}: nobody else deletes it"


def runtime(subject: Subject) -> Wrong:
    """A JobSet as ours, kept when it has ended, in which the controller finds the ranks."""
    yield from pods.shape(subject)
    path, spec = subject.jobset
    if "ttlSecondsAfterFinished" in spec:
        yield f"{path}.ttlSecondsAfterFinished", "must not be set: the controller makes a failed one that is gone anew"
    if set(part(subject.spec, "mlPolicy")) != {"numNodes"}:
        yield "spec.mlPolicy", "must hold numNodes and no framework: our launcher starts the ranks"
    targets: list[str] = part(spec, "successPolicy").get("targetReplicatedJobs") or []
    described = [job for job in parts(spec, "replicatedJobs") if _is_described(job)]
    if [job["name"] for job in described] != targets:
        yield (
            f"{path}.replicatedJobs",
            "the role that decides, and no other, must be the one that the TrainJob describes",
        )


def _is_described(job: Part) -> bool:
    template = part(job, "template")
    pod = part(part(part(template, "spec"), "template"), "spec")
    marked = ANCESTOR.items() <= part(part(template, "metadata"), "labels").items()
    return marked and [container["name"] for container in parts(pod, "containers")] == [TRAINJOB_CONTAINER]


def trainjob(subject: Subject) -> Wrong:
    """It names its own runtime in full, and the size of the gang."""
    spec = subject.spec
    if spec.get("runtimeRef") != {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": subject.name}:
        yield "spec.runtimeRef", "must name the TrainingRuntime that is called like it, with group and kind"
    if subject.plan is not None and part(spec, "trainer").get("numNodes") != subject.plan.role.replicas:
        yield "spec.trainer.numNodes", f"must be {subject.plan.role.replicas}, as the plan says"
    yield from _unsuspended("spec", spec)


def pytorchjob(subject: Subject) -> Wrong:
    """All pods are workers that are started once; what failed is kept."""
    spec, (path, policy) = subject.spec, _run_policy(subject)
    replicas = part(spec, "pytorchReplicaSpecs")
    if set(replicas) != {"Worker"}:
        yield "spec.pytorchReplicaSpecs", "must hold workers only: a master would decide alone"
    worker = part(replicas, "Worker")
    yield from ((f"{WORKER}.{field}", message) for field, message in _worker(worker))
    if subject.plan is not None and worker.get("replicas") != subject.plan.role.replicas:
        yield f"{WORKER}.replicas", f"must be {subject.plan.role.replicas}, as the plan says"
    if "elasticPolicy" in spec:
        yield "spec.elasticPolicy", "must not be set: one worker's success would be the gang's"
    yield from ((f"{path}.{field}", message) for field, message in _policy(policy, worker.get("replicas")))
    yield from _unsuspended(path, policy)


def _worker(worker: Part) -> Wrong:
    pod = part(part(worker, "template"), "spec")
    if worker.get("restartPolicy") != "Never":
        yield "restartPolicy", "must be Never: every attempt is a new PyTorchJob"
    if "restartPolicy" in pod:
        yield "template.spec.restartPolicy", "must not be set: the operator overwrites it"
    if [container["name"] for container in parts(pod, "containers")] != [PYTORCH]:
        yield "template.spec.containers", f"must be one that is called {PYTORCH}"


def _policy(policy: Part, workers: int | None) -> Wrong:
    if part(policy, "schedulingPolicy").get("minAvailable") != workers:
        yield "schedulingPolicy.minAvailable", "must be all workers"
    if "backoffLimit" in policy:
        yield "backoffLimit", "must not be set: the operator would delete the failed pods with all others"
    if policy.get("cleanPodPolicy") != "Running":
        yield "cleanPodPolicy", "must be Running: survivors end, and what failed is kept"


def coordinator(subject: Subject) -> Wrong:
    """It restarts by itself, and needs no other pod to be admitted."""
    pod = part(part(subject.spec, "template"), "spec")
    if pod.get("restartPolicy") != "OnFailure":
        yield "spec.template.spec.restartPolicy", "must be OnFailure: its end must not end the gang"
    if QUEUE in part(part(subject.manifest, "metadata"), "labels"):
        yield "metadata.labels", f"{QUEUE} must not be set: it would be admitted and preempted apart from the gang"


def _unsuspended(path: str, spec: Part) -> Wrong:
    if "suspend" in spec:
        yield f"{path}.suspend", "must not be set: it is Kueue's, and applied again it would suspend a gang that runs"


def _run_policy(subject: Subject) -> tuple[str, Part]:
    return "spec.runPolicy", part(subject.spec, "runPolicy")
