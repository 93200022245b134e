"""One object whose file is broken: it is put aside with its reason, and everything else goes on."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.errors import Unavailable
from tasks.embedded import admission
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.control.reconcile import Reconciler
from tasks.embedded.objects import BREAKS, BROKEN_ANNOTATION
from tasks.embedded.start_keeper import failures_path, keeper_lock
from tasks.embedded.store import locks
from tasks.embedded.store.store import BrokenObjectError, Store
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
    terminal,
)
from tests.support.running.waiting import until

Object = dict[str, Any]
T = TypeVar("T")


@pytest.fixture
def one(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    with cluster(tmp_path / "cluster") as made:
        yield made


def file_of(one: EmbeddedCluster, kind: str, name: str) -> Path:
    return one.root / "objects" / kind / name


def change(one: EmbeddedCluster, kind: str, name: str, path: tuple[Any, ...], value: object) -> bytes:
    """Replace one value deep inside the file, behind everybody's back; the file's content."""
    manifest = json.loads(file_of(one, kind, name).read_text())
    place: Any = manifest
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    content = json.dumps(manifest).encode()
    file_of(one, kind, name).write_bytes(content)
    return content


def kill_keeper(one: EmbeddedCluster) -> None:
    """The next one reads everything from the disk; the zygote starts it."""
    pid = locks.holder(keeper_lock(str(one.root)))
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def patiently(call: Callable[[], T]) -> T:
    """What a flow's task does: ask again until the keeper has come to the broken file."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        try:
            return call()
        except Unavailable as error:
            if time.monotonic() > deadline or "is broken" not in str(error):
                raise
            time.sleep(0.02)


def others_go_on(one: EmbeddedCluster, name: str = "innocent") -> None:
    patiently(lambda: one.apply(pod(name, "true")))
    assert patiently(lambda: ended(one, name))["status"]["phase"] == "Succeeded"


def evidence(one: EmbeddedCluster, kind: str, name: str) -> tuple[bytes, str]:
    kept = (one.root / "broken" / kind / name).read_bytes()
    reasons = (one.root / "broken" / "reasons").read_text().splitlines()
    return kept, next(line for line in reasons if f" {kind}/{name}: " in line)


def test_a_pod_whose_file_was_cut_off_fails_with_the_reason_and_its_processes_end(one: EmbeddedCluster) -> None:
    for name in ("victim", "other"):
        one.apply(pod(name, "sh", "-c", "echo up; sleep 1000", metadata={"labels": {"who": name}}))
        assert next(one.follow(name, timeout_seconds=DEADLINE_SECONDS)) == "up"
    path = file_of(one, "Pod", "victim")
    torn = path.read_bytes()[:-40]
    path.write_bytes(torn)
    kill_keeper(one)
    others_go_on(one)
    found = ended(one, "victim")
    assert (found["status"]["phase"], found["status"]["reason"]) == ("Failed", "BrokenObject")
    assert "its file was broken" in found["status"]["message"]
    assert found["metadata"]["labels"] == {"who": "victim"}
    kept, why = evidence(one, "Pod", "victim")
    assert kept == torn
    assert "char" in why or "delimiter" in why or "Expecting" in why
    assert one.pod_processes("victim") == []
    assert one.pod_processes("other"), "training beside it is left alone"
    assert phase(one, "other", "Running")
    one.delete("Pod", "victim")
    gone(one, "Pod", "victim")


def test_an_empty_file_tells_nothing_and_counts_as_deleted(one: EmbeddedCluster) -> None:
    one.apply(pod("victim", "sh", "-c", "echo up; sleep 1000"))
    assert next(one.follow("victim", timeout_seconds=DEADLINE_SECONDS)) == "up"
    processes = one.pod_processes("victim")
    file_of(one, "Pod", "victim").write_bytes(b"")
    kill_keeper(one)
    others_go_on(one)
    gone(one, "Pod", "victim")
    assert evidence(one, "Pod", "victim")[0] == b""
    assert processes
    assert not set(processes) & set(one.processes()), "nothing of it runs on unseen"


def test_a_keeper_that_lives_is_told_by_whoever_finds_the_broken_file(one: EmbeddedCluster) -> None:
    one.apply(pod("busy", "sleep", "1000"))
    phase(one, "busy", "Running")
    keeper = locks.holder(keeper_lock(str(one.root)))
    one.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}})
    file_of(one, "Secret", "s").write_text("[]")
    with pytest.raises(Unavailable, match="Secret s is broken"):
        one.get("Secret", "s")
    assert patiently(lambda: one.get("Secret", "s")) is None
    assert evidence(one, "Secret", "s")[0] == b"[]"
    assert locks.holder(keeper_lock(str(one.root))) == keeper, "it did not have to start anew"


