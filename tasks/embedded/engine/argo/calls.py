"""The calls of a manifest (steps, tasks, hooks), read once, with their fan-out and their `depends`.

A fan-out is `withItems`, `withParam` or `withSequence`, turned into the instances of a step or task. A `depends` names
the tasks of a DAG that a task waits for, and is met or not by their results.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from tasks.embedded.engine.argo.names import node_id
from tasks.embedded.engine.expr.parser import parse_tokens
from tasks.embedded.engine.expr.tree import Binary, Constant, Expression, ExpressionError, Token, Unary
from tasks.embedded.engine.json_values import (
    Json,
    as_list,
    as_map,
    go_json,
    is_list,
    is_map,
    maps,
    text_of,
    why_no_json,
)

Arguments = tuple[tuple[str, str], ...]

_FORMAT = re.compile(r"%(?:%|(?P<flags>[-+# 0]*)(?P<width>\d*)(?P<verb>[dxXobv]))")

_NO_PARENTHESES = str.maketrans("", "", "()")

RESULTS = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted", "Daemoned", "AnySucceeded", "AllFailed")
"""What a task may be asked for, as `task.Succeeded`."""

EXIT = "exit"
"""The name of the hook that runs when its step is done; all others need an expression."""


class ItemsError(Exception):
    """The list of a fan-out cannot be made; the text says why."""


@dataclass(frozen=True)
class Items:
    """Where the items of a fan-out come from."""

    kind: Literal["items", "parameter", "sequence"]
    source: str
    """`items`: the list as JSON; `parameter`: the text that becomes a JSON list; `sequence`: the object as JSON."""


@dataclass(frozen=True)
class Instance:
    """One instance of a step or task."""

    node_name: str
    node_id: str
    item: Mapping[str, str]
    """The tags that only this instance has: `item`, `item.key`; empty where the step is no fan-out."""


@lru_cache(maxsize=64)
def instances(workflow: str, step_name: str, kind: str, source: str) -> tuple[Instance, ...]:
    """The instances of a fan-out, in order; `(index:value)` is added to the full node name `step_name`.

    `kind` and `source` are those of `Items`, with the tags of the source replaced.

    Raises:
        ItemsError: the source gives no list.
    """
    return tuple(
        Instance(name, node_id(workflow, name), tags)
        for index, item in enumerate(_values(kind, source))
        for name, tags in (_name_and_tags(step_name, index, item),)
    )


def _values(kind: str, source: str) -> list[Any]:
    if kind == "sequence":
        return sequence(json.loads(source))
    try:
        values: object = json.loads(source)
    except ValueError as error:
        text = source.strip()
        raise ItemsError(f"withParam value could not be parsed as a JSON list: {text}: {why_no_json(text)}") from error
    if not is_list(values):
        raise ItemsError(f"withParam value could not be parsed as a JSON list: {source.strip()}")
    return values


def _name_and_tags(step_name: str, index: int, item: object) -> tuple[str, dict[str, str]]:
    if is_map(item):
        tags = {f"item.{key}": _print_value(value) for key, value in item.items()}
        called = ",".join(sorted(f"{key}:{_print_value(value)}" for key, value in item.items()))
        tags["item"] = go_json(item)
    elif is_list(item):
        called, tags = f"[{' '.join(_print_value(value) for value in item)}]", {"item": go_json(item)}
    else:
        called, tags = _print_value(item), {"item": text_of(item)}
    # Argo finds the index again behind the last parenthesis: it keeps none of the item's own.
    return f"{step_name}({index}:{called.translate(_NO_PARENTHESES)})", tags


def _print_value(value: object) -> str:
    """An item as Argo prints it: its JSON; a text without the quotes around it, those inside stay escaped."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    return text[1:-1] if isinstance(value, str) else text


def sequence(spec: Json) -> list[str]:
    """The texts of a `withSequence`; it counts down where the start is above the end.

    Raises:
        ItemsError: a bound is no whole number, or neither `count` nor `end` is given.
    """
    start = _whole(spec, "start") if spec.get("start") not in (None, "") else 0
    if spec.get("end") not in (None, ""):
        end = _whole(spec, "end")
    elif spec.get("count") not in (None, ""):
        count = _whole(spec, "count")
        if count <= 0:
            return []
        end = start + count - 1
    else:
        raise ItemsError("withSequence needs count or end")
    numbers = range(start, end + 1) if start <= end else range(start, end - 1, -1)
    pattern = str(spec.get("format") or "%d")
    return [go_format(pattern, number) for number in numbers]


