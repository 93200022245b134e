"""`primus demo` as people show it: more than once, in one home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from profiles.loading.load import load_cluster
from tasks.clusters import embedded_cluster
from tasks.ledger.ledger import Ledger
from tasks.settings import Settings
from tests.support.faults.node_faults import quarantined
from tests.support.running.waiting import patience

pytestmark = pytest.mark.story
DEADLINE_SECONDS = patience(240.0)


def test_it_may_be_shown_again_at_once(prefect_server: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PRIMUS_HOME": str(tmp_path), "PREFECT_API_URL": prefect_server}
    command = [sys.executable, "-m", "deployments.cli.main", "demo", "--json"]
    broken: list[str] = []
    for _ in range(2):
        shown = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
        assert shown.returncode == 0, shown.stderr
        document = json.loads(shown.stdout)
        assert document["equal"]
        # Ranks that share two processors may be told to lag: nothing is done about that.
        [incident] = [item for item in document["status"]["incidents"] if item["action"] != "none"]
        assert (incident["class"], incident["action"]) == ("node_lost", "new-attempt"), "nobody was asked"
        broken.append(incident["culprits"][0]["node"])
    cluster = embedded_cluster(load_cluster("local"), tmp_path)
    assert quarantined(cluster) == {}
    ledger = Ledger(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)}).ledger_url)
    states = {node: ledger.node("local", node) for node in broken}
    ledger.close()
    assert {record.state for record in states.values() if record is not None} == {"schedulable"}
    cluster.stop()
