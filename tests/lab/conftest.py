"""One lab for all tests of this folder: the one that is up, else one of their own, taken down at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab import lab as labs
from tests.lab.lab import Lab
from tests.lab.layout import Options


@pytest.fixture(scope="session")
def standing() -> Iterator[Lab]:
    """A lab that is up."""
    found = labs.find()
    if found is not None:
        yield found
        return
    made = labs.up(Options())
    yield made
    assert labs.down(made.folder) == []


@pytest.fixture
def lab(standing: Lab) -> Lab:
    """The lab, with all its hosts on and well."""
    for host in standing.hosts:
        if not host.is_on():
            host.power_on()
    return standing
