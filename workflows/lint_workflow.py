"""Rules about the steps of a Workflow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflows.findings import Part, Subject, at, part, parts

Wrong = Iterator[tuple[str, str]]

DAY_SECONDS = 24 * 3600
TAG = re.compile(r"\{\{\s*([^{}=\s][^{}]*?)\s*\}\}")
"""A simple tag; `{{=` starts an expression, which Argo's own validation reads."""
ENGINE_TAGS = ("workflow.", "pod.name", "node.name", "retries", "lastRetry.")
"""What Argo itself fills in."""
STEP_FACTS = ("id", "ip", "status", "exitCode", "startedAt", "finishedAt", "hostNodeName", "outputs.result")


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
    """Every output that is read from somewhere has a value for the case that it is not there."""
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
