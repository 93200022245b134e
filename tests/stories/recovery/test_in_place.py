"""Stories of ranks that are killed and begin again inside their pods, by the right that the flow lends."""

from __future__ import annotations

import json
import math
import os
import signal
import time
from datetime import datetime

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import TaskRunFilter, TaskRunFilterName

from deployments.cli.drill import run_drill
from deployments.cli.logs import incarnations
from deployments.cli.report import report_document
from profiles.vocabulary import Action, FaultClass, Mode, RunState, Tile
from tasks.runs.faults import rank_process
from tasks.runs.submit import attempt_token
from tests.support.harness.stages import PROFILE, Stage, incident, outcomes, succeeded
from tests.support.running.waiting import patience
from tests.support.trainers.plain_ranks import weights_of_plain_ranks
from workflows.labels import COORDINATOR_PORT
from workflows.model.attempt import Signal
from workflows.model.records import Story

pytestmark = pytest.mark.story
STEP_COUNT = 160
"""Eight seconds: on a busy machine a fault comes late."""
STEPS = (f"steps={STEP_COUNT}",)


@pytest.fixture(scope="module")
def unfailed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Weights of ranks of the same seed to which nothing happened."""
    return weights_of_plain_ranks(tmp_path_factory, PROFILE, STEP_COUNT)


def went_on(scene: Stage, story: Story, rank: int) -> None:
    """One attempt, restarted in place for the killed rank, which was written down once and charged to nobody."""
    assert succeeded(story), scene.tell()
    [attempt] = story.attempts
    assert (attempt.outcome, attempt.restarts_in_place, attempt.restarts_lent) == ("succeeded", 1, 3), scene.tell()
    [seen] = story.troubles
    assert seen.id == "story-a1-r1"
    assert (seen.signal, seen.fault_class) == (Signal.RANK_FAILED, FaultClass.PROCESS_KILLED)
    assert (seen.action, seen.charged) == (Action.RESTART_IN_PLACE, False)
    assert [culprit_rank for _, culprit_rank in seen.culprits] == [rank]
    assert seen.culprits[0][0] in attempt.nodes
    assert seen.resumed_at is not None
    assert seen.resumed_at >= seen.detected_at >= seen.at
    assert story.actions == ()


def task_names(text: str) -> list[str]:
    """Tasks of all flow runs whose name holds the text."""
    with get_client(sync_client=True) as client:
        asked = TaskRunFilter(name=TaskRunFilterName(like_=text))
        return [item.name for item in client.read_task_runs(task_run_filter=asked)]


def test_a_run_to_which_nothing_happens_ends_with_the_weights_of_its_ranks_alone(
    scene: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What the other stories compare themselves with is what a whole run would have given."""
    story = scene.start("unfailed", in_place=True).end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"]
    assert story.troubles == ()
    assert scene.weights() == weights_of_plain_ranks(tmp_path_factory, PROFILE)
    scene.no_orphans()


def test_a_killed_rank_begins_again_and_its_attempt_goes_on(scene: Stage, unfailed: str) -> None:
    at = scene.start(in_place=True, overrides=STEPS).fault("kill-rank:1,step=17")
    story = scene.end()
    went_on(scene, story, rank=1)
    seen = incident(story)
    assert seen.at == pytest.approx(at), "when it was caused"
    assert scene.weights() == unfailed
    assert seen.why in task_names("restart in place 1")
    assert [line.partition(" ")[2] for line in incarnations(story, 1)] == [f"{seen.why}: {seen.seen}"]
    document = report_document(scene.run, scene.ledger)
    states = {tile["state"] for tile in document["tiles"]}
    # Whether time was lost before the fault was noticed depends on the moment: a step may still have ended then.
    assert Tile.RESTART in states, document["tiles"]
    totals = document["totals"]
    whole = totals["productive_gpu_seconds"] + sum(totals["lost"].values())
    assert math.isclose(whole, totals["wall_seconds"] * totals["gpus"], rel_tol=1e-6)
    rows = scene.ledger.steps(scene.run, 1)
    twice = len(rows) - len({row.step for row in rows})
    assert twice >= 1, "steps after the checkpoint were done twice"
    assert (Tile.ROLLBACK in states) == (twice > 0)


def test_what_is_told_of_a_recovery_is_what_an_outsider_measures(scene: Stage) -> None:
    """Who kills a rank himself and looks at the rank's own log."""
    scene.start(in_place=True, overrides=STEPS).at_step(27)
    pid = rank_process(scene.scene(), 1)
    killed = time.time()
    os.kill(pid, signal.SIGKILL)
    story = scene.end()
    assert succeeded(story), scene.tell()
    [seen] = story.troubles
    assert seen.resumed_at is not None
    lines = [line.split(" ", 2) for line in next(scene.folder.glob("a1/*/rank-0.log")).read_text().splitlines()]
    after = [(at, text) for at, *text in lines if datetime.fromisoformat(at).timestamp() > killed]
    begun = next(place for place, (_, text) in enumerate(after) if "begins" in " ".join(text))
    again = next(datetime.fromisoformat(at).timestamp() for at, text in after[begun:] if text[0] == "step")
    assert seen.resumed_at - seen.at == pytest.approx(again - killed, abs=patience(0.05)), scene.tell()


