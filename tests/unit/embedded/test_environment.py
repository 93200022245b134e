"""Variables and `$(…)`, held against what the kubelet does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.embedded.runtime.environment import MissingReferenceError, Pod, content_of, expand, variables
from tests.support.cases.rows import rows

KNOWN = {"VAR": "value", "EMPTY": "", "A B": "blank"}


@rows("embedded/environment")
def test_expansion(text: str, expected: str) -> None:
    assert expand(text, KNOWN) == expected


@given(st.text(alphabet="ab$()"))
def test_a_text_with_every_dollar_doubled_comes_back(text: str) -> None:
    assert expand(text.replace("$", "$$"), {"a": "x", "b": "y"}) == text


@given(st.text(alphabet="aVAR ()", max_size=20))
def test_a_text_without_a_dollar_stays(text: str) -> None:
    assert expand(text, KNOWN) == text


MANIFEST: dict[str, Any] = {
    "metadata": {
        "name": "p",
        "namespace": "ns",
        "uid": "u",
        "labels": {"app": "x", "a.b/c": "y"},
        "annotations": {"n": "1"},
    },
    "spec": {"nodeName": "node-7"},
    "status": {"podIP": "127.1.2.3"},
}
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    ("Secret", "s"): {"kind": "Secret", "data": {"a": "aGk=", "b": "aGk="}, "stringData": {"b": "plain"}},
    ("ConfigMap", "c"): {"kind": "ConfigMap", "data": {"k": "v"}, "binaryData": {"raw": "aGk="}},
}
POD = Pod(MANIFEST, lambda kind, name: OBJECTS.get((kind, name)))


@rows("embedded/environment")
def test_fields(path: str, expected: str) -> None:
    assert POD.field(path) == expected


def test_content_is_decoded_and_plain_text_wins() -> None:
    assert content_of(OBJECTS["Secret", "s"]) == {"a": b"hi", "b": b"plain"}
    assert content_of(OBJECTS["ConfigMap", "c"]) == {"k": b"v", "raw": b"hi"}


def value_of(**source: Any) -> dict[str, str]:
    return variables({"env": [{"name": "X", "valueFrom": source}]}, POD, {}, {})


@rows("embedded/environment")
def test_references(source: dict[str, Any], expected: dict[str, str]) -> None:
    assert value_of(**source) == expected


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ({"secretKeyRef": {"name": "no", "key": "a"}}, 'secret "no" not found'),
        ({"secretKeyRef": {"name": "s", "key": "no"}}, "couldn't find key no in Secret s"),
    ],
)
def test_a_required_reference_that_is_not_there(source: dict[str, Any], says: str) -> None:
    with pytest.raises(MissingReferenceError, match=says):
        value_of(**source)


def test_later_entries_see_earlier_ones_and_win() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "P_"}, {"secretRef": {"name": "no", "optional": True}}],
        "env": [
            {"name": "ONE", "value": "$(P_k)$(TWO)"},
            {"name": "TWO", "value": "$(ONE)"},
            {"name": "P_k", "value": "$(P_k)!"},
            {"name": "NOTHING"},
        ],
    }
    found = variables(container, POD, {"OURS": "o"}, {})
    assert found == {
        "OURS": "o", "P_k": "v!", "P_raw": "hi", "ONE": "v$(TWO)", "TWO": "v$(TWO)", "NOTHING": "",
    }  # fmt: skip


def test_an_override_replaces_an_entry_and_what_refers_to_it() -> None:
    container = {"env": [{"name": "PRIMUS_FOLDER_A", "value": "/a"}, {"name": "B", "value": "$(PRIMUS_FOLDER_A)/b"}]}
    assert variables(container, POD, {}, {"PRIMUS_FOLDER_A": "/real", "UNASKED": "x"}) == {
        "PRIMUS_FOLDER_A": "/real",
        "B": "/real/b",
    }


def test_a_whole_reference_that_is_not_there() -> None:
    with pytest.raises(MissingReferenceError, match='configmap "no" not found'):
        variables({"envFrom": [{"configMapRef": {"name": "no"}}]}, POD, {}, {})
