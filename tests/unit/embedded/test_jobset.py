"""JobSets: outcomes as tables, then whole gangs as real processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BeforeValidator

from profiles.errors import Refused
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.engine.kube.jobset import SUSPENDED, JobSetStep, PodState, advance_jobset, suffix
from tests.support.cases.rows import rows
from tests.support.harness.embedded_stage import (
    DEADLINE_SECONDS,
    cluster,
    end_of,
    ended,
    gone,
    jobset,
    phase,
    role,
    terminal,
)

NOW = 1000.0
OK, BAD = "Succeeded", "Failed"


def whole(*roles: dict[str, Any], status: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    manifest = jobset("j", *(roles or (role("t", 2, "x"),)), **fields)
    manifest["metadata"] |= {"uid": "u", "namespace": "default"}
    return {**manifest, "status": status or {}}


def state(index: int = 0, phase: str = "Running", **fields: Any) -> PodState:
    role = fields.pop("role", "t")
    if phase in ("Succeeded", "Failed"):
        fields.setdefault("finished_at", NOW - 1)
    fields.setdefault("exit_codes", {"main": 1} if phase == "Failed" else {})
    return PodState(f"{role}-{index}", role, 0, index, phase, created_at=NOW - 10, **fields)


def state_of(fields: dict[str, Any]) -> PodState:
    conditions: list[list[str]] = fields.pop("conditions", [])
    return state(**fields, conditions=frozenset((kind, word) for kind, word in conditions))


APod = Annotated[PodState, BeforeValidator(state_of)]


def advance(manifest: dict[str, Any], *pods: PodState, now: float = NOW) -> JobSetStep:
    return advance_jobset(manifest, pods, now, backoff_seconds=10.0)


def test_all_pods_of_all_roles_are_created_at_once_and_only_once() -> None:
    manifest = whole(role("c", 1, "x"), role("t", 2, "x"))
    step = advance(manifest)
    names = [pod["metadata"]["name"] for pod in step.create]
    assert [name.rpartition("-")[0] for name in names] == ["j-c-0-0", "j-t-0-0", "j-t-0-1"]
    assert advance(manifest).create == step.create
    assert advance(manifest, state(0, role="c"), state(0), state(1, "Pending")).create == ()


def test_a_pod_carries_what_jobset_writes() -> None:
    manifest = whole(role("t", 1, "x"), coordinator={"replicatedJob": "t"}, network={"subdomain": "net"})
    (pod,) = advance(manifest).create
    labels, annotations, spec = pod["metadata"]["labels"], pod["metadata"]["annotations"], pod["spec"]
    assert labels["role"] == "t"
    assert labels["jobset.sigs.k8s.io/jobset-name"] == "j"
    assert labels["jobset.sigs.k8s.io/replicatedjob-name"] == "t"
    assert labels["jobset.sigs.k8s.io/job-index"] == "0"
    assert annotations["jobset.sigs.k8s.io/restart-attempt"] == "0"
    assert annotations["jobset.sigs.k8s.io/coordinator"] == "j-t-0-0.net"
    assert annotations["batch.kubernetes.io/job-completion-index"] == "0"
    assert (spec["hostname"], spec["subdomain"]) == ("j-t-0-0", "net")
    assert spec["containers"][0]["env"][-1]["name"] == "JOB_COMPLETION_INDEX"
    assert len(suffix("any")) == 5


@rows("embedded/jobset")
def test_outcome_of_one_role(pods: list[APod], outcome: str, job: dict[str, Any] | None = None) -> None:
    manifest = whole(role("t", 2, "x", **(job or {})))
    assert advance(manifest, *pods).status.get("terminalState", "") == outcome


@rows("embedded/jobset")
def test_success_policy(policy: dict[str, Any], coordinator: str, trainer: str, outcome: str) -> None:
    manifest = whole(role("c", 1, "x"), role("t", 1, "x"), successPolicy=policy)
    step = advance(manifest, state(0, coordinator, role="c"), state(0, trainer))
    assert step.status.get("terminalState", "") == outcome
    assert step.end == (tuple(name for name, phase in (("c-0", coordinator), ("t-0", trainer)) if phase == "Running")
                        if outcome else ())  # fmt: skip


@pytest.mark.parametrize(
    ("limit", "restarts", "outcome"), [(0, 0, ""), (0, 1, "Failed"), (3, 2, ""), (3, 3, "Failed"), (1000000, 5, "")]
)
def test_restarts_of_containers_count_for_on_failure(limit: int, restarts: int, outcome: str) -> None:
    manifest = whole(role("t", 1, "x", restart="OnFailure", backoffLimit=limit))
    assert advance(manifest, state(0, restarts=restarts)).status.get("terminalState", "") == outcome


def test_the_failure_is_told_in_jobset_s_words() -> None:
    plain = whole()
    del plain["spec"]["failurePolicy"]
    for manifest, reason in ((whole(), "ReachedMaxRestarts"), (plain, "FailedJobs")):
        (condition,) = advance(manifest, state(0, BAD), state(1)).status["conditions"]
        assert (condition["type"], condition["reason"]) == ("Failed", reason)
        assert "first failed job: j-t-0" in condition["message"]


def test_a_failed_pod_is_replaced_after_a_growing_while_under_another_name() -> None:
    manifest = whole(role("t", 1, "x", backoffLimit=5))
    first = advance(manifest).create[0]["metadata"]["name"]
    waiting = advance(manifest, state(0, BAD))
    assert (waiting.create, waiting.wake_at) == ((), NOW - 1 + 10)
    again = advance(manifest, state(0, BAD), now=NOW + 9)
    assert again.create[0]["metadata"]["name"] != first
    twice = [replace(state(0, BAD), name=name) for name in "ab"]
    assert advance(manifest, *twice).wake_at == NOW - 1 + 20


def test_suspension_ends_pods_and_says_so() -> None:
    step = advance(whole(suspend=True), state(0), state(1))
    assert (step.end, step.forget, step.end_reason) == (("t-0", "t-1"), True, SUSPENDED)
    assert step.status["conditions"][0]["type"] == "Suspended"
    assert step.status["replicatedJobsStatus"][0]["suspended"] == 1
    resumed = advance(whole(status=step.status))
    assert resumed.status["conditions"] == []
    assert len(resumed.create) == 2


def test_the_end_is_final_and_expires() -> None:
    manifest = whole(ttlSecondsAfterFinished=100)
    step = advance(manifest, state(0, OK), state(1, OK))
    manifest["status"] = step.status
    later = advance(manifest, state(0, BAD), state(1), now=NOW + 50)
    assert (later.status, later.end, later.delete) == (step.status, ("t-1",), False)
    assert later.wake_at == pytest.approx(NOW + 100)
    assert advance(manifest, now=NOW + 101).delete


PODS = st.lists(st.tuples(st.sampled_from([0, 1]), st.sampled_from(["Pending", "Running", OK, BAD])), max_size=6).map(
    lambda rows: [replace(state(i, p), name=f"p{n}") for n, (i, p) in enumerate(rows)]
)


@settings(max_examples=200, deadline=None)
@given(PODS, st.integers(0, 3))
def test_a_step_can_be_taken_again_and_never_starts_an_index_twice(pods: list[PodState], limit: int) -> None:
    manifest = whole(role("t", 2, "x", backoffLimit=limit))
    step = advance(manifest, *pods, now=NOW + 1000)
    assert step == advance(manifest, *reversed(pods), now=NOW + 1000)
    created = [int(pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"]) for pod in step.create]
    held = {pod.index for pod in pods if pod.unfinished or pod.phase == OK}
    assert len(created) == len(set(created))
    assert not held & set(created)
    if step.status.get("terminalState"):
        assert not created
        again = advance({**manifest, "status": step.status}, *pods, now=NOW + 2000)
        assert again.status == step.status
    elif len({pod.index for pod in pods if pod.unfinished}) < 2:
        assert created or step.wake_at or held


# Whole gangs.


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with cluster(tmp_path_factory.mktemp("jobsets") / "cluster") as made:
        yield made


def pods_of(one: EmbeddedCluster, name: str) -> dict[str, dict[str, Any]]:
    found = one.list("Pod", {"jobset.sigs.k8s.io/jobset-name": name})
    return {pod["spec"]["hostname"].removeprefix(name + "-"): pod for pod in found}


def test_a_gang_finds_itself_by_name_and_completes(one: EmbeddedCluster) -> None:
    script = (
        "getent hosts gang-t-0-$((1 - $JOB_COMPLETION_INDEX)).gang; cat $PRIMUS_HOSTS_FILE | grep -c gang-; hostname"
    )
    coordinator = role("c", 1, "sleep", "1000", restart="OnFailure", backoffLimit=1000000)
    success = {"operator": "All", "targetReplicatedJobs": ["t"]}
    one.apply(jobset("gang", coordinator, role("t", 2, "sh", "-c", script, apart=True), successPolicy=success))
    found = terminal(one, "gang")
    assert found["status"]["terminalState"] == "Completed"
    pods = pods_of(one, "gang")
    assert {pods["t-0-0"]["spec"]["nodeName"], pods["t-0-1"]["spec"]["nodeName"]} == {"node-0", "node-1"}
    for index in (0, 1):
        lines = one.logs(pods[f"t-0-{index}"]["metadata"]["name"]).splitlines()
        assert lines[0].split()[0] == pods[f"t-0-{1 - index}"]["status"]["podIP"]
        assert lines[1:] == ["3", f"gang-t-0-{index}"]
    left = ended(one, pods["c-0-0"]["metadata"]["name"])
    assert left["status"]["reason"] == "JobSetCompleted"
    one.delete("JobSet", "gang")
    gone(one, "JobSet", "gang")
    assert pods_of(one, "gang") == {}


def _both(one: EmbeddedCluster, name: str) -> dict[str, str]:
    """Names of a gang's two pods, once both were created."""
    seen: set[str] = set()
    for event in one.watch("Pod", {"jobset.sigs.k8s.io/jobset-name": name}, timeout_seconds=DEADLINE_SECONDS):
        seen.add(event.object["metadata"]["name"])
        if len(seen) == 2:
            return {key: pod["metadata"]["name"] for key, pod in pods_of(one, name).items()}
    raise AssertionError("not two pods were created")


