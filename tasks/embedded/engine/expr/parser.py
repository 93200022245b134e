"""The expression languages of Argo as one small parser: `when` (govaluate) and `expression` (expr-lang).

They differ in three places: in a `when`, a bare word is a text (`heads == tails` compares two words), a regular
expression is matched by `=~`, and lists stand in parentheses; in an `expression`, a bare word is a name, there are
functions, members, closures and word operators. In a `when`, govaluate also turns a quoted date into its seconds since
1970 before it compares. A tree of frozen values comes out; `evaluate` computes it. `depends` has its own words and is
read by `engine.argo.calls` through the same parser.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal as OneOf

from tasks.embedded.engine.expr.tree import (
    CHOICE_POWER,
    POWERS,
    RIGHT_TO_LEFT,
    UNARY_POWER,
    WORD_OPERATORS,
    Binary,
    Choice,
    Closure,
    Constant,
    Expression,
    ExpressionError,
    FunctionCall,
    Let,
    Mapping,
    Member,
    Name,
    Pointer,
    Sequence,
    Slice,
    Token,
    Unary,
    tokens_of,
)

_DATE = re.compile(
    r"""(?P<day>\d{4}-\d\d-\d\d)
    (?:
        [ ](?P<clock>\d\d:\d\d(?::\d\d)?)(?:[.,]\d+)?
        |[ ](?P<zoned>\d\d:\d\d:\d\d)(?:[.,]\d+)?(?P<offset>[-+]\d\d:\d\d)
        |T(?P<exact>\d\d(?::\d\d(?::\d\d)?)?)(?:[.,]\d+)?(?P<zone>Z|[-+]\d\d:?\d\d)
    )?""",
    re.VERBOSE | re.ASCII,
)
"""Of govaluate's formats those that begin with the year; the others are of no use in a workflow."""

Dialect = OneOf["when", "expression"]
LOOSE = {"+": "+text", "%": "%loose"}
"""`+` of a `when`, which also joins texts with numbers, and its `%`, which takes any numbers."""
CLOSED = frozenset(
    (
        *("all", "none", "any", "one", "count", "sum", "map", "filter", "groupBy", "sortBy", "reduce"),
        *("find", "findIndex", "findLast", "findLastIndex"),
    )
)
"""Functions whose second argument is computed for each item, with or without braces around it."""


@lru_cache(maxsize=4096)
def parse(text: str, dialect: Dialect) -> Expression:
    """The tree of an expression.

    Raises:
        ExpressionError: the text is no expression.
    """
    return parse_tokens(tokens_of(text, when=dialect == "when"), dialect)


def parse_tokens(tokens: tuple[Token, ...], dialect: Dialect) -> Expression:
    """The tree of tokens that end in an "end" token.

    Raises:
        ExpressionError: the tokens are no expression.
    """
    reader = _Reader(tokens, dialect)
    try:
        tree = reader.whole()
    except RecursionError as error:
        raise ExpressionError("its parentheses are nested too deeply") from error
    if reader.peek().kind != "end":
        raise ExpressionError(f"unexpected '{reader.peek().text}'")
    return tree


