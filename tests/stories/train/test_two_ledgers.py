"""Two people with a ledger each, on one cluster and one storage, and both call their run the same."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import flows.train
from profiles.vocabulary import Action, FaultClass, RunState
from tasks.cluster import Kind
from tasks.ledger.ledger import Ledger
from tasks.runs.faults import step_seen
from tasks.settings import Settings
from tests.support.harness.stages import PROFILE, Stage, outcomes, stage, succeeded
from tests.support.running.waiting import patience
from workflows import labels
from workflows.model.ownership import owner_of
from workflows.model.records import AttemptRecord, RequestRecord

pytestmark = pytest.mark.story
COMMAND_SECONDS = patience(120.0)


@pytest.fixture
def first(prefect_server: str) -> Iterator[Stage]:
    with stage(prefect_server) as made:
        yield made


@pytest.fixture
def second(first: Stage) -> Settings:
    """Somebody else: another ledger, the same cluster and storage."""
    url = f"sqlite:///{first.home}/second/ledger.sqlite"
    return Settings.from_environment({"PRIMUS_HOME": str(first.home), "PRIMUS_LEDGER_URL": url})


def train(first: Stage, second: Settings, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """The second one's `primus train`, to its end."""
    told = {"PRIMUS_LEDGER_URL": second.ledger_url, "PREFECT_API_URL": first.api_url, "PRIMUS_HOME": str(first.home)}
    where = ("--cluster", first.ground.profile)
    command = [sys.executable, "-m", "deployments.cli.main", "train", str(PROFILE), "--name", name, *where, *words]
    return subprocess.run(
        command, env=os.environ | told, capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
    )


def objects(first: Stage) -> dict[str, str]:
    """Uid of each gang and workflow of the runs."""
    found = [item for kind in ("JobSet", "Workflow") for item in first.cluster.list(kind, {labels.RUN: first.run})]
    return {f"{item['kind']} {item['metadata']['name']}": item["metadata"]["uid"] for item in found}


def checkpoints(folder: Path) -> dict[str, int]:
    """Every file of the checkpoints, with when it was written."""
    files = (path for path in (folder / "checkpoints").rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in files}


def gone(first: Stage, kind: Kind, name: str) -> None:
    """Wait until nothing of that name is there any more."""
    deadline = time.monotonic() + first.ground.deadline_seconds
    while first.cluster.get(kind, name) is not None:
        assert time.monotonic() < deadline, f"{kind} {name} stays"
        time.sleep(0.05)


def test_a_name_that_is_taken_on_the_cluster_is_refused_and_the_first_run_goes_on(
    first: Stage, second: Settings
) -> None:
    first.start(overrides=("steps=5000",)).at_step(8)
    [gang] = first.cluster.list("JobSet", {labels.RUN: "story"})
    assert owner_of(gang) == first.ledger.identity()
    before = objects(first)

    done = train(first, second, "story")
    assert done.returncode == 1, done.stdout + done.stderr
    ledger = Ledger(second.ledger_url)
    story = ledger.story("story")
    assert story.run.state is RunState.FAILED
    assert "JobSet story-a1 exists and is not ours" in story.run.why
    assert "Choose another --name" in story.run.why
    assert "Choose another --name" in done.stdout + done.stderr
    assert story.attempts == (), "nothing was planned, so nothing was made"
    assert objects(first) == before, "not one object is another one now"

    seen = step_seen(first.scene())
    first.at_step(seen + 5)
    assert first.story.run.state is RunState.RUNNING, first.tell()
    first.ledger.request(RequestRecord("enough", "story", "stop", time.time(), "enough was seen"))
    theirs = first.end()
    assert outcomes(theirs) == ["stopped"], first.tell()
    assert theirs.troubles == (), "the first one has noticed nothing"
    ledger.close()


def test_a_name_that_is_taken_between_plan_and_submission(first: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "story-a1-token", "annotations": {labels.LEDGER: "0" * 32}},
        "stringData": {"token": "theirs"},
    }
    write = flows.train.write_attempt

    def then_another_comes(attempt: AttemptRecord) -> AttemptRecord:
        written = write(attempt)
        first.cluster.apply(secret)
        return written

    monkeypatch.setattr(flows.train, "write_attempt", then_another_comes)
    story = first.start().end()
    assert story.run.state is RunState.FAILED, first.tell()
    assert "Secret story-a1-token exists and is not ours" in story.run.why
    assert outcomes(story) == ["stopped"]
    assert story.attempts[0].submitted_at is None
    assert objects(first) == {}, "neither a gang nor a post-flight was made"
    theirs = first.cluster.get("Secret", "story-a1-token")
    first.cluster.delete("Secret", "story-a1-token", grace_seconds=0)  # a real control plane outlives the test
    assert theirs is not None
    assert theirs["metadata"]["annotations"] == {labels.LEDGER: "0" * 32}


def test_a_folder_that_is_taken_is_refused_and_its_checkpoints_stay(first: Stage, second: Settings) -> None:
    assert succeeded(first.start().end()), first.tell()
    kinds: tuple[Kind, ...] = ("JobSet", "Workflow")
    for kind in kinds:
        for item in first.cluster.list(kind, {labels.RUN: "story"}):
            first.cluster.delete(kind, item["metadata"]["name"], grace_seconds=0)  # as their time to live does
            gone(first, kind, item["metadata"]["name"])
    assert (first.folder / "ledger").read_text().strip() == first.ledger.identity()
    before = checkpoints(first.folder)
    assert before

    done = train(first, second, "story")
    assert done.returncode == 1, done.stdout + done.stderr
    ledger = Ledger(second.ledger_url)
    story = ledger.story("story")
    assert story.run.state is RunState.FAILED
    [seen] = story.troubles
    assert (seen.fault_class, seen.action) == (FaultClass.CONFIG, Action.GIVE_UP), story
    said = story.run.why
    assert f"belongs to another ledger ({first.ledger.identity()[:8]}): choose another --name; where" in said
    assert "begin a run of another name; with `checkpoint.directory`" in said
    assert ledger.steps("story") == [], "what the first one left was not taken for its own"
    assert checkpoints(first.folder) == before
    assert (first.folder / "ledger").read_text().strip() == first.ledger.identity()
    assert not (first.folder / "a2").exists()

    there = f"checkpoint.directory={first.folder}/checkpoints"
    other = train(first, second, "story-2", "--set", there, "--set", "steps=80")
    assert other.returncode == 0, other.stdout + other.stderr
    story = ledger.story("story-2")
    assert story.run.state is RunState.SUCCEEDED, "another name is all it takes"
    assert story.attempts[0].resumed_from_step == 60, "and, where somebody says so, it goes on from there"
    ledger.close()
