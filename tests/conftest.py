"""What all tests share: no network, no home of the user's, one Prefect server for the stories."""

from __future__ import annotations

import gc
import os
import re
import tomllib
from collections.abc import Callable, Generator, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as examples

from tests.broken_before import BrokenBefore
from tests.proof import Rotation
from tests.rotation import BUDGET, Tables
from tests.support.running.limits import Limits
from tests.support.running.meter import Meter

if TYPE_CHECKING:  # what few tests need is imported where they ask for it
    from tasks.settings import Settings
    from tests.support.fakes.fake_api_server import FakeApiServer
    from tests.support.harness.launcher_harness import GangOnLoopback
    from tests.support.harness.stages import Stage

# A loaded machine is no finding. Whoever proves a change (`.ci/run`) draws the same examples each time; elsewhere each
# run looks for new ones.
examples.register_profile("searching", deadline=None, suppress_health_check=[HealthCheck.too_slow])
examples.register_profile("proving", examples.get_profile("searching"), derandomize=True)
examples.load_profile(os.environ.get("PRIMUS_TEST_EXAMPLES", "searching"))

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
for name in ("PREFECT_API_URL", "PRIMUS_LEDGER_URL", "PRIMUS_CLUSTER", "PRIMUS_TOKEN", "PRIMUS_TOKEN_FILE"):
    os.environ.pop(name, None)

STARTS_PROCESSES = re.compile(
    r"\b(subprocess|Popen|embedded_stage|launcher_harness|warm_harness|health_daemons|GangOnLoopback)\b"
)
"""What a file of tests says that starts processes, itself or by one of the harnesses."""
CORPUS_REPORTS = pytest.StashKey[dict[str, str]]()
NO_REPORTS: dict[str, str] = {}


def pytest_configure(config: pytest.Config) -> None:
    """Leave out what has another turn."""
    gc.disable()  # what is imported and collected stays: looking through it again and again takes a fifth of the time
    rotation = Rotation.of(config)
    config.pluginmanager.register(rotation, "rotation")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(BrokenBefore(rotation, Tables.read()), "broken-before")
    config.pluginmanager.register(Limits(tomllib.loads(BUDGET.read_text(encoding="utf-8"))), "limits")
    if metered := os.environ.get("PRIMUS_METER"):
        config.pluginmanager.register(Meter(Path(metered).absolute()), "meter")


@pytest.fixture(scope="session")
def corpus_reports(pytestconfig: pytest.Config) -> dict[str, str]:
    """What was measured on the parts of the corpus, by part; printed when all tests have run."""
    return pytestconfig.stash.setdefault(CORPUS_REPORTS, {})


@cache
def starts_processes(path: Path) -> bool:
    """Whether tests of this file depend on when a machine gives processes their turn."""
    return STARTS_PROCESSES.search(path.read_text(encoding="utf-8")) is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`PRIMUS_PROCESS_RERUNS`: how often a test of real processes is told again; decisions are told once."""
    reruns = int(os.environ.get("PRIMUS_PROCESS_RERUNS", "0"))
    for item in items:
        drawn = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)  # of values: no matter of the machine
        if reruns and not drawn and starts_processes(item.path):
            item.add_marker(pytest.mark.flaky(reruns=reruns))


def pytest_collection_finish() -> None:
    """From here on garbage is collected; what was there before is looked at no more, nor copied into each fork."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that fails for a row of a table tells where the row stands."""
    report = yield
    if report.failed and (row := item.get_closest_marker("row")):
        report.sections.append(("row", row.args[0]))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of several hands its part of the report to the one who prints it."""
    output: dict[str, object] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["corpus_reports"] = session.config.stash.get(CORPUS_REPORTS, NO_REPORTS)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take a worker's part."""
    told: dict[str, str] = getattr(node, "workeroutput", {}).get("corpus_reports", {})
    node.config.stash.setdefault(CORPUS_REPORTS, {}).update(told)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print accuracy, confusion and calibration of the diagnosis, and why a test had to be told twice."""
    again: list[pytest.TestReport] = terminalreporter.stats.get("rerun", [])
    for report in again:
        terminalreporter.section(f"told twice; the first try of {report.nodeid}")
        terminalreporter.write_line(report.longreprtext)
    for part, text in sorted(terminalreporter.config.stash.get(CORPUS_REPORTS, NO_REPORTS).items()):
        terminalreporter.section(f"corpus of logs, {part}")
        terminalreporter.write_line(text)


@pytest.fixture(autouse=True)
def home_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's PRIMUS_HOME."""
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path_factory.getbasetemp() / "unused-home"))


@pytest.fixture(scope="session", autouse=True)
def made_once() -> Iterator[None]:
    """What each home has of its own and is the same in all of them costs its processor seconds once."""
    from tests.support.running.made_once import made_once

    with made_once():
        yield


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[str]:
    """One Prefect server for the whole session; the address of its API."""
    from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from tests.support.servers.prefect_servers import migrated_harness

    with migrated_harness() as api_url, temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield api_url


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a home that `primus` takes for its own in this process."""
    from tasks.settings import Settings

    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_USER", raising=False)
    made = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    made.make_home()
    return made


@pytest.fixture
def say(settings: Settings) -> Callable[..., tuple[int, str, str]]:
    """A command line in this process: exit code, standard output, standard error."""
    from tests.support.harness.commands import primus_here

    def run(*words: str) -> tuple[int, str, str]:
        done = primus_here(*words)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def scene(prefect_server: str) -> Iterator[Stage]:
    """A stage on an embedded cluster."""
    from tests.support.harness.stages import stage

    with stage(prefect_server) as made:
        yield made


@pytest.fixture
def gang(tmp_path: Path) -> Iterator[GangOnLoopback]:
    """Launchers of one gang and their coordinator, as processes."""
    from tests.support.harness.launcher_harness import GangOnLoopback

    one = GangOnLoopback(tmp_path)
    yield one
    one.close()


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    """An API server of Kubernetes that answers as it is told."""
    from tests.support.fakes.fake_api_server import FakeApiServer

    with FakeApiServer().running() as server:
        yield server


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes a file of a made-up node, on which no tool is installed."""
    from workflows.programs.probes import node

    monkeypatch.setattr(node, "ROOT", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")

    def make(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        (tmp_path / path).chmod(0o755)

    return make
