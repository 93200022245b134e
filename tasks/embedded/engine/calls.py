"""The calls of a manifest: steps, tasks and hooks, read once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tasks.embedded.engine.depends import Depends, from_dependencies, read_depends
from tasks.embedded.engine.items import Items
from tasks.embedded.engine.json_values import Json, as_list, as_map, maps, text_of

Arguments = tuple[tuple[str, str], ...]

EXIT = "exit"
"""The name of the hook that runs when its step is done; all others need an expression."""


@dataclass(frozen=True)
class Hook:
    """A template that runs beside its step as soon as an expression is true, or after it (`exit`)."""

    template: str
    arguments: Arguments
    artifacts: tuple[Json, ...] = ()
    name: str = EXIT
    expression: str = ""


@dataclass(frozen=True)
class Call:
    """One step or task: a template called with arguments."""

    name: str
    template: str = ""
    arguments: Arguments = ()
    when: str = ""
    items: Items | None = None
    continue_on: frozenset[str] = field(default_factory=frozenset[str])
    """Phases of a failed end that count as allowed: Failed, Error."""
    hook: Hook | None = None
    """What runs when it is done."""
    hooks: tuple[Hook, ...] = ()
    """What runs as soon as an expression is true."""
    depends: Depends | None = None
    artifacts: tuple[Json, ...] = ()


def arguments_of(holder: Json) -> Arguments:
    """Names and texts of `arguments.parameters` (those with a value)."""
    parameters = maps(as_map(holder.get("arguments")).get("parameters"))
    return tuple((str(item["name"]), text_of(item["value"])) for item in parameters if item.get("value") is not None)


def artifacts_of(holder: Json) -> tuple[Json, ...]:
    """`arguments.artifacts`."""
    return tuple(maps(as_map(holder.get("arguments")).get("artifacts")))


def hook_of(holder: Json) -> Hook | None:
    """The exit hook of a workflow, step or task."""
    exit_hook = as_map(as_map(holder.get("hooks")).get(EXIT))
    if exit_hook:
        return _hook(EXIT, exit_hook)
    return Hook(str(holder["onExit"]), ()) if holder.get("onExit") else None


def hooks_of(holder: Json) -> tuple[Hook, ...]:
    """The other hooks, in the order of their names."""
    return tuple(_hook(name, as_map(one)) for name, one in sorted(as_map(holder.get("hooks")).items()) if name != EXIT)


def _hook(name: str, spec: Json) -> Hook:
    text = str(spec.get("expression") or "")
    return Hook(str(spec["template"]), arguments_of(spec), artifacts_of(spec), name, text)


def call_of(step: Json) -> Call:
    """Read one step or task."""
    allowed = as_map(step.get("continueOn"))
    phases = [phase for phase, key in (("Failed", "failed"), ("Error", "error")) if allowed.get(key)]
    return Call(
        name=str(step["name"]),
        template=str(step["template"]),
        arguments=arguments_of(step),
        when=str(step.get("when") or ""),
        items=_items(step),
        continue_on=frozenset(phases),
        hook=hook_of(step),
        hooks=hooks_of(step),
        depends=_depends(step),
        artifacts=artifacts_of(step),
    )


def _items(step: Json) -> Items | None:
    if step.get("withItems") is not None:
        return Items("items", json.dumps(step["withItems"]))
    if step.get("withParam") is not None:
        return Items("parameter", text_of(step["withParam"]))
    if step.get("withSequence") is not None:
        return Items("sequence", json.dumps(step["withSequence"]))
    return None


def _depends(step: Json) -> Depends | None:
    if step.get("depends"):
        return read_depends(str(step["depends"]))
    names = [str(name) for name in as_list(step.get("dependencies"))]
    return from_dependencies(names) if names else None


def leaves(tasks: Mapping[str, Call]) -> tuple[str, ...]:
    """The tasks that nothing depends on: what a DAG without `target` is there for."""
    needed = {name for call in tasks.values() if call.depends for name in call.depends.tasks}
    return tuple(sorted(name for name in tasks if name not in needed))


def ordered(tasks: Mapping[str, Call], targets: tuple[str, ...]) -> list[str]:
    """The targets and all they depend on, every task after those it depends on (no recursion: chains may be long)."""
    done: dict[str, None] = {}
    waiting = list(reversed(targets))
    while waiting:
        name = waiting[-1]
        depends = tasks[name].depends
        missing = [other for other in (depends.tasks if depends else ()) if other not in done]
        if missing:
            waiting.extend(reversed(missing))
            continue
        waiting.pop()
        done[name] = None
    return list(done)
