"""Expression tags: expr-lang, Argo's functions and sprig's, over what a place of a workflow can see."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.embedded.engine.argo.substitution import UnresolvedError, substitute, tags
from tasks.embedded.engine.expr.evaluate import evaluate_text
from tasks.embedded.engine.expr.tree import ExpressionError
from tests.support.cases.rows import rows

PATHS = {
    "inputs.parameters.n": "3",
    "inputs.parameters.my-p": " x ",
    "inputs.parameters.json": '{"a": {"b": [1, 2]}, "c.d": 1}',
    "tasks.a.outputs.parameters.o": None,
}


@rows("embedded/engine/expr/tags")
def test_an_expression_becomes_the_text_of_its_tag(text: str, expected: str | None) -> None:
    assert evaluate_text(text, {}, PATHS.__getitem__) == expected


@rows("embedded/engine/expr/go")
def test_functions_are_those_of_go(function: str, gives: dict[str, str | None], fails: list[str]) -> None:
    paths = {"inputs.parameters.n": "3", "inputs.parameters.x": "abc"}
    assert {text: evaluate_text(text, {}, paths.get) for text in gives} == gives
    for text in fails:
        with pytest.raises(ExpressionError):
            pytest.fail(f"{function}: {text} gives {evaluate_text(text, {}, paths.get)}")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("inputs.parameters.n + 1", "needs two numbers"),
        ("tasks.a.outputs.parameters.o + 'x'", "needs two numbers"),
        ("fromJSON('{')", "fromJSON"),
        ("filter(1, # > 1)", "needs a list"),
        ("filter([1], # + 1)", "neither true nor false"),
        ("# + 1", "unexpected '#'"),
        ("{a: }", "unexpected '}'"),
        ("[1, 2", "expected ','"),
        ("let x = 1", "expected ';'"),
        ("jsonpath('{}', '$.a')", "nothing lies at"),
        ("jsonpath('{}', 'a')", "must begin with $"),
        ("repeat('x', 9999999)", "larger than a megabyte"),
        ("2 ** 99999", "too large"),
        ("1..9999999", "not far apart"),
        ("(" * 5000, "nested too deeply"),
        ("[1][0:'a']", "whole numbers"),
        ("map([1])", "unknown function map"),
    ],
)
def test_an_expression_that_cannot_be_computed_says_why(text: str, part: str) -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate_text(text, {}, PATHS.__getitem__)
    assert part in str(error.value)


@given(st.text(max_size=25))
def test_any_text_as_an_expression_is_answered_or_refused(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        evaluate_text(text, {}, lambda path: "x")


def test_only_an_equals_sign_right_behind_the_braces_begins_an_expression() -> None:
    assert substitute("{{=1 + 1}} {{ =1}} {{a}}", {"a": "v"}.get) == "2 {{ =1}} v"
    assert tags("{{=a}} {{ =b}} {{ c }}") == ["=a", " =b", "c"]
    with pytest.raises(UnresolvedError, match=r"failed to evaluate \{\{=asInt\('x'\)\}\}"):
        substitute("{{=asInt('x')}}", dict[str, str]().get)
