"""Looking at a run and a queue through the seam: what is read, what may not be read, what the objects say."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from profiles.cluster import ClusterProfile
from profiles.errors import Unavailable
from profiles.resolve import Resolved
from tasks.cluster import Seen
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.observe.run import read_attempt, read_queues
from tests.support.builders.attempt_plans import AMD, a_cluster, a_gpu_plan
from tests.support.fakes.fake_api_server import FakeApiServer, Fault, status
from workflows.attempt.jobset import jobset
from workflows.model.cluster import event_of, jobset_of, pod_of
from workflows.model.queues import Quota, cluster_queue_of, workload_of
from workflows.model.records import AttemptRecord

PLAN = a_gpu_plan()
ATTEMPT = AttemptRecord("demo-1", 1, 1.0, "first", submitted_at=2.0)
GPU = "amd.com/gpu"
MARKS = {"primus-flows.io/run": "demo-1", "primus-flows.io/attempt": "1", "primus-flows.io/role": "trainer"}
AT = "2026-11-22T01:02:03Z"


def resolved() -> Resolved:
    return PLAN.resolved


def cluster_at(api: FakeApiServer, profile: ClusterProfile | None = None) -> KubernetesCluster:
    configuration = Configuration()
    configuration.host = api.url
    return KubernetesCluster(profile or resolved().cluster, ApiServer(lambda: configuration))


def made(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    labels, owners = fields.pop("labels", {}), fields.pop("owners", [])
    metadata = {"name": name, "labels": labels, "ownerReferences": owners, "creationTimestamp": AT}
    return {"kind": kind, "metadata": metadata, **fields}


def our_jobset(**spec: Any) -> dict[str, Any]:
    found = jobset(PLAN)
    found["metadata"]["creationTimestamp"] = AT
    found["spec"] |= spec
    return found


def our_pod(name: str, node: str = "", **fields: Any) -> dict[str, Any]:
    container = {"name": "trainer", "image": "train:1", "resources": {"limits": {GPU: "8"}}}
    spec = {"containers": [container]} | ({"nodeName": node} if node else {})
    return made("Pod", name, labels=MARKS | {"jobset.sigs.k8s.io/jobset-name": "demo-1-a1"}, spec=spec, **fields)


def our_workload(**fields: Any) -> dict[str, Any]:
    container = {"resources": {"requests": {GPU: "8", "cpu": "500m", "memory": "1Gi"}}}
    pod_sets = [{"name": "trainer", "count": 2, "template": {"spec": {"containers": [container]}}}]
    spec = {"queueName": "team", "priority": 10000, "podSets": pod_sets, "priorityClassRef": {"name": "high"}}
    owner = {"kind": "JobSet", "name": "demo-1-a1", "controller": True}
    return made("Workload", "jobset-demo-1-a1-1f2e3", owners=[owner], spec=spec, **fields)


def test_a_run_that_waits_for_kueue_is_seen_with_its_queues(api: FakeApiServer) -> None:
    api.put("jobsets", our_jobset(suspend=True))
    api.put("workloads", our_workload(status={"conditions": [{"type": "QuotaReserved", "status": "False"}]}))
    api.put("localqueues", made("LocalQueue", "team", spec={"clusterQueue": "research"}))
    api.put("localqueues", made("LocalQueue", "other", spec={"clusterQueue": "elsewhere"}))
    api.put("clusterqueues", made("ClusterQueue", "research", spec={"stopPolicy": "Hold"}))
    found = read_attempt(cluster_at(api), resolved(), ATTEMPT, {})
    assert found.jobset is not None
    assert (found.jobset.queue, found.jobset.suspended, found.jobset.gpus, found.jobset.pods) == ("team", True, 16, 6)
    assert found.workload is not None
    assert found.workload.owner == "demo-1-a1"
    assert [item.name for item in found.cluster_queues] == ["research"], "only the one in question is asked for"
    assert found.cluster_queues[0].stopped == "Hold"
    assert found.unread == ()
    assert {seen.method for seen in api.seen} == {"GET"}, "nothing is touched"


def test_what_may_not_be_read_is_named_and_everything_else_is_read(api: FakeApiServer) -> None:
    api.put("jobsets", our_jobset(suspend=True))
    api.put("workloads", our_workload())
    forbidden = status(403, "Forbidden", 'localqueues.kueue.x-k8s.io is forbidden: User "me" cannot list resource')
    api.faults += [Fault("/localqueues", 403, forbidden, times=9), Fault("GET /readyz", 200, b"ok")]
    found = read_attempt(cluster_at(api), resolved(), ATTEMPT, {})
    assert found.workload is not None
    assert [kind for kind, _ in found.unread] == ["LocalQueue"]
    assert "forbidden" in found.unread[0][1]


def test_a_cluster_without_kueue_is_no_gap_where_nobody_asks_for_a_queue(api: FakeApiServer) -> None:
    plain = our_jobset()
    del plain["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    api.put("jobsets", plain)
    api.put("pods", our_pod("p-0", "node-0", status={"phase": "Running"}))
    for plural in ("workloads", "localqueues"):
        api.faults.append(Fault(f"/{plural}", 404, b"404 page not found\n"))
    line = read_queues(cluster_at(api), resolved().cluster)
    assert line.unread == ()
    assert line.owners == {"p-0": "demo-1-a1"}
    assert [item.name for item in line.jobsets] == ["demo-1-a1"]


def test_an_unplaced_gang_is_seen_with_events_nodes_and_who_uses_them(api: FakeApiServer) -> None:
    api.put("jobsets", our_jobset())
    api.put("pods", our_pod("demo-1-a1-trainer-0-0-x", status={"phase": "Pending"}))
    other = our_pod("big-a1-trainer-0-0-y", "node-0", status={"phase": "Running"})
    other["metadata"]["labels"] |= {"primus-flows.io/run": "big"}
    api.put("pods", other)
    marks = {"example.org/kind": "mi300x"}
    api.put("nodes", made("Node", "node-0", labels=marks, status={"conditions": [{"type": "Ready", "status": "True"}]}))
    api.put("nodes", made("Node", "node-1", labels=marks, spec={"unschedulable": True}))
    api.put("nodes", made("Node", "login-0", labels={}))
    for name, about in (("e1", "demo-1-a1-trainer-0-0-x"), ("e2", "demo-1-a10-trainer-0"), ("e3", "demo-1-a1")):
        event = {"involvedObject": {"kind": "Pod", "name": about}, "reason": "FailedScheduling", "message": about}
        api.put("events", made("Event", name, **event, lastTimestamp=AT))
    found = read_attempt(cluster_at(api), resolved(), ATTEMPT, {"node-1": "Xid 79"})
    assert {item.name for item in found.events} == {"demo-1-a1-trainer-0-0-x", "demo-1-a1"}, "not those of attempt 10"
    told = {item.name: (item.busy, item.cordoned, item.quarantined) for item in found.candidates}
    assert told == {"node-0": ("big", False, ""), "node-1": ("", True, "Xid 79")}
    assert [item.name for item in found.pods] == ["demo-1-a1-trainer-0-0-x"]
    assert found.pods[0].requests == {GPU: "8"}


def test_a_gang_that_runs_costs_four_requests(api: FakeApiServer) -> None:
    plain = our_jobset()
    del plain["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]
    api.put("jobsets", plain)
    for index in range(6):
        api.put("pods", our_pod(f"p-{index}", f"node-{index}", status={"phase": "Running"}))
    read_attempt(cluster_at(api), resolved(), ATTEMPT, {})
    assert [seen.path.rpartition("/")[2] for seen in api.seen] == ["demo-1-a1", "pods", "nodes"]


def test_pods_of_an_earlier_attempt_are_leftovers(api: FakeApiServer) -> None:
    old = our_pod("demo-1-a1-trainer-0-0-x", "node-0", status={"phase": "Running"})
    old["metadata"]["deletionTimestamp"] = AT
    api.put("pods", old)
    second = AttemptRecord("demo-1", 2, 1.0, "again")
    found = read_attempt(cluster_at(api), resolved(), second, {})
    assert [(item.name, item.deleted_at is not None) for item in found.leftovers] == [("demo-1-a1-trainer-0-0-x", True)]
    assert (found.pods, found.jobset) == ((), None)


class Away:
    """A cluster that does not answer."""

    def get(self, kind: str, name: str) -> None:
        raise Unavailable(f"get {kind} {name}: the cluster does not answer")


def test_a_cluster_that_does_not_answer_is_no_empty_cluster() -> None:
    cluster: Any = Away()
    with pytest.raises(Unavailable):
        read_attempt(cluster, resolved(), ATTEMPT, {})


def test_a_pod_says_what_each_container_waits_for() -> None:
    image = "registry.local/train:v9"
    found = pod_of(
        {
            "metadata": {"name": "p", "labels": MARKS},
            "spec": {"containers": [{"name": "trainer", "image": image}], "schedulingGates": [{"name": "g"}]},
            "status": {
                "phase": "Pending",
                "containerStatuses": [
                    {
                        "name": "trainer",
                        "image": "",
                        "restartCount": 2,
                        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
                        "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
                    }
                ],
            },
        }
    )
    [container] = found.containers
    assert (container.image, container.state, container.reason) == (image, "waiting", "ErrImagePull")
    assert (container.restarts, container.last_exit, found.gates) == (2, "exit code 1 (Error)", ("g",))


def test_events_of_both_kinds_are_read() -> None:
    new = {
        "regarding": {"kind": "Pod", "name": "p"},
        "reason": "FailedMount",
        "note": "timed out",
        "type": "Warning",
        "eventTime": AT,
        "series": {"count": 7, "lastObservedTime": "2026-11-22T01:05:00Z"},
    }
    found = event_of(new)
    assert (found.name, found.message, found.count, found.warning) == ("p", "timed out", 7, True)
    assert found.at is not None
    assert found.at == event_of({"lastTimestamp": "2026-11-22T01:05:00Z"}).at


def test_a_workload_counts_all_its_pods() -> None:
    requeue = {"count": 3, "requeueAt": AT}
    found = workload_of(our_workload(status={"requeueState": requeue, "admission": {"clusterQueue": "research"}}))
    assert (found.gpus, found.priority, found.priority_class, found.requeues) == (16, 10000, "high", 3)
    assert found.requests == {GPU: "16", "cpu": "1", "memory": "2147483648"}
    assert (found.cluster_queue, found.requeue_at is not None, found.active) == ("research", True, True)


def test_quotas_are_joined_with_what_is_used() -> None:
    resource = {"name": GPU, "nominalQuota": "32", "borrowingLimit": "0"}
    usage = {"name": "mi300x", "resources": [{"name": GPU, "total": "40", "borrowed": "8"}]}
    found = cluster_queue_of(
        {
            "metadata": {"name": "research"},
            "spec": {
                "cohortName": "all",
                "resourceGroups": [{"flavors": [{"name": "mi300x", "resources": [resource]}]}],
            },
            "status": {"flavorsUsage": [usage], "flavorsReservation": [usage], "pendingWorkloads": 2},
        }
    )
    assert found.quotas == (Quota("mi300x", GPU, "32", "0", used="40", reserved="40", borrowed="8"),)
    assert (found.cohort, found.pending, found.stopped) == ("all", 2, "")


@pytest.mark.parametrize("read", [pod_of, event_of, jobset_of, workload_of, cluster_queue_of])
def test_an_empty_object_says_nothing_and_breaks_nothing(read: Any) -> None:
    assert read({}) is not None
    assert read({"metadata": None, "spec": None, "status": None}) is not None


def test_amounts_that_nobody_writes_count_as_nothing() -> None:
    odd = our_workload()
    odd["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"] = {
        GPU: "many",
        "cpu": "1e3x",
    }
    assert workload_of(odd).gpus == 0


def test_a_jobset_takes_its_priority_from_the_cluster_s_classes() -> None:
    found = jobset_of(our_jobset(), a_cluster(AMD).priority_classes)
    assert (found.priority_class, found.priority) == ("high", 10)


class Counted(dict[str, Any]):
    """A manifest that can be seen to be gone."""

    __hash__ = object.__hash__  # type: ignore[assignment]


class Crowded:
    """A cluster of many pods, each made when it is asked for; knows how many were held at once."""

    def __init__(self) -> None:
        self.held: weakref.WeakSet[Counted] = weakref.WeakSet()
        self.most = 0

    def list(self, kind: str, labels: object = None) -> list[dict[str, Any]]:
        assert kind != "Pod", "pods are read one by one"
        return []

    def watch(self, kind: str, labels: object = None, *, timeout_seconds: float) -> Iterator[Seen]:
        assert (kind, timeout_seconds) == ("Pod", 0.0)
        for number in [*range(500), 7]:
            yield Seen("ADDED", self._pod(number), str(number))
            self.most = max(self.most, len(self.held))

    def _pod(self, number: int) -> Counted:
        pod = Counted(our_pod(f"p-{number}", "node-0", status={"phase": "Running"}))
        self.held.add(pod)
        return pod


def test_a_queue_of_many_pods_is_never_held_whole() -> None:
    cluster: Any = Crowded()
    line = read_queues(cluster, resolved().cluster)
    assert (len(line.pods), len(line.owners)) == (500, 500), "a pod that is told twice is one pod"
    assert cluster.most <= 3
