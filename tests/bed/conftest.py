"""One bed for all tests of this folder: the one that is up, else one of their own, taken down at the end."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import pytest

from tests.bed import starting, stopping, up
from tests.bed.ground import BedGround
from tests.bed.layout import cache, folder
from tests.bed.options import default
from tests.bed.up import Bed
from tests.stages import outcomes, stage, succeeded

TOO_LATE = "NOT PROVEN: no time was left for it (PRIMUS_BED_UNTIL)"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whoever must end at a time begins nothing after it."""
    del item
    if time.time() > float(os.environ.get("PRIMUS_BED_UNTIL", "inf")):
        pytest.skip(TOO_LATE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out is said aloud, one by one."""
    reports: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    late = [report.nodeid for report in reports if TOO_LATE in str(report.longrepr)]
    if late:
        terminalreporter.section(f"{len(late)} tests of the bed were NOT RUN for want of time", sep="#")
        for name in late:
            terminalreporter.line(name)


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