def test_a_restart_in_place_is_written_down_once_though_the_flow_was_killed(scene: Stage, unfailed: str) -> None:
    scene.open(in_place=True, overrides=STEPS).drive_in_process()
    scene.fault("kill-rank:0,step=17")
    scene.until(lambda story: bool(story.troubles), "the restart in the ledger")
    scene.fault("kill-flow")
    story = scene.drive().end()
    went_on(scene, story, rank=0)
    assert story.lease is None or story.lease.fencing >= 2
    assert scene.weights() == unfailed


def test_a_hung_rank_is_named_and_begins_again(scene: Stage, unfailed: str) -> None:
    scene.start(in_place=True, overrides=STEPS).fault("hang-rank:1,step=27")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["succeeded"], scene.tell()
    [seen] = story.troubles
    assert (seen.signal, seen.fault_class) == (Signal.HANG, FaultClass.HANG)
    assert (seen.action, seen.charged) == (Action.RESTART_IN_PLACE, False)
    assert [rank for _, rank in seen.culprits] == [1], seen
    assert seen.resumed_at is not None
    assert scene.weights() == unfailed


def test_without_the_right_a_hang_is_a_new_attempt(scene: Stage, unfailed: str) -> None:
    scene.start(overrides=STEPS).fault("hang-rank:1,step=27")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["hang", "succeeded"], scene.tell()
    seen = incident(story)
    assert (seen.signal, seen.action, seen.charged) == (Signal.HANG, Action.NEW_ATTEMPT, True)
    assert [rank for _, rank in seen.culprits] == [1], seen
    assert scene.weights() == unfailed


def test_in_mode_observe_nothing_begins_again(scene: Stage) -> None:
    scene.start(in_place=True, mode=Mode.OBSERVE, overrides=STEPS).fault("kill-rank:1,step=12")
    scene.until(lambda story: bool(story.actions), "a decision")
    story = scene.until(lambda story: story.run.state is RunState.RECOVERING, "resting")
    assert (story.attempts[0].restarts_lent, story.attempts[0].restarts_in_place) == (0, 0)
    seen = incident(story)
    assert (seen.fault_class, seen.action) == (FaultClass.PROCESS_KILLED, Action.NEW_ATTEMPT)
    assert {action.state for action in story.actions} == {"recorded"}


def withheld(scene: Stage, expected: str) -> None:
    """Wait until the coordinator knows what the flow says of the right."""
    pod = f"{scene.run}-a1-coordinator-0-0"

    def said() -> str:
        cluster, attempt = scene.cluster, scene.story.attempt
        assert attempt is not None
        (name,) = [one["metadata"]["name"] for one in cluster.list("Pod") if one["metadata"]["name"].startswith(pod)]
        token = attempt_token(cluster, attempt)
        answer = cluster.call(name, COORDINATOR_PORT, "GET", "/status", token=token)
        return str(json.loads(answer.body)["right"]["withheld"])

    scene.until(lambda _: said() == expected, f"the coordinator hears {expected!r}")


def test_a_pause_takes_the_right_back_from_a_running_attempt_and_its_end_gives_it_back(
    scene: Stage, unfailed: str
) -> None:
    scene.start(in_place=True, overrides=STEPS).at_step(5)
    scene.ledger.pause("story", "a person looks")
    withheld(scene, "automation is paused")
    scene.ledger.unpause("story", "done")
    withheld(scene, "")
    scene.fault("kill-rank:1")
    scene.until(lambda story: bool(story.troubles) and story.troubles[0].resumed_at is not None, "the restart")
    scene.ledger.pause("story", "a person looks")
    withheld(scene, "automation is paused")
    scene.fault("kill-rank:0")
    story = scene.until(lambda story: len(story.troubles) == 2 and bool(story.troubles[1].action), "a decision")
    assert (story.troubles[1].action, story.attempts[0].restarts_in_place) == (Action.NEW_ATTEMPT, 1), scene.tell()
    assert len(story.attempts) == 1, "while it is paused nothing begins"
    scene.ledger.unpause("story", "done")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["process_killed", "succeeded"], scene.tell()
    assert scene.weights() == unfailed


def test_the_second_time_on_one_node_is_a_new_attempt_elsewhere(scene: Stage, unfailed: str) -> None:
    scene.start(in_place=True, overrides=STEPS).fault("kill-rank:1,step=12")
    scene.until(lambda story: bool(story.troubles) and story.troubles[0].resumed_at is not None, "the restart")
    scene.fault("kill-rank:1,step=30")
    story = scene.end()
    assert succeeded(story), scene.tell()
    assert outcomes(story) == ["process_killed", "succeeded"], scene.tell()
    assert [item.action for item in story.troubles] == [Action.RESTART_IN_PLACE, Action.NEW_ATTEMPT]
    [node] = {node for node, _ in story.troubles[0].culprits}
    assert node not in story.attempts[1].nodes, scene.tell()
    assert scene.weights() == unfailed


def test_a_drill_measures_a_restart_in_place(scene: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    scene.start(in_place=True, overrides=STEPS).at_step(6)
    assert run_drill(scene.run, "kill-rank:0,step=12", as_json=False) == 0
    said = capsys.readouterr().out
    assert "training again after" in said
    assert "action: restart-in-place" in said
    assert succeeded(scene.end()), scene.tell()
