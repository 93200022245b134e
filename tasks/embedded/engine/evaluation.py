"""Computing the trees of `expressions.py`, with the types of the two languages kept strictly apart as Argo does."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, assert_never

from tasks.embedded.engine.expression_tree import (
    Binary,
    Call,
    Choice,
    Constant,
    Expression,
    ExpressionError,
    Member,
    Name,
    Sequence,
    Unary,
)
from tasks.embedded.engine.expressions import parse
from tasks.embedded.engine.json_values import go_json, is_list, is_map

Environment = Mapping[str, Any]
"""What the bare names of an expression mean: texts, numbers, truth values, and objects of them."""


def _quotient(left: Any, right: Any) -> Any:
    return left / right


def _power(left: Any, right: Any) -> Any:
    return left**right


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
    "%": operator.mod,
    "**": _power,
    "^": _power,
}


@lru_cache(maxsize=4096)
def evaluate_when(text: str) -> bool:
    """Whether a `when` whose tags are already replaced is true.

    Raises:
        ExpressionError: it is no expression, or gives something else than true or false. The message is the node's.
    """
    if not text.strip():
        return True
    try:
        value = evaluate(parse(text, "when"), {})
    except ExpressionError as error:
        hint = ' (hint: try wrapping the affected expression in quotes ("))' if "Invalid token" in str(error) else ""
        raise ExpressionError(f"Invalid 'when' expression '{text}': {error}{hint}") from error
    if not isinstance(value, bool):
        raise ExpressionError(f"Expected boolean evaluation for '{text}'. Got {value}")
    return value


def evaluate_condition(text: str, environment: Environment) -> bool:
    """Whether an `expression` is true.

    Raises:
        ExpressionError: it cannot be read or computed, or gives something else than true or false.
    """
    value = evaluate(parse(text, "expression"), environment)
    if not isinstance(value, bool):
        raise ExpressionError(f"expression '{text}' must give true or false, not {value!r}")
    return value


def evaluate(tree: Expression, environment: Environment) -> Any:
    """The value of a tree.

    Raises:
        ExpressionError: a name is unknown, or the types do not fit together.
    """
    match tree:
        case Constant(value):
            return value
        case Name(name):
            if name not in environment:
                raise ExpressionError(f"unknown name {name}")
            return environment[name]
        case Binary():
            return _binary(tree, environment)
        case Unary(sign, value):
            return _unary(sign, evaluate(value, environment))
        case Member() | Choice() | Call() | Sequence():
            return _compound(tree, environment)
        case _:
            assert_never(tree)


def _compound(tree: Member | Choice | Call | Sequence, environment: Environment) -> Any:
    match tree:
        case Member(value, key):
            return _member(evaluate(value, environment), evaluate(key, environment))
        case Choice(condition, yes, no):
            return evaluate(yes if _truth(evaluate(condition, environment)) else no, environment)
        case Call(function, arguments):
            return _call(function, [evaluate(argument, environment) for argument in arguments])
        case Sequence(items):
            return [evaluate(item, environment) for item in items]
        case _:
            assert_never(tree)


def _member(value: Any, key: Any) -> Any:
    if is_list(value) and isinstance(key, int):
        if -len(value) <= key < len(value):
            return value[key]
        raise ExpressionError(f"index {key} is out of range")
    if not is_map(value):
        raise ExpressionError(f"{value!r} has no member {key}")
    if key not in value:
        raise ExpressionError(f"unknown name {key}")
    return value[key]


def _unary(sign: str, value: Any) -> Any:
    if sign == "!":
        return not _truth(value)
    if not _is_number(value):
        raise ExpressionError(f"'{sign}' needs a number, not {value!r}")
    return -value if sign == "-" else value


def _binary(tree: Binary, environment: Environment) -> Any:
    left = evaluate(tree.left, environment)
    match tree.operator:
        case "&&":
            return _truth(left) and _truth(evaluate(tree.right, environment))
        case "||":
            return _truth(left) or _truth(evaluate(tree.right, environment))
        case "??":
            return evaluate(tree.right, environment) if left is None else left
        case sign:
            return _combine(sign, left, evaluate(tree.right, environment))


def _combine(sign: str, left: Any, right: Any) -> Any:
    for signs, action in _KINDS:
        if sign in signs:
            return action(sign, left, right)
    return _text_relation(sign, left, right)


def _equality(sign: str, left: Any, right: Any) -> bool:
    return _equal(left, right) == (sign == "==")


def _membership(sign: str, left: Any, right: Any) -> bool:
    return _contained(left, right) == (sign == "in")


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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equal(left: Any, right: Any) -> bool:
    if _is_number(left) and _is_number(right):
        return left == right
    return type(left) is type(right) and left == right


def _contained(item: Any, whole: Any) -> bool:
    if is_map(whole):
        return item in whole
    if not is_list(whole):
        raise ExpressionError("'in' needs a list on its right side")
    return any(_equal(item, other) for other in whole)


def _compare(sign: str, left: Any, right: Any) -> bool:
    comparable = (_is_number(left) and _is_number(right)) or (isinstance(left, str) and isinstance(right, str))
    if not comparable:
        raise ExpressionError(f"'{sign}' cannot compare {left!r} with {right!r}")
    return _COMPARE[sign](left, right)


def _compute(sign: str, left: Any, right: Any) -> Any:
    if sign == "+" and (isinstance(left, str) or isinstance(right, str)):
        return _plain(left) + _plain(right)
    if not _is_number(left) or not _is_number(right):
        raise ExpressionError(f"'{sign}' needs two numbers, not {left!r} and {right!r}")
    try:
        return _ARITHMETIC[sign](left, right)
    except (ZeroDivisionError, OverflowError) as error:
        raise ExpressionError(f"'{sign}': {error}") from error


_KINDS: tuple[tuple[frozenset[str], Callable[[str, Any, Any], Any]], ...] = (
    (frozenset(("==", "!=")), _equality),
    (frozenset(("in", "not in")), _membership),
    (frozenset(_COMPARE), _compare),
    (frozenset(_ARITHMETIC), _compute),
)


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError(f"{value!r} is neither true nor false")
    return value


def _plain(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value if isinstance(value, str) else go_json(value)


def _as_int(value: Any) -> int:
    return int(value) if not isinstance(value, str) else int(value.strip())


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "asInt": _as_int,
    "int": _as_int,
    "asFloat": float,
    "float": float,
    "string": _plain,
    "len": len,
    "lower": str.lower,
    "upper": str.upper,
    "trim": str.strip,
    "toJson": go_json,
    "sprig.int": _as_int,
    "sprig.trim": str.strip,
    "sprig.lower": str.lower,
    "sprig.upper": str.upper,
}
"""The functions of an `expression`, all of one argument."""


def _call(function: str, arguments: list[Any]) -> Any:
    action = FUNCTIONS.get(function)
    if action is None:
        raise ExpressionError(f"unknown function {function}; known: {', '.join(FUNCTIONS)}")
    if len(arguments) != 1:
        raise ExpressionError(f"{function} takes one argument")
    try:
        return action(arguments[0])
    except (ValueError, TypeError) as error:
        raise ExpressionError(f"{function}({arguments[0]!r}): {error}") from error
