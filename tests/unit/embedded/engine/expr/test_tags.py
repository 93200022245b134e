"""Expression tags: expr-lang, Argo's functions and sprig's, over what a place of a workflow can see."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.embedded.engine.argo.substitution import UnresolvedError, substitute, tags
from tasks.embedded.engine.expr.evaluate import evaluate_text
from tasks.embedded.engine.expr.tree import ExpressionError

PATHS = {
    "inputs.parameters.n": "3",
    "inputs.parameters.my-p": " x ",
    "inputs.parameters.json": '{"a": {"b": [1, 2]}, "c.d": 1}',
    "tasks.a.outputs.parameters.o": None,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("asInt(inputs.parameters.n) + 1", "4"),
        ("inputs.parameters['my-p'] + 'y'", " x y"),
        ("tasks.a.outputs.parameters.o ?? 'd'", "d"),
        ("tasks['a']?.outputs?.parameters?.o ?? 'z'", "z"),
        ("tasks.a.outputs.parameters.o", None),
        ("filter([1, 2, 3], {# > 1})", "[2,3]"),
        ("map(1..3, # * 2)", "[2,4,6]"),
        ("map([{x: 1}], .x)", "[1]"),
        ("reduce([1, 2, 3], #acc + #)", "6"),
        ("sortBy([{n: 2}, {n: 1}], .n)", '[{"n":1},{"n":2}]'),
        ("groupBy([1, 2, 3], # % 2)", '{"0":[2],"1":[1,3]}'),
        ("count([1, 2, 3], # > 1) == 2 and all([1], # > 0) and none([1], # > 1)", "true"),
        ("find([1, 2], # > 1)", "2"),
        ("toJson(map(fromJSON(inputs.parameters.json).a.b, {# + 1}))", "[2,3]"),
        ("jsonpath(inputs.parameters.json, '$.a.b[*]')", "[1,2]"),
        ("jsonpath(inputs.parameters.json, '$[\"c.d\"]')", "1"),
        ('jsonpath(\'[{"n": "a", "v": 1}, {"n": "b"}]\', \'$[?(@.n=="a")].v\')', "[1]"),
        ("jsonpath('[{\"n\": 1}, {\"n\": 2}]', '$[?(@.n != 1)]')", '[{"n":2}]'),
        ("asInt(inputs.parameters.n) > 2 ? 'big' : 'small'", "big"),
        ("{a: 1, 'b': [1, 2]}.b[1]", "2"),
        ("let x = 3; x * 2", "6"),
        ("inputs.parameters.n | asInt() == 3", "true"),
        ("[1, 2, 3][1:]", "[2,3]"),
        ("'abc'[:2]", "ab"),
        ("10 / 4", "2.5"),
        ("10 / 5", "2"),
        ("-7 % 3", "-1"),
        ("2 ** 3 ** 2", "512"),
        ("!true || true", "true"),
        ("'a' not in ['b'] && 'x' not contains 'y'", "true"),
        ("round(2.5)", "3"),
        ("sprig.default('a', '')", "a"),
        ("sprig.div(-7, 2)", "-3"),
        ("sprig.substr(1, 3, 'abcd')", "bc"),
        ("sprig.ternary('y', 'n', 1 == 1)", "y"),
        ("sprig.int('no number')", "0"),
        ("sprig.regexMatch('^a', 'ab')", "true"),
        ("sprig.sha256sum('')[:6]", "e3b0c4"),
        ("split('a,b', ',') | join('-')", "a-b"),
        ("max(1, [5, 2])", "5"),
        ("mean([1, 2])", "1.5"),
        ("string(1.0)", "1"),
        ("1 == 1.0", "true"),
        ("'1' == 1", "false"),
    ],
)
def test_an_expression_becomes_the_text_of_its_tag(text: str, expected: str | None) -> None:
    assert evaluate_text(text, {}, PATHS.__getitem__) == expected


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
        substitute("{{=asInt('x')}}", {}.get)
