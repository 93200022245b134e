"""Who has gone silent: two paths are asked, and neither alone, nor a path that is broken itself, proves a loss.

Asking launchers' own logs where the coordinator is not heard: rarely, a few, and never in the way of the watch.

Whose kubelet is not reached: asked only about nodes in doubt, and nothing is concluded where nobody can say.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.losses import lost_nodes
from profiles.errors import Unavailable
from profiles.loading import load
from profiles.resolve import Resolved
from profiles.vocabulary import FaultClass
from tasks.cluster import Answered, Cluster
from tasks.runs.liveness import (
    MOST,
    SILENT_SECONDS,
    Asker,
    SecondPath,
    Silence,
    further,
    out_of_reach,
    silence,
    unready,
)
from tests.support.builders.nodes import a_node
from tests.support.cases.rows import rows
from tests.support.fakes.fake_api_server import FakeApiServer, Fault, status
from tests.support.running.waiting import patience
from tests.unit.tasks.kubernetes.test_cluster import cluster, pod, sleeps  # noqa: F401  # pyright: ignore[reportUnusedImport]
from workflows import labels
from workflows.model.attempt import AttemptView, CoordinatorFacts, Evidence, LogLine, LogSign, SecondSight, Signal
from workflows.model.cluster import Pod
from workflows.model.gang_status import GangNews
from workflows.model.liveness import CALM, LOG_LINES, LOOK_SECONDS
from workflows.model.records import AttemptRecord
from workflows.status import Hang
from workflows.wire import RankEnd, StepSeen, Termination, line


def rank(index: int, phase: str = "Running", **more: Any) -> Pod:
    return Pod(f"t-{index}", "trainer", index, f"node-{index}", phase, ranks=(index,), **more)


def coordinator(node: str, phase: str = "Running") -> Pod:
    return Pod("c-0", labels.COORDINATOR_ROLE, 0, node, phase)


@dataclass
class Quiet:
    """A cluster some of whose kubelets do not answer, and a coordinator that tells whom it hears."""

    away: frozenset[str] = frozenset()
    """Pods whose kubelet is not reached."""
    heard: dict[str, float] | None = None
    """When a launcher of each node was last heard; None: the coordinator does not answer."""
    unknown: frozenset[str] = frozenset()
    """Pods about which the cluster cannot say."""
    clock: float = 100.0
    asked: list[str] = field(default_factory=list[str])

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool | None:
        assert timeout_seconds > 0
        self.asked.append(pod)
        return None if pod in self.unknown else pod not in self.away

    def call(self, pod: str, port: int, method: str, path: str, *, token: str) -> Answered:
        assert (pod, port, method, path, token) == ("c-0", labels.COORDINATOR_PORT, "GET", "/status", "t")
        if self.heard is None:
            raise Unavailable("no answer")
        members = [{"node": node, "last_heard_at": at} for node, at in self.heard.items()]
        return Answered(200, json.dumps({"now": self.clock, "members": members}).encode())

    def sleep(self, seconds: float) -> None:
        self.clock += seconds

    def ask(self, *pods: Pod, ready: int = 4) -> Silence:
        asker = Asker(cast(Cluster, self), lambda: "t", lambda: self.clock, self.sleep)
        return silence(asker, pods, frozenset(f"node-{index}" for index in range(ready)))


GANG = (rank(0, "Failed", exit_code=1), rank(1), coordinator("node-0"))


def test_two_silent_paths_make_a_silent_node() -> None:
    quiet = Quiet(frozenset({"t-1"}), {"node-0": 100.0, "node-1": 90.0})
    assert quiet.ask(*GANG) == Silence(("node-1",), ("node-1",))


def test_a_launcher_heard_a_moment_ago_is_given_the_time_to_be_silent() -> None:
    quiet = Quiet(frozenset({"t-1"}), {"node-0": 100.0, "node-1": 99.5})
    assert quiet.ask(*GANG) == Silence(("node-1",), ("node-1",))
    assert SILENT_SECONDS - 0.5 <= quiet.clock - 100.0 < SILENT_SECONDS + 1.0


def test_a_launcher_that_goes_on_talking_is_not_silent() -> None:
    class Talks(Quiet):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            self.heard = {"node-0": self.clock, "node-1": self.clock}

    assert Talks(frozenset({"t-1"}), {"node-0": 100.0, "node-1": 100.0}).ask(*GANG) == Silence((), ("node-1",))


def test_where_all_kubelets_answer_nobody_is_asked_further_and_nothing_is_waited_for() -> None:
    quiet = Quiet(heard={"node-1": 0.0})
    assert quiet.ask(*GANG) == Silence(answering=("node-1",))
    assert quiet.clock == 100.0


def test_of_two_in_doubt_the_one_that_answers_is_told_apart() -> None:
    quiet = Quiet(frozenset({"t-1"}), None)
    assert quiet.ask(rank(0), rank(1)) == Silence(kubelets=("node-1",), answering=("node-0",))


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        ((rank(0, "Failed"), rank(1, "Failed")), "both told of their end"),
        ((rank(0, "Failed"), rank(7)), "a condition says already that the node is lost"),
        (tuple(rank(index) for index in range(40)), "so many at once are no nodes' fault"),
    ],
)
def test_nobody_is_asked_where_nothing_is_in_doubt(pods: tuple[Pod, ...], why: str) -> None:
    quiet = Quiet(frozenset(item.name for item in pods))
    assert quiet.ask(*pods, ready=40 if len(pods) > 2 else 4) == Silence(), why
    assert quiet.asked == []


def test_a_path_that_reaches_nobody_speaks_against_itself() -> None:
    assert Quiet(frozenset({"t-0", "t-1"}), {"node-1": 0.0}).ask(*GANG) == Silence()


def test_what_is_not_known_is_no_silence() -> None:
    assert Quiet(unknown=frozenset({"t-1"}), heard={"node-1": 0.0}).ask(*GANG) == Silence()


def test_a_cluster_that_cannot_say_yet_is_asked_again() -> None:
    class Starting(Quiet):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            self.unknown = frozenset() if self.clock >= 102.0 else self.unknown

    starting = Starting(frozenset({"t-1"}), {"node-1": 0.0}, unknown=frozenset({"t-0", "t-1"}))
    assert starting.ask(*GANG) == Silence(("node-1",), ("node-1",))


def test_a_coordinator_that_went_with_the_node_is_its_second_path() -> None:
    pods = (rank(0, "Failed"), rank(1), coordinator("node-1"))
    assert Quiet(frozenset({"t-1"}), None).ask(*pods) == Silence(("node-1",), ("node-1",))


@pytest.mark.parametrize("phase", ["Running", "Failed"])
def test_a_coordinator_elsewhere_that_does_not_answer_says_nothing(phase: str) -> None:
    pods = (rank(0, "Failed"), rank(1), coordinator("node-2", phase))
    assert Quiet(frozenset({"t-1"}), None).ask(*pods) == Silence((), ("node-1",))


# What it means.

PEER = LogLine("RuntimeError: all-reduce failed: rank 1 closed the connection", "rank", 0, "node-0")


def evidence(silent: tuple[str, ...] = (), unreached: tuple[str, ...] = (), size: int = 4) -> Evidence:
    pods = (rank(0, "Failed", exit_code=1), *(rank(index) for index in range(1, size)))
    nodes = tuple(a_node(f"node-{index}", ready=True) for index in range(size))
    return Evidence(
        Signal.POD_FAILED, "r", 1, 0.0, pods, nodes, lines=(PEER,), silent_nodes=silent, unreached_nodes=unreached
    )


def test_two_silent_paths_prove_the_loss() -> None:
    said = evidence(("node-1",), ("node-1",))
    assert lost_nodes(said) == {"node-1": "nothing is heard from its launchers or its kubelet"}
    found = diagnose(said)
    assert (found.fault_class, found.culprits) == (FaultClass.NODE_LOST, (("node-1", None),))
    assert found.confidence >= 0.9


def test_one_silent_path_is_a_supposition() -> None:
    said = evidence(unreached=("node-1",))
    assert lost_nodes(said) == {}
    found = diagnose(said)
    assert found.fault_class is FaultClass.NODE_LOST
    assert 0.5 <= found.confidence < 0.8, "not enough to call the node dead"
    assert [node for node, _ in found.culprits] == ["node-1"]


def test_most_of_a_gang_out_of_reach_speaks_against_whoever_looks() -> None:
    found = diagnose(evidence(unreached=("node-1", "node-2", "node-3")))
    assert found.fault_class is not FaultClass.NODE_LOST


def test_a_node_that_lived_through_an_absence_of_the_api_server_is_not_lost_with_the_one_that_died() -> None:
    told = Termination("r", 1, "trainer", "node-0", "t-0", "rank-failed", [RankEnd(0, 0, 1.0, exit_code=1)])
    said = replace(
        evidence(size=2),
        signal=Signal.NODE_NOT_READY,
        nodes=(a_node("node-0", ready=None), a_node("node-1", ready=None)),
        terminations=(told,),
    )
    assert list(lost_nodes(said)) == ["node-1"], "node-0 told how its rank ended; its lease is only late"
    assert list(lost_nodes(replace(said, terminations=()))) == ["node-0", "node-1"]
    assert [node for node, _ in diagnose(said).culprits] == ["node-1"]


def test_a_node_of_which_the_cluster_knows_nothing_and_whose_kubelet_is_not_reached_is_lost() -> None:
    nodes = (a_node("node-0", ready=True), a_node("node-1", ready=None))
    assert lost_nodes(replace(evidence(size=2), nodes=nodes)) == {}, "one path"
    found = diagnose(replace(evidence(unreached=("node-1",), size=2), nodes=nodes))
    assert found.fault_class is FaultClass.NODE_LOST
    assert [node for node, _ in found.culprits] == ["node-1"]
    assert found.confidence >= 0.9, "its lease is late, and the API server does not reach it"


# How Kubernetes is asked.


def reaches(made: Any, name: str = "p") -> bool | None:
    return made.reaches(name, timeout_seconds=0.3)


@rows("tasks/runs/silence")
def test_what_the_api_server_says_of_a_kubelet(
    cluster: Any,  # noqa: F811
    api: FakeApiServer,
    code: int,
    message: str,
    answer: bool | None,
) -> None:
    api.put("pods", pod("p"))
    api.faults.append(Fault("/log", code, status(code, "x", message), times=9))
    assert reaches(cluster) is answer


def test_a_pod_whose_log_is_read_is_reached(cluster: Any, api: FakeApiServer) -> None:  # noqa: F811
    api.faults.append(Fault("/log", 200, b"a line"))
    assert reaches(cluster) is True


def test_an_api_server_that_does_not_answer_says_nothing_of_a_kubelet(cluster: Any, api: FakeApiServer) -> None:  # noqa: F811
    api.faults.append(Fault("/pods/p", times=9))
    assert reaches(cluster) is None


def test_silence_about_the_log_alone_is_the_kubelets(cluster: Any, api: FakeApiServer) -> None:  # noqa: F811
    api.put("pods", pod("p"))
    api.faults.append(Fault("/log", times=9))
    assert reaches(cluster) is False


DEADLINE_SECONDS = patience(30.0)
PODS = tuple(Pod(f"t-{index}", "trainer", index, f"node-{index}", "Running", ranks=(index,)) for index in range(2))
FACTS = CoordinatorFacts(at=100.0, step=5)
VIEW = AttemptView("r", 1, 100.0, jobset="Running", pods=PODS, coordinator=FACTS)


@dataclass
class Logs:
    """A cluster whose launchers have printed so many steps, and which may be slow or silent."""

    step: int = 7
    away: frozenset[str] = frozenset()
    """Pods whose kubelet is not reached."""
    silent: str = ""
    read: list[str] = field(default_factory=list[str])
    open: threading.Event = field(default_factory=threading.Event)
    """Logs are answered only while it is set."""

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool:
        assert timeout_seconds > 0
        return pod not in self.away

    def logs(self, pod: str, container: str = "", *, tail_lines: int | None = None) -> str:
        assert (container, tail_lines) == ("", LOG_LINES)
        self.read.append(pod)
        assert self.open.wait(DEADLINE_SECONDS)
        if self.silent:
            raise Unavailable(self.silent)
        return line(StepSeen(self.step, float(self.step), rank=int(pod[-1]))) + "\n"


@pytest.fixture
def logs() -> Iterator[Logs]:
    made = Logs()
    made.open.set()
    yield made
    made.open.set()  # whatever a test left waiting ends


def path(logs: Logs, silence_seconds: float = 30.0) -> SecondPath:
    resolved: Resolved = load.resolve(load.load_run("demo"), load.load_cluster("local"))
    recovery = resolved.run.recovery.model_copy(update={"observer_silence_seconds": silence_seconds})
    run = resolved.run.model_copy(update={"recovery": recovery})
    return SecondPath(cast("Cluster", logs), resolved.model_copy(update={"run": run}))


def looked(
    second: SecondPath, now: float, until: Callable[[SecondSight], bool], view: AttemptView = VIEW
) -> SecondSight:
    """What is known at `now`, as soon as it holds."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while (seen := second.look(replace(view, now=now)).second) is None or not until(seen):
        assert time.monotonic() < deadline, seen
        time.sleep(0.002)
    return seen


