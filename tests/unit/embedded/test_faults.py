"""Killed keepers, killed supervisors, lost nodes, many processes at once: nothing lost, nothing twice, no orphan."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.layout import PodFolder
from tasks.embedded.runtime import processes
from tasks.embedded.start_keeper import keeper_lock
from tasks.embedded.store import locks
from tasks.embedded.store.changes import ChangeReader
from tasks.embedded.store.store import Store
from tests.support.harness.embedded_stage import (
    DEADLINE_SECONDS,
    cluster,
    ended,
    gone,
    jobset,
    phase,
    pod,
    role,
    spec,
)

ROOT = Path(__file__).parents[3]


@pytest.fixture
def one(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with cluster(tmp_path / "cluster") as made:
        yield made


def supervisor_of(one: EmbeddedCluster, name: str) -> int:
    found = one.get("Pod", name)
    assert found is not None
    pid = locks.holder(PodFolder(str(one.root), found["metadata"]["uid"]).lock)
    assert pid is not None
    return pid


def wait_gone(pids: list[int]) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        assert poller.poll(DEADLINE_SECONDS * 1000), f"process {pid} lives on"
        os.close(descriptor)


ESCAPES = "env -i setsid sh -c '(sleep 1000 &); sleep 1000' & (setsid sleep 1000 &); echo ready; sleep 1000"
"""Children that wipe their environment, leave the session, and lose their parents."""


def ready(one: EmbeddedCluster, name: str, **fields: Any) -> list[int]:
    """Apply the pod that is hard to kill; its processes once all are there."""
    one.apply(pod(name, "sh", "-c", ESCAPES, **fields))
    assert next(one.follow(name, timeout_seconds=DEADLINE_SECONDS)) == "ready"
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(found := one.pod_processes(name)) < 5 and time.monotonic() < deadline:
        os.sched_yield()
    return found


def with_word(word: str) -> list[int]:
    """Pids of processes whose arguments hold this word."""
    found: list[int] = []
    for pid in processes.pids():
        try:
            text = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in text and pid != os.getpid():
            found.append(pid)
    return found


@pytest.mark.parametrize("namespaces", ["auto", "never"])
def test_no_orphan_of_a_killed_supervisor_lives_on(tmp_path: Path, namespaces: str) -> None:
    word = f"10000{os.getpid()}"
    script = f"env -i setsid sh -c '(sleep {word} &); sleep {word}' & (setsid sleep {word} &); echo up; sleep {word}"
    with cluster(tmp_path / "cluster", spec(namespaces=namespaces)) as fresh:
        fresh.apply(pod("p", "sh", "-c", script))
        assert next(fresh.follow("p", timeout_seconds=DEADLINE_SECONDS)) == "up"
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(with_word(f"sleep\0{word}")) < 4 and time.monotonic() < deadline:
            os.sched_yield()
        victims = with_word(word)
        os.kill(supervisor_of(fresh, "p"), signal.SIGKILL)
        assert ended(fresh, "p")["status"]["reason"] == "SupervisorLost"
        wait_gone(victims)
        assert with_word(word) == []


def test_a_killed_supervisor_takes_its_whole_pod_along(one: EmbeddedCluster) -> None:
    for index in range(2):
        ready(one, f"p{index}", nodeSelector={"kubernetes.io/hostname": "node-0"})
    victims = one.pod_processes("p0")
    os.kill(supervisor_of(one, "p0"), signal.SIGKILL)
    found = ended(one, "p0")
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "SupervisorLost")
    wait_gone(victims)
    assert one.pod_processes("p0") == []
    other = one.get("Pod", "p1")
    assert other is not None
    assert other["status"]["phase"] == "Running"
    node = one.get("Node", "node-0")
    assert node is not None
    assert node["status"]["conditions"][-1]["status"] == "True"


def test_a_lost_node_is_seen_at_once_and_whole(one: EmbeddedCluster) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    for index in range(2):
        ready(one, f"p{index}", nodeSelector={"kubernetes.io/hostname": "node-1"}, volumes=volumes)
    ready(one, "other", nodeSelector={"kubernetes.io/hostname": "node-0"})
    victims = [*one.pod_processes("p0"), *one.pod_processes("p1"), supervisor_of(one, "p0"), supervisor_of(one, "p1")]
    folder = one.volume_path("p0", "v")
    assert folder.exists()
    one.lose_node("node-1")
    for index in range(2):
        found = one.get("Pod", f"p{index}")
        assert found is not None
        assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "NodeLost")
    node = one.get("Node", "node-1")
    assert node is not None
    condition = next(entry for entry in node["status"]["conditions"] if entry["type"] == "Ready")
    assert (condition["status"], condition["reason"]) == ("False", "PowerLost")
    wait_gone(victims)
    assert not folder.exists()
    assert one.pod_processes("other")
    one.apply(pod("later", "true", nodeSelector={"kubernetes.io/hostname": "node-1"}))
    one.wait("Pod", "later", lambda it: "node.kubernetes.io/not-ready" in str(it), DEADLINE_SECONDS)
    one.restore_node("node-1")
    assert ended(one, "later")["status"]["phase"] == "Succeeded"


def test_a_node_lost_in_silence_is_noticed(one: EmbeddedCluster) -> None:
    for index in range(2):
        ready(one, f"p{index}", nodeSelector={"kubernetes.io/hostname": "node-1"})
    victims = [*one.pod_processes("p0"), *one.pod_processes("p1")]
    one.lose_node("node-1", silent=True)
    for index in range(2):
        found = ended(one, f"p{index}")
        assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "NodeLost")
    node = one.get("Node", "node-1")
    assert node is not None
    condition = next(entry for entry in node["status"]["conditions"] if entry["type"] == "Ready")
    assert (condition["status"], condition["reason"]) == ("Unknown", "NodeStatusUnknown")
    wait_gone(victims)


def test_every_supervisor_of_a_node_killed_by_hand_is_a_lost_node(one: EmbeddedCluster) -> None:
    for index in range(2):
        ready(one, f"p{index}", nodeSelector={"kubernetes.io/hostname": "node-1"})
    for pid in [supervisor_of(one, "p0"), supervisor_of(one, "p1")]:
        os.kill(pid, signal.SIGKILL)
    assert {ended(one, f"p{index}")["status"]["reason"] for index in range(2)} == {"NodeLost"}


def test_a_pod_placed_on_a_node_without_power_is_lost_and_never_runs(one: EmbeddedCluster, tmp_path: Path) -> None:
    one.lose_node("node-0", silent=True)
    one.apply(pod("dead", "touch", str(tmp_path / "ran"), nodeSelector={"kubernetes.io/hostname": "node-0"}))
    assert ended(one, "dead")["status"]["reason"] == "NodeLost"
    assert not (tmp_path / "ran").exists()


def workflow(name: str, script: str, count: int) -> dict[str, Any]:
    """A chain of `count` steps, each telling its number."""
    steps = [
        [{"name": f"s{index}", "template": "one", "arguments": {"parameters": [{"name": "n", "value": str(index)}]}}]
        for index in range(count)
    ]
    container = {"image": "any", "command": ["sh", "-c"], "args": [script]}
    one = {"name": "one", "inputs": {"parameters": [{"name": "n"}]}, "container": container}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {"entrypoint": "main", "templates": [{"name": "main", "steps": steps}, one]},
    }


def keeper_of(one: EmbeddedCluster) -> int | None:
    return locks.holder(keeper_lock(str(one.root)))


@pytest.mark.parametrize("also_zygote", [False, True])
def test_a_keeper_killed_again_and_again_loses_nothing_and_does_nothing_twice(
    one: EmbeddedCluster, tmp_path: Path, also_zygote: bool
) -> None:
    count, record = 12, tmp_path / "record"
    body = workflow("chain", f"echo {{{{inputs.parameters.n}}}} >> {record}", count)
    body["spec"]["templates"][1]["volumes"] = [{"name": "t", "hostPath": {"path": str(tmp_path)}}]
    body["spec"]["templates"][1]["container"]["volumeMounts"] = [{"name": "t", "mountPath": str(tmp_path)}]
    one.apply(body)
    killed: set[int] = set()
    found: dict[str, Any] | None = None
    for event in one.watch("Workflow", timeout_seconds=DEADLINE_SECONDS):
        found = event.object
        if found["status"].get("finishedAt"):
            break
        pid = keeper_of(one)
        if pid is not None and pid not in killed and len(killed) < 5:
            killed.add(pid)
            if also_zygote:
                for child in processes.children(pid):
                    os.kill(child, signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
    assert found is not None
    assert found["status"]["phase"] == "Succeeded", found["status"]
    assert len(killed) >= 3
    assert record.read_text().split() == [str(index) for index in range(count)]


def test_a_keeper_whose_zygote_is_killed_gets_a_new_one(one: EmbeddedCluster) -> None:
    one.apply(pod("first", "sleep", "1000"))
    phase(one, "first", "Running")
    keeper = keeper_of(one)
    assert keeper is not None
    for child in processes.children(keeper):
        os.kill(child, signal.SIGKILL)
    one.apply(pod("second", "true"))
    assert ended(one, "second")["status"]["phase"] == "Succeeded"
    found = one.get("Pod", "first")
    assert found is not None
    assert found["status"]["phase"] == "Running"


def test_a_new_keeper_adopts_what_runs(one: EmbeddedCluster) -> None:
    one.apply(pod("runs", "sh", "-c", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.02; done"))
    assert next(one.follow("runs", timeout_seconds=DEADLINE_SECONDS)) == "up"
    supervisor, keeper = supervisor_of(one, "runs"), keeper_of(one)
    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    wait_gone([keeper])
    one.apply(pod("next", "true"))
    ended(one, "next")
    assert keeper_of(one) != keeper
    assert supervisor_of(one, "runs") == supervisor
    lines = one.follow("runs", timeout_seconds=DEADLINE_SECONDS)
    assert next(lines) == "up"
    one.delete("Pod", "runs")
    assert list(lines) == ["bye"]
    gone(one, "Pod", "runs")


def test_a_supervisor_that_ends_revives_the_keeper(one: EmbeddedCluster, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    volumes = [{"name": "t", "hostPath": {"path": str(tmp_path)}}]
    mounts = {"volumeMounts": [{"name": "t", "mountPath": "/t"}]}
    one.apply(
        jobset("js", role("a", 1, "sh", "-c", "read x < /t/gate", container=mounts, template={"volumes": volumes}))
    )
    name = next(event.object["metadata"]["name"] for event in one.watch("Pod", timeout_seconds=DEADLINE_SECONDS))
    phase(one, name, "Running")
    keeper = keeper_of(one)
    assert keeper is not None
    pids = [keeper, *processes.children(keeper)]
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)
    wait_gone(pids)
    assert keeper_of(one) is None
    supervisor = os.pidfd_open(supervisor_of(one, name))
    with (tmp_path / "gate").open("w") as gate:
        gate.write("go\n")
    poller = select.poll()
    poller.register(supervisor, select.POLLIN)
    assert poller.poll(DEADLINE_SECONDS * 1000)
    os.close(supervisor)
    # Read from disk, without the API: whoever asks it would start a keeper itself.
    reader = ChangeReader(Store(str(one.root)).log_path)
    try:
        deadline = time.monotonic() + DEADLINE_SECONDS
        path = one.root / "objects" / "JobSet" / "js"
        while "terminalState" not in json.loads(path.read_text())["status"]:
            assert time.monotonic() < deadline
            reader.wait(1.0)
            reader.read()
    finally:
        reader.close()


def test_stop_ends_everything_and_a_later_keeper_tells_what_was_lost(one: EmbeddedCluster) -> None:
    ready(one, "p")
    one.stop()
    assert one.processes() == []
    assert keeper_of(one) is None
    one.apply(pod("other", "true"))
    assert ended(one, "p")["status"]["reason"] == "SupervisorLost"


def test_a_pid_of_another_process_is_never_signalled(one: EmbeddedCluster) -> None:
    bystander = subprocess.Popen(["/bin/sleep", "1000"])
    try:
        start = processes.start_time(bystander.pid)
        assert start is not None
        impostor = processes.Process(bystander.pid, start - 1, "")
        assert processes.open_verified(impostor) is None
        processes.kill_each([impostor], time.monotonic() + 1)
        assert bystander.poll() is None
        ready(one, "p")
        one.lose_node("node-0")
        one.lose_node("node-1", silent=True)
        one.stop()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from profiles.errors import Conflict
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.spec import Spec
one = EmbeddedCluster(Path(sys.argv[2]), Spec.from_json((Path(sys.argv[2]) / "cluster.json").read_text()))
for turn in range(25):
    while True:
        node = one.get("Node", "node-0")
        count = int((node["metadata"].get("annotations") or {}).get("count", "0"))
        version = node["metadata"]["resourceVersion"]
        patch = {"metadata": {"resourceVersion": version, "annotations": {"count": str(count + 1)}}}
        try:
            one.patch("Node", "node-0", patch)
            break
        except Conflict:
            pass
    one.patch("Node", "node-1", {"metadata": {"annotations": {f"w-{sys.argv[3]}-{turn}": "x"}}})
"""


