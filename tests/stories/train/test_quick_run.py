"""`primus run` with a command alone: it trains in the folder of its program, loses its node, and comes back."""

from __future__ import annotations

from pathlib import Path

import pytest

from deployments.cli.profiles import Quick, written
from profiles.from_command import Program
from profiles.vocabulary import FaultClass
from tests.support.harness.stages import Stage, incident, outcomes, succeeded

pytestmark = pytest.mark.story

PROGRAM = """
import os, sys, time

saved = "saved/model-{}.txt"
first = int(open(sys.argv[sys.argv.index("--from") + 1]).read()) if "--from" in sys.argv else 0
os.makedirs("saved", exist_ok=True)
assert "RANK" not in os.environ
for step in range(first + 1, 41):
    time.sleep(0.1)
    with open("saved/writing", "w") as file:
        file.write(str(step))
    os.replace("saved/writing", saved.format(step))
    print(f"step {step} loss {1 / step:.3f}", flush=True)
"""


def test_a_command_without_a_profile_loses_its_node_and_comes_back(
    scene: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder: Path = scene.home / "shared" / "mine"
    folder.mkdir(parents=True)
    (folder / "train.py").write_text(PROGRAM)
    monkeypatch.chdir(folder)
    asked = Program(
        ("python3", "train.py"),
        checkpoints="saved/model-{step}.txt",
        resume="--from {resume_from}",
        progress=r"step (?P<step>\d+) loss (?P<loss>\S+)",
    )
    data, _ = written(Quick(asked, "local"), "")
    scene.start(profile="", inline=data)
    scene.at_step(8)
    scene.until(lambda story: len(story.checkpoints) > 1, "a proven checkpoint")
    [node] = scene.story.attempts[0].nodes
    scene.fault(f"lose-node:{node}")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["node_lost", "succeeded"], scene.tell()
    assert incident(story).fault_class is FaultClass.NODE_LOST
    second = story.attempts[1]
    assert second.resumed_from_step is not None
    assert (second.first_step, second.last_step) == (second.resumed_from_step + 1, 40), scene.tell()
    assert Path(second.resume_path).parent == folder / "saved"
