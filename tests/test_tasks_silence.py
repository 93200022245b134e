"""Who has gone silent: two paths are asked, and neither alone, nor a path that is broken itself, proves a loss."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.witnesses import lost_nodes
from profiles.errors import Unavailable
from profiles.vocabulary import FaultClass
from tasks.cluster import Answered, Cluster
from tasks.runs.liveness import SILENT_SECONDS, Asker, Silence, silence
from tests.fake_api_server import FakeApiServer, Fault, status
from tests.support.nodes import a_node
from tests.test_tasks_kubernetes import api, cluster, pod, sleeps  # noqa: F401  # pyright: ignore[reportUnusedImport]
from workflows import labels
from workflows.model.attempt import Evidence, LogLine, Signal
from workflows.model.cluster import Pod
from workflows.wire import RankEnd, Termination


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


@pytest.mark.parametrize(
    ("code", "message", "answer"),
    [
        (500, 'Get "https://10.0.0.7:10250/containerLogs/n/p/c": dial tcp 10.0.0.7:10250: connection refused', False),
        (500, 'Get "https://10.0.0.7:10250/containerLogs/n/p/c": dial tcp 10.0.0.7:10250: i/o timeout', False),
        (502, "error trying to reach kubelet: dial tcp 10.0.0.7:10250: connect: no route to host", False),
        (500, "etcdserver: request timed out", None),
        (400, 'container "main" in pod "p" is waiting to start: ContainerCreating', True),
        (403, 'pods "p" is forbidden: cannot get resource "pods/log"', None),
        (404, 'pods "p" not found', None),
    ],
)  # fmt: skip
def test_what_the_api_server_says_of_a_kubelet(
    cluster: Any,  # noqa: F811
    api: FakeApiServer,  # noqa: F811
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
