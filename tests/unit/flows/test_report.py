"""The report flow on a real Prefect server: the page in the home, the artifact, the line; and the command."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey
from prefect.utilities.callables import parameter_schema

from deployments.cli.report import ReportQuery, show_report
from flows.report import report
from profiles.errors import NotFound, ProfileError
from tasks.ledger.ledger import Ledger
from tests.support.builders.simulated_runs import Simulation, keep


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose ledger holds five runs of the last day."""
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path))
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    begin = time.time() - 86400.0
    keep(ledger, [Simulation(f"run-{seed}", seed, nodes=2, begin=begin, steps_to_do=60) for seed in range(5)])
    ledger.close()
    return tmp_path


def test_the_flow_leaves_a_page_and_an_artifact(home: Path, prefect_server: str) -> None:
    said = asyncio.run(report(since="2d"))
    assert re.match(r"5 runs used [\d.]+ GPU-hours; [\d.]+% of what was used was productive", said)
    (page,) = (home / "reports").glob("local-*.html")
    assert page.read_text().startswith("<!doctype html>")
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter(key=ArtifactFilterKey(any_=["fleet-report"]))
        (artifact, *_) = client.read_artifacts(artifact_filter=wanted)
    assert artifact.flow_run_id is not None
    text = str(artifact.data)
    assert said in text
    assert page.as_uri() in text
    assert "| failures |" in text
    assert asyncio.run(report(since="2d")) == said, "safe to repeat"
    assert len(list((home / "reports").iterdir())) == 1


def test_the_form_says_what_to_write() -> None:
    schema = parameter_schema(report).model_dump()
    assert set(schema["properties"]) == {"since", "cluster"}
    assert schema["properties"]["since"]["default"] == "7d"
    assert "an age" in schema["properties"]["since"]["description"]
    assert schema["required"] == []


def test_a_window_that_is_none_fails_with_the_field(home: Path, prefect_server: str) -> None:
    with pytest.raises(ProfileError, match="since: 'soon' is neither"):
        asyncio.run(report(since="soon"))


def test_the_command_tells_all_runs_as_text_json_and_page(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_report(ReportQuery(since="2d"), as_json=False) == 0
    text = capsys.readouterr().out
    assert "5 runs used" in text
    assert "run-0" in text
    assert show_report(ReportQuery(html=str(home / "fleet.html")), as_json=True) == 0
    told = capsys.readouterr()
    document = json.loads(told.out)
    assert document["run_count"] == 5
    assert told.err == f"wrote {home / 'fleet.html'}\n"
    assert "run-4" in (home / "fleet.html").read_text()
    assert show_report(ReportQuery(since="1s"), as_json=False) == 0
    assert "no run lived in this time" in capsys.readouterr().out


def test_the_command_tells_one_run(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_report(ReportQuery("run-1", html=str(home / "run.html")), as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert {"from", "to", "attempt", "state", "gpu_seconds"} == set(document["tiles"][0])
    assert document["cost"]["currency"] == "USD"
    assert show_report(ReportQuery("run-1"), as_json=False) == 0
    text = capsys.readouterr().out
    assert "all accounted for" in text
    assert document["advice"]["text"] in text


def test_what_the_command_cannot_do_is_refused_with_the_field(home: Path) -> None:
    with pytest.raises(ProfileError, match="--since"):
        show_report(ReportQuery("run-1", since="7d"), as_json=False)
    with pytest.raises(ProfileError, match="--html"):
        show_report(ReportQuery("run-1", html=str(home / "no" / "such" / "folder.html")), as_json=False)
    with pytest.raises(NotFound, match="nobody"):
        show_report(ReportQuery("nobody"), as_json=False)
    done = subprocess.run(
        [sys.executable, "-m", "deployments.cli.main", "report", "--since", "soon"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "--since" in done.stderr
    assert done.stdout == ""
