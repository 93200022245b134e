"""A trainer from a package registry that knows nothing of us loses its node and comes back, by its profile alone."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from pathlib import Path

import pytest

from deployments.cli.report import report_document
from profiles.vocabulary import Action, FaultClass, NodeAction, Tile, VerdictWord
from tests.support.harness.stages import Stage, incident, numbers_are_unique, outcomes, succeeded
from tests.support.trainers.own_trainer import PROFILE, RESTARTS, by_hand
from workflows.model.records import AttemptRecord
from workflows.programs.checkpoints.proofs import read_proofs

pytestmark = pytest.mark.story

STEPS = 40
FAULT_AT = 12


@pytest.fixture(scope="module")
def unfailed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that the program makes by itself in as many passes; beside it the data."""
    return by_hand(tmp_path_factory.mktemp("by-hand"), STEPS)


def begin(scene: Stage, profile: Path, unfailed: Path) -> Stage:
    shared = scene.home / "shared"
    shared.mkdir()
    data = shutil.copy(unfailed.parent.parent / "train.vw", shared)
    return scene.start(profile=str(profile), overrides=(f"steps={STEPS}", f"data.path={data}"))


def lose_its_node(scene: Stage) -> str:
    """Cut the power of the trainer's node while it trains; the node's name."""
    scene.at_step(FAULT_AT)
    scene.until(lambda story: len(story.checkpoints) > 1, "a proven checkpoint")
    [node] = scene.story.attempts[0].nodes
    [pod] = scene.scene().pods("trainer")
    trainers = [pid for pid in scene.cluster.pod_processes(pod) if trains(pid)]
    assert trainers, "the fault hits a program that is training"
    scene.fault(f"lose-node:{node}")
    deadline = time.monotonic() + 10.0
    while any(map(trains, trainers)):
        assert time.monotonic() < deadline, "the power is still on"
        time.sleep(0.005)
    return node


def trains(pid: int) -> bool:
    """The process lives and is the program's (or the launcher's that was told to start it)."""
    try:
        return b"vowpalwabbit" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


def command_line(scene: Stage, attempt: AttemptRecord) -> list[str]:
    """How the attempt's launcher started the program."""
    [log] = scene.folder.glob(f"a{attempt.number}/trainer-0/launcher.log")
    [line] = [line for line in log.read_text().splitlines() if "started ranks from" in line]
    return line.partition(": ")[2].split()


def comes_back(scene: Stage, node: str, lost: int = 2) -> AttemptRecord:
    """The common end: right class, right action, resumed as the program wants it, proven; the second attempt."""
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["node_lost", "succeeded"], scene.tell()
    assert numbers_are_unique(story.attempts)
    seen = incident(story)
    assert (seen.fault_class, seen.action) == (FaultClass.NODE_LOST, Action.NEW_ATTEMPT), scene.tell()
    assert seen.culprits[0][0] == node
    assert [action.target for action in story.actions if action.kind == NodeAction.QUARANTINE] == [node]
    first, second = story.attempts
    assert node not in second.nodes
    assert second.resumed_from_step is not None, scene.tell()
    assert second.resume_proof is VerdictWord.PASS, scene.tell()
    assert second.first_step == second.resumed_from_step + 1
    assert second.last_step == STEPS
    assert first.last_step is not None
    # A checkpoint follows every step; one may have been under way.
    assert first.last_step - second.resumed_from_step <= lost, scene.tell()
    assert second.loss is not None
    assert 0 < second.loss < 0.5, "guessing the next character wrong less than every second time"
    assert not any(word.startswith("--initial_regressor") for word in command_line(scene, first))
    assert f"--initial_regressor={second.resume_path}" in command_line(scene, second)
    assert f"--passes={STEPS - second.resumed_from_step}" in command_line(scene, second)
    restored = [tile for tile in report_document(scene.run, scene.ledger)["tiles"] if tile["state"] == Tile.RESTORE]
    assert {tile["attempt"] for tile in restored} == {2}, "it says nothing of its restore: from its start to its step"
    scene.no_orphans()
    return second


def test_a_program_that_knows_nothing_of_us_loses_its_node(scene: Stage, unfailed: Path) -> None:
    node = lose_its_node(begin(scene, PROFILE, unfailed))
    second = comes_back(scene, node)
    taken = Path(second.resume_path)
    assert taken.name == f"model.{second.resumed_from_step}"
    proven = {proof.path: proof for proof in read_proofs(str(scene.folder)) if proof.verdict == "pass"}
    digest = hashlib.sha256(taken.read_bytes()).hexdigest()
    assert digest == hashlib.sha256((unfailed.parent / taken.name).read_bytes()).hexdigest()
    assert str(taken) not in proven or digest in [file.sha256 for file in proven[str(taken)].files]
    last = taken.parent / f"model.{STEPS}"
    assert last.read_bytes() == unfailed.read_bytes(), "the weights of a training without a fault"
    assert str(last) in proven, "the newest checkpoint was read back"


def losses(scene: Stage, attempt: AttemptRecord) -> list[float]:
    """The losses of an attempt's steps as the launcher read them."""
    [steps] = scene.folder.glob(f"a{attempt.number}/trainer-0/steps.jsonl")
    return [json.loads(line)["loss"] for line in steps.read_text().splitlines() if line.endswith("}")]


def test_a_program_whose_counter_starts_again_is_counted_on(scene: Stage, unfailed: Path) -> None:
    node = lose_its_node(begin(scene, RESTARTS, unfailed))
    second = comes_back(scene, node, lost=4)
    [log] = scene.folder.glob(f"a{second.number}/trainer-0/rank-0.log")
    counters = re.findall(r" 0\.\d+ 0\.\d+ +(\d+)0000 ", log.read_text())
    assert counters[0] == "1", "the program itself began to count anew"
    assert int(counters[-1]) == STEPS - (second.resumed_from_step or 0)
    # The counter proves nothing here, the losses do: it went on from what it had learnt.
    before, after = losses(scene, scene.story.attempts[0]), losses(scene, second)
    assert after[0] < before[2] < before[0]
