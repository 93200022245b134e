"""The small languages of workflows: conditions, depends, items, durations, names."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.embedded.engine.argo.calls import ItemsError, go_format, instances, is_met, read_depends, sequence
from tasks.embedded.engine.argo.names import fnv32a, node_id, pod_name, seconds_of, spoken
from tasks.embedded.engine.argo.resources import read_json_path
from tasks.embedded.engine.argo.substitution import UnresolvedError, substitute, substitute_strictly, tags
from tasks.embedded.engine.expr.evaluate import evaluate_condition, evaluate_when
from tasks.embedded.engine.expr.tree import ExpressionError
from tests.support.cases.rows import rows


@rows("embedded/engine/expr/expressions")
def test_a_when_is_true_or_false(text: str, expected: bool | None) -> None:
    if expected is None:
        with pytest.raises(ExpressionError):
            evaluate_when(text)
    else:
        assert evaluate_when(text) is expected


@rows("embedded/engine/expr/expressions")
def test_a_bad_when_says_what_is_wrong(text: str, part: str) -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate_when(text)
    assert part in str(error.value)


@given(st.text(max_size=20))
def test_any_text_as_a_when_is_answered_or_refused(text: str) -> None:
    with contextlib.suppress(ExpressionError):
        assert evaluate_when(text) in (True, False)


LAST = {"lastRetry": {"exitCode": "137", "status": "Failed", "duration": "2.5", "message": "OOMKilled (exit code 137)"}}


@rows("embedded/engine/expr/expressions")
def test_an_expression_about_the_last_attempt(text: str, expected: bool) -> None:
    assert evaluate_condition(text, LAST) is expected


@rows("embedded/engine/expr/expressions")
def test_a_bad_expression_says_what_is_wrong(text: str, part: str) -> None:
    with pytest.raises(ExpressionError) as error:
        evaluate_condition(text, LAST)
    assert part in str(error.value)


@rows("embedded/engine/expr/expressions")
def test_depends_is_logic_over_results(text: str, phases: dict[str, str], expected: bool) -> None:
    depends = read_depends(text)
    assert set(depends.tasks) == set(phases)
    assert is_met(depends.tree, lambda task, result: phases[task] == (result or "Succeeded")) is expected


@pytest.mark.parametrize("text", ["a &&", "a.Done", "a & b", "(a", "a b", ""])
def test_bad_depends_is_refused(text: str) -> None:
    with pytest.raises(ExpressionError):
        read_depends(text)


@rows("embedded/engine/expr/expressions")
def test_a_sequence_counts_up_and_down(spec: dict[str, object], expected: list[str]) -> None:
    assert sequence(spec) == expected


@pytest.mark.parametrize("pattern", ["%s", "%", "%d %f"])
def test_a_format_for_something_else_than_whole_numbers_is_refused(pattern: str) -> None:
    with pytest.raises(ItemsError):
        go_format(pattern, 1)


@rows("embedded/engine/expr/expressions")
def test_items_name_their_nodes(source: str, names: list[str], items: list[str]) -> None:
    found = instances("wf", "s", "parameter", source)
    assert [instance.node_name for instance in found] == names
    assert [instance.item["item"] for instance in found] == items


@pytest.mark.parametrize("source", ["{}", "x", '"a"', "3"])
def test_a_parameter_that_is_no_list_is_refused(source: str) -> None:
    with pytest.raises(ItemsError, match="could not be parsed as a JSON list"):
        instances("wf", "s", "parameter", source)


def test_names_are_those_of_argo() -> None:
    # The offset basis and a published vector of FNV-1a.
    assert fnv32a("") == 2166136261
    assert fnv32a("foobar") == 0xBF9CF968
    assert node_id("wf", "wf") == "wf"
    assert node_id("wf", "wf[0].a") == f"wf-{fnv32a('wf[0].a')}"
    assert pod_name("wf", "wf", "t") == "wf"
    assert pod_name("wf", "wf[0].a", "t") == f"wf-t-{fnv32a('wf[0].a')}"


@given(st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True), st.text(min_size=1, max_size=80))
def test_pod_names_are_legal_and_short(workflow: str, template: str) -> None:
    name = pod_name(workflow, "some.node", "t" * len(template))
    assert len(name) <= 63
    assert name[0].isalnum()
    assert name[-1].isalnum()


@pytest.mark.parametrize(
    ("text", "seconds"), [("10", 10.0), ("1h30m", 5400.0), ("250ms", 0.25), ("1.5s", 1.5), ("2m", 120.0), (" 3 ", 3.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "-1", "10 s", "1d", "1s x"])
def test_bad_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        seconds_of(text)


@rows("embedded/engine/expr/expressions")
def test_durations_in_words(seconds: float, text: str) -> None:
    assert spoken(seconds) == text


def test_tags_are_found_and_replaced() -> None:
    known = {"a.b": "1", "item": "{{a.b}}"}.get
    assert tags("x {{a.b}} {{ item }}") == ["a.b", "item"]
    assert substitute("{{a.b}}-{{ c }}", known) == "1-{{ c }}"
    assert substitute("{{item}}", known) == "{{a.b}}", "a value is not read again"
    with pytest.raises(UnresolvedError, match=r"failed to resolve \{\{c\}\}"):
        substitute_strictly("{{c}}", known)


@rows("embedded/engine/expr/expressions")
def test_outputs_are_read_from_applied_objects(path: str, expected: str | None) -> None:
    found = {"metadata": {"a/b": 1}, "status": {"phase": "Done", "conditions": [{"type": "A"}, {"type": "B"}]}}
    assert read_json_path(found, path) == expected