def test_while_the_coordinator_is_heard_no_log_is_read(logs: Logs) -> None:
    second = path(logs)
    for at in range(100, 200):
        view = replace(VIEW, now=at + 0.2, coordinator=replace(FACTS, at=float(at)))
        assert second.look(view).second is None
    assert logs.read == []


def test_a_silent_one_is_asked_about_at_its_pace_and_forgotten_when_it_speaks(logs: Logs) -> None:
    second = path(logs)
    assert second.look(VIEW).second is None
    assert second.look(replace(VIEW, now=129.0)).second is None
    one = looked(second, 130.0, lambda sight: sight.looks == 1)
    assert (one.unheard_since, one.deaf, one.step, one.moved) == (100.0, False, 7, False)
    assert logs.read == ["t-0", "t-1"]
    second.look(replace(VIEW, now=130.0 + LOOK_SECONDS - 0.1))
    logs.step = 9
    two = looked(second, 130.0 + LOOK_SECONDS, lambda sight: sight.looks == 2)
    assert (two.step, two.moved, two.still_since) == (9, True, 130.0 + LOOK_SECONDS)
    assert logs.read == ["t-0", "t-1"] * 2, "no more than is due"
    calm = 130.0 + LOOK_SECONDS * (1 + CALM)
    second.look(replace(VIEW, now=calm - 0.1))
    assert looked(second, calm, lambda sight: sight.looks == 3).moved is False
    assert second.look(replace(VIEW, now=171.0, coordinator=replace(FACTS, at=170.9))).second is None
    again = looked(second, 300.0, lambda sight: sight.looks == 1, replace(VIEW, coordinator=replace(FACTS, at=170.9)))
    assert (again.unheard_since, again.ever_moved) == (170.9, False), "another silence begins anew"