class _Reader:
    """Operator-precedence parsing over a list of tokens."""

    def __init__(self, tokens: tuple[Token, ...], dialect: Dialect) -> None:
        self._tokens = tokens
        self._dialect: Dialect = dialect
        self._position = 0
        self._closures = 0

    def peek(self, ahead: int = 0) -> Token:
        return self._tokens[min(self._position + ahead, len(self._tokens) - 1)]

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

    def whole(self) -> Expression:
        """An expression, `let` in front of it included."""
        if self._dialect == "expression" and self.peek() == Token("word", "let") and self.peek(1).kind == "word":
            self.take()
            name = self.take().text
            self.expect("=")
            value = self.expression(0)
            self.expect(";")
            return Let(name, value, self.whole())
        return self.expression(0)

    def expression(self, power: int) -> Expression:
        left = self._members(self._operand())
        while True:
            operator, length = self._infix()
            if operator == "?" and power <= CHOICE_POWER:
                left = self._choice(left)
                continue
            strength = POWERS.get(operator.removeprefix("not "), -1)
            if strength < 0 or strength <= power:
                return left
            self._position += length
            left = self._joined(left, operator, strength)

    def _joined(self, left: Expression, operator: str, strength: int) -> Expression:
        if operator == "|":
            return self._members(self._call(self.take().text, (left,)))
        right = self.expression(strength - 1 if operator in RIGHT_TO_LEFT else strength)
        if operator.startswith("not "):
            return Unary("!", Binary(operator.removeprefix("not "), left, right))
        if self._dialect == "when":
            return Binary(LOOSE.get(operator, operator), left, right)
        return Binary({"and": "&&", "or": "||"}.get(operator, operator), left, right)

    def _infix(self) -> tuple[str, int]:
        """The operator that comes next ("" for none) and its number of tokens."""
        token = self.peek()
        if token.kind == "operator":
            return ("", 0) if self._dialect == "when" and token.text in ("|", "..") else (token.text, 1)
        if token.kind != "word":
            return "", 0
        if self._dialect == "when":
            return ("in", 1) if token.text in ("in", "IN") else ("", 0)
        if token.text == "not" and self.peek(1).text in WORD_OPERATORS:
            return f"not {self.peek(1).text}", 2
        return (token.text, 1) if token.text in POWERS else ("", 0)

    def _choice(self, condition: Expression) -> Expression:
        self.expect("?")
        yes = condition if self.peek() == Token("operator", ":") else self.expression(0)
        self.expect(":")
        return Choice(condition, yes, self.expression(CHOICE_POWER - 1))

    def _operand(self) -> Expression:
        token = self.take()
        if token.kind == "number":
            return Constant(_number(token.text, self._dialect))
        if token.kind == "text":
            moment = seconds_of_date(token.text) if self._dialect == "when" else None
            return Constant(token.text if moment is None else moment)
        if token.kind == "word":
            return self._word(token.text)
        return self._sign(token)

    def _sign(self, token: Token) -> Expression:
        if token.text in ("!", "-", "+"):
            return Unary(token.text, self.expression(UNARY_POWER))
        if token.text == "(":
            return self._parenthesis()
        if token.text == "[":
            return self._bracket()
        if self._dialect == "expression" and token.text == "{":
            return Mapping(self._pairs())
        if self._closures and token.text == "#":
            return Pointer(self.take().text if self.peek().text in ("acc", "index") else "")
        if self._closures and token.text == ".":
            return Member(Pointer(""), Constant(self.take().text))
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
            return Unary("!", self.expression(POWERS["=="]))
        return self._call(word, ()) if self.peek() == Token("operator", "(") else Name(word)

    def _call(self, function: str, first: tuple[Expression, ...]) -> Expression:
        while self.found("."):
            function += f".{self.take().text}"
        self.expect("(")
        items = list(first)
        while not self.found(")"):
            if len(items) > len(first):
                self.expect(",")
            items.append(self._closure() if function in CLOSED and len(items) == 1 else self.expression(0))
        return FunctionCall(function, tuple(items))

    def _closure(self) -> Expression:
        self._closures += 1
        braces = self.found("{")
        body = self.whole()
        if braces:
            self.expect("}")
        self._closures -= 1
        return Closure(body)

    def _pairs(self) -> tuple[tuple[Expression, Expression], ...]:
        pairs: list[tuple[Expression, Expression]] = []
        while not self.found("}"):
            if pairs:
                self.expect(",")
            computed = self.found("(")
            key = self.expression(0) if computed else Constant(self.take().text)
            if computed:
                self.expect(")")
            self.expect(":")
            pairs.append((key, self.expression(0)))
        return tuple(pairs)

    def _parenthesis(self) -> Expression:
        if self._dialect == "expression":
            tree = self.whole()
            self.expect(")")
            return tree
        items = self._list(")")
        if not items:
            raise ExpressionError("unexpected ')'")
        return items[0] if len(items) == 1 else Sequence(items)

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
            optional = self.peek().text == "?."
            if self.found(".") or self.found("?."):
                value = self._named(value, optional)
            elif self.found("["):
                value = self._indexed(value)
            else:
                break
        return value

    def _named(self, value: Expression, optional: bool) -> Expression:
        word = self.take()
        if word.kind != "word":
            raise ExpressionError(f"expected a name after '.', found '{word.text}'")
        if isinstance(value, Name) and self.peek() == Token("operator", "("):
            return self._call(f"{value.name}.{word.text}", ())
        return Member(value, Constant(word.text), optional)

    def _indexed(self, value: Expression) -> Expression:
        low = None if self.peek() == Token("operator", ":") else self.expression(0)
        if not self.found(":"):
            self.expect("]")
            return Member(value, low or Constant(None))
        high = None if self.peek() == Token("operator", "]") else self.expression(0)
        self.expect("]")
        return Slice(value, low, high)


def _number(text: str, dialect: Dialect) -> float | int:
    digits = text.replace("_", "")
    try:
        if digits[:2].lower() in ("0x", "0o", "0b"):
            whole = int(digits, 0)
        elif digits.isdigit():
            whole = int(digits)
        else:
            return float(digits)
    except ValueError as error:
        raise ExpressionError(f"'{text}' is no number") from error
    if dialect == "when":
        return float(whole)
    if whole >= 1 << 63:
        raise ExpressionError(f"'{text}' does not fit into 64 bits")
    return whole


def seconds_of_date(text: str) -> float | None:
    """Whole seconds since 1970 of a text that govaluate takes for a moment; None for any other. Without a zone: UTC."""
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    clock = found["clock"] or found["zoned"] or found["exact"] or "00"
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{clock}{found['offset'] or found['zone'] or 'Z'}")
        return float(int(moment.astimezone(UTC).timestamp()))
    except (ValueError, OverflowError):
        return None
