"""The words of `primus drill`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiles.drill import KINDS, FaultSpec, parse_fault
from profiles.errors import ProfileError
from tests.support.cases.rows import rows


@rows("profiles/fault")
def test_every_form_of_the_promise_is_understood(text: str, spec: FaultSpec) -> None:
    assert parse_fault(text) == spec


@rows("profiles/fault")
def test_a_wrong_fault_is_refused_in_words(text: str, said: str) -> None:
    with pytest.raises(ProfileError, match=said):
        parse_fault(text)


@given(st.text(max_size=40) | st.tuples(st.sampled_from(sorted(KINDS)), st.text(max_size=20)).map("".join))
def test_anything_is_a_fault_or_refused(text: str) -> None:
    try:
        kind = parse_fault(text).kind
    except ProfileError as error:
        kind = "kill-rank" if error.field == "--fault" else "an error that names no flag"
    assert kind in KINDS
