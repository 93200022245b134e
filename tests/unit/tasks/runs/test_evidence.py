"""What is gathered about an incident, as far as stories do not show it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.context import Right, World, standing_in
from tasks.ledger.ledger import Ledger
from tasks.runs.evidence import LOG_PODS, lines_of, open_incident, suspended, telling
from tasks.runs.in_place import incident_of
from tasks.settings import Settings
from tests.support.builders.ledgers import an_attempt, driven
from tests.support.builders.nodes import a_node
from workflows.model.attempt import AttemptView, CoordinatorFacts, Signal
from workflows.model.cluster import Pod
from workflows.model.gang_status import GangNews
from workflows.model.records import AttemptRecord, MarkRecord
from workflows.programs.launcher.options import Place, Rendezvous
from workflows.programs.launcher.rank_set import describe_restart
from workflows.status import Hang, RestartInPlace
from workflows.wire import RankEnd, Termination

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


HUNG = CoordinatorFacts(at=100.0, news=GangNews(hang=Hang(25.0, verdict="confirmed")))
ENDED = Termination("demo", 1, "trainer", "node-1", "p", "rank-failed", [
    RankEnd(0, 0, 92.0, exit_code=1, requested=True), RankEnd(1, 1, 90.5, exit_code=1)])  # fmt: skip
PAST = AttemptView("demo", 1, 100.0)


@pytest.mark.parametrize(
    ("signal", "view", "faults", "restarts", "happened"),
    [
        (Signal.HANG, replace(PAST, coordinator=HUNG), (), (), 75.0),
        (Signal.HANG, PAST, (), (), 80.0),
        (Signal.HANG, replace(PAST, coordinator=HUNG), (70.0,), (), 70.0),
        (Signal.POD_FAILED, replace(PAST, pods=(Pod("p", phase="Failed", finished_at=95.0, termination=ENDED),)),
         (), (), 90.5),
        (Signal.POD_FAILED, replace(PAST, pods=(Pod("p", phase="Failed", finished_at=95.0),)), (), (), 95.0),
        (Signal.POD_FAILED, replace(PAST, pods=(Pod("p", phase="Failed", finished_at=95.0),)), (20.0,), (21.0,), 95.0),
        (Signal.POD_FAILED, PAST, (20.0, 60.0), (21.0,), 60.0),
        (Signal.NODE_NOT_READY, PAST, (), (), 100.0),
    ],
)  # fmt: skip
def test_when_it_happened(
    tmp_path: Path,
    signal: Signal,
    view: AttemptView,
    faults: tuple[float, ...],
    restarts: tuple[float, ...],
    happened: float,
) -> None:
    """A hang with its last progress, a failed rank with its end; a drill's fault only where ranks began before it."""
    ledger = Ledger(f"sqlite:///{tmp_path}/ledger.db")
    fencing = driven(ledger)
    ledger.plan_attempt(fencing, an_attempt())
    ledger.update_attempt(fencing, "demo", 1, last_step=7, last_step_at=80.0)
    ledger.add_marks(fencing, [MarkRecord("demo", 1, "fault", at, "kill-rank:1") for at in faults])
    for number, at in enumerate(restarts, 1):
        again = RestartInPlace(number, at, number + 1)
        ledger.open_incident(fencing, incident_of(an_attempt(), again, at))
    settings = Settings.from_environment({"PRIMUS_HOME": "/nowhere"})
    with standing_in(World(settings, ledger, Right("demo", fencing), lambda: 100.0)):
        attempt = ledger.story("demo").attempt
        assert attempt is not None
        found = open_incident.fn(attempt, signal, "why", view)
    ledger.close()
    assert (found.at, found.detected_at) == (happened, 100.0)


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
    lost = replace(dying, name="h", node="o")
    three = [*nodes, a_node("o", ready=True)]
    told = telling((late, dying, lost), Signal.POD_FAILED, three, unreached=("o",))
    assert [pod.name for pod in told] == ["a", "c"], "a node without power is called ready for most of a minute"
    many = tuple(replace(early, name=f"p{n}") for n in range(LOG_PODS))
    assert len(telling((dying, *many), Signal.POD_FAILED, nodes)) == LOG_PODS
