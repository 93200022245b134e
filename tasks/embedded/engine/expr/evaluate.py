"""Computing the trees that `parser` makes, with the types of the two languages kept strictly apart as Argo does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tasks.embedded.engine.expr.functions import FUNCTIONS, NUMBERS, TEXTS, closed_call
from tasks.embedded.engine.expr.go_values import by_bytes, wrapped
from tasks.embedded.engine.expr.operators import combine, is_number, text_of_value, truth
from tasks.embedded.engine.expr.parser import parse
from tasks.embedded.engine.expr.tree import (
    Binary,
    Choice,
    Closure,
    Constant,
    Expression,
    ExpressionError,
    FunctionCall,
    Let,
    Member,
    Name,
    Pointer,
    Sequence,
    Slice,
    Unary,
)
from tasks.embedded.engine.expr.tree import Mapping as MappingTree
from tasks.embedded.engine.json_values import is_list, is_map

Paths = Callable[[str], Any]
"""From a dotted path (`inputs.parameters.n`) to its value; None where it is absent."""


def _nowhere(path: str) -> Any:
    raise ExpressionError(f"unknown name {path}")


@dataclass(frozen=True)
class Environment:
    """What the names of an expression mean."""

    values: Mapping[str, Any]
    """Bare names: texts, numbers, truth values, and objects of them."""
    paths: Paths = _nowhere
    """Everything else: the tags of a workflow."""
    is_when: bool = False
    """Whether it is a `when`, whose language compares anything with anything."""
    pointers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Inside a closure: the item (""), its `index`, the accumulated value `acc`."""


@lru_cache(maxsize=4096)
def evaluate_when(text: str) -> bool:
    """Whether a `when` whose tags are already replaced is true.

    Raises:
        ExpressionError: it is no expression, or gives something else than true or false. The message is the node's.
    """
    if not text.strip():
        return True
    try:
        tree = parse(text, "when")
    except ExpressionError as error:
        hint = ' (hint: try wrapping the affected expression in quotes ("))' if "Invalid token" in str(error) else ""
        raise ExpressionError(f"Invalid 'when' expression '{text}': {error}{hint}") from error
    try:
        value = evaluate(tree, Environment({}, is_when=True))
    except ExpressionError as error:
        raise ExpressionError(f"Failed to evaluate 'when' expresion '{text}': {error}") from error  # so Argo spells it
    if not isinstance(value, bool):
        raise ExpressionError(f"Expected boolean evaluation for '{text}'. Got {value}")
    return value


def evaluate_condition(text: str, values: Mapping[str, Any], paths: Paths = _nowhere) -> bool:
    """Whether an `expression` is true.

    Raises:
        ExpressionError: it cannot be read or computed, or gives something else than true or false.
    """
    value = evaluate(parse(text, "expression"), Environment(values, paths))
    if not isinstance(value, bool):
        raise ExpressionError(f"expression '{text}' must give true or false, not {value!r}")
    return value


def evaluate_text(text: str, values: Mapping[str, Any], paths: Paths) -> str | None:
    """The value of an expression as the text that replaces its tag; None where it is absent.

    Raises:
        ExpressionError: it cannot be read or computed.
    """
    value = evaluate(parse(text, "expression"), Environment(values, paths))
    return None if value is None else text_of_value(value)


def evaluate(tree: Expression, environment: Environment) -> Any:
    """The value of a tree.

    Raises:
        ExpressionError: a name is unknown, or the types do not fit together.
    """
    match tree:
        case Constant(value):
            return value
        case Binary():
            return _binary(tree, environment)
        case Unary(sign, value):
            return _unary(sign, evaluate(value, environment))
        case Name(name):
            return environment.values[name] if name in environment.values else environment.paths(name)
        case Member():
            return _member(tree, environment)
        case FunctionCall(function, arguments):
            return _call(function, arguments, environment)
        case _:
            return _compound(tree, environment)


def _compound(tree: Expression, environment: Environment) -> Any:
    match tree:
        case Choice(condition, yes, no):
            return evaluate(yes if truth(evaluate(condition, environment)) else no, environment)
        case Sequence(items):
            return [evaluate(item, environment) for item in items]
        case MappingTree(pairs):
            return {str(evaluate(key, environment)): evaluate(value, environment) for key, value in pairs}
        case Slice(value, low, high):
            return _slice(evaluate(value, environment), low, high, environment)
        case Let(name, value, body):
            values = {**environment.values, name: evaluate(value, environment)}
            return evaluate(body, replace(environment, values=values))
        case Pointer(name):
            return environment.pointers.get(name)
        case _:
            raise ExpressionError("a closure stands where a value is needed")


