"""What all tests of clusters begin with: hosts that were bare and are a proven cluster."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.lab.asking import load
from tests.lab.commands import Commands
from tests.lab.lab import Lab


@pytest.fixture(scope="module")
def commands(standing: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """With a home of its own, and hosts that are a proven cluster; afterwards nothing was done to hosts."""
    standing.renew(*standing.hosts)
    made = Commands(tmp_path_factory.mktemp("home"), standing.profile)
    began = time.monotonic()
    assert made.run()["word"] == "done"
    print(f"{len(standing.hosts)} control planes proven: {time.monotonic() - began:.0f} s ({load()})")
    yield made
    made.ledger.close()
    standing.renew(*standing.hosts)
