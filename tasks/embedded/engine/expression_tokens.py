"""Words and signs of Argo's expression languages, and how tightly the signs bind."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from tasks.embedded.engine.expression_tree import ExpressionError


@dataclass(frozen=True)
class Token:
    """One token: its kind, and its text (for texts: the content without quotes)."""

    kind: Literal["number", "text", "word", "operator", "end"]
    text: str


_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>0[xX][0-9a-fA-F]+|\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<operator>==|!=|>=|<=|=~|!~|&&|\|\||\*\*|\?\?|\?\.|\.\.|[-+*/%<>!()\[\]{},?:.^|#;=])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
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


_NOT_IN_WHEN = frozenset(("{", "}", "|", "#", ";", "=", "..", "?."))


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
        if match is None or (when and match["operator"] in _NOT_IN_WHEN):
            raise ExpressionError(f"Invalid token: '{text[position:].strip()[:20]}'")
        position = match.end()
        if match["number"] is not None:
            found.append(Token("number", match["number"]))
        elif match["text"] is not None:
            found.append(Token("text", _unquoted(match["text"])))
        elif match["word"] is not None:
            found.append(Token("word", match["word"]))
        else:
            found.append(Token("operator", match["operator"]))
    return (*found, Token("end", ""))


def _unquoted(text: str) -> str:
    inner = text[1:-1]
    if text[0] == "`" or "\\" not in inner:
        return inner
    return re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[1]), inner)
