"""The functions of an `expression`: expr-lang's own, Argo's, and the ones of sprig that ordinary workflows use.

Also the values of expressions (what counts as a number, how two are compared, how a value becomes text), and
`jsonpath(text, '$.a.b[0]')`: members, indices, wildcards and simple filters of a JSON value.
"""

from __future__ import annotations

import base64
import json
import math
import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, cast

from tasks.embedded.engine.expr.sprig import SPRIG, repeat
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import go_json, is_list, is_map


def is_number(value: Any) -> bool:
    """Whether it is a number; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def truth(value: Any) -> bool:
    """A truth value.

    Raises:
        ExpressionError: it is something else.
    """
    if not isinstance(value, bool):
        raise ExpressionError(f"{value!r} is neither true nor false")
    return value


def text_of_value(value: Any) -> str:
    """A value as a tag shows it: texts as they are, the rest as compact JSON, whole floats without a point."""
    return value if isinstance(value, str) else go_json(_whole(value))


def _whole(value: Any) -> Any:
    """Numbers as Go writes them in JSON."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return int(value)
    if is_list(value):
        return [_whole(item) for item in value]
    if is_map(value):
        return {key: _whole(item) for key, item in value.items()}
    return value


def equal(left: Any, right: Any) -> bool:
    """Numbers by value; everything else only equals its own type."""
    if is_number(left) and is_number(right):
        return left == right
    return type(left) is type(right) and left == right


def is_contained(item: Any, whole: Any) -> bool:
    """`item in whole`.

    Raises:
        ExpressionError: the right side is neither a list nor an object.
    """
    if is_map(whole):
        return item in whole
    if not is_list(whole):
        raise ExpressionError("'in' needs a list on its right side")
    return any(equal(item, other) for other in whole)


def combine(sign: str, left: Any, right: Any) -> Any:
    """The value of `left sign right`.

    Raises:
        ExpressionError: the types do not fit together.
    """
    for signs, action in _KINDS:
        if sign in signs:
            return action(sign, left, right)
    return _text_relation(sign, left, right)


def _quotient(left: Any, right: Any) -> Any:
    return left / right


def _power(left: Any, right: Any) -> Any:
    return left**right


def _remainder(left: Any, right: Any) -> Any:
    """As Go: the sign of the left side."""
    value = abs(left) % abs(right)
    return -value if left < 0 else value


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": _remainder,
    "**": _power,
    "^": _power,
}


def _equality(sign: str, left: Any, right: Any) -> bool:
    return equal(left, right) == (sign == "==")


def _membership(sign: str, left: Any, right: Any) -> bool:
    return is_contained(left, right) == (sign == "in")


def _compare(sign: str, left: Any, right: Any) -> bool:
    comparable = (is_number(left) and is_number(right)) or (isinstance(left, str) and isinstance(right, str))
    if not comparable:
        raise ExpressionError(f"'{sign}' cannot compare {left!r} with {right!r}")
    return _COMPARE[sign](left, right)


def _plus_text(sign: str, left: Any, right: Any) -> Any:
    if isinstance(left, str) or isinstance(right, str):
        return text_of_value(left) + text_of_value(right)
    return _compute("+", left, right)


def _compute(sign: str, left: Any, right: Any) -> Any:
    if sign == "+" and isinstance(left, str) and isinstance(right, str):
        return left + right
    if not is_number(left) or not is_number(right):
        raise ExpressionError(f"'{sign}' needs two numbers, not {left!r} and {right!r}")
    if sign in ("**", "^") and abs(right) > _LARGEST_POWER:
        raise ExpressionError(f"'{sign}': the power {right} is too large")
    try:
        return _ARITHMETIC[sign](left, right)
    except (ZeroDivisionError, OverflowError) as error:
        raise ExpressionError(f"'{sign}': {error}") from error


_LARGEST_POWER = 1024
"""A float holds no larger power of two; whole numbers would grow without end."""


def _range(sign: str, left: Any, right: Any) -> list[int]:
    if not isinstance(left, int) or not isinstance(right, int) or right - left > _LONGEST_RANGE:
        raise ExpressionError(f"'..' needs two whole numbers not far apart, not {left!r} and {right!r}")
    return list(range(left, right + 1))


_LONGEST_RANGE = 1_000_000


def _text_relation(sign: str, left: Any, right: Any) -> bool:
    if not isinstance(left, str) or not isinstance(right, str):
        raise ExpressionError(f"'{sign}' needs two texts")
    match sign:
        case "contains":
            return right in left
        case "startsWith":
            return left.startswith(right)
        case "endsWith":
            return left.endswith(right)
        case _:
            try:
                return (re.search(right, left) is not None) == (sign != "!~")
            except re.error as error:
                raise ExpressionError(f"bad regular expression '{right}': {error}") from error


_KINDS: tuple[tuple[frozenset[str], Callable[[str, Any, Any], Any]], ...] = (
    (frozenset(("==", "!=")), _equality),
    (frozenset(("in",)), _membership),
    (frozenset(_COMPARE), _compare),
    (frozenset(("+text",)), _plus_text),
    (frozenset(("..",)), _range),
    (frozenset(_ARITHMETIC), _compute),
)


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


# Functions of values whose type only the workflow knows.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false


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
    "repeat": Function(repeat, 2, 2),
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