def test_a_broken_jobset_fails_and_its_pods_end(one: EmbeddedCluster) -> None:
    one.apply(jobset("victim", role("a", 2, "sleep", "1000")))
    for item in one.list("Pod"):
        phase(one, item["metadata"]["name"], "Running")
    change(one, "JobSet", "victim", ("spec", "replicatedJobs"), 7)
    kill_keeper(one)
    others_go_on(one)
    found = terminal(one, "victim")
    assert found["status"]["terminalState"] == "Failed"
    assert found["status"]["conditions"][0]["reason"] == "BrokenObject"
    for item in one.list("Pod", {"jobset.sigs.k8s.io/jobset-name": "victim"}):
        assert ended(one, item["metadata"]["name"])["status"]["reason"] == "JobSetFailed"
    one.delete("JobSet", "victim")
    gone(one, "JobSet", "victim")


def test_pods_of_an_owner_that_left_nothing_behind_are_deleted(one: EmbeddedCluster) -> None:
    own = {"jobset.sigs.k8s.io/jobset-name": "victim"}
    one.apply(jobset("victim", role("a", 2, "sleep", "1000")))
    until("both of its pods", lambda: len(one.list("Pod", own)) == 2)
    pods = [item["metadata"]["name"] for item in one.list("Pod", own)]
    for name in pods:
        phase(one, name, "Running")
    file_of(one, "JobSet", "victim").write_bytes(b"\0\0\0")
    kill_keeper(one)
    others_go_on(one)
    gone(one, "JobSet", "victim")
    for name in pods:
        gone(one, "Pod", name)


def test_a_broken_workflow_ends_in_error(one: EmbeddedCluster) -> None:
    one.apply(workflow())
    one.wait("Workflow", "w", lambda it: bool((it or {})["status"].get("nodes")), DEADLINE_SECONDS)
    path = file_of(one, "Workflow", "w")
    path.write_bytes(path.read_bytes()[:-2])
    kill_keeper(one)
    others_go_on(one)
    found = one.get("Workflow", "w")
    assert found is not None
    assert found["status"]["phase"] == "Error"
    assert "its file was broken" in found["status"]["message"]
    for item in one.list("Pod", {"workflows.argoproj.io/workflow": "w"}):
        # A supervisor that was born while the keeper was killed is one that nobody knows.
        assert ended(one, item["metadata"]["name"])["status"]["reason"] in ("WorkflowEnded", "SupervisorLost")


def test_a_workflow_without_its_result_of_a_step_does_the_step_again(one: EmbeddedCluster) -> None:
    body = workflow("sleep", "0.3")
    secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: made}\nstringData: {a: b}\n"
    body["spec"]["templates"][0]["steps"].insert(0, [{"name": "apply", "template": "apply"}])
    body["spec"]["templates"].append({"name": "apply", "resource": {"action": "apply", "manifest": secret}})
    one.apply(body)
    one.wait("Secret", "made", lambda it: it is not None, DEADLINE_SECONDS)
    folder = one.root / "owners"
    one.wait("Workflow", "w", lambda _: any(folder.glob("*/*")), DEADLINE_SECONDS)
    for result in folder.glob("*/*"):
        result.write_text("{")
    kill_keeper(one)
    found = one.wait("Workflow", "w", lambda it: (it or {})["status"].get("phase") == "Succeeded", DEADLINE_SECONDS)
    assert found is not None


def test_of_a_broken_node_nothing_is_known_until_it_is_restored(one: EmbeddedCluster) -> None:
    one.patch("Node", "node-0", {"metadata": {"labels": {"primus-flows.io/verdict": "pass"}}})
    change(one, "Node", "node-0", ("status", "allocatable"), {"cpu": []})
    others_go_on(one)
    found = one.get("Node", "node-0")
    assert found is not None
    ready = next(item for item in found["status"]["conditions"] if item["type"] == "Ready")
    assert (ready["status"], ready["reason"]) == ("Unknown", "BrokenObject")
    assert found["metadata"]["labels"]["primus-flows.io/verdict"] == "pass"
    one.restore_node("node-0")
    one.apply(pod("there", "true", nodeSelector={"kubernetes.io/hostname": "node-0"}))
    assert ended(one, "there")["status"]["phase"] == "Succeeded"


def test_what_is_no_file_of_an_object_is_in_nobody_s_way(one: EmbeddedCluster) -> None:
    one.apply(pod("first", "true"))
    ended(one, "first")
    kill_keeper(one)
    (file_of(one, "Pod", "a-folder") / "inside").mkdir(parents=True)
    file_of(one, "Pod", "größe").write_text("no name of an object")
    others_go_on(one)
    assert [item["metadata"]["name"] for item in one.list("Pod")] == ["first", "innocent"]


