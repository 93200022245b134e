"""What is gathered about an incident, as far as stories do not show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tasks.runs.evidence import LOG_PODS, lines_of, suspended, telling
from tests.support.builders.nodes import a_node
from workflows.model.attempt import Signal
from workflows.model.cluster import Pod
from workflows.model.records import AttemptRecord
from workflows.programs.launcher.options import Place, Rendezvous
from workflows.programs.launcher.rank_set import describe_restart

PLACE = Place("r", 1, 0, "node-0", "p", "127.0.0.1", "/r", "/r/c", "", 20, "", "", "", "")
RAN = AttemptRecord("demo", 1, 1.0, "first", submitted_at=2.0, running_at=3.0)


class OneJobSet:
    """A cluster with one JobSet, or none."""

    def __init__(self, jobset: dict[str, Any] | None) -> None:
        self._jobset = jobset

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        assert (kind, name) == ("JobSet", "demo-a1")
        return self._jobset


def jobset(suspend: bool, **marks: str) -> dict[str, Any]:
    return {"metadata": {"name": "demo-a1", "labels": marks}, "spec": {"suspend": suspend}}


@pytest.mark.parametrize(
    ("found", "attempt", "words"),
    [
        (jobset(True, **{"kueue.x-k8s.io/queue-name": "team"}), RAN, "its JobSet was suspended in queue team"),
        (jobset(True), RAN, "its JobSet was suspended"),
        (jobset(True), replace(RAN, running_at=None, first_step=1), "its JobSet was suspended"),
        (jobset(True), replace(RAN, running_at=None), ""),
        (jobset(False), RAN, ""),
        (None, RAN, ""),
    ],
)
def test_a_gang_that_was_suspended_after_it_had_run(
    found: dict[str, Any] | None, attempt: AttemptRecord, words: str
) -> None:
    cluster: Any = OneJobSet(found)
    assert suspended(cluster, attempt) == words


class OneLog:
    """A cluster with the log of one pod."""

    def __init__(self, text: str) -> None:
        self._text = text

    def logs(self, pod: str, container: str, *, tail_lines: int) -> str:
        assert pod == "p"
        return "".join(self._text.splitlines(keepends=True)[-tail_lines:])


def test_what_an_earlier_incarnation_said_is_no_evidence_of_a_later_failure() -> None:
    begun = [describe_restart(PLACE, Rendezvous(number, "127.0.0.1", 1, 0)) for number in (2, 3)]
    again = [f"2026-11-23T12:00:00.5Z launcher: {text}" for text in begun]
    hung = ["2026-11-23T12:00:00.1Z [rank1]: hung", "2026-11-23T12:00:00Z launcher: joining: no progress for 9 s"]
    said = [*hung, again[0], "2026-11-23T12:00:01Z [rank1]: killed", again[1], "2026-11-23T12:00:02Z [rank1]: step 21"]
    cluster: Any = OneLog("\n".join(said) + "\n")
    pod = Pod("p", "trainer", 0, "node-0", "Failed")
    assert [(line.text, line.source, line.rank, line.line) for line in lines_of(cluster, pod)] == [
        ("step 21", "rank", 1, 6)
    ]
    first: Any = OneLog("\n".join(hung))
    assert len(lines_of(first, pod)) == 2, "of a gang that never began again all of it counts"


def test_pods_that_failed_first_are_read_first_and_then_those_that_have_not_ended() -> None:
    late, early = (Pod(name, "trainer", 0, "n", "Failed", finished_at=at) for name, at in (("a", 2.0), ("b", 1.0)))
    dying = Pod("c", "trainer", 2, "n", "Running", ranks=(2,))
    deaf = replace(dying, name="g", node="m")
    beside = Pod("d", "data", 0, "n", "Running")
    heart = Pod("e", "coordinator", 0, "n", "Failed", finished_at=0.5)
    pods = (late, early, dying, deaf, beside, heart, Pod("f", "trainer", 3, "n", "Succeeded", ranks=(3,)))
    nodes = [a_node("n", ready=True), a_node("m", ready=None)]

    def names(signal: Signal) -> list[str]:
        return [pod.name for pod in telling(pods, signal, nodes)]

    assert names(Signal.POD_FAILED) == ["b", "a", "c"], "who cannot be reached is not asked"
    assert names(Signal.NUMERIC) == ["b", "a"], "its ranks still train"
    assert names(Signal.NODE_NOT_READY) == ["b", "a"], "the reason is known"
    many = tuple(replace(early, name=f"p{n}") for n in range(LOG_PODS))
    assert len(telling((dying, *many), Signal.POD_FAILED, nodes)) == LOG_PODS