def _member(tree: Member, environment: Environment) -> Any:
    """A member of an object or list, or the tag that a chain of members from an unknown name spells."""
    keys: list[Any] = []
    base: Expression = tree
    while isinstance(base, Member):
        keys.append(evaluate(base.key, environment))
        base = base.value
    if isinstance(base, Name) and base.name not in environment.values:
        return environment.paths(".".join([base.name, *(str(key) for key in reversed(keys))]))
    value = evaluate(tree.value, environment)
    if value is None and tree.optional:
        return None
    return _part(value, keys[0])


def _part(value: Any, key: Any) -> Any:
    if is_list(value) and is_number(key):
        key = int(key)
        if -len(value) <= key < len(value):
            return value[key]
        raise ExpressionError(f"index {key} is out of range")
    if not is_map(value):
        raise ExpressionError(f"{value!r} has no member {key}")
    return value.get(key)


def _slice(value: Any, low: Expression | None, high: Expression | None, environment: Environment) -> Any:
    if not is_list(value) and not isinstance(value, str):
        raise ExpressionError(f"{value!r} is no list")
    bounds = [None if bound is None else evaluate(bound, environment) for bound in (low, high)]
    if any(bound is not None and not isinstance(bound, int) for bound in bounds):
        raise ExpressionError("the bounds of a slice must be whole numbers")
    if isinstance(value, str):
        return by_bytes(value, lambda given: given[bounds[0] : bounds[1]])
    return value[bounds[0] : bounds[1]]


def _unary(sign: str, value: Any) -> Any:
    if sign == "!":
        return not truth(value)
    if not is_number(value):
        raise ExpressionError(f"'{sign}' needs a number, not {value!r}")
    negated = wrapped(-value) if isinstance(value, int) else -value
    return negated if sign == "-" else value


def _binary(tree: Binary, environment: Environment) -> Any:
    if tree.operator == "??":
        return _first_present(tree, environment)
    left = evaluate(tree.left, environment)
    match tree.operator:
        case "&&":
            return truth(left) and truth(evaluate(tree.right, environment))
        case "||":
            return truth(left) or truth(evaluate(tree.right, environment))
        case sign:
            right = evaluate(tree.right, environment)
            kinds = {_known_kind(tree.left, left), _known_kind(tree.right, right)} - {None}
            if sign in ("==", "!=") and len(kinds) > 1 and not environment.is_when:
                raise ExpressionError(f"'{sign}' cannot compare {left!r} with {right!r}")
            return combine(sign, left, right)


def _known_kind(tree: Expression, value: Any) -> str | None:
    """What kind of value Go knows an operand to be before it computes: it compares no number with a text then."""
    match tree:
        case Constant(bool()) | Constant(None):
            return "truth" if value is not None else None
        case Constant() | Name() if isinstance(value, str):
            return "text"
        case Constant():
            return "number"
        case FunctionCall(function):
            return "number" if function in NUMBERS else "text" if function in TEXTS else None
        case _:
            return None


def _first_present(tree: Binary, environment: Environment) -> Any:
    left = evaluate(tree.left, environment)
    return evaluate(tree.right, environment) if left is None else left


def _call(function: str, arguments: tuple[Expression, ...], environment: Environment) -> Any:
    body = arguments[1].body if len(arguments) > 1 and isinstance(arguments[1], Closure) else None
    given = [evaluate(item, environment) for item in arguments if not isinstance(item, Closure)]
    if body is not None:

        def compute(item: Any, index: int, accumulated: Any) -> Any:
            pointers = {"": item, "index": index, "acc": accumulated}
            return evaluate(body, replace(environment, pointers=pointers))

        return closed_call(function, given, compute)
    known = FUNCTIONS.get(function)
    if known is None:
        raise ExpressionError(f"unknown function {function}; known: {', '.join(FUNCTIONS)}")
    try:
        return known.call(given)
    except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
        raise ExpressionError(f"{function}({', '.join(repr(item) for item in given)}): {error}") from error
