"""Gangs that are not there: what their gates, coordinators and trainers say follows from a table and the clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

from profiles.resolve import Resolved
from tasks.cluster import Answered, Manifest
from tests.support.simulated.cluster import Act
from tests.support.simulated.store import Clock
from workflows import labels
from workflows.wire import GateReport, RankEnd, ResumeChoice, Termination, to_json

STEP_SECONDS = 0.05
LAUNCH_SECONDS = 0.5
"""From the start of the pods to the first step's beginning."""
GATE_SECONDS = 0.2
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/work/train.py", line 12, in step',
    "    raise ValueError('a batch of no shape')",
    "ValueError: a batch of no shape",
)


@dataclass(frozen=True)
class Fate:
    """What becomes of a gang that does not train to its end."""

    step: int
    """After this step; the rank reports no other."""
    pod: int
    """Index of the pod it comes from."""
    kind: Literal["ends", "power"] = "ends"
    """`ends`: its rank ends by itself; `power`: its node is lost, and the cluster says so."""
    last_lines: tuple[str, ...] = TRACEBACK
    """What the rank prints before it ends."""
    exit_code: int | None = 1
    signal: int | None = None


@dataclass
class Gang:
    """One attempt's gang."""

    launched_at: float
    resumed_from: int
    last: int
    """The step after which it ends or stands still."""
    pods: dict[int, Manifest] = field(default_factory=dict[int, Manifest])

    def steps(self, now: float) -> list[tuple[int, float]]:
        """Steps done until now, each with its moment."""
        first = self.resumed_from + 1
        moments = ((step, self.at(step)) for step in range(first, self.last + 1))
        return [(step, at) for step, at in moments if at <= now]

    def at(self, step: int) -> float:
        """When the step is done."""
        return self.launched_at + (step - self.resumed_from) * STEP_SECONDS