def _said(one: EmbeddedCluster, pod: str) -> list[str]:
    """The words that a pod has printed, once there are any."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (words := one.logs(pod).split()):
        assert time.monotonic() < deadline, f"{pod} says nothing"
        time.sleep(0.02)
    return words


def test_one_failed_pod_ends_the_gang_and_its_pods_are_kept(one: EmbeddedCluster) -> None:
    # Nobody fails before all have set their traps.
    script = (
        "trap 'exit 0' TERM; trap 'exit 7' USR1; echo $$$$; while :; do sleep 0.02; done"  # Kubernetes halves dollars
    )
    one.apply(jobset("fails", role("t", 2, "sh", "-c", script)))
    shells = {key: int(_said(one, pod)[0]) for key, pod in _both(one, "fails").items()}
    os.kill(shells["t-0-0"], signal.SIGUSR1)
    assert terminal(one, "fails")["status"]["terminalState"] == "Failed"
    pods = {key: ended(one, pod["metadata"]["name"]) for key, pod in pods_of(one, "fails").items()}
    assert end_of(pods["t-0-0"])["exitCode"] == 7
    assert pods["t-0-1"]["status"]["phase"] == "Succeeded", "it had time to save"
    one.delete("JobSet", "fails")
    gone(one, "JobSet", "fails")


def test_a_gang_without_room_waits_whole_and_starts_when_there_is(one: EmbeddedCluster) -> None:
    one.patch("Node", "node-1", {"spec": {"unschedulable": True}})
    one.apply(jobset("waits", role("t", 2, "true", apart=True)))
    text = "0/2 nodes are available: 1 node(s) didn't match pod anti-affinity rules, 1 node(s) were unschedulable."
    one.wait("Pod", next(iter(_names(one, "waits"))), lambda it: text in str(it), DEADLINE_SECONDS)
    assert {pod["status"]["phase"] for pod in pods_of(one, "waits").values()} == {"Pending"}
    one.patch("Node", "node-1", {"spec": {"unschedulable": None}})
    assert terminal(one, "waits")["status"]["terminalState"] == "Completed"


def _names(one: EmbeddedCluster, name: str) -> list[str]:
    for event in one.watch("Pod", {"jobset.sigs.k8s.io/jobset-name": name}, timeout_seconds=DEADLINE_SECONDS):
        if event.type == "ADDED":
            return [event.object["metadata"]["name"]]
    raise AssertionError("no pod was created")


def test_a_lost_node_fails_the_jobset(tmp_path: Path) -> None:
    # In a cluster of its own: what it leaves where it fails would be in the way of others, and of itself told again.
    with cluster(tmp_path / "cluster") as one:
        one.apply(jobset("lost", role("t", 2, "sleep", "1000", apart=True)))
        first = _names(one, "lost")[0]
        found = phase(one, first, "Running")
        one.lose_node(found["spec"]["nodeName"])
        assert terminal(one, "lost")["status"]["terminalState"] == "Failed"
        for pod in pods_of(one, "lost").values():
            ended(one, pod["metadata"]["name"])
        one.restore_node(found["spec"]["nodeName"])
        one.delete("JobSet", "lost", grace_seconds=0)
        gone(one, "JobSet", "lost")


def test_a_deleted_pod_counts_as_failed(one: EmbeddedCluster) -> None:
    one.apply(jobset("evicted", role("t", 1, "sleep", "1000")))
    (name,) = _names(one, "evicted")
    phase(one, name, "Running")
    one.delete("Pod", name, grace_seconds=0)
    assert terminal(one, "evicted")["status"]["terminalState"] == "Failed"


def test_suspend_and_resume(one: EmbeddedCluster) -> None:
    one.apply(jobset("pause", role("t", 1, "sleep", "1000")))
    (name,) = _names(one, "pause")
    phase(one, name, "Running")
    one.patch("JobSet", "pause", {"spec": {"suspend": True}})
    gone(one, "Pod", name)
    one.patch("JobSet", "pause", {"spec": {"suspend": False}})
    (name,) = _names(one, "pause")
    phase(one, name, "Running")
    found = one.get("JobSet", "pause")
    assert found is not None
    assert "terminalState" not in found["status"]
    with pytest.raises(Refused) as refused:
        one.patch("JobSet", "pause", {"spec": {"replicatedJobs": []}})
    assert refused.value.path == "spec.replicatedJobs"
    one.delete("JobSet", "pause", grace_seconds=0)
    gone(one, "JobSet", "pause")


def test_a_finished_jobset_goes_after_its_time(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as fresh:
        fresh.apply(jobset("short", role("t", 1, "true"), ttlSecondsAfterFinished=0))
        gone(fresh, "JobSet", "short")
        assert fresh.list("Pod") == []
