"""The tree of an expression: frozen values that `expressions.py` makes and `evaluation.py` computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import assert_never


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


Expression = Constant | Name | Member | Unary | Binary | Choice | Call | Sequence


def parts_of(tree: Expression) -> Iterator[Expression]:
    """The tree itself and all trees inside it."""
    yield tree
    match tree:
        case Constant() | Name():
            inner: tuple[Expression, ...] = ()
        case Member(left, right) | Binary(_, left, right):
            inner = (left, right)
        case Unary(_, value):
            inner = (value,)
        case Choice(condition, yes, no):
            inner = (condition, yes, no)
        case Call(_, arguments):
            inner = arguments
        case Sequence(items):
            inner = items
        case _:
            assert_never(tree)
    for part in inner:
        yield from parts_of(part)
