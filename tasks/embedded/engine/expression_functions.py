"""The functions of an `expression`: expr-lang's own, Argo's, and the ones of sprig that ordinary workflows use."""

# Functions of values whose type only the workflow knows.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from tasks.embedded.engine.expression_tree import ExpressionError
from tasks.embedded.engine.expression_values import equal, text_of_value, truth
from tasks.embedded.engine.json_paths import query
from tasks.embedded.engine.json_values import go_json, is_list, is_map
from tasks.embedded.engine.sprig_functions import SPRIG, repeated

MANY = 99


@dataclass(frozen=True)
class Function:
    """A function and how many arguments it takes."""

    action: Callable[..., Any]
    least: int = 1
    most: int = 1

    @property
    def arity(self) -> str:
        """In words."""
        if self.least == self.most:
            return "one argument" if self.least == 1 else f"{self.least} arguments"
        return f"at least {self.least}" if self.most == MANY else f"{self.least} to {self.most} arguments"


def _as_int(value: Any) -> int:
    if isinstance(value, str):
        return int(value)
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    return int(value)


def _as_float(value: Any) -> float:
    if isinstance(value, bool):
        raise TypeError("a truth value is no number")
    return float(value)


def _numbers(values: tuple[Any, ...]) -> list[Any]:
    """Numbers given one by one or as lists."""
    return [item for value in values for item in (_numbers(tuple(value)) if is_list(value) else [value])]


def _flat(value: list[Any]) -> list[Any]:
    return [item for entry in value for item in (_flat(entry) if is_list(entry) else [entry])]


def _unique(value: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in value:
        if not any(equal(item, other) for other in found):
            found.append(item)
    return found


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if not separator:
        return list(text)
    return text.split(separator, count - 1 if count > 0 else -1)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _get(value: Any, key: Any) -> Any:
    if is_list(value):
        return value[key] if isinstance(key, int) and -len(value) <= key < len(value) else None
    return value.get(key) if is_map(value) else None


def _round(value: float) -> float:
    """Halves away from zero, as Go."""
    return math.copysign(math.floor(abs(value) + 0.5), value)


def _type(value: Any) -> str:
    names: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "string", list: "array", dict: "map"}
    return "nil" if value is None else names.get(type(value), "unknown")


def _ordered(value: list[Any], order: str = "asc") -> list[Any]:
    return sorted(value, reverse=order == "desc")


def _indented(value: Any) -> str:
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def _median(*values: Any) -> float:
    numbers = sorted(_numbers(values))
    half = len(numbers) // 2
    return float(numbers[half]) if len(numbers) % 2 else (numbers[half - 1] + numbers[half]) / 2


def _jsonpath(text: str, path: str) -> Any:
    return query(json.loads(text), path)


