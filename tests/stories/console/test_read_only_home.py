"""A story of a home that may be read and not written: who only reads needs no right to write."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from profiles.loading.load import load_cluster
from profiles.request import TrainRequest
from tasks.clusters import embedded_cluster
from tasks.embedded.start_keeper import busy_mark
from tasks.ledger.ledger import Ledger
from tasks.processes import own_user
from tasks.runs.open import open_run
from tasks.settings import Settings
from tests.support.running.waiting import patience

pytestmark = pytest.mark.story

ENDS = {"logs demo": 2, "doctor": 1}
"""Where a command ends otherwise than with 0: nothing has written a log yet, and a disk on which nothing can be written
is a failure."""


def test_every_command_that_only_reads_works_where_nothing_may_be_written(settings: Settings) -> None:
    ledger = Ledger(settings.ledger_url)
    open_run(TrainRequest(profile="demo", name="demo"), settings, ledger, 1_700_000_000.0, own_user())
    cluster = embedded_cluster(load_cluster("local"), settings.home)
    # A keeper was killed with something pending: whoever may write starts the next one.
    (settings.home / busy_mark(str(cluster.root))).touch()
    command = ["unshare", "--user", "--map-root-user", "--mount", sys.executable, "-m"]
    done = subprocess.run(
        [*command, "tests.support.harness.read_only_home", str(settings.home)],
        capture_output=True,
        text=True,
        timeout=patience(60.0),
        check=False,
    )
    ledger.close()
    assert done.returncode == 0, done.stderr
    said: dict[str, tuple[int, str]] = json.loads(done.stdout)
    code, told = said.pop("pause demo")
    assert code == 3
    assert "it cannot be written" in told
    assert {words: told for words, (code, told) in said.items() if code != ENDS.get(words, 0)} == {}
