"""Flags of the programs: what is written is read back, and what is wrong is named.

A changed copy of a frozen dataclass.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Tuple  # noqa: UP035 - see Sample

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from workflows.programs.runtime import flags
from workflows.programs.runtime.flags import replace


@dataclass(frozen=True)
class Sample:
    name: str
    count: int = 3
    share: float = 0.5
    loud: bool = False
    words: Tuple[str, ...] = ()  # noqa: UP006 - the reader goes by the text of the annotation, as Python 3.9 has it
    command: Tuple[str, ...] = field(default=(), metadata=flags.REST)  # noqa: UP006


TEXTS = st.lists(st.text(max_size=9), max_size=4).map(tuple)


@settings(deadline=None)
@given(
    st.builds(
        Sample,
        name=st.text(max_size=12),
        count=st.integers(),
        share=st.floats(allow_nan=False, allow_infinity=False),
        loud=st.booleans(),
        words=TEXTS,
        command=TEXTS,
    )
)
def test_what_is_written_is_read_back(wanted: Sample) -> None:
    assert flags.from_argv(Sample, flags.to_argv(wanted)) == wanted


def test_both_ways_of_writing_a_value() -> None:
    wanted = Sample("x", 7, loud=True, words=("--a", "b=c"), command=("run", "--name=y"))
    argv = ["--name", "x", "--count=7", "--loud", "true", "--words", "--a", "--words=b=c", "--", "run", "--name=y"]
    assert flags.from_argv(Sample, argv) == wanted


@rows("programs/runtime/flags")
def test_what_is_wrong_is_named(argv: list[str], says: str) -> None:
    with pytest.raises(flags.UsageError) as caught:
        flags.from_argv(Sample, argv)
    assert says in str(caught.value)


@dataclasses.dataclass(frozen=True)
class Thing:
    name: str
    size: int = 1


def test_it_is_what_dataclasses_make_of_it() -> None:
    thing = Thing("a")
    changed = replace(thing, size=2)
    assert changed == dataclasses.replace(thing, size=2)
    assert hash(changed) == hash(Thing("a", 2))
    assert thing == Thing("a"), "the first one stays"
    assert replace(thing) == thing
    with pytest.raises(dataclasses.FrozenInstanceError):
        changed.size = 3  # type: ignore[misc]


def test_a_field_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(TypeError, match="Thing has no field colour, weight"):
        replace(Thing("a"), weight=1, colour="red")
