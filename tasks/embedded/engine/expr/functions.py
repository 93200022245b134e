"""The functions of an `expression`: expr-lang's own, Argo's, and the ones of sprig that ordinary workflows use.

Also `jsonpath(text, '$.a.b[0]')`: members, indices, wildcards and simple filters of a JSON value.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from tasks.embedded.engine.expr.go_values import (
    SPACES,
    float_of_text,
    lower,
    plain,
    truncated,
    upper,
    whole_of_text,
    wrapped,
)
from tasks.embedded.engine.expr.operators import AnyMap, equal, is_number, json_of, truth
from tasks.embedded.engine.expr.signatures import Function
from tasks.embedded.engine.expr.sprig import SPRIG, from_base64, from_json, repeat, same_kind
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import is_list, is_map

# Functions of values whose type only the workflow knows.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

_PART = re.compile(
    r"""\.(?P<name>[^.\[\]*]+)
    |\[(?P<index>-?\d+)\]
    |\[['"](?P<quoted>[^'"]+)['"]\]
    |(?P<all>\.\*|\[\*\])
    |\[\?\(@\.(?P<key>\w+)\s*(?P<sign>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|-?\d+(?:\.\d+)?|true|false)\)\]""",
    re.VERBOSE,
)


def check_path(path: str) -> list[re.Match[str]]:
    """The parts of a path.

    Raises:
        ValueError: it has something in it that is not read here.
    """
    if not path.startswith("$"):
        raise ValueError(f"'{path}' must begin with $")
    parts: list[re.Match[str]] = []
    position = 1
    while position < len(path):
        part = _PART.match(path, position)
        if part is None:
            raise ValueError(f"'{path}' may hold only members, indices, * and filters like [?(@.name=='x')]")
        parts.append(part)
        position = part.end()
    return parts


def query(value: Any, path: str) -> Any:
    """What lies at the path; with a wildcard or filter in it the list of all that does.

    Raises:
        ValueError: the path has something else in it, or nothing lies there.
    """
    found, many = [value], False
    for part in check_path(path):
        if part["all"] or part["key"]:
            many = True
            found = [item for one in found for item in _all(one) if not part["key"] or _fits(item, part)]
        else:
            key: str | int = int(part["index"]) if part["index"] else part["name"] or part["quoted"]
            found = [_one(one, key, path) for one in found if not many or _has(one, key)]
    return found if many else found[0]


def _all(value: Any) -> list[Any]:
    if is_list(value):
        return value
    return list(value.values()) if is_map(value) else []


def _fits(item: Any, part: re.Match[str]) -> bool:
    wanted: Any = part["value"][1:-1] if part["value"][0] in "\"'" else json.loads(part["value"])
    return is_map(item) and part["key"] in item and (item[part["key"]] == wanted) == (part["sign"] == "==")


def _has(value: Any, key: str | int) -> bool:
    if isinstance(key, int):
        return is_list(value) and -len(value) <= key < len(value)
    return is_map(value) and key in value


def _one(value: Any, key: str | int, path: str) -> Any:
    if not _has(value, key):
        raise ValueError(f"nothing lies at '{path}'")
    return value[key]


def _as_int(value: Any) -> int:
    if isinstance(value, str):
        return whole_of_text(value)
    return truncated(value) if isinstance(value, float) else value


def _as_float(value: Any) -> float:
    return float_of_text(value) if isinstance(value, str) else float(value)


def _numbers(values: tuple[Any, ...]) -> list[Any]:
    """Numbers given one by one or as lists.

    Raises:
        TypeError: something else is among them.
    """
    flat = _flat(list(values))
    for item in flat:
        if not is_number(item):
            raise TypeError(f"{item!r} is no number")
    return flat


def _flat(value: list[Any]) -> list[Any]:
    return [item for entry in value for item in (_flat(entry) if is_list(entry) else [entry])]


def _unique(value: list[Any]) -> list[Any]:
    found: list[Any] = []
    for item in value:
        if not any(equal(item, other) for other in found):
            found.append(item)
    return found


def _split(text: str, separator: str, count: int = -1, *, after: bool = False) -> list[str] | None:
    """`strings.SplitN`, `strings.SplitAfterN`: nothing at all where no part is wanted."""
    if count == 0:
        return None
    parts = text.split(separator, count - 1 if count > 0 else -1) if separator else list(text)
    if not separator and 0 < count < len(parts):
        parts = [*parts[: count - 1], "".join(parts[count - 1 :])]
    return [f"{part}{separator}" for part in parts[:-1]] + parts[-1:] if after else parts


def _place(text: str, part: str, find: Callable[[bytes, bytes], int]) -> int:
    """In bytes, as Go counts."""
    return find(text.encode(), part.encode())


def _take(value: list[Any], count: int) -> list[Any]:
    if count < 0:
        raise ValueError(f"cannot take {count} elements")
    return value[:count]


def _get(value: Any, key: Any) -> Any:
    if isinstance(value, AnyMap) or (is_map(value) and isinstance(key, str)):
        return value.get(key)
    if not is_list(value) or not is_number(key) or key != int(key):
        raise TypeError(f"{value!r} has no element {key!r}")
    return value[int(key)] if -len(value) <= int(key) < len(value) else None


def _round(value: Any) -> float:
    """Halves away from zero, as Go."""
    whole = float(math.trunc(value))
    return whole if abs(value - whole) < 0.5 else whole + math.copysign(1.0, value)


def _type(value: Any) -> str:
    names: dict[type, str] = {bool: "bool", int: "int", float: "float", str: "string", list: "array", dict: "map"}
    return "nil" if value is None else names.get(type(value), "map")


def _ordered(value: list[Any], order: str = "asc") -> list[Any]:
    return [value[place] for place in _order(value, order)]


def _order(values: list[Any], order: str) -> list[int]:
    """The places of values, sorted.

    Raises:
        ValueError: the order is neither asc nor desc.
        TypeError: they cannot be compared.
    """
    if order not in ("asc", "desc"):
        raise ValueError(f"invalid order {order}, expected asc or desc")
    same_kind(values)
    return sorted(range(len(values)), key=lambda place: values[place], reverse=order == "desc")


def _median(*values: Any) -> float:
    numbers = sorted(map(float, _numbers(values)))
    half = len(numbers) // 2
    if not numbers:
        return 0.0
    return numbers[half] if len(numbers) % 2 else (numbers[half - 1] + numbers[half]) / 2


def _mean(*values: Any) -> float:
    numbers = _numbers(values)
    return sum(map(float, numbers)) / len(numbers) if numbers else 0.0


def _sum(values: list[Any]) -> Any:
    if not all(map(is_number, values)):
        raise TypeError("only numbers have a sum")
    total: Any = sum(values)
    return wrapped(total) if isinstance(total, int) else total


def _pairs(value: list[Any]) -> AnyMap:
    if any(not is_list(pair) or len(pair) != 2 for pair in value):
        raise TypeError("a pair is a list of two")
    return AnyMap((key, item) for key, item in value)


def _jsonpath(text: str, path: str) -> Any:
    return query(from_json(text), path)


def _outermost(choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    return lambda *values: choose(found) if (found := _numbers(values)) else None


def _shift(left: int, right: int, shifted: Callable[[int, int], int]) -> int:
    if right < 0:
        raise ValueError(f"negative shift count {right}")
    return wrapped(shifted(left, min(right, 64)))


FUNCTIONS: dict[str, Function] = {
    "asInt": Function(_as_int, "parsed"),
    "int": Function(_as_int, "parsed"),
    "asFloat": Function(_as_float, "parsed"),
    "float": Function(_as_float, "parsed"),
    "string": Function(plain),
    "type": Function(_type),
    "len": Function(len, "sized"),
    "lower": Function(lower, "text"),
    "upper": Function(upper, "text"),
    "trim": Function(lambda text, characters=SPACES: text.strip(characters) if characters else text, "text text?"),
    "trimPrefix": Function(lambda text, prefix=" ": text.removeprefix(prefix), "text text?"),
    "trimSuffix": Function(lambda text, suffix=" ": text.removesuffix(suffix), "text text?"),
    "split": Function(_split, "text text count?"),
    "splitAfter": Function(partial(_split, after=True), "text text count?"),
    "join": Function(lambda value, separator="": separator.join(value), "list text?"),
    "replace": Function(lambda text, old, new, count=-1: text.replace(old, new, count), "text text text count?"),
    "repeat": Function(repeat, "text count"),
    "indexOf": Function(lambda text, part: _place(text, part, bytes.find), "text text"),
    "lastIndexOf": Function(lambda text, part: _place(text, part, bytes.rfind), "text text"),
    "hasPrefix": Function(str.startswith, "text text"),
    "hasSuffix": Function(str.endswith, "text text"),
    "abs": Function(lambda value: wrapped(abs(value)) if isinstance(value, int) else abs(value), "number"),
    "ceil": Function(lambda value: math.copysign(math.ceil(value), value), "number"),
    "floor": Function(lambda value: math.copysign(math.floor(value), value), "number"),
    "round": Function(_round, "number"),
    "min": Function(_outermost(min), "numbers numbers*"),
    "max": Function(_outermost(max), "numbers numbers*"),
    "mean": Function(_mean, "numbers numbers*"),
    "median": Function(_median, "numbers numbers*"),
    "sum": Function(_sum, "list"),
    "count": Function(lambda value: sum(map(truth, value)), "list"),
    "first": Function(lambda value: value[0] if value else None, "list"),
    "last": Function(lambda value: value[-1] if value else None, "list"),
    "take": Function(_take, "list whole"),
    "get": Function(_get, "any any"),
    "keys": Function(sorted, "map"),
    "values": Function(lambda value: [value[key] for key in sorted(value)], "map"),
    "toPairs": Function(lambda value: [[key, value[key]] for key in sorted(value)], "map"),
    "fromPairs": Function(_pairs, "list"),
    "concat": Function(lambda *values: [item for value in values for item in value], "list list*"),
    "flatten": Function(_flat, "list"),
    "uniq": Function(_unique, "list"),
    "reverse": Function(lambda value: value[::-1], "list"),
    "sort": Function(_ordered, "list text?"),
    "toJson": Function(json_of),
    "toJSON": Function(partial(json_of, indent="  ")),
    "fromJSON": Function(from_json, "text"),
    "toBase64": Function(lambda text: base64.b64encode(text.encode()).decode(), "text"),
    "fromBase64": Function(from_base64, "text"),
    "jsonpath": Function(_jsonpath, "text text"),
    "bitand": Function(lambda left, right: left & right, "whole whole"),
    "bitor": Function(lambda left, right: left | right, "whole whole"),
    "bitxor": Function(lambda left, right: left ^ right, "whole whole"),
    "bitnand": Function(lambda left, right: left & ~right, "whole whole"),
    "bitnot": Function(lambda value: ~value, "whole"),
    "bitshl": Function(lambda left, right: _shift(left, right, lambda a, b: a << b), "whole whole"),
    "bitshr": Function(lambda left, right: _shift(left, right, lambda a, b: a >> b), "whole whole"),
    "bitushr": Function(lambda left, right: _shift(left, right, lambda a, b: a % (1 << 64) >> b), "whole whole"),
    **{f"sprig.{name}": Function(*entry, nil_is_zero=True) for name, entry in SPRIG.items()},
}
"""All functions but those with a closure. Not here: `now`, `date` and whatever else differs at each call."""

TEXTS = frozenset(
    (
        *("string", "type", "lower", "upper", "trim", "trimPrefix", "trimSuffix", "join", "replace", "repeat"),
        *("toJson", "toJSON", "toBase64", "fromBase64"),
    )
)
NUMBERS = frozenset(
    (
        *("int", "float", "len", "indexOf", "lastIndexOf", "ceil", "floor", "round", "count"),
        *("bitand", "bitor", "bitxor", "bitnand", "bitnot", "bitshl", "bitshr", "bitushr"),
    )
)
"""Functions whose result has a type that is known before they are called."""

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
        return _reduced(items, given[1:], compute)
    values = [compute(item, index, None) for index, item in enumerate(items)]
    if function in _OF_VALUES:
        try:
            return _OF_VALUES[function](items, values, *given[1:])
        except (TypeError, ValueError) as error:
            raise ExpressionError(f"{function}: {error}") from error
    return _OF_MATCHES[function](items, [index for index, value in enumerate(values) if truth(value)])


def _reduced(items: list[Any], given: list[Any], compute: Compute) -> Any:
    if not items and not given:
        raise ExpressionError("reduce of an empty list without an initial value")
    value = given[0] if given else items[0]
    for index, item in enumerate(items if given else items[1:]):
        value = compute(item, index, value)
    return value


def _grouped(items: list[Any], values: list[Any]) -> AnyMap:
    found = AnyMap()
    for item, value in zip(items, values, strict=True):
        found.setdefault(value, []).append(item)
    return found


_OF_VALUES: dict[str, Callable[..., Any]] = {
    "map": lambda items, values: values,
    "sum": lambda items, values: _sum(values),
    "groupBy": _grouped,
    "sortBy": lambda items, values, order="asc": [items[place] for place in _order(values, order)],
}
_OF_MATCHES: dict[str, Callable[[list[Any], list[int]], Any]] = {
    "all": lambda items, found: len(found) == len(items),
    "none": lambda items, found: not found,
    "any": lambda items, found: bool(found),
    "one": lambda items, found: len(found) == 1,
    "filter": lambda items, found: [items[index] for index in found],
    "count": lambda items, found: len(found),
    "find": lambda items, found: items[found[0]] if found else None,
    "findIndex": lambda items, found: found[0] if found else None,
    "findLast": lambda items, found: items[found[-1]] if found else None,
    "findLastIndex": lambda items, found: found[-1] if found else None,
}