def _whole(spec: Json, key: str) -> int:
    try:
        return int(str(spec[key]).strip())
    except ValueError as error:
        raise ItemsError(f"withSequence.{key} must be a whole number, not '{spec[key]}'") from error


def go_format(pattern: str, number: int) -> str:
    """A whole number by Go's `printf`: `%d`, `%04x`, `node-%02X`, `%%`, ….

    Raises:
        ItemsError: the pattern has a verb for something else than whole numbers.
    """
    rest = _FORMAT.sub("", pattern)
    if "%" in rest:
        raise ItemsError(f"withSequence.format '{pattern}' may hold only %d, %x, %X, %o, %b and %%")

    def one(found: re.Match[str]) -> str:
        if found[0] == "%%":
            return "%"
        verb = {"v": "d"}.get(found["verb"], found["verb"])
        if verb == "b":
            digits = format(number, "b")
            return digits.rjust(int(found["width"] or 0), "0" if "0" in found["flags"] else " ")
        return f"%{found['flags']}{found['width']}{verb}" % number

    return _FORMAT.sub(one, pattern)


_TOKEN = re.compile(r"\s*(?:(?P<name>[a-zA-Z0-9_][-a-zA-Z0-9_]*(?:\.[A-Za-z]+)?)|(?P<operator>&&|\|\||[!()]))\s*")


@dataclass(frozen=True)
class Depends:
    """A read `depends`: its tree, and the tasks it names in order of appearance."""

    tree: Expression
    tasks: tuple[str, ...]


def read_depends(text: str) -> Depends:
    """Read a `depends`.

    Raises:
        ExpressionError: it is no logic over tasks, or asks for an unknown result.
    """
    tokens: list[Token] = []
    tasks: dict[str, None] = {}
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ExpressionError(f"unexpected '{text[position:].strip()[:20]}'")
        position = found.end()
        if found["operator"]:
            tokens.append(Token("operator", found["operator"]))
            continue
        task, _, result = found["name"].partition(".")
        if result and result not in RESULTS:
            raise ExpressionError(f"task result '{result}' of '{task}' is unknown; known: {', '.join(RESULTS)}")
        tasks[task] = None
        tokens.append(Token("text", found["name"]))
    return Depends(parse_tokens((*tokens, Token("end", "")), "expression"), tuple(tasks))


def from_dependencies(names: list[str]) -> Depends:
    """The `depends` that a list of `dependencies` stands for: every one of them succeeded, was skipped or may fail."""
    tree: Expression = Constant(names[0])
    for name in names[1:]:
        tree = Binary("&&", tree, Constant(name))
    return Depends(tree, tuple(dict.fromkeys(names)))


def is_met(tree: Expression, asked: Callable[[str, str], bool]) -> bool:
    """Whether the logic is true; `asked` maps task and result ("" for a bare task name) to yes or no."""
    match tree:
        case Constant(value):
            task, _, result = str(value).partition(".")
            return asked(task, result)
        case Unary(_, value):
            return not is_met(value, asked)
        case Binary(sign, left, right):
            if sign == "&&":
                return is_met(left, asked) and is_met(right, asked)
            return is_met(left, asked) or is_met(right, asked)
        case _:
            raise AssertionError(f"read_depends makes no {tree}")


@dataclass(frozen=True)
class Hook:
    """A template that runs beside its step as soon as an expression is true, or after it (`exit`)."""

    template: str
    arguments: Arguments
    artifacts: tuple[Json, ...] = ()
    name: str = EXIT
    expression: str = ""


@dataclass(frozen=True)
class TemplateCall:
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


def call_of(step: Json) -> TemplateCall:
    """Read one step or task."""
    allowed = as_map(step.get("continueOn"))
    phases = [phase for phase, key in (("Failed", "failed"), ("Error", "error")) if allowed.get(key)]
    return TemplateCall(
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


def leaves(tasks: Mapping[str, TemplateCall]) -> tuple[str, ...]:
    """The tasks that nothing depends on: what a DAG without `target` is there for."""
    needed = {name for call in tasks.values() if call.depends for name in call.depends.tasks}
    return tuple(sorted(name for name in tasks if name not in needed))


def topological_order(tasks: Mapping[str, TemplateCall], targets: tuple[str, ...]) -> list[str]:
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
