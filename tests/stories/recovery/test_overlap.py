"""The next attempt is made ready while the last one ends, and no rank of it starts before that end is seen."""

from __future__ import annotations

import time
from typing import Any

import pytest

import flows.failover
import flows.train
from profiles.errors import Refused
from profiles.resolve import Resolved
from profiles.vocabulary import FaultClass, RunState
from tests.support.harness.stages import Stage, incident, outcomes, succeeded
from workflows import labels
from workflows.model.records import AttemptRecord, RequestRecord

pytestmark = pytest.mark.story
TOKEN_MISSING = "CreateContainerConfigError"


@pytest.fixture(autouse=True)
def slow_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The flow takes the embedded cluster's pods for as slow to end as a kubelet's."""

    def slowly(_: Resolved) -> bool:
        return True

    monkeypatch.setattr(flows.failover, "ends_slowly", slowly)


def gang(scene: Stage, attempt: int) -> list[dict[str, Any]]:
    """Pods of the attempt's ranks and of its coordinator."""
    pods = scene.cluster.list("Pod", {labels.RUN: scene.run, labels.ATTEMPT: str(attempt)})
    return [pod for pod in pods if labels.ROLE in pod["metadata"]["labels"]]


def living(scene: Stage, attempt: int) -> list[str]:
    """Pods of the attempt's gang that have not ended."""
    return [pod["metadata"]["name"] for pod in gang(scene, attempt) if pod["status"]["phase"] in ("Pending", "Running")]


def launched(scene: Stage, attempt: int) -> list[str]:
    """What launchers and coordinator of the attempt left in the run's folder."""
    return sorted(str(path) for path in scene.folder.glob(f"a{attempt}/*/*"))


class Held:
    """Takes the place of `see_out`: sees the last attempt out only when the whole gang of the next one stands there."""

    def __init__(self, scene: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self._scene, self._see_out, self._let_start = scene, flows.train.see_out, flows.train.let_start
        self.seen: list[str] = []
        self.alive_at_start: list[str] | None = None
        monkeypatch.setattr(flows.train, "see_out", self.see_out)
        monkeypatch.setattr(flows.train, "let_start", self.let_start)

    def see_out(self, resolved: Resolved, attempt: AttemptRecord) -> None:
        if attempt.number == 2:
            deadline = time.monotonic() + self._scene.ground.deadline_seconds
            while len(waiting := [pod for pod in gang(self._scene, 2) if TOKEN_MISSING in str(pod)]) < 3:
                assert time.monotonic() < deadline, self._scene.tell()
                time.sleep(0.01)
            self.seen = [pod["metadata"]["name"] for pod in waiting]
            assert launched(self._scene, 2) == []
        self._see_out(resolved, attempt)

    def let_start(self, attempt: AttemptRecord, submitted_at: float) -> AttemptRecord:
        if attempt.number == 2:
            self.alive_at_start = living(self._scene, 1)
            assert launched(self._scene, 2) == []
        return self._let_start(attempt, submitted_at)


@pytest.mark.parametrize("fault", ["kill-rank:1,step=17", "lose-node"])
def test_no_rank_starts_before_the_last_ones_are_seen_out(
    scene: Stage, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    held = Held(scene, monkeypatch)
    with scene.start().held_at(17):
        scene.fault(f"lose-node:{scene.story.attempts[0].nodes[1]}" if fault == "lose-node" else fault)
    story = scene.end()
    assert succeeded(story), scene.tell()
    klass = FaultClass.NODE_LOST if fault == "lose-node" else FaultClass.PROCESS_KILLED
    assert outcomes(story) == [klass, "succeeded"], scene.tell()
    assert len(held.seen) == 3, "two launchers and the coordinator were there and waited for their token"
    assert held.alive_at_start == []
    assert story.attempts[1].first_step == (story.attempts[1].resumed_from_step or 0) + 1
    assert launched(scene, 2), "and started once they had it"
    scene.no_orphans()


def test_a_stop_between_two_attempts_leaves_nothing_of_either(scene: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[int] = []
    see_out = flows.train.see_out

    def seeing(resolved: Resolved, attempt: AttemptRecord) -> None:
        said.append(attempt.number)
        see_out(resolved, attempt)

    def killed(resolved: Resolved, attempt: AttemptRecord) -> float:
        if attempt.number == 2:
            scene.ledger.request(RequestRecord(f"{scene.run}-stop", scene.run, "stop", time.time(), "enough"))
            raise KeyboardInterrupt
        return submit(resolved, attempt)

    submit = flows.train.submit_attempt
    monkeypatch.setattr(flows.train, "see_out", seeing)
    monkeypatch.setattr(flows.train, "submit_attempt", killed)
    scene.start().fault("kill-rank:1,step=17")
    scene.thread.join(scene.ground.deadline_seconds)
    assert isinstance(scene.error, KeyboardInterrupt), scene.tell()
    assert said == [1]
    story = scene.drive().end()
    assert story.run.state is RunState.STOPPED, scene.tell()
    assert said == [1, 2], "whoever ends the run sees the first attempt out too"
    assert living(scene, 1) == []
    assert gang(scene, 2) == []
    scene.no_orphans()


def test_an_attempt_that_is_refused_has_seen_the_last_one_out(scene: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    alive: list[list[str]] = []
    submit, refuse = flows.train.submit_attempt, flows.train.refuse

    def refused(resolved: Resolved, attempt: AttemptRecord) -> float:
        if attempt.number == 2:
            raise Refused("Workflow", "the cluster says no")
        return submit(resolved, attempt)

    def refusing(attempt: AttemptRecord, why: str) -> None:
        alive.append(living(scene, 1))
        refuse(attempt, why)

    monkeypatch.setattr(flows.train, "submit_attempt", refused)
    monkeypatch.setattr(flows.train, "refuse", refusing)
    scene.start().fault("kill-rank:1,step=17")
    story = scene.end()
    assert alive[0] == []
    assert incident(story, 1).signal == "submit-refused", scene.tell()
    scene.no_orphans()