class Gangs:
    """What the pods of a run do: `act` is the table of its cluster.

    Args:
        clock: the cluster's.
        resolved: the run's profile.
        fates: by attempt; others train to their end.
        lose_node: cuts the power of a node.
    """

    def __init__(
        self, clock: Clock, resolved: Resolved, fates: Mapping[int, Fate], lose_node: Callable[[str], None]
    ) -> None:
        self._clock, self._resolved, self._fates, self._lose_node = clock, resolved, fates, lose_node
        self.gangs: dict[int, Gang] = {}

    def act(self, pod: Manifest) -> Act:
        """What a pod that starts will do."""
        marks, command = pod["metadata"]["labels"], pod["spec"]["containers"][0]["command"]
        attempt = int(marks[labels.ATTEMPT])
        if marks.get(labels.ROLE) == labels.COORDINATOR_ROLE:
            answer = partial(self._answer, attempt)
            return Act(seconds=None, port=labels.COORDINATOR_PORT, answer=answer, stopped_exit_code=0)
        if labels.ROLE in marks:
            return self._train(attempt, int(marks["batch.kubernetes.io/job-completion-index"]), pod)
        return Act(seconds=GATE_SECONDS, outputs=self._outputs(command[1], pod))

    def saved(self) -> int:
        """Step of the newest checkpoint; 0: there is none."""
        done = (step for gang in self.gangs.values() for step, _ in gang.steps(self._clock.now()))
        return max((step for step in done if self._is_saved(step)), default=0)

    def _is_saved(self, step: int) -> bool:
        return step % (self._resolved.run.checkpoint.interval_steps or 1) == 0

    def _outputs(self, program: str, pod: Manifest) -> dict[str, str]:
        """What a step of a workflow puts out."""
        match program:
            case "gate":
                report = GateReport(pod["spec"]["nodeName"], "pass", [], self._clock.now())
                return {"report": to_json(report), "verdict": "pass"}
            case "verify":
                step = self.saved()
                choice = ResumeChoice(self._path(step) if step else "", step or None, [], "pass", "simulated")
                told = {"resume-from": choice.resume_from, "resume-step": str(step) if step else ""}
                return {"choice": to_json(choice), "verdict": "pass", **told}
            case "collect":
                return {"collected": json.dumps({"steps": []})}
            case _:
                raise AssertionError(f"nobody said what {program} does")

    def _path(self, step: int) -> str:
        return f"/checkpoints/step-{step}"

    def _train(self, attempt: int, index: int, pod: Manifest) -> Act:
        fate = self._fates.get(attempt)
        gang = self.gangs.get(attempt)
        if gang is None:
            last = fate.step if fate is not None else self._resolved.run.steps
            gang = self.gangs[attempt] = Gang(self._clock.now() + LAUNCH_SECONDS, self.saved(), last)
        gang.pods[index] = pod
        until = gang.at(gang.last) - self._clock.now()
        victim = RankEnd(index, 0, gang.at(gang.last), signal=15, requested=True, last_step=gang.last)
        act = Act(seconds=None, stopped_message=_termination(pod, attempt, "told-to-stop", victim))
        if fate is None:
            end = RankEnd(index, 0, gang.at(gang.last), exit_code=0, last_step=gang.last)
            return replace(act, seconds=until + STEP_SECONDS, message=_termination(pod, attempt, "completed", end))
        if fate.pod != index:
            return act
        if fate.kind == "ends":
            lines = list(fate.last_lines)
            end = replace(victim, exit_code=fate.exit_code, signal=fate.signal, requested=False, last_lines=lines)
            printed = tuple(f"[rank{index}]: {line}" for line in lines)
            message = _termination(pod, attempt, "rank-failed", end)
            return replace(act, seconds=until, exit_code=1, last_lines=printed, message=message)
        self._clock.after(until, partial(self._lose_node, pod["spec"]["nodeName"]))
        return act

    def _answer(self, attempt: int, method: str, path: str, token: str, body: bytes) -> Answered:
        """The coordinator's, as far as a driver asks."""
        assert (method, body) == ("GET", b"")
        assert token, "nobody else may ask"
        gang, now = self.gangs.get(attempt), self._clock.now()
        steps = gang.steps(now) if gang is not None else []
        if not path.startswith("/v1/steps"):
            return Answered(200, json.dumps(self._status(gang, steps, now)).encode())
        since = int(path.partition("since=")[2].partition("&")[0])
        rows = [[step, at, 1.0 / step, STEP_SECONDS] for step, at in steps[since:]]
        return Answered(200, json.dumps({"steps": rows, "next": len(steps), "next_moment": 0, "moments": []}).encode())

    def _status(self, gang: Gang | None, steps: list[tuple[int, float]], now: float) -> dict[str, Any]:
        status: dict[str, Any] = {"now": now, "incarnation": 1, "phase": "init", "members": [], "checkpoints": []}
        if gang is None:
            return status
        status["members"] = [
            {"pod": pod["metadata"]["name"], "node": pod["spec"]["nodeName"], "ranks": [rank], "last_heard_at": now}
            for rank, pod in sorted(gang.pods.items())
        ]
        if not steps:
            return status
        status |= {"phase": "step", "launched_at": gang.launched_at, "step": steps[-1][0], "loss": 1.0 / steps[-1][0]}
        status["first_step"] = {"step": steps[0][0], "at": steps[0][1]}
        saved = [(step, at) for step, at in steps if self._is_saved(step)]
        status["checkpoints"] = [
            {"step": step, "path": self._path(step), "at": at, "verdict": "pass", "format": "primus"}
            for step, at in saved
        ]
        return status


def _termination(pod: Manifest, attempt: int, reason: str, end: RankEnd) -> str:
    """What the launcher of a pod with one rank leaves."""
    return Termination(
        run=pod["metadata"]["labels"][labels.RUN],
        attempt=attempt,
        role=pod["metadata"]["labels"][labels.ROLE],
        node=pod["spec"]["nodeName"],
        pod=pod["metadata"]["name"],
        reason=reason,
        ranks=[end],
        first_failing_rank=end.rank if reason == "rank-failed" else None,
        last_step=end.last_step,
        at=end.at,
    ).summary()