def _middle_of(function: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    return lambda *values: function(_numbers(values))


FUNCTIONS: dict[str, Function] = {
    "asInt": Function(_as_int),
    "int": Function(_as_int),
    "asFloat": Function(_as_float),
    "float": Function(_as_float),
    "string": Function(text_of_value),
    "type": Function(_type),
    "len": Function(len),
    "lower": Function(str.lower),
    "upper": Function(str.upper),
    "trim": Function(str.strip, 1, 2),
    "trimPrefix": Function(str.removeprefix, 2, 2),
    "trimSuffix": Function(str.removesuffix, 2, 2),
    "split": Function(_split, 2, 3),
    "join": Function(lambda value, separator="": separator.join(value), 1, 2),
    "replace": Function(_replace, 3, 4),
    "repeat": Function(repeated, 2, 2),
    "indexOf": Function(str.find, 2, 2),
    "lastIndexOf": Function(str.rfind, 2, 2),
    "hasPrefix": Function(str.startswith, 2, 2),
    "hasSuffix": Function(str.endswith, 2, 2),
    "abs": Function(abs),
    "ceil": Function(lambda value: float(math.ceil(value))),
    "floor": Function(lambda value: float(math.floor(value))),
    "round": Function(_round),
    "min": Function(_middle_of(min), 1, MANY),
    "max": Function(_middle_of(max), 1, MANY),
    "mean": Function(_middle_of(lambda values: sum(values) / len(values)), 1, MANY),
    "median": Function(_median, 1, MANY),
    "sum": Function(sum),
    "first": Function(lambda value: value[0] if value else None),
    "last": Function(lambda value: value[-1] if value else None),
    "take": Function(lambda value, count: value[:count], 2, 2),
    "get": Function(_get, 2, 2),
    "keys": Function(lambda value: sorted(value.keys())),
    "values": Function(lambda value: [value[key] for key in sorted(value)]),
    "toPairs": Function(lambda value: [[key, value[key]] for key in sorted(value)]),
    "fromPairs": Function(lambda value: dict(cast("Iterable[tuple[str, Any]]", value))),
    "concat": Function(lambda *values: [item for value in values for item in value], 1, MANY),
    "flatten": Function(_flat),
    "uniq": Function(_unique),
    "reverse": Function(lambda value: value[::-1]),
    "sort": Function(_ordered, 1, 2),
    "toJson": Function(go_json),
    "toJSON": Function(_indented),
    "fromJSON": Function(json.loads),
    "toBase64": Function(lambda text: base64.b64encode(text.encode()).decode()),
    "fromBase64": Function(lambda text: base64.b64decode(text).decode()),
    "jsonpath": Function(_jsonpath, 2, 2),
    **{f"sprig.{name}": Function(*entry) for name, entry in SPRIG.items()},
}
"""All functions but those with a closure. Not here: `now`, `date` and whatever else differs at each call."""

Compute = Callable[[Any, int, Any], Any]
"""The closure's value for an item, its index and what was accumulated."""


def closed_call(function: str, given: list[Any], compute: Compute) -> Any:
    """A function whose closure is computed for each item of a list.

    Raises:
        ExpressionError: its first argument is no list, or the closure does not fit the items.
    """
    items: Any = given[0]
    if not is_list(items):
        raise ExpressionError(f"{function} needs a list, not {items!r}")
    if function == "reduce":
        rest = items if len(given) > 1 else items[1:]
        value = given[1] if len(given) > 1 else (items[0] if items else None)
        for index, item in enumerate(rest):
            value = compute(item, index, value)
        return value
    values = [compute(item, index, None) for index, item in enumerate(items)]
    if function in _OF_VALUES:
        try:
            return _OF_VALUES[function](items, values, *given[1:])
        except TypeError as error:
            raise ExpressionError(f"{function}: {error}") from error
    return _OF_MATCHES[function](items, [index for index, value in enumerate(values) if truth(value)])


def _grouped(items: list[Any], values: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for item, value in zip(items, values, strict=True):
        found.setdefault(text_of_value(value), []).append(item)
    return found


def _sorted_by(items: list[Any], values: list[Any], order: str = "asc") -> list[Any]:
    places = sorted(range(len(items)), key=lambda place: values[place], reverse=order == "desc")
    return [items[place] for place in places]


_OF_VALUES: dict[str, Callable[..., Any]] = {
    "map": lambda items, values: values,
    "sum": lambda items, values: sum(values),
    "groupBy": _grouped,
    "sortBy": _sorted_by,
}
_OF_MATCHES: dict[str, Callable[[list[Any], list[int]], Any]] = {
    "all": lambda items, found: len(found) == len(items),
    "none": lambda items, found: not found,
    "any": lambda items, found: bool(found),
    "one": lambda items, found: len(found) == 1,
    "filter": lambda items, found: [items[index] for index in found],
    "count": lambda items, found: len(found),
    "find": lambda items, found: items[found[0]] if found else None,
    "findIndex": lambda items, found: found[0] if found else -1,
    "findLast": lambda items, found: items[found[-1]] if found else None,
    "findLastIndex": lambda items, found: found[-1] if found else -1,
}
