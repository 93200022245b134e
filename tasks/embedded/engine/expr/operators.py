"""The values of expressions and their operators: what counts as a number, how two are compared, how one is shown."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tasks.embedded.engine.expr.go_values import matches, plain, truncated, wrapped
from tasks.embedded.engine.expr.tree import ExpressionError
from tasks.embedded.engine.json_values import go_json, is_list, is_map


class AnyMap(dict[Any, Any]):
    """What `groupBy` and `fromPairs` give: its keys may be anything, so Go makes no JSON of it."""


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
    """A value as a tag shows it: texts as they are, the rest as Go's JSON.

    Raises:
        ExpressionError: there is no JSON of it.
    """
    try:
        return value if isinstance(value, str) else json_of(value)
    except ValueError as error:
        raise ExpressionError(str(error)) from error


def json_of(value: Any, *, indent: str = "") -> str:
    """Go's JSON of a value.

    Raises:
        ValueError: there is none, as of an infinite number.
    """
    _check_json(value)
    return go_json(value, indent=indent)


def _check_json(value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"JSON has no number {plain(value)}: too large, or not defined")
    if isinstance(value, AnyMap):
        raise ValueError("JSON has no object whose keys may be anything (groupBy, fromPairs)")
    for item in value if is_list(value) else value.values() if is_map(value) else ():
        _check_json(item)


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


def _quotient(left: Any, right: Any) -> float:
    """Always a float; by zero infinite or not a number."""
    try:
        return float(left) / float(right)
    except ZeroDivisionError:
        return math.nan if left == 0 or math.isnan(left) else math.copysign(math.inf, left) * math.copysign(1.0, right)


def _power(left: Any, right: Any) -> float:
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if left < 0 and right % 2 == 1 else math.inf
    except ValueError:
        return math.inf if left == 0 else math.nan


def _remainder(left: Any, right: Any) -> Any:
    """As Go: of whole numbers, with the sign of the left side."""
    if not isinstance(left, int) or not isinstance(right, int):
        raise ExpressionError(f"'%' needs two whole numbers, not {left!r} and {right!r}")
    value = abs(left) % abs(right)
    return -value if left < 0 else value


def _loose_remainder(_sign: str, left: Any, right: Any) -> float:
    if not is_number(left) or not is_number(right):
        raise ExpressionError(f"'%' needs two numbers, not {left!r} and {right!r}")
    return math.fmod(left, right) if right else math.nan


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
        return plain(left) + plain(right)
    return _compute("+", left, right)


def _compute(sign: str, left: Any, right: Any) -> Any:
    if sign == "+" and isinstance(left, str) and isinstance(right, str):
        return left + right
    if not is_number(left) or not is_number(right):
        raise ExpressionError(f"'{sign}' needs two numbers, not {left!r} and {right!r}")
    try:
        value = _ARITHMETIC[sign](left, right)
    except (ZeroDivisionError, OverflowError) as error:
        raise ExpressionError(f"'{sign}': {error}") from error
    return wrapped(value) if isinstance(value, int) else value


def _range(sign: str, left: Any, right: Any) -> list[int]:
    left, right = (truncated(side) if isinstance(side, float) else side for side in (left, right))
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
                return matches(right, left) == (sign != "!~")
            except ValueError as error:
                raise ExpressionError(f"bad regular expression '{right}': {error}") from error


_KINDS: tuple[tuple[frozenset[str], Callable[[str, Any, Any], Any]], ...] = (
    (frozenset(("==", "!=")), _equality),
    (frozenset(("in",)), _membership),
    (frozenset(_COMPARE), _compare),
    (frozenset(("+text",)), _plus_text),
    (frozenset(("%loose",)), _loose_remainder),
    (frozenset(("..",)), _range),
    (frozenset(_ARITHMETIC), _compute),
)
