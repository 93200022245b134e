"""The expression languages of Argo as one small parser: `when` (govaluate) and `expression` (expr-lang).

They differ in three places: in a `when`, a bare word is a text (`heads == tails` compares two words), a regular
expression is matched by `=~`, and lists stand in parentheses; in an `expression`, a bare word is a name, there are
functions, members and word operators. A tree of frozen values comes out; `evaluation.py` computes it. `depends` has its
own words and is read by `depends.py` through the same parser.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal as OneOf

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

Dialect = OneOf["when", "expression"]


@dataclass(frozen=True)
class Token:
    """One token: its kind, and its text (for texts: the content without quotes)."""

    kind: OneOf["number", "text", "word", "operator", "end"]
    text: str


_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+)
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<operator>==|!=|>=|<=|=~|!~|&&|\|\||\*\*|\?\?|\?\.|[-+*/%<>!()\[\],?:.^])
    )""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_WORD_OPERATORS = ("in", "contains", "startsWith", "endsWith", "matches")
_POWERS: dict[str, int] = {
    "||": 10,
    "or": 10,
    "&&": 15,
    "and": 15,
    **dict.fromkeys(("==", "!=", "<", ">", "<=", ">=", "=~", "!~", "not in", *_WORD_OPERATORS), 20),
    "+": 30,
    "-": 30,
    "*": 60,
    "/": 60,
    "%": 60,
    "**": 100,
    "^": 100,
    "??": 120,
}
_RIGHT_TO_LEFT = ("**", "^")
_CHOICE_POWER = 5
_UNARY_POWER = 90


def tokens_of(text: str) -> tuple[Token, ...]:
    """The tokens of an expression.

    Raises:
        ExpressionError: a character that belongs to no token.
    """
    found: list[Token] = []
    position = 0
    end = len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
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


@lru_cache(maxsize=4096)
def parse(text: str, dialect: Dialect) -> Expression:
    """The tree of an expression.

    Raises:
        ExpressionError: the text is no expression.
    """
    return parse_tokens(tokens_of(text), dialect)


def parse_tokens(tokens: tuple[Token, ...], dialect: Dialect) -> Expression:
    """The tree of tokens that end in an "end" token.

    Raises:
        ExpressionError: the tokens are no expression.
    """
    reader = _Reader(tokens, dialect)
    tree = reader.expression(0)
    if reader.peek().kind != "end":
        raise ExpressionError(f"unexpected '{reader.peek().text}'")
    return tree


class _Reader:
    """Operator-precedence parsing over a list of tokens."""

    def __init__(self, tokens: tuple[Token, ...], dialect: Dialect) -> None:
        self._tokens = tokens
        self._dialect: Dialect = dialect
        self._position = 0

    def peek(self) -> Token:
        return self._tokens[self._position]

    def take(self) -> Token:
        token = self.peek()
        if token.kind != "end":
            self._position += 1
        return token

    def expect(self, text: str) -> None:
        token = self.take()
        if token.kind != "operator" or token.text != text:
            raise ExpressionError(f"expected '{text}' before '{token.text or 'the end'}'")

    def found(self, text: str) -> bool:
        token = self.peek()
        if token.kind == "operator" and token.text == text:
            self._position += 1
            return True
        return False

    def expression(self, power: int) -> Expression:
        left = self._members(self._operand())
        while True:
            operator = self._infix()
            if operator == "?" and power <= _CHOICE_POWER:
                left = self._choice(left)
                continue
            strength = _POWERS.get(operator, -1)
            if strength < 0 or strength <= power:
                return left
            self._position += 2 if operator == "not in" else 1
            right = self.expression(strength - 1 if operator in _RIGHT_TO_LEFT else strength)
            left = Binary({"and": "&&", "or": "||"}.get(operator, operator), left, right)

    def _infix(self) -> str:
        token = self.peek()
        if token.kind == "operator":
            return token.text
        if token.kind != "word":
            return ""
        if self._dialect == "when":
            return "in" if token.text in ("in", "IN") else ""
        if token.text == "not" and self._tokens[self._position + 1].text == "in":
            return "not in"
        return token.text if token.text in _POWERS else ""

    def _choice(self, condition: Expression) -> Expression:
        self.expect("?")
        yes = self.expression(_CHOICE_POWER - 1)
        self.expect(":")
        return Choice(condition, yes, self.expression(_CHOICE_POWER - 1))

    def _operand(self) -> Expression:
        token = self.take()
        if token.kind == "number":
            return Constant(_number(token.text, self._dialect))
        if token.kind == "text":
            return Constant(token.text)
        if token.kind == "word":
            return self._word(token.text)
        if token.text in ("!", "-", "+"):
            return Unary(token.text, self.expression(_UNARY_POWER))
        if token.text == "(":
            return self._parenthesis()
        if token.text == "[":
            return self._bracket()
        raise ExpressionError(f"unexpected '{token.text}'" if token.text else "Unexpected end of expression")

    def _word(self, word: str) -> Expression:
        if word in ("true", "false"):
            return Constant(word == "true")
        if self._dialect == "when":
            if self.peek().text == "." and self.peek().kind == "operator":
                raise ExpressionError(f"'{word}.…' is not a plain word")
            return Constant(word)
        if word == "nil":
            return Constant(None)
        if word == "not":
            return Unary("!", self.expression(_POWERS["=="]))
        if self.found("("):
            return Call(word, self._list(")"))
        return Name(word)

    def _parenthesis(self) -> Expression:
        items = self._list(")")
        if len(items) == 1:
            return items[0]
        if self._dialect == "when" and items:
            return Sequence(items)
        raise ExpressionError("unexpected ')'")

    def _bracket(self) -> Expression:
        if self._dialect == "when":
            word = self.take()
            self.expect("]")
            return Constant(word.text)
        return Sequence(self._list("]"))

    def _list(self, closing: str) -> tuple[Expression, ...]:
        items: list[Expression] = []
        while not self.found(closing):
            if items:
                self.expect(",")
            items.append(self.expression(0))
        return tuple(items)

    def _members(self, value: Expression) -> Expression:
        while self._dialect == "expression":
            if self.found(".") or self.found("?."):
                word = self.take()
                if word.kind != "word":
                    raise ExpressionError(f"expected a name after '.', found '{word.text}'")
                value = Member(value, Constant(word.text))
                if isinstance(value.value, Name) and self.found("("):
                    value = Call(f"{value.value.name}.{word.text}", self._list(")"))
            elif self.found("["):
                value = Member(value, self.expression(0))
                self.expect("]")
            else:
                break
        return value


def _number(text: str, dialect: Dialect) -> float | int:
    if text[:2] in ("0x", "0X"):
        whole = int(text, 16)
    elif text.isdigit():
        whole = int(text)
    else:
        return float(text)
    return float(whole) if dialect == "when" else whole
