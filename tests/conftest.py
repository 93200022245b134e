"""What all tests share: no network, no home of the user's, one Prefect server for the stories."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A loaded machine is no finding.
settings.register_profile("ours", deadline=None)
settings.load_profile("ours")

os.environ.setdefault("DO_NOT_TRACK", "1")
os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
for name in ("PREFECT_API_URL", "PRIMUS_LEDGER_URL", "PRIMUS_CLUSTER", "PRIMUS_TOKEN", "PRIMUS_TOKEN_FILE"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def home_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test sees the user's PRIMUS_HOME."""
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path_factory.getbasetemp() / "unused-home"))


@pytest.fixture(scope="session")
def prefect_server() -> Iterator[str]:
    """One Prefect server for the whole session; the address of its API."""
    from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
    from prefect.testing.utilities import prefect_test_harness

    with prefect_test_harness(), temporary_settings({PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        yield str(PREFECT_API_URL.value())