def test_a_log_that_does_not_come_holds_nobody_up(logs: Logs) -> None:
    logs.open.clear()
    second = path(logs)
    second.look(VIEW)
    for at in range(130, 400, 10):
        seen = second.look(replace(VIEW, now=float(at))).second
        assert seen is not None
        assert seen.looks == 0
    logs.open.set()
    looked(second, 400.0, lambda sight: sight.looks == 1)
    assert logs.read[:2] == ["t-0", "t-1"], "one question at a time"
    assert len(logs.read) <= 4


def test_an_answer_to_an_older_silence_says_nothing_of_this_one(logs: Logs) -> None:
    second = path(logs)
    second.look(VIEW)
    logs.open.clear()
    second.look(replace(VIEW, now=130.0))
    spoke = replace(VIEW, coordinator=replace(FACTS, at=135.0))
    assert second.look(replace(spoke, now=135.1)).second is None
    logs.open.set()
    seen = looked(second, 200.0, lambda sight: sight.looks == 1, spoke)
    assert (seen.unheard_since, seen.still_since) == (135.0, 200.0)
    assert seen.looks == 1


def test_what_cannot_be_read_is_named(logs: Logs) -> None:
    logs.silent, logs.away = "no answer", frozenset({"t-1"})
    second = path(logs)
    second.look(VIEW)
    seen = looked(second, 130.0, lambda sight: sight.looks == 1)
    assert seen.unread == (("t-0", "no answer"), ("t-1", "the kubelet of node-1 is not reached"))
    assert seen.unreached == ("node-1",)
    assert logs.read == ["t-0"], "a kubelet that is not reached is not asked for a log"


