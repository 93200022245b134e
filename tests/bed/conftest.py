"""One bed for all tests of this folder: the one that is up, else one of their own, taken down at the end."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bed import starting, stopping, up
from tests.bed.ground import BedGround
from tests.bed.layout import cache, folder
from tests.bed.options import default
from tests.bed.up import Bed
from tests.rotation import Tables, is_core
from tests.support.harness.stages import Stage, outcomes, stage, succeeded

FIRST = (
    "test_down",
    "test_stories",
    "test_node_stories",
    "test_control_plane_faults",
    "test_rights",
    "test_queues",
    "test_preflight",
    "test_monitor",
    "test_installation",
    "test_conformance",
)
"""What tells most comes first, for whoever has not the time for all; the rest follows by name. Taking the bed down is
the very first: a bed that is started anew has forgotten which rights were used."""
TOO_LATE = "NOT PROVEN: no time was left for it (PRIMUS_BED_UNTIL)"


def pytest_configure(config: pytest.Config) -> None:
    """What some files say of themselves."""
    config.addinivalue_line("markers", "bedless: needs what the bed is built from, and no bed that is up")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole files in the order of `FIRST`; whoever names single tests gets them in the same order."""
    places = {f"{name}.py": place for place, name in enumerate(FIRST)}
    here = Path(__file__).parent
    items.sort(key=lambda item: places.get(item.path.name, len(FIRST)) if item.path.parent == here else -1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whoever must end at a time begins nothing after it; the core fails then, and so would what is told again."""
    again = getattr(item, "execution_count", 1) > 1
    if not again and time.time() > float(os.environ.get("PRIMUS_BED_UNTIL", "inf")):
        if is_core(item.nodeid, Tables.read().core):
            pytest.fail(f"{TOO_LATE}, and it is of the core (tests/core.toml)", pytrace=False)
        pytest.skip(TOO_LATE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was left out is said aloud, one by one; and how long each file took, with what its tests stand on."""
    reports: list[pytest.TestReport] = terminalreporter.stats.get("skipped", [])
    late = [report.nodeid for report in reports if TOO_LATE in str(report.longrepr)]
    if late:
        terminalreporter.section(f"{len(late)} tests of the bed were NOT RUN for want of time", sep="#")
        for name in late:
            terminalreporter.line(name)
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in (one for told in terminalreporter.stats.values() for one in told):
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section("seconds by file")
    for name, took in sorted(seconds.items(), key=lambda item: -item[1]):
        terminalreporter.line(f"{took:7.1f} {name}")


@pytest.fixture(scope="session", autouse=True)
def standing(request: pytest.FixtureRequest) -> Iterator[None]:
    """A bed is up, where anybody needs one."""
    bedless = all(item.get_closest_marker("bedless") for item in request.session.items)
    if bedless or up.find() is not None:
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


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    """A stage on the bed."""
    with stage(prefect_server, BedGround()) as made:
        yield made


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
