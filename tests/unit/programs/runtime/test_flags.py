"""Flags of the programs: what is written is read back, and what is wrong is named."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Tuple  # noqa: UP035 - see Sample

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workflows.programs.runtime import flags


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
        share=st.floats(allow_nan=False),
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


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ([], "--name: must be given"),
        (["--nam=x"], "--nam: no such flag; known are --command, --count, --loud, --name, --share, --words"),
        (["--command=x"], "--command: no such flag"),
        (["name=x"], "name: no such flag"),
        (["--name"], "--name: needs a value"),
        (["--name=x", "--count=1.5"], "--count: expected a whole number, got '1.5'"),
        (["--name=x", "--share=half"], "--share: expected a number, got 'half'"),
        (["--name=x", "--loud=yes"], "--loud: expected true or false, got 'yes'"),
    ],
)
def test_what_is_wrong_is_named(argv: list[str], says: str) -> None:
    with pytest.raises(flags.UsageError) as caught:
        flags.from_argv(Sample, argv)
    assert says in str(caught.value)
