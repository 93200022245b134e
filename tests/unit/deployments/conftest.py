"""A command line in the test's own process, and a home with a ledger for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiles.request import TrainRequest
from tasks.ledger.ledger import Ledger
from tasks.runs.open import open_run
from tasks.settings import Settings
from tests.support.harness.commands import primus_here

Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """Of a home that `primus` takes for its own here."""
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_USER", raising=False)
    made = Settings.from_environment({"PRIMUS_HOME": str(tmp_path)})
    made.make_home()
    return made


@pytest.fixture
def ledger(settings: Settings) -> Iterator[Ledger]:
    """With one run, `mine`."""
    made = Ledger(settings.ledger_url)
    open_run(TrainRequest(profile="demo", name="mine"), settings, made, time.time())
    yield made
    made.close()


@pytest.fixture
def say(settings: Settings) -> Say:
    """A command line in this process: exit code, standard output, standard error."""

    def run(*words: str) -> tuple[int, str, str]:
        done = primus_here(*words)
        return done.returncode, done.stdout, done.stderr

    return run
