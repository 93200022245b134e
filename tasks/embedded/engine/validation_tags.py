"""Every `{{...}}` of a workflow must have a chance to be replaced: checked against what its place can see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from profiles.errors import Refused
from tasks.embedded.engine.json_values import Json, as_list, as_map, maps
from tasks.embedded.engine.plan import call_of, kind_of, ordered
from tasks.embedded.engine.substitution import tags, texts
from tasks.embedded.engine.validation_calls import calls_of

_WORKFLOW = (
    "name",
    "namespace",
    "uid",
    "serviceAccountName",
    "mainEntrypoint",
    "creationTimestamp",
    "creationTimestamp.RFC3339",
    "parameters",
    "parameters.json",
    "labels.json",
    "annotations.json",
    "duration",
    "priority",
    "status",
    "failures",
)
_STEP_FIELDS = ("id", "startedAt", "finishedAt", "status", "exitCode", "hostNodeName", "outputs.result")
_RETRY = ("retries", "lastRetry.exitCode", "lastRetry.status", "lastRetry.duration", "lastRetry.message")


@dataclass(frozen=True)
class _Sight:
    """What tags may name at some place."""

    names: frozenset[str]
    calls: Mapping[str, Json] = field(default_factory=dict[str, Json])
    """Steps or tasks that are done by then: name -> the template they run."""
    prefix: str = ""
    items: bool = False

    def sees(self, tag: str) -> bool:
        """Whether a tag has a meaning here."""
        if tag in self.names:
            return True
        if self.items and (tag == "item" or tag.startswith("item.")):
            return True
        scope, _, rest = tag.partition(".")
        name, _, what = rest.partition(".")
        if scope != self.prefix or name not in self.calls:
            return False
        return what in _STEP_FIELDS or _has_output(self.calls[name], what)


def _has_output(template: Json, what: str) -> bool:
    if what == "outputs.parameters":
        return True
    names = {parameter["name"] for parameter in maps(as_map(template.get("outputs")).get("parameters"))}
    return what.startswith("outputs.parameters.") and what.removeprefix("outputs.parameters.") in names


def check_tags(manifest: Json, templates: Mapping[str, Json]) -> None:
    """Check all tags.

    Raises:
        Refused: a tag can never be replaced; with the path of the text that holds it.
    """
    spec = as_map(manifest["spec"])
    common = _Sight(frozenset(_globals(manifest, templates)))
    for key, value in spec.items():
        if key not in ("templates", "templateDefaults"):
            _check_texts(value, f"spec.{key}", common)
    for index, template in enumerate(templates.values()):
        _check_template(template, templates, f"spec.templates[{index}]", common, "retryStrategy" in spec)


def _globals(manifest: Json, templates: Mapping[str, Json]) -> set[str]:
    spec, metadata = as_map(manifest["spec"]), as_map(manifest["metadata"])
    extra = as_map(spec.get("workflowMetadata"))
    found = {f"workflow.{name}" for name in _WORKFLOW}
    found |= {f"workflow.parameters.{item['name']}" for item in maps(as_map(spec.get("arguments")).get("parameters"))}
    for part in ("labels", "annotations"):
        found |= {f"workflow.{part}.{key}" for key in as_map(metadata.get(part)) | as_map(extra.get(part))}
    for template in templates.values():
        for parameter in maps(as_map(template.get("outputs")).get("parameters")):
            if parameter.get("globalName"):
                found.add(f"workflow.outputs.parameters.{parameter['globalName']}")
    return found


def _check_template(
    template: Json, templates: Mapping[str, Json], path: str, common: _Sight, always_retried: bool
) -> None:
    kind = kind_of(template)
    inputs = {f"inputs.parameters.{item['name']}" for item in maps(as_map(template.get("inputs")).get("parameters"))}
    names = common.names | inputs | {"inputs.parameters", "node.name"}
    if kind in ("container", "script", "resource"):
        names |= {"pod.name"}
    if always_retried or template.get("retryStrategy") is not None:
        names |= set(_RETRY)
    sight = replace(common, names=frozenset(names))
    for key, value in template.items():
        if key not in ("dag", "steps", "inputs", "outputs"):
            _check_texts(value, f"{path}.{key}", sight)
    _check_texts(template.get("inputs"), f"{path}.inputs", common)
    sights = _call_sights(template, templates, sight)
    for where, call in calls_of(template, path):
        _check_call(call, where, sights[call["name"]], templates)
    for index, parameter in enumerate(maps(as_map(template.get("outputs")).get("parameters"))):
        where = f"{path}.outputs.parameters[{index}].valueFrom"
        source = dict(as_map(parameter["valueFrom"]))
        if kind in ("dag", "steps") and "{{" not in str(source["parameter"]):
            source["parameter"] = f"{{{{{source['parameter']}}}}}"
        _check_texts(source, where, _after_all(template, templates, sight))


def _called(template: Json, templates: Mapping[str, Json]) -> dict[str, Json]:
    return {call["name"]: templates[call["template"]] for _, call in calls_of(template, "")}


def _after_all(template: Json, templates: Mapping[str, Json], sight: _Sight) -> _Sight:
    prefix = {"dag": "tasks", "steps": "steps"}.get(str(kind_of(template)), "")
    return replace(sight, calls=_called(template, templates), prefix=prefix)


def _call_sights(template: Json, templates: Mapping[str, Json], sight: _Sight) -> dict[str, _Sight]:
    """What each call sees: steps of earlier groups; tasks it depends on, directly or not."""
    called = _called(template, templates)
    found: dict[str, _Sight] = {}
    before: set[str] = set()
    for group in as_list(template.get("steps")):
        for step in maps(group):
            calls = {name: called[name] for name in called if name in before}
            found[step["name"]] = replace(sight, calls=calls, prefix="steps", names=sight.names | {"steps.name"})
        before |= {step["name"] for step in maps(group)}
    tasks = {task["name"]: call_of(task) for task in maps(as_map(template.get("dag")).get("tasks"))}
    for name in tasks:
        ancestors = [other for other in ordered(tasks, (name,)) if other != name]
        calls = {other: called[other] for other in ancestors}
        found[name] = replace(sight, calls=calls, prefix="tasks", names=sight.names | {"tasks.name"})
    return found


def _check_call(call: Json, path: str, sight: _Sight, templates: Mapping[str, Json]) -> None:
    fan_out = any(call.get(name) is not None for name in ("withItems", "withParam", "withSequence"))
    for key in ("withItems", "withParam", "withSequence"):
        _check_texts(call.get(key), f"{path}.{key}", sight)
    _check_texts(call.get("when"), f"{path}.when", replace(sight, items=fan_out))
    _check_texts(call.get("arguments"), f"{path}.arguments", replace(sight, items=fan_out))
    own = templates[call["template"]]
    outputs = {f"outputs.parameters.{item['name']}" for item in maps(as_map(own.get("outputs")).get("parameters"))}
    after = replace(sight, calls={**sight.calls, call["name"]: own}, names=sight.names | outputs)
    _check_texts(call.get("hooks"), f"{path}.hooks", after)


def _check_texts(value: object, path: str, sight: _Sight) -> None:
    for where, text in texts(value, path):
        for tag in tags(text):
            if tag.startswith("="):
                raise Refused(where, f"{{{{{tag}}}}}: expression tags are not supported; compute the value in a step")
            if not sight.sees(tag):
                raise Refused(where, f"failed to resolve {{{{{tag}}}}}: nothing of that name is known here")
