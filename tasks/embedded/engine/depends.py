"""`depends` of a DAG task: which tasks it names, and whether it is met by their results."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from tasks.embedded.engine.expression_tree import (
    Binary,
    Constant,
    Expression,
    ExpressionError,
    Unary,
)
from tasks.embedded.engine.expressions import Token, parse_tokens

RESULTS = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted", "Daemoned", "AnySucceeded", "AllFailed")
"""What a task may be asked for, as `task.Succeeded`."""

_TOKEN = re.compile(r"\s*(?:(?P<name>[a-zA-Z0-9_][-a-zA-Z0-9_]*(?:\.[A-Za-z]+)?)|(?P<operator>&&|\|\||[!()]))\s*")


@dataclass(frozen=True)
class Depends:
    """A read `depends`: its tree, and the tasks it names in order of appearance."""

    tree: Expression
    tasks: tuple[str, ...]


def read_depends(text: str) -> Depends:
    """Read a `depends`.

    Raises:
        ExpressionError: it is no logic over tasks, or asks for an unknown result.
    """
    tokens: list[Token] = []
    tasks: dict[str, None] = {}
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ExpressionError(f"unexpected '{text[position:].strip()[:20]}'")
        position = found.end()
        if found["operator"]:
            tokens.append(Token("operator", found["operator"]))
            continue
        task, _, result = found["name"].partition(".")
        if result and result not in RESULTS:
            raise ExpressionError(f"task result '{result}' of '{task}' is unknown; known: {', '.join(RESULTS)}")
        tasks[task] = None
        tokens.append(Token("text", found["name"]))
    return Depends(parse_tokens((*tokens, Token("end", "")), "expression"), tuple(tasks))


def from_dependencies(names: list[str]) -> Depends:
    """The `depends` that a list of `dependencies` stands for: every one of them succeeded, was skipped or may fail."""
    tree: Expression = Constant(names[0])
    for name in names[1:]:
        tree = Binary("&&", tree, Constant(name))
    return Depends(tree, tuple(dict.fromkeys(names)))


def is_met(tree: Expression, asked: Callable[[str, str], bool]) -> bool:
    """Whether the logic is true.

    Args:
        tree: of `read_depends`.
        asked: from task and result ("" for a bare task name) to yes or no.
    """
    match tree:
        case Constant(value):
            task, _, result = str(value).partition(".")
            return asked(task, result)
        case Unary(_, value):
            return not is_met(value, asked)
        case Binary(sign, left, right):
            if sign == "&&":
                return is_met(left, asked) and is_met(right, asked)
            return is_met(left, asked) or is_met(right, asked)
        case _:
            raise AssertionError(f"read_depends makes no {tree}")
