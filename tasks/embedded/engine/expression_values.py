"""Values of expressions: what counts as a number, how two are compared, and what a value looks like as text."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from tasks.embedded.engine.expression_tree import ExpressionError
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


def contained(item: Any, whole: Any) -> bool:
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
    return contained(left, right) == (sign == "in")


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
