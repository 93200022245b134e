"""The tokens and the tree of Argo's expression languages, and how tightly their operators bind.

The tree is of frozen values that `parser` makes and `evaluate` computes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+
      |[0-9][0-9_]*(?:\.(?!\.)[0-9_]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)(?!\w))
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<operator>==|!=|>=|<=|=~|!~|&&|\|\||\*\*|\?\?|\?\.|\.\.|[-+*/%<>!()\[\]{},?:.^|#;=])
    )""",
    re.VERBOSE,
)
_ESCAPE = re.compile(
    r"""\\(?:(?P<code>x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})|(?P<octal>[0-3][0-7]{2})|(?P<letter>.))""",
    re.DOTALL | re.VERBOSE,
)
_LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | dict(
    zip("\\'\"`", "\\'\"`", strict=True)
)
WORD_OPERATORS = ("in", "contains", "startsWith", "endsWith", "matches")
POWERS: dict[str, int] = {
    "|": 2,
    "||": 10,
    "or": 10,
    "&&": 15,
    "and": 15,
    **dict.fromkeys(("==", "!=", "<", ">", "<=", ">=", "=~", "!~", *WORD_OPERATORS), 20),
    "..": 25,
    "+": 30,
    "-": 30,
    "*": 60,
    "/": 60,
    "%": 60,
    "**": 100,
    "^": 100,
    "??": 500,
}
RIGHT_TO_LEFT = ("**", "^")
CHOICE_POWER = 5
UNARY_POWER = 90

_NOT_IN_WHEN = frozenset(("{", "}", "|", "#", ";", "=", "..", "?.", "^"))
"""`^` and `|` are there, on bits; nobody's `when` needs them."""
_NOT_IN_EXPRESSION = frozenset(("=~", "!~"))
_PLAIN_NUMBER = re.compile(r"0[xX][0-9a-fA-F]+|[0-9.]+")


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
class FunctionCall:
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
    Constant
    | Name
    | Member
    | Slice
    | Pointer
    | Closure
    | Let
    | Unary
    | Binary
    | Choice
    | FunctionCall
    | Sequence
    | Mapping
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
        case FunctionCall(_, items) | Sequence(items):
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


@dataclass(frozen=True)
class Token:
    """One token: its kind, and its text (for texts: the content without quotes)."""

    kind: Literal["number", "text", "word", "operator", "end"]
    text: str


def tokens_of(text: str, *, when: bool = False) -> tuple[Token, ...]:
    """The tokens of an expression; with `when` of govaluate, which has fewer signs.

    Raises:
        ExpressionError: a character that belongs to no token.
    """
    found: list[Token] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        foreign = _NOT_IN_WHEN if when else _NOT_IN_EXPRESSION
        if match is None or match["operator"] in foreign or (when and _is_foreign_number(match["number"])):
            raise ExpressionError(f"Invalid token: '{text[position:].strip()[:20]}'")
        position = match.end()
        if match["number"] is not None:
            found.append(Token("number", match["number"]))
        elif match["text"] is not None:
            found.append(Token("text", _unquoted(match["text"], when)))
        elif match["word"] is not None:
            found.append(Token("word", match["word"]))
        else:
            found.append(Token("operator", match["operator"]))
    return (*found, Token("end", ""))


def _is_foreign_number(number: str | None) -> bool:
    """Whether govaluate does not read it."""
    return number is not None and _PLAIN_NUMBER.fullmatch(number) is None


def _unquoted(text: str, when: bool) -> str:
    inner = text[1:-1]
    if "\\" not in inner or (text[0] == "`" and not when):
        return inner
    return _ESCAPE.sub(lambda found: found[0][1:] if when else _unescaped(found), inner)


def _unescaped(found: re.Match[str]) -> str:
    if found["code"] or found["octal"]:
        code = int(found["code"][1:], 16) if found["code"] else int(found["octal"], 8)
        return chr(code) if code < 0x110000 else "\ufffd"
    if found["letter"] not in _LETTERS:
        raise ExpressionError(f"invalid escape '{found[0]}' in a text")
    return _LETTERS[found["letter"]]