def test_lines_that_are_no_change_are_passed_over(one: EmbeddedCluster) -> None:
    one.apply(pod("busy", "sleep", "1000"))
    phase(one, "busy", "Running")
    with (one.root / "changes" / "log").open("ab") as log:
        log.write(b"nonsense\n\xff\tMODIFIED\tPod\n")
        log.flush()
    path = one.root / "changes" / "log"
    with pytest.raises(Unavailable, match="changes/log"):
        one.apply(pod("later", "true"))
    mended = path.with_name("mended")
    mended.write_bytes(b"".join(line for line in path.read_bytes().splitlines(True) if line[:1].isdigit()))
    mended.rename(path)  # as an editor does it
    others_go_on(one)


# Everything that can be wrong with one object, in one process: no supervisors, no real keeper.


class NoZygote:
    """Starts nothing; remembers whom it was asked for."""

    def __init__(self) -> None:
        self.asked: set[str] = set()

    def start(self, name: str, uid: str) -> None:
        del uid
        self.asked.add(name)

    def started(self) -> list[tuple[str, int, int]]:
        return []


def workflow(*command: str) -> Object:
    container = {"image": "any", "command": list(command or ("sleep", "1000"))}
    templates = [
        {"name": "main", "steps": [[{"name": "s", "template": "one"}]]},
        {"name": "one", "container": container},
    ]
    body = {"entrypoint": "main", "templates": templates}
    return {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "w"}, "spec": body}


def rounds(reconciler: Reconciler) -> None:
    """What a keeper does until it sleeps."""
    for _ in range(20):
        try:
            reconciler.run()
            reconciler.pending()
            reconciler.wake_at()
            return
        except (BrokenObjectError, *BREAKS) as error:
            reconciler.pass_over(error)
    raise AssertionError("no round came through")


def paths(value: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield here
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield from paths(inner, (*here, key))


def replaced(value: Any, path: tuple[Any, ...], new: object) -> Any:
    if not path:
        return new
    copied = copy.copy(value)
    copied[path[0]] = replaced(value[path[0]], path[1:], new)
    return copied


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, str, Object]]]:
    """A cluster's folder with one of everything, placed and not yet started, and its objects."""
    root = tmp_path_factory.mktemp("full") / "cluster"
    made = EmbeddedCluster(root, spec())
    store = Store(str(root))
    wanted = pod("p", "true", volumes=[{"name": "v", "emptyDir": {}}], tolerations=[{"key": "a", "operator": "Exists"}])
    for manifest in (wanted, jobset("js", role("a", 2, "true", apart=True)), workflow()):
        admission.admit(store, made.spec.namespace, manifest)
    reconciler = Reconciler(store, NoZygote(), json.loads((root / "cluster.json").read_text()))  # pyright: ignore
    rounds(reconciler)
    reconciler.cache.reader.close()
    admission.delete(store, "Pod", "p", 30)
    objects = [(kind, name, store.get(kind, name)) for kind in store.kinds() for name in store.names(kind)]
    return root, [(kind, name, found) for kind, name, found in objects if found is not None]


VALUES = st.sampled_from(
    [None, True, 5, -1.5, "x", "", [], [1], ["x"], [{}], {}, {"a": 1}, {"x": [{}]}, "2020-13-45T99:99:99Z", "[1]"]
)
DAMAGE = st.tuples(st.randoms(use_true_random=False), VALUES, st.integers(0, 12))


@settings(max_examples=120, deadline=None)
@given(DAMAGE)
def test_no_damage_to_one_object_stops_the_others(
    full: tuple[Path, list[tuple[str, str, Object]]], tmp_path_factory: pytest.TempPathFactory, damage: Any
) -> None:
    chance, value, cut = damage
    base, objects = full
    kind, name, manifest = chance.choice(objects)
    content = json.dumps(replaced(manifest, chance.choice(list(paths(manifest))), value)).encode()
    if cut == 0:
        content = content[: chance.randrange(len(content))]
    root = tmp_path_factory.mktemp("damaged") / "cluster"
    shutil.copytree(base, root)
    (root / "objects" / kind / name).write_bytes(content)
    store, zygote = Store(str(root)), NoZygote()
    reconciler = Reconciler(store, zygote, json.loads((root / "cluster.json").read_text()))  # pyright: ignore
    try:
        rounds(reconciler)
        admission.admit(store, "default", pod("innocent", "true"))
        rounds(reconciler)
    finally:
        reconciler.cache.reader.close()
        shutil.rmtree(root)
    assert "innocent" in zygote.asked


def test_a_sound_cluster_is_never_looked_at_that_way(full: tuple[Path, list[tuple[str, str, Object]]]) -> None:
    base, objects = full
    assert not (base / "broken").exists()
    assert not Path(failures_path(str(base))).exists()
    assert all(BROKEN_ANNOTATION not in json.dumps(manifest) for _, _, manifest in objects)
    assert {kind for kind, _, _ in objects} == {"Node", "Pod", "JobSet", "Workflow"}
