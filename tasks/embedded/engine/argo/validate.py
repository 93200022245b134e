"""Everything that can be wrong with a Workflow, found before anything starts and named by its path."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from functools import partial

from profiles.errors import Refused, check_all
from tasks.embedded.engine.argo.names import seconds_of
from tasks.embedded.engine.argo.plan import KINDS, kind_of, templates_of
from tasks.embedded.engine.argo.resources import check_resource
from tasks.embedded.engine.argo.validate_calls import check_calls, check_tags
from tasks.embedded.engine.argo.validate_names import (
    TagScope,
    check_argument_names,
    check_expression,
    check_name,
    check_template_artifacts,
)
from tasks.embedded.engine.json_values import Json, as_list, as_map, is_list, is_map, maps, text_of, without_nulls
from tasks.embedded.engine.schema.argo import WORKFLOW
from tasks.embedded.engine.schema.shapes import NotRun, check

FIELD_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?")
OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
NAME_LIMIT = 63
"""A workflow's name is the value of a label of its pods."""
_OUTPUT_SOURCES = {
    "container": ("path",),
    "script": ("path",),
    "resource": ("jsonPath",),
    "suspend": ("supplied",),
    "dag": ("parameter", "expression"),
    "steps": ("parameter", "expression"),
}
"""Where the outputs of a template's type may come from."""


def validate_workflow(manifest: Json) -> None:
    """Check a whole Workflow manifest.

    Raises:
        Refused: with all that is wrong: fields that are unknown, not supported here, of the wrong type or without
            meaning, each with its path.
    """
    merged = copy.deepcopy(_merged(manifest))
    try:
        check(merged, WORKFLOW, "")
    except Refused as refused:
        for one in refused.problems:
            if isinstance(one, NotRun):
                one.leave_out()
        told = _told_once(refused.problems)
        check_all((*(partial(_again, one) for one in told), partial(_check_rest, merged, refused.problems)))
    else:
        _check_meaning(merged)


def _told_once(problems: Sequence[Refused]) -> list[Refused]:
    """What `templateDefaults` put into every template is told of them alone."""
    defaults = {one.path.removeprefix(_DEFAULTS) for one in problems if one.path.startswith(_DEFAULTS)}
    return [one for one in problems if _TEMPLATE.sub("", one.path) not in defaults]


_DEFAULTS = "spec.templateDefaults."
_TEMPLATE = re.compile(r"^spec\.templates\[\d+\]\.")


def _check_rest(manifest: Json, known: Sequence[Refused]) -> None:
    """What is wrong beside fields that are known to be, and not for want of one of them.

    Where a field is missing or of another type, what depends on it cannot be told.
    """
    try:
        _check_meaning(manifest)
    except Refused as refused:
        paths = [one.path for one in known]
        new = [
            one for one in refused.problems if not any(p.startswith(one.path) or one.path.startswith(p) for p in paths)
        ]
        check_all(partial(_again, one) for one in new)
    except (LookupError, TypeError, AttributeError, ValueError):
        return


def _again(problem: Refused) -> None:
    raise problem


def _check_meaning(manifest: Json) -> None:
    manifest = without_nulls(manifest)
    spec = as_map(manifest["spec"])
    templates = templates_of(spec)
    known = {template["name"]: template for template in templates if template.get("name")}
    checks = [
        partial(_check_name, as_map(manifest["metadata"])),
        partial(_check_names, templates),
        *(partial(_check_template, one, spec, f"spec.templates[{index}]") for index, one in enumerate(templates)),
        partial(_check_arguments, spec, "spec"),
        partial(_check_limit, spec, "spec"),
        partial(_check_entrypoint, spec, known),
        partial(_check_retry, as_map(spec.get("retryStrategy")), "spec.retryStrategy"),
    ]
    if len(known) == len(templates) and spec["entrypoint"] in known:
        checks.append(partial(_check_calls_and_tags, manifest, spec, known))
    check_all(checks)


def _check_calls_and_tags(manifest: Json, spec: Json, known: Json) -> None:
    check_calls(spec, known)
    check_tags(manifest, known)  # what a tag sees depends on calls that exist and go in no circle


def _check_entrypoint(spec: Json, known: Json) -> None:
    if spec["entrypoint"] not in known:
        raise Refused("spec.entrypoint", f"there is no template '{spec['entrypoint']}'; known: {', '.join(known)}")


