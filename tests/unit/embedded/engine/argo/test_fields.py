"""Whatever stands in a workflow: it is accepted, or refused by its path."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.errors import Refused
from tasks.embedded.engine.argo.validate import validate_workflow
from tests.support.fakes.workflow_simulator import a_workflow

OPEN = ("metadata", "labels", "nodeSelector", "matchLabels", "limits", "requests", "annotations", "status")
"""Objects whose keys are the user's."""


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object with fixed fields inside a manifest."""
    if isinstance(value, dict):
        if path.rsplit(".", 1)[-1] not in OPEN or path.endswith("].metadata"):
            yield path, value
        for key, item in value.items():
            if key not in ("withItems", "metadata") or ".templates" in path:
                yield from objects(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from objects(item, f"{path}[{index}]")


@given(st.data(), st.from_regex(r"[a-z][a-zA-Z]{3,12}X", fullmatch=True))
def test_an_unknown_field_anywhere_is_named_by_its_path(data: st.DataObject, name: str) -> None:
    manifest = copy.deepcopy(a_workflow())
    places = list(objects(manifest))
    path, place = data.draw(st.sampled_from(places))
    place[name] = "x"
    with pytest.raises(Refused) as error:
        validate_workflow(manifest)
    assert error.value.path == (f"{path}.{name}" if path else name)
    assert "unknown field" in error.value.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "a", "main", "{{x}}", "{{", "1s"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "a", "steps"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def leaves(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key of a manifest."""
    for key, item in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(item, dict | list):
            yield from leaves(item)


@given(st.data(), JSON)
def test_any_broken_workflow_is_refused_or_accepted_but_never_crashes(data: st.DataObject, value: Any) -> None:
    manifest = copy.deepcopy(a_workflow())
    holder, key = data.draw(st.sampled_from(list(leaves(manifest))))
    holder[key] = value
    try:
        validate_workflow(manifest)
    except Refused as error:
        assert error.reason  # noqa: PT017 # whether it is refused is open, how is not
