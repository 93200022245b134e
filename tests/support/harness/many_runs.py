"""Many runs driven at once by one home's console, each with a fault: for a story, and for a figure."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml

from profiles.drill import FaultSpec
from profiles.errors import NotFound, Unavailable
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED, RunState
from tasks.clusters import open_cluster
from tasks.ledger.ledger import Ledger
from tasks.runs.faults import Scene, cause
from tasks.settings import Settings
from tests.support.harness.consoles import Console
from tests.support.harness.stages import PROFILE
from tests.support.running.waiting import patience
from workflows.model.records import Story

STEP_SECONDS = 0.5
AHEAD_SECONDS = 20.0
"""Enough to ask for all of them: a third of a second each."""
FAULT_AT_STEP = 7
"""After the first checkpoint."""
LIMIT_S = patience(600.0)


def wide_cluster(folder: Path, nodes: int) -> Path:
    """The local cluster with room for many runs."""
    path = folder / "wide.yaml"
    pool = {"name": "cpu", "hardware": "cpu", "nodes": nodes, "spares": 2, "node_prefix": "node-"}
    path.write_text(yaml.safe_dump({"extends": "local", "name": "wide", "pools": [pool]}))
    return path


def calm_profile(folder: Path) -> Path:
    """The story with two steps a second: sixty ranks leave the machine to those who drive them."""
    story = yaml.safe_load(PROFILE.read_text())
    command: list[str] = story["roles"][0]["command"]
    command[command.index("--step-seconds") + 1] = f"{STEP_SECONDS}"
    path = folder / "calm.yaml"
    path.write_text(yaml.safe_dump({**story, "name": "calm"}))
    return path


@dataclass
class Many:
    """What became of all of them."""

    wall_seconds: float = 0.0
    stories: list[Story] = field(default_factory=list[Story])

    @property
    def most_at_once(self) -> int:
        """How many were under way together at most."""
        ends = sorted(story.run.ended_at or 0.0 for story in self.stories)
        begins = sorted(story.run.created_at for story in self.stories)
        return max(sum(one <= at for one in begins) - sum(one < at for one in ends) for at in begins)

    @property
    def bad(self) -> list[str]:
        """Runs that did not end as they should, with what happened."""
        good = ["process_killed", "succeeded"]
        return [
            f"{story.run.name}: {story.run.state} {story.run.why}: {[one.outcome for one in story.attempts]}"
            for story in self.stories
            if story.run.state is not RunState.SUCCEEDED or [one.outcome for one in story.attempts] != good
        ]


def drive_many(console: Console, profile: Path, ledger_url: str, number: int, steps: int) -> Many:
    """Ask for so many runs by the API, kill a rank of each, wait for all ends."""
    ledger, began = Ledger(ledger_url), time.monotonic()
    names = [f"many-{index}" for index in range(number)]
    at = (datetime.now(UTC) + timedelta(seconds=AHEAD_SECONDS)).isoformat()
    for name in names:  # all of them first, to begin together
        overrides = [f"steps={steps}", "roles.trainer.replicas=1", "recovery.in_place_restarts=0"]
        request = {"profile": str(profile), "name": name, "overrides": overrides}
        console.ask("train/wide", {"request": request}, key=name, at=at)
    whole, deadline = set(names), time.monotonic() + LIMIT_S
    while whole:
        assert time.monotonic() < deadline, f"{sorted(whole)} still wait\n{console.told()}"
        with suppress(Unavailable):  # many write at once, and one file bears one writer
            whole -= {name for name in whole if _broken(name, console.home, ledger)}
        time.sleep(0.05)
    while [run for run in ledger.runs() if run.state not in FINISHED]:
        assert time.monotonic() < deadline, console.told()
        time.sleep(0.2)
    many = Many(time.monotonic() - began, [ledger.story(name) for name in names])
    ledger.close()
    return many


def _broken(name: str, home: Path, ledger: Ledger) -> bool:
    """Kill a rank once the run has come far enough; whether it was done."""
    if ledger.run(name) is None:
        return False
    story = ledger.story(name)
    attempt = story.attempt
    assert story.run.state not in FINISHED, f"{name} ended before its fault: {story.run.why}"
    if attempt is None or (attempt.last_step or 0) < FAULT_AT_STEP:
        return False
    with suppress(NotFound):  # it was killed at the last try, and only the ledger was too busy to hear of it
        cause_kill(name, home, ledger, rank=0)
    return True


def cause_kill(name: str, home: Path, ledger: Ledger, rank: int = 1, *, launcher: bool = False) -> None:
    """Kill a rank of a run that trains, or the launcher of its node."""
    story = ledger.story(name)
    assert story.attempt is not None
    resolved = Resolved.model_validate(story.run.resolved)
    cluster, settings = open_cluster(resolved.cluster, home), Settings.from_environment({"PRIMUS_HOME": str(home)})
    node = story.attempt.nodes[rank] if launcher else ""
    cause(
        FaultSpec("kill-launcher" if launcher else "kill-rank", rank=rank, node=node),
        Scene(settings, ledger, cluster, resolved, story.attempt),
    )