def test_a_deaf_coordinator_is_asked_about_though_it_answers(logs: Logs) -> None:
    deaf = GangNews(hang=Hang(40.0, "step", "observer"))
    view = replace(VIEW, coordinator=replace(FACTS, at=199.9, news=deaf))
    second = path(logs)
    seen = looked(second, 200.0, lambda sight: sight.looks == 1, view)
    assert (seen.deaf, seen.step) == (True, 7)
    assert seen.unheard_since == pytest.approx(159.9)
    later = replace(view, now=210.0, coordinator=replace(FACTS, at=209.9, news=GangNews()))
    assert second.look(later).second is None


@pytest.mark.parametrize("change", [{"away": "it stands still"}, {"pods": ()}, {"partial": True}])
def test_where_the_pods_do_not_all_run_nobody_is_asked(logs: Logs, change: dict[str, object]) -> None:
    second = path(logs)
    second.look(VIEW)
    assert second.look(replace(VIEW, now=900.0, **change)).second is None  # pyright: ignore[reportArgumentType]
    assert second.look(replace(VIEW, now=901.0)).second is None, "it may only now be able to speak again"
    assert logs.read == []


@pytest.mark.parametrize(("known", "expected"), [(None, {"last_step": 9}), (8, {"last_step": 9}), (9, {}), (10, {})])
def test_the_ledger_learns_of_later_steps_only(known: int | None, expected: dict[str, object]) -> None:
    attempt = AttemptRecord("r", 1, 0.0, "first", last_step=known)
    seen = replace(VIEW, second=SecondSight(100.0, signs=(("t-0", LogSign(0, 9, 1.0)),)))
    assert further(attempt, seen) == expected
    assert further(attempt, VIEW) == {}


