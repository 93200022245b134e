"""The claims of a test of volumes: observed while its workflow runs, and until they are gone."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from profiles.errors import PrimusError
from tasks.cluster import Manifest, current
from workflows import labels
from workflows.model.manifest import part
from workflows.model.workflow import WorkflowStep, workflow_pods
from workflows.node_tests.volumes import VOLUME, NodeClaim
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes.run import unpack_answers

GONE_SECONDS = 30.0
"""Kubernetes removes a claim within seconds of its pod; a provider of storage that has not done so by then is stuck."""
LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class _Pod:
    """A pod with a volume, from the workflow's status."""

    node: str
    phase: str
    message: str
    seconds: float
    """From its creation to its end; 0 before."""
    answers: Mapping[int, Sequence[ParsedOutput]]
    worked_seconds: float


class Claims:
    """The claims of one test.

    They belong to the workflow called `test`; `now` tells Unix seconds.
    """

    def __init__(self, test: str, now: Callable[[], float], wait: Callable[[float], object] = time.sleep) -> None:
        self._test, self._now, self._wait = test, now, wait
        self._sights: dict[str, NodeClaim] = {}
        self._answers: dict[str, Mapping[int, Sequence[ParsedOutput]]] = {}
        self._ended_at = 0.0

    def look(self, manifest: Manifest) -> None:
        """Observe the workflow and the claims now; a claim that cannot be read stays as it was."""
        for pod in map(_pod, workflow_pods(manifest, VOLUME)):
            seen = self._sights.get(pod.node, NodeClaim())
            ran = seen.ran or pod.phase == "Running" or bool(pod.answers)
            seen = replace(seen, ran=ran, said=pod.message if pod.message not in ("", "timeout") else seen.said)
            if pod.answers:
                self._answers[pod.node] = pod.answers
                ready = max(0.0, pod.seconds - pod.worked_seconds)
                seen = replace(seen, ready_seconds=ready, worked_seconds=pod.worked_seconds)
            self._sights[pod.node] = seen
        with suppress(PrimusError):
            for node, phase in self._phases():
                if phase == "Bound":
                    self._sights[node] = replace(self._sights.get(node, NodeClaim()), bound=True)
        self._ended_at = self._now()

    def await_gone(self) -> None:
        """Observe until the claims of the pods that reported are gone, at most `GONE_SECONDS`."""
        waiting = set(self._answers)
        while waiting and self._now() - self._ended_at < GONE_SECONDS:
            with suppress(PrimusError):
                left = {node for node, _ in self._phases()}
                for node in waiting - left:
                    took = max(0.0, self._now() - self._ended_at)
                    self._sights[node] = replace(self._sights[node], gone_seconds=took)
                waiting &= left
            if waiting:
                self._wait(LOOK_SECONDS)

    def sight(self, node: str, number: int) -> NodeClaim:
        """What was seen of a node's claim, with what its pod reported of that call."""
        attempts = self._answers.get(node, {}).get(number, ())
        return replace(self._sights.get(node, NodeClaim()), report=attempts[-1] if attempts else None)

    def _phases(self) -> list[tuple[str, str]]:
        """(node, phase) of each claim that there is."""
        found = current().list("PersistentVolumeClaim", {labels.TEST: self._test})
        nodes = [str(part(one, "metadata", "annotations").get(labels.NODE, "")) for one in found]
        return [(node, str(part(one, "status").get("phase") or "")) for node, one in zip(nodes, found, strict=True)]


def _pod(step: WorkflowStep) -> _Pod:
    answers: Mapping[int, Sequence[ParsedOutput]] = {}
    worked = 0.0
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        report: dict[str, Any] = json.loads(step.outputs.get("report", ""))
        answers, worked = unpack_answers(str(report["answers"])), float(report["seconds"])
    began, ended = step.started_at, step.finished_at
    return _Pod(
        node=step.inputs.get("node", ""),
        phase=step.phase,
        message=step.message,
        seconds=ended - began if began and ended else 0.0,
        answers=answers,
        worked_seconds=worked,
    )
