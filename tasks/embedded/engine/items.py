"""Fan-out: `withItems`, `withParam` and `withSequence` turned into the instances of a step or task."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from tasks.embedded.engine.argo_names import node_id
from tasks.embedded.engine.json_values import Json, go_json, is_list, is_map, text_of, why_no_json


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


_FORMAT = re.compile(r"%(?:%|(?P<flags>[-+# 0]*)(?P<width>\d*)(?P<verb>[dxXobv]))")


@lru_cache(maxsize=64)
def instances(workflow: str, step_name: str, kind: str, source: str) -> tuple[Instance, ...]:
    """The instances of a fan-out, in order.

    Args:
        workflow: name of the workflow, for the node ids.
        step_name: full node name of the step or task, to which `(index:value)` is added.
        kind: of `Items`.
        source: of `Items`, its tags replaced.

    Raises:
        ItemsError: the source gives no list.
    """
    return tuple(
        Instance(name, node_id(workflow, name), tags)
        for index, item in enumerate(_values(kind, source))
        for name, tags in (_named(step_name, index, item),)
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


def _named(step_name: str, index: int, item: object) -> tuple[str, dict[str, str]]:
    if is_map(item):
        tags = {f"item.{key}": _printed(value) for key, value in item.items()}
        called = ",".join(sorted(f"{key}:{_printed(value)}" for key, value in item.items()))
        tags["item"] = go_json(item)
    elif is_list(item):
        called, tags = f"[{' '.join(_printed(value) for value in item)}]", {"item": go_json(item)}
    else:
        called, tags = _printed(item), {"item": text_of(item)}
    # Argo finds the index again behind the last parenthesis: it keeps none of the item's own.
    return f"{step_name}({index}:{called.translate(_NO_PARENTHESES)})", tags


_NO_PARENTHESES = str.maketrans("", "", "()")


def _printed(value: object) -> str:
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
