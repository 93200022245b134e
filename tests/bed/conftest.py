"""One bed for all tests of this folder: the one that is up, else one of their own, taken down at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bed import starting, stopping, up
from tests.bed.ground import BedGround
from tests.bed.layout import cache, folder
from tests.bed.options import default
from tests.bed.up import Bed
from tests.stages import outcomes, stage, succeeded


@pytest.fixture(scope="session", autouse=True)
def standing() -> Iterator[None]:
    """A bed is up."""
    if up.find() is not None:
        yield
        return
    starting.build(cache())
    starting.up(cache(), folder(), default())
    yield
    assert stopping.down(folder()) == []


@pytest.fixture
def bed() -> Bed:
    """The bed, with everything in it well."""
    found = up.find()
    assert found is not None
    found.settle()
    return found


@pytest.fixture(scope="session")
def unfailed(prefect_server: str, standing: None) -> Iterator[str]:
    """Weights of a run of the stories' seed to which nothing happened."""
    del standing
    with stage(prefect_server, BedGround()) as made:
        story = made.start("unfailed").end()
        assert succeeded(story), made.tell()
        assert outcomes(story) == ["succeeded"]
        made.no_orphans()
        yield made.weights()