@dataclass
class Kubelets:
    """A cluster whose kubelets answer or not."""

    told: dict[str, bool | None]
    """By pod; a pod that is missing raises Unavailable."""
    asked: list[str] = field(default_factory=list[str])

    def reaches(self, pod: str, *, timeout_seconds: float) -> bool | None:
        assert timeout_seconds > 0
        self.asked.append(pod)
        if pod not in self.told:
            raise Unavailable("no answer")
        return self.told[pod]


def gang(size: int, phase: str = "Running") -> list[Pod]:
    return [Pod(f"p-{index}", "trainer", index, f"n-{index}", phase, ranks=(index,)) for index in range(size)]


@pytest.mark.parametrize(
    ("told", "away"),
    [({"p-1": False}, ("n-1",)), ({"p-1": True}, ()), ({"p-1": None}, ()), ({}, ())],
    ids=["not reached", "reached", "the cluster cannot say", "the cluster does not answer"],
)
def test_only_a_kubelet_that_is_not_reached_counts(told: dict[str, bool | None], away: tuple[str, ...]) -> None:
    kubelets = Kubelets(told)
    assert out_of_reach(cast(Cluster, kubelets), gang(2), frozenset({"n-1"})) == away
    assert kubelets.asked == ["p-1"]


def test_pods_that_were_about_to_start_are_asked_for_too() -> None:
    kubelets = Kubelets({"p-0": False})
    assert out_of_reach(cast(Cluster, kubelets), gang(1, "Pending"), frozenset({"n-0"})) == ("n-0",)
    unplaced = [Pod("p-1", "trainer", 1, "", "Pending")]
    assert out_of_reach(cast(Cluster, kubelets), unplaced, frozenset({"", "n-0"})) == ()


def test_nobody_is_asked_about_well_nodes_ended_pods_or_a_crowd() -> None:
    kubelets = Kubelets({})
    everyone = frozenset(f"n-{index}" for index in range(MOST + 1))
    assert out_of_reach(cast(Cluster, kubelets), gang(2), frozenset()) == ()
    assert out_of_reach(cast(Cluster, kubelets), gang(2, "Failed"), everyone) == ()
    assert out_of_reach(cast(Cluster, kubelets), gang(MOST + 1), everyone, MOST) == ()
    assert kubelets.asked == []


def test_a_whole_rack_is_asked_about_where_its_pods_must_go() -> None:
    rack = gang(72)
    kubelets = Kubelets({pod.name: False for pod in rack})
    everyone = frozenset(pod.node for pod in rack)
    assert out_of_reach(cast(Cluster, kubelets), rack, everyone) == tuple(sorted(everyone))


def test_a_node_of_which_nothing_is_known_is_not_called_unready() -> None:
    assert unready([a_node("a", True), a_node("b", False), a_node("c", None)]) == {"b"}
