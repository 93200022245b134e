"""The tree of an expression: frozen values that `expressions.py` makes and `evaluation.py` computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


class ExpressionError(Exception):
    """An expression cannot be read or computed; the text says why."""


@dataclass(frozen=True)
class Constant:
    """A number, text, truth value or nil."""

    value: float | int | str | bool | None


@dataclass(frozen=True)
class Name:
    """A bare word of an `expression`."""

    name: str


@dataclass(frozen=True)
class Member:
    """`object.name` or `object["name"]`."""

    value: Expression
    key: Expression
    optional: bool = False
    """`object?.name`: nil where the object is nil."""


@dataclass(frozen=True)
class Slice:
    """`value[low:high]`; a bound that is not written is None."""

    value: Expression
    low: Expression | None
    high: Expression | None


@dataclass(frozen=True)
class Pointer:
    """`#` (name ""), `#index` or `#acc` inside a closure."""

    name: str


@dataclass(frozen=True)
class Closure:
    """`{ # > 1 }`: computed anew for each item of a list."""

    body: Expression


@dataclass(frozen=True)
class Let:
    """`let name = value; body`."""

    name: str
    value: Expression
    body: Expression


@dataclass(frozen=True)
class Unary:
    """`!x` or `-x`."""

    operator: str
    value: Expression


@dataclass(frozen=True)
class Binary:
    """`left operator right`."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Choice:
    """`condition ? yes : no`."""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass(frozen=True)
class Call:
    """`function(arguments)`."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Sequence:
    """`[a, b]`, in a `when` `(a, b)`."""

    items: tuple[Expression, ...]


@dataclass(frozen=True)
class Mapping:
    """`{key: value}`."""

    pairs: tuple[tuple[Expression, Expression], ...]


Expression = (
    Constant | Name | Member | Slice | Pointer | Closure | Let | Unary | Binary | Choice | Call | Sequence | Mapping
)


def parts_of(tree: Expression) -> Iterator[Expression]:
    """The tree itself and all trees inside it."""
    yield tree
    for part in _inner(tree):
        yield from parts_of(part)


def _inner(tree: Expression) -> tuple[Expression, ...]:
    match tree:
        case Member(left, right) | Binary(_, left, right):
            return (left, right)
        case Unary(_, value) | Closure(value):
            return (value,)
        case Choice(condition, yes, no):
            return (condition, yes, no)
        case Call(_, items) | Sequence(items):
            return items
        case _:
            return _rarer(tree)


def _rarer(tree: Expression) -> tuple[Expression, ...]:
    match tree:
        case Slice(value, low, high):
            return (value, *(bound for bound in (low, high) if bound is not None))
        case Let(_, value, body):
            return (value, body)
        case Mapping(pairs):
            return tuple(part for pair in pairs for part in pair)
        case _:
            return ()