def _merged(manifest: Json) -> Json:
    """The manifest with `templateDefaults` in its templates, so that what they give counts as given."""
    spec = manifest.get("spec")
    if not is_map(spec) or not is_list(spec.get("templates")) or not is_map(spec.get("templateDefaults")):
        return manifest
    if not all(is_map(template) for template in as_list(spec["templates"])):
        return manifest
    return {**manifest, "spec": {**spec, "templates": templates_of(spec)}}


def _check_name(metadata: Json) -> None:
    name = metadata.get("name") or (str(metadata.get("generateName") or "") and f"{metadata['generateName']}x")
    if not isinstance(name, str) or not name:
        raise Refused("metadata.name", "is required")
    if len(name) > NAME_LIMIT or not OBJECT_NAME.fullmatch(name):
        raise Refused(
            "metadata.name", f"'{name}' must be lower-case letters, digits, - and ., at most {NAME_LIMIT} characters"
        )


def _check_names(templates: list[Json]) -> None:
    seen: set[str] = set()
    for index, template in enumerate(templates):
        path = f"spec.templates[{index}].name"
        name = template.get("name")
        if not name:
            raise Refused(path, "is required")
        if not FIELD_NAME.fullmatch(name):
            raise Refused(path, f"'{name}' may hold only letters, digits and -, and no - at its ends")
        if name in seen:
            raise Refused(path, f"there are two templates '{name}'")
        seen.add(name)


def _check_template(template: Json, spec: Json, path: str) -> None:
    kind = kind_of(template)
    if kind is None:
        given = [name for name in KINDS if name in template]
        raise Refused(path, f"needs exactly one of {', '.join(KINDS)}; it has {', '.join(given) or 'none'}")
    outputs = enumerate(maps(as_map(template.get("outputs")).get("parameters")))
    checks = [
        partial(_check_parameters, template, path),
        partial(_check_limit, template, path),
        partial(_check_parallelism, template, kind, path),
        *(partial(_check_output, one, kind, f"{path}.outputs.parameters[{index}]") for index, one in outputs),
        partial(check_template_artifacts, template, kind, path),
        partial(_check_times, template, kind, path),
        partial(_check_retry, as_map(template.get("retryStrategy")), f"{path}.retryStrategy"),
    ]
    if kind in ("container", "script"):
        checks.append(partial(_check_pod, template, spec, kind, path))
    elif kind == "resource":
        checks.append(partial(check_resource, as_map(template["resource"]), f"{path}.resource"))
    elif kind == "suspend":
        checks.append(partial(_check_duration, as_map(template["suspend"]).get("duration"), f"{path}.suspend.duration"))
    check_all(checks)


def _check_parallelism(template: Json, kind: str, path: str) -> None:
    if template.get("parallelism") is not None and kind not in ("dag", "steps"):
        raise Refused(f"{path}.parallelism", "only steps and dag templates have one")


def _check_times(template: Json, kind: str, path: str) -> None:
    if template.get("activeDeadlineSeconds") is not None:
        _check_deadline(template, kind, f"{path}.activeDeadlineSeconds")
    timeout = template.get("timeout")
    if timeout is None:
        return
    if kind not in ("container", "script"):
        raise Refused(f"{path}.timeout", "only templates with a pod have one; use spec.activeDeadlineSeconds")
    if timeout.isdigit():
        raise Refused(f"{path}.timeout", f"needs a unit, like {timeout}s")
    _check_duration(timeout, f"{path}.timeout")


def _check_parameters(template: Json, path: str) -> None:
    for part in ("inputs", "outputs"):
        seen: set[str] = set()
        for index, parameter in enumerate(maps(as_map(template.get(part)).get("parameters"))):
            check_name(parameter["name"], seen, part, f"{path}.{part}.parameters[{index}]")


def _check_output(parameter: Json, kind: str, path: str) -> None:
    source = as_map(parameter["valueFrom"])
    allowed = _OUTPUT_SOURCES[kind]
    for given in ("path", "jsonPath", "parameter", "supplied", "expression"):
        if given in source and given not in allowed:
            raise Refused(f"{path}.valueFrom.{given}", f"a {kind} template's outputs come from {' or '.join(allowed)}")
    if not any(name in source for name in allowed):
        raise Refused(f"{path}.valueFrom", f"needs {' or '.join(allowed)}")


