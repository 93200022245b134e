"""`primus demo` as people show it: more than once, in one home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
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


def test_ctrl_c_takes_along_all_that_it_began(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    # Whoever runs the tests in the background has Ctrl-C ignored, and every child of theirs too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    demo = subprocess.Popen(
        [sys.executable, "-m", "deployments.cli.main", "demo"],
        env=environment | {"PRIMUS_HOME": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    signal.signal(signal.SIGINT, before)
    assert demo.stderr is not None
    said = ""
    for line in demo.stderr:
        said += line
        if line.startswith("attempt 1 on") and said.count("attempt 1 on") == 1:
            demo.send_signal(signal.SIGINT)
    demo.stderr.close()
    assert demo.wait(DEADLINE_SECONDS) == 130
    assert "attempt 1 on" in said
    assert said.endswith("ended; nothing of the demo goes on\n"), said
    ledger = Ledger(Settings.from_environment({"PRIMUS_HOME": str(tmp_path)}).ledger_url)
    assert [line.state for line in ledger.run_lines((), 0.0, 0)] == ["stopped"]
    ledger.close()
    assert belonging_to(tmp_path) == []


def belonging_to(home: Path) -> list[str]:
    """Command lines of all processes that were given this home."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"PRIMUS_HOME={home}".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found
