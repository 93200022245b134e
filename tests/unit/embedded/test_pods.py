"""Pods as real processes: what they see, what they leave, how they end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.errors import Conflict, NotFound, Refused
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.layout import PodFolder
from tasks.embedded.spec import ImageSpec
from tests.support.harness.embedded_stage import DEADLINE_SECONDS, cluster, end_of, ended, gone, phase, pod, spec
from tests.support.harness.launcher_harness import until


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with cluster(tmp_path_factory.mktemp("pods") / "cluster") as made:
        yield made


def test_nothing_is_started_before_something_is_applied(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as fresh:
        assert [node["metadata"]["name"] for node in fresh.list("Node")] == ["node-0", "node-1"]
        assert fresh.get("Pod", "nobody") is None
        assert fresh.processes() == []


def test_a_pod_runs_and_its_keeper_leaves(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as fresh:
        fresh.apply(pod("a", "sh", "-c", "echo out; echo err >&2; exit 3"))
        assert list(fresh.follow("a", timeout_seconds=DEADLINE_SECONDS)) == ["out", "err"]
        found = ended(fresh, "a")
        assert found["status"]["phase"] == "Failed"
        assert end_of(found)["exitCode"] == 3
        assert end_of(found)["reason"] == "Error"
        assert fresh.logs("a") == "out\nerr\n"
        assert fresh.logs("a", tail_lines=1) == "err\n"
        assert _left_alone(fresh)


def _left_alone(one: EmbeddedCluster) -> bool:
    """Whether every process of the cluster ends by itself."""
    for pid in one.processes():
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            import select

            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            if not poller.poll(DEADLINE_SECONDS * 1000):
                return False
        finally:
            os.close(descriptor)
    return one.processes() == []


def test_the_environment_is_the_manifest_s_and_nobody_else_s(
    one: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKED", "from the caller")
    one.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"token": "hidden"}})
    one.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"A": "1", "B": "2"}})
    env = [
        {"name": "FIRST", "value": "x"},
        {"name": "SECOND", "value": "$(FIRST)-$(B)-$(NOBODY)-$$(FIRST)"},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
        {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "no", "key": "no", "optional": True}}},
    ]
    container = {"env": env, "envFrom": [{"configMapRef": {"name": "c"}}], "args": ["$(SECOND)"]}
    metadata = {"labels": {"a/b": "lab"}}
    one.apply(pod("env", "sh", "-c", 'echo "$0"; env', container=container, metadata=metadata))
    found = ended(one, "env")
    first, *rest = one.logs("env").splitlines()
    seen = dict(line.split("=", 1) for line in rest)
    assert first == "x-2-$(NOBODY)-$(FIRST)"
    assert seen["NODE"] == found["spec"]["nodeName"]
    assert seen["IP"] == found["status"]["podIP"]
    assert seen["IP"].startswith("127.")
    assert (seen["LABEL"], seen["TOKEN"], seen["A"]) == ("lab", "hidden", "1")
    assert "MAYBE" not in seen
    assert "LEAKED" not in seen
    assert "hidden" not in str(found)


def test_secrets_are_readable_by_their_owner_only(one: EmbeddedCluster) -> None:
    one.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s2"}, "stringData": {"token": "hidden"}})
    stored = one.root / "objects" / "Secret" / "s2"
    assert stored.stat().st_mode & 0o077 == 0
    volumes = [{"name": "v", "secret": {"secretName": "s2", "defaultMode": 0o644}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/secrets", "readOnly": True}]}
    one.apply(pod("sec", "sh", "-c", "cat /secrets/token; echo no > /secrets/x", container=mounts, volumes=volumes))
    assert ended(one, "sec")["status"]["phase"] == "Failed"
    assert one.logs("sec").startswith("hidden")
    assert (one.volume_path("sec", "v") / "token").stat().st_mode & 0o077 == 0


def test_mounts_appear_where_the_host_has_no_folder_and_leave_no_trace(one: EmbeddedCluster, tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "file").write_text("of the host")
    one.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim"}, "spec": {}})
    volumes = [
        {"name": "scratch", "emptyDir": {}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "host", "hostPath": {"path": str(tmp_path / "host")}},
        {"name": "fields", "downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    mounts = [
        {"name": "scratch", "mountPath": "/nowhere/deep/scratch"},
        {"name": "scratch", "mountPath": "/usr/share/nowhere", "subPath": "inner"},
        {"name": "claim", "mountPath": "/nowhere/claim"},
        {"name": "host", "mountPath": "/mnt/of/host"},
        {"name": "fields", "mountPath": "/fields"},
    ]
    script = """
      set -e
      echo kept > /nowhere/claim/kept; echo one > /usr/share/nowhere/f; cat /nowhere/deep/scratch/inner/f
      cat /mnt/of/host/file /fields/n; echo private > /tmp/p; echo root > /at-the-root; ls /usr/share | wc -l
      test -c /dev/null; echo shm > /dev/shm/x; test -d /proc/self; hostname
    """
    init = {"name": "init", "image": "any", "command": ["sh", "-c", "echo one > /n/inner2"]}
    init["volumeMounts"] = [{"name": "scratch", "mountPath": "/n"}]
    fields = {"volumes": volumes, "initContainers": [init]}
    one.apply(pod("mounts", "sh", "-c", script, container={"volumeMounts": mounts}, **fields))
    found = ended(one, "mounts")
    assert found["status"]["phase"] == "Succeeded", str(found["status"])
    lines = one.logs("mounts").splitlines()
    assert lines[0] == "one"
    assert lines[1].startswith("of the host")
    assert "mounts" in one.logs("mounts")
    assert (one.root / "volumes" / "claim" / "kept").read_text() == "kept\n"
    assert (one.volume_path("mounts", "scratch") / "inner2").read_text() == "one\n"
    for trace in ("/nowhere", "/at-the-root", "/usr/share/nowhere", "/mnt/of", "/fields", "/tmp/p", "/dev/shm/x"):
        assert not Path(trace).exists()


def test_each_pod_has_a_tmp_of_its_own(one: EmbeddedCluster) -> None:
    for index in range(4):
        one.apply(pod(f"tmp-{index}", "sh", "-c", f"test ! -e /tmp/same && echo {index} > /tmp/same && cat /tmp/same"))
    for index in range(4):
        assert ended(one, f"tmp-{index}")["status"]["phase"] == "Succeeded"
        assert one.logs(f"tmp-{index}") == f"{index}\n"


def test_what_a_container_leaves_behind_is_read(one: EmbeddedCluster) -> None:
    annotations = {
        "primus-flows.io/outputs": '{"tmp":"/tmp/a","root":"/b","link":"/tmp/l","none":"/tmp/none"}',
        "primus-flows.io/result": "true",
    }
    script = "echo -n 1 > /tmp/a; echo 2 > /b; ln -s /b /tmp/l; echo the; echo result; echo log >&2; echo why > $0"
    container = {"args": ["$(PRIMUS_TERMINATION_LOG)"]}
    one.apply(pod("out", "sh", "-c", script, container=container, metadata={"annotations": annotations}))
    found = ended(one, "out")
    values = found["metadata"]["annotations"]["primus-flows.io/output-values"]
    assert values == (
        '{"outputs": {"tmp": "1", "root": "2\\n", "link": "2\\n", "none": null}, "result": "the\\nresult"}'
    )
    assert end_of(found)["message"] == "why\n"
    assert sorted(one.logs("out").splitlines()) == ["log", "result", "the"]


def test_a_termination_message_is_cut(one: EmbeddedCluster) -> None:
    one.apply(pod("cut", "sh", "-c", "head -c 9000 /dev/zero | tr '\\0' x > /dev/termination-log"))
    assert len(end_of(ended(one, "cut"))["message"]) == 4096


def test_init_containers_run_one_after_the_other_and_a_failed_one_stops_the_pod(one: EmbeddedCluster) -> None:
    init = [{"name": f"i{n}", "image": "any", "command": ["sh", "-c", f"echo {n}; exit {n}"]} for n in (0, 7, 0)]
    for index, container in enumerate(init):
        container["name"] = f"i{index}"
    one.apply(pod("init", "echo", "never", initContainers=init))
    found = ended(one, "init")
    assert found["status"]["phase"] == "Failed"
    assert end_of(found, "i0")["exitCode"] == 0
    assert end_of(found, "i1")["exitCode"] == 7
    assert "waiting" in found["status"]["initContainerStatuses"][2]["state"]
    assert one.logs("init") == ""
    assert one.logs("init", "i1") == "7\n"


def test_on_failure_restarts_at_once_then_backs_off(one: EmbeddedCluster) -> None:
    volumes = [{"name": "v", "emptyDir": {}}]
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    script = "echo x >> /v/count; test ! -e /tmp/left; echo > /tmp/left; test $(wc -l < /v/count) -ge 3"
    one.apply(pod("again", "sh", "-c", script, container=mounts, volumes=volumes, restartPolicy="OnFailure"))
    found = ended(one, "again")
    assert found["status"]["phase"] == "Succeeded"
    status = found["status"]["containerStatuses"][0]
    assert status["restartCount"] == 2
    assert status["lastState"]["terminated"]["exitCode"] == 1


def test_deletion_gives_time_to_end_and_then_kills_the_whole_tree(one: EmbeddedCluster) -> None:
    script = """
      trap '' TERM
      setsid sh -c 'trap "" TERM; echo up >> /proc/1/nothing; sleep 1000' 2>/dev/null &
      env -i setsid sh -c '(sleep 1000 &) ; sleep 1000' &
      echo ready; sleep 1000; sleep 1000
    """
    one.apply(pod("stubborn", "sh", "-c", script))
    lines = one.follow("stubborn", timeout_seconds=DEADLINE_SECONDS)
    assert next(lines) == "ready"
    assert len(one.pod_processes("stubborn")) >= 3
    before = one.pod_processes("stubborn")
    one.delete("Pod", "stubborn", grace_seconds=1)
    gone(one, "Pod", "stubborn")
    assert not any(Path(f"/proc/{pid}").exists() for pid in before)
    assert one.get("Pod", "stubborn") is None
    with pytest.raises(NotFound):
        one.logs("stubborn")
    one.delete("Pod", "stubborn")


def test_a_pod_that_saves_on_term_ends_well(one: EmbeddedCluster) -> None:
    one.apply(pod("saves", "sh", "-c", "trap 'echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"))
    lines = one.follow("saves", timeout_seconds=DEADLINE_SECONDS)
    assert next(lines) == "ready"
    watching = one.watch("Pod", timeout_seconds=DEADLINE_SECONDS)
    one.delete("Pod", "saves")
    last = next(event for event in watching if event.type == "DELETED" and event.object["metadata"]["name"] == "saves")
    assert last.object["status"]["phase"] == "Succeeded"
    log = Path(PodFolder(str(one.root), last.object["metadata"]["uid"]).log("main"))
    until(lambda: not log.exists(), "what the pod printed is cleared away")
    assert list(lines) == ["saved"], "who followed has it all the same"


def test_a_deadline_ends_the_pod(one: EmbeddedCluster) -> None:
    one.apply(pod("late", "sleep", "1000", activeDeadlineSeconds=1))
    found = ended(one, "late")
    assert found["status"]["phase"] == "Failed"
    assert found["status"]["reason"] == "DeadlineExceeded"


def test_what_a_container_leaves_running_ends_with_it(one: EmbeddedCluster) -> None:
    one.apply(pod("leaves", "sh", "-c", "(setsid sleep 1000 &); (env -i sleep 1000 &); echo done"))
    ended(one, "leaves")
    assert one.pod_processes("leaves") == []


@pytest.mark.parametrize(
    ("command", "reason", "says"),
    [
        (["no-such-program"], "StartError", "executable file not found"),
        (["/etc/hosts"], "StartError", "permission denied"),
        (["/no/such/file"], "StartError", "no such file"),
    ],
)
def test_a_program_that_cannot_start(one: EmbeddedCluster, command: list[str], reason: str, says: str) -> None:
    name = f"bad-{len(command[0])}"
    one.apply(pod(name, *command))
    end = end_of(ended(one, name))
    assert (end["exitCode"], end["reason"]) == (128, reason)
    assert says in end["message"]


def test_a_killed_program_says_so(one: EmbeddedCluster) -> None:
    one.apply(pod("killed", "sh", "-c", "kill -KILL $$$$"))
    end = end_of(ended(one, "killed"))
    assert (end["exitCode"], end["signal"], end["reason"]) == (137, 9, "Error")


def test_images_are_mapped_or_waited_for(tmp_path: Path) -> None:
    images = (ImageSpec("mine/*", programs={"tool": ["/bin/echo", "from the map"]}, environment={"OF": "image"}),)
    with cluster(tmp_path / "cluster", spec(images=images)) as one:
        one.apply(pod("mapped", "tool", "$(OF)", container={"image": "mine/a:1"}))
        assert ended(one, "mapped")["status"]["phase"] == "Succeeded"
        assert one.logs("mapped") == "from the map $(OF)\n"
        one.apply(pod("unlisted", "/bin/echo", container={"image": "mine/a:1"}))
        assert "executable file not found" in end_of(ended(one, "unlisted"))["message"]
        one.apply(pod("unknown", "tool", container={"image": "other"}))

        def reason(found: object) -> object:
            statuses = (found or {}).get("status", {}).get("containerStatuses") or [{}]  # pyright: ignore
            return statuses[0].get("state", {}).get("waiting", {}).get("reason")

        one.wait("Pod", "unknown", lambda it: reason(it) == "ImagePullBackOff", DEADLINE_SECONDS)


def test_a_missing_secret_is_waited_for(one: EmbeddedCluster) -> None:
    env = [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "later", "key": "k"}}}]
    one.apply(pod("waits", "sh", "-c", "echo $T", container={"env": env}))
    one.wait("Pod", "waits", lambda it: "CreateContainerConfigError" in str(it), DEADLINE_SECONDS)
    one.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "later"}, "stringData": {"k": "came"}})
    ended(one, "waits")
    assert one.logs("waits") == "came\n"


def test_an_unknown_claim_leaves_the_pod_pending_until_it_is_there(one: EmbeddedCluster) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "later"}}]
    one.apply(pod("claims", "true", volumes=volumes))
    one.wait("Pod", "claims", lambda it: 'persistentvolumeclaim "later" not found' in str(it), DEADLINE_SECONDS)
    one.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "later"}, "spec": {}})
    assert ended(one, "claims")["status"]["phase"] == "Succeeded"


def test_apply_is_idempotent_and_refuses_changes_by_path(one: EmbeddedCluster) -> None:
    first = one.apply(pod("same", "true"))
    ended(one, "same")
    again = one.apply(pod("same", "true"))
    assert again["metadata"]["uid"] == first["metadata"]["uid"]
    with pytest.raises(Refused) as refused:
        one.apply(pod("same", "false"))
    assert refused.value.path == "spec.containers[0].command[0]"
    stored = one.get("Pod", "same")
    assert stored is not None
    with pytest.raises(Conflict):
        one.patch("Pod", "same", {"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}})
    patched = one.patch("Pod", "same", {"metadata": {"labels": {"a": "b"}}})
    assert patched["metadata"]["labels"] == {"a": "b"}
    assert [one["metadata"]["name"] for one in one.list("Pod", {"a": "b"})] == ["same"]


def test_a_dry_run_writes_nothing(one: EmbeddedCluster) -> None:
    made = one.apply(pod("dry", "true"), dry_run=True)
    assert made["metadata"]["namespace"] == "default"
    assert one.get("Pod", "dry") is None
    with pytest.raises(Refused):
        one.apply({**pod("dry", "true"), "spec": {"containers": [], "oops": 1}}, dry_run=True)


def test_a_pod_is_called_at_its_own_address(one: EmbeddedCluster) -> None:
    program = (
        "import http.server as h, os, sys\n"
        "class H(h.BaseHTTPRequestHandler):\n"
        "  def do_POST(self):\n"
        "    b = self.rfile.read(int(self.headers['content-length']))\n"
        "    self.send_response(201); self.end_headers()\n"
        "    self.wfile.write(self.headers['X-Primus-Token'].encode() + b)\n"
        "s = h.HTTPServer((os.environ['IP'], 8000), H); print('up', flush=True); s.serve_forever()\n"
    )
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    one.apply(pod("serves", "python3", "-c", program, container={"env": env}))
    assert next(one.follow("serves", timeout_seconds=DEADLINE_SECONDS)) == "up"
    answer = one.call("serves", 8000, "POST", "/x", token="t", body=b"body", timeout_seconds=DEADLINE_SECONDS)
    assert (answer.status, answer.body) == (201, b"tbody")
    one.delete("Pod", "serves", grace_seconds=0)
    gone(one, "Pod", "serves")


def test_two_containers_of_a_pod(one: EmbeddedCluster) -> None:
    manifest = pod("two", "sh", "-c", "(setsid sleep 0.3; echo late) & echo first; exit 0")
    manifest["spec"]["containers"].append(
        {"name": "side", "image": "any", "command": ["sh", "-c", "sleep 0.6; exit 4"]}
    )
    one.apply(manifest)
    found = ended(one, "two")
    assert found["status"]["phase"] == "Failed"
    assert (end_of(found)["exitCode"], end_of(found, "side")["exitCode"]) == (0, 4)
    assert phase(one, "two", "Failed")["status"]["containerStatuses"][0]["restartCount"] == 0