def _check_pod(template: Json, spec: Json, kind: str, path: str) -> None:
    known = {volume["name"] for volume in [*maps(spec.get("volumes")), *maps(template.get("volumes"))]}
    containers = [(f"{path}.{kind}", as_map(template[kind]))]
    containers += [(f"{path}.initContainers[{i}]", item) for i, item in enumerate(maps(template.get("initContainers")))]
    checks = [partial(_check_container, item, known, where) for where, item in containers]
    check_all([*checks, partial(_check_places, template, path)] if kind == "container" else checks)


def _check_container(container: Json, known: set[str], path: str) -> None:
    problems: list[Refused] = []
    if not as_list(container.get("command")):
        problems.append(Refused(f"{path}.command", "must be set: there is no image registry to ask for an entry point"))
    if not container["image"]:
        problems.append(Refused(f"{path}.image", "must be set"))
    for index, mount in enumerate(maps(container.get("volumeMounts"))):
        if mount["name"] not in known and "{{" not in mount["name"]:
            problems.append(Refused(f"{path}.volumeMounts[{index}].name", f"there is no volume '{mount['name']}'"))
    check_all(partial(_again, one) for one in problems)


def _check_places(template: Json, path: str) -> None:
    """No two of a container's mounts and input artifacts lie at one path."""
    mounts, artifacts = maps(as_map(template["container"]).get("volumeMounts")), as_map(template.get("inputs"))
    places = [
        (f"{path}.container.volumeMounts[{index}].mountPath", one["mountPath"]) for index, one in enumerate(mounts)
    ]
    places += [
        (f"{path}.inputs.artifacts[{index}].path", one.get("path", ""))
        for index, one in enumerate(maps(artifacts.get("artifacts")))
    ]
    seen: dict[str, str] = {}
    for where, place in places:
        if place and place in seen:
            raise Refused(where, f"'{place}' is taken by {seen[place]}")
        seen[place] = where


def _check_deadline(template: Json, kind: str, path: str) -> None:
    if kind in ("dag", "steps", "suspend"):
        raise Refused(path, "only templates with a pod have one; use spec.activeDeadlineSeconds for the whole workflow")
    text = text_of(template["activeDeadlineSeconds"])
    if "{{" not in text and not text.isdigit():
        raise Refused(path, f"must be a whole number of seconds, not '{text}'")


def _check_arguments(spec: Json, path: str) -> None:
    check_argument_names(spec, path)
    without = [
        Refused(f"{path}.arguments.parameters[{index}].value", f"parameter '{parameter['name']}' has no value")
        for index, parameter in enumerate(maps(as_map(spec.get("arguments")).get("parameters")))
        if parameter.get("value") is None
    ]
    check_all(partial(_again, one) for one in without)


def _check_limit(holder: Json, path: str) -> None:
    for field in ("parallelism", "activeDeadlineSeconds"):
        value = holder.get(field)
        if isinstance(value, int) and value < 1:
            raise Refused(f"{path}.{field}", f"must be at least 1, not {value}: nothing would ever run")


def _check_duration(value: object, path: str) -> None:
    if value is None or "{{" in text_of(value):
        return
    try:
        seconds_of(text_of(value))
    except ValueError as error:
        raise Refused(path, str(error)) from error


def _check_retry(retry: Json, path: str) -> None:
    backoff = as_map(retry.get("backoff"))
    for name, value in (("limit", retry.get("limit")), ("backoff.factor", backoff.get("factor"))):
        if value is not None and "{{" not in text_of(value) and not text_of(value).isdigit():
            raise Refused(f"{path}.{name}", f"must be a whole number, not '{value}'")
    for name in ("duration", "maxDuration", "cap"):
        _check_duration(backoff.get(name), f"{path}.backoff.{name}")
    if "backoff" in retry and backoff.get("duration") is None:
        raise Refused(f"{path}.backoff.duration", "is required")
    expression = retry.get("expression")
    if expression and "{{" not in expression:
        check_expression(expression, f"{path}.expression", _LAST_RETRY)


_LAST_RETRY = TagScope(
    frozenset(("retries", *(f"lastRetry.{name}" for name in ("exitCode", "status", "duration", "message"))))
)