def test_no_write_of_many_processes_is_lost(one: EmbeddedCluster) -> None:
    argv = [sys.executable, "-c", WRITER, str(ROOT), str(one.root)]
    seen: list[int] = []
    writers = [subprocess.Popen([*argv, str(index)]) for index in range(4)]
    try:
        for event in one.watch("Node", timeout_seconds=DEADLINE_SECONDS):
            count = (event.object["metadata"].get("annotations") or {}).get("count")
            if count is not None:
                seen.append(int(count))
            if seen and seen[-1] == 100:
                break
    finally:
        codes = [writer.wait(timeout=DEADLINE_SECONDS) for writer in writers]
    assert codes == [0, 0, 0, 0]
    assert seen == sorted(seen)
    node = one.get("Node", "node-1")
    assert node is not None
    assert len(node["metadata"]["annotations"]) == 100


def test_many_pods_at_once(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster", spec()) as one:
        names = [f"p{index}" for index in range(30)]
        for name in names:
            one.apply(pod(name, "sh", "-c", "echo $HOSTNAME"))
        addresses = {name: ended(one, name)["status"]["podIP"] for name in names}
        assert len(set(addresses.values())) == len(names)
        assert [one.logs(name) for name in names] == [f"{name}\n" for name in names]


def test_a_reader_revives_a_killed_keeper(one: EmbeddedCluster, tmp_path: Path) -> None:
    body = workflow("waits", "true", 1)
    body["spec"]["templates"].insert(0, {"name": "pause", "suspend": {"duration": "1"}})
    body["spec"]["entrypoint"] = "pause"
    one.apply(body)
    one.wait("Workflow", "waits", lambda it: bool((it or {}).get("status", {}).get("nodes")), DEADLINE_SECONDS)
    keeper = keeper_of(one)
    assert keeper is not None
    for child in processes.children(keeper):
        os.kill(child, signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    wait_gone([keeper])
    found = one.wait(
        "Workflow", "waits", lambda it: bool((it or {}).get("status", {}).get("finishedAt")), DEADLINE_SECONDS
    )
    assert found is not None
    assert found["status"]["phase"] == "Succeeded", json.dumps(found["status"])
