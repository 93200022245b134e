"""A changed copy of a frozen dataclass."""

from __future__ import annotations

import dataclasses

import pytest

from workflows.programs.runtime.flags import replace


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
