"""`primus workflow run`: what a person at a terminal and a program behind a pipe get."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.workflow import (
    RunOptions,
    folded,
    run_workflow,
    tree_lines,
    workflow_delete,
    workflow_list,
    workflow_logs,
    workflow_show,
    workflow_stop,
)
from deployments.exit_codes import FAILED, GOOD, INTERRUPTED, UNKNOWN, WRONG_USAGE
from profiles.errors import NotFound, ProfileError, Refused
from profiles.loading.load import load_cluster
from tasks.clusters import embedded_cluster
from tasks.embedded.api import EmbeddedCluster
from tests.support.running.waiting import patience

DEADLINE_SECONDS = patience(90.0)
MANIFEST = """
apiVersion: v1
kind: ConfigMap
metadata: {name: beside}
---
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {generateName: hello-}
spec:
  entrypoint: main
  arguments: {parameters: [{name: text, value: hi}, {name: code, value: 0}]}
  templates:
    - name: main
      steps:
        - [{name: say, template: say}]
        - [{name: again, template: say, when: "{{steps.say.outputs.result}} == never"}]
    - name: say
      script:
        image: busybox
        command: [sh]
        source: echo {{workflow.parameters.text}}; exit {{workflow.parameters.code}}
"""
WRONG = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: wrong}
spec:
  entrypoint: main
  synchronization: {mutexes: [{name: m}]}
  templates:
    - name: main
      steps:
        - [{name: a, template: none}, {name: b, template: say, when: "=="}]
    - name: say
      metrics: {}
      container: {image: "nowhere:1", lifecycle: {}, volumeMounts: [{name: v, mountPath: /v}]}
    - name: apply
      resource:
        action: apply
        manifest: '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "far"}}'
"""
WRONG_AT = [
    *("spec.synchronization", "spec.templates[1].metrics", "spec.templates[1].container.lifecycle"),
    *("spec.templates[1].container.command", "spec.templates[1].container.volumeMounts[0].name"),
    *("spec.templates[0].steps[0][0].template", "spec.templates[0].steps[0][1].when"),
    *("spec.templates[2].resource.manifest: metadata.namespace", "spec.templates[1].container.image"),
]
WAITS = """
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: waits}
spec: {entrypoint: main, templates: [{name: main, suspend: {}}]}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose cluster is ended afterwards."""
    path = tmp_path_factory.mktemp("home")
    yield path
    embedded(path).stop()


def embedded(home: Path) -> EmbeddedCluster:
    return embedded_cluster(load_cluster("local"), home)


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "deployments.cli.main", "workflow", "run", *words]


def primus(home: Path, *words: str, given: str = MANIFEST) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PRIMUS_HOME": str(home)}
    return subprocess.run(command(*words), input=given, capture_output=True, text=True, check=False, env=environment)


def test_a_pipe_gets_the_final_tree(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text(MANIFEST)
    done = primus(home, str(file), "-p", "text=ciao")
    assert done.returncode == GOOD, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first.startswith("✔ hello-")
    assert "Succeeded" in first
    assert [line.split("  ")[0] for line in lines] == ["├─✔ say", "│", "└─○ again (say)"]
    assert "result: ciao" in done.stdout
    assert "when 'ciao == never' evaluated false" in done.stdout
    assert done.stderr.splitlines() == [f"workflow {first.split()[1]} on local"]


def test_json_is_the_object_with_argos_own_status(home: Path) -> None:
    done = primus(home, "-", "--json", "--name", "as-json", "-p", "code=4")
    assert done.returncode == FAILED, "the work itself failed"
    found: dict[str, Any] = json.loads(done.stdout)
    assert (found["kind"], found["metadata"]["name"], found["status"]["phase"]) == ("Workflow", "as-json", "Failed")
    node = next(node for node in found["status"]["nodes"].values() if node["displayName"] == "say")
    assert {"id", "name", "displayName", "type", "templateName", "phase", "message", "startedAt", "finishedAt",
            "boundaryID", "outputs"} <= set(node)  # fmt: skip
    assert (node["type"], node["phase"], node["outputs"]["exitCode"]) == ("Pod", "Failed", "4")


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (["-", "-p", "txt=x"], MANIFEST, "no parameter 'txt'; did you mean text?"),
        (["-", "-p", "text"], MANIFEST, "is no NAME=VALUE"),
        (["-"], MANIFEST + "---" + WAITS, "holds 2 Workflows (hello-, waits)"),
        (["-"], "kind: ConfigMap", "holds no Workflow; it holds ConfigMap"),
        (["-"], "a: [", "is not valid YAML"),
        (["-"], "kind: Workflow\nkind: Workflow", "stands twice"),
        (["/no/such/file"], "", "cannot read /no/such/file"),
        (["-"], MANIFEST.replace("script:", "scrpt:"), "spec.templates[1].scrpt: unknown field; did you mean script?"),
        (["-"], MANIFEST.replace("busybox", "nowhere:1"), "spec.templates[1].script.image: no image of this cluster"),
        (["-"], MANIFEST.replace("{generateName: hello-}", "{labels: {}}"), "metadata.name: is required"),
        (["-", "--cluster", "nope"], MANIFEST, "nope"),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], given: str, said: str
) -> None:
    file = tmp_path / "given.yaml"
    file.write_text(given)
    monkeypatch.setenv("PRIMUS_HOME", str(home))
    before = {one["metadata"]["name"] for one in embedded(home).list("Workflow")}
    cluster = words[words.index("--cluster") + 1] if "--cluster" in words else ""
    parameters = (words[words.index("-p") + 1],) if "-p" in words else ()
    options = RunOptions(str(file) if words[0] == "-" else words[0], cluster, parameters, "", as_json=False)
    with pytest.raises((ProfileError, Refused)) as error:
        run_workflow(options)
    assert said in str(error.value)
    assert {one["metadata"]["name"] for one in embedded(home).list("Workflow")} == before


def test_a_foreign_namespace_is_told_and_the_only_one_is_used(home: Path) -> None:
    given = MANIFEST.replace("{generateName:", "{namespace: argo, generateName:")
    done = primus(home, "-", "--json", given=given)
    assert done.returncode == GOOD, done.stderr
    assert "the file asks for namespace argo; local has only" in done.stderr
    assert json.loads(done.stdout)["metadata"]["namespace"] == load_cluster("local").namespace


def test_all_that_is_wrong_is_told_at_once(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(home))
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    with pytest.raises(Refused) as error:
        run_workflow(RunOptions(str(file), "", (), "", as_json=False))
    assert [problem.path for problem in error.value.problems] == WRONG_AT
    assert "mutexes and semaphores are not kept" in str(error.value)


def test_a_refusal_is_one_line_and_exit_code_2(home: Path) -> None:
    done = primus(home, "-", given=MANIFEST.replace("script:", "scrpt:"))
    assert (done.returncode, done.stdout) == (WRONG_USAGE, "")
    assert done.stderr == "primus: spec.templates[1].scrpt: unknown field; did you mean script?\n"


def test_a_name_that_is_taken_is_refused_and_one_under_way_is_adopted(home: Path) -> None:
    assert primus(home, "-", "--name", "taken").returncode == GOOD
    again = primus(home, "-", "--name", "taken")
    assert again.returncode == WRONG_USAGE
    assert "a workflow taken exists (Succeeded)" in again.stderr


def watching(home: Path) -> subprocess.Popen[str]:
    """A command that watches the workflow `waits`."""
    environment = {**os.environ, "PRIMUS_HOME": str(home)}
    # A shell's background job ignores Ctrl-C, and so would whatever a test run within one starts.
    process = subprocess.Popen(
        command("-"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - takes no lock
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(WAITS)
    process.stdin.close()
    process.stdin = None
    assert process.stderr.readline() == "workflow waits on local\n"
    return process


def interrupted(process: subprocess.Popen[str]) -> str:
    """What it says at Ctrl-C; pressed again where Python dropped it, as it does within a weak reference's callback."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while True:
        process.send_signal(signal.SIGINT)
        try:
            return process.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            assert time.monotonic() < deadline, "Ctrl-C does not end it"


def test_ctrl_c_stops_watching_and_the_same_command_goes_on(home: Path) -> None:
    one = embedded(home)
    process = watching(home)
    said = interrupted(process)
    assert process.returncode == INTERRUPTED
    assert "stopped watching; the workflow waits goes on" in said
    assert "primus workflow run - --name waits" in said
    stored = one.get("Workflow", "waits")
    assert stored is not None
    assert stored["status"].get("phase", "Running") == "Running"
    other = primus(home, "-", given=WAITS.replace("suspend: {}", 'suspend: {duration: "1"}'))
    assert other.returncode == WRONG_USAGE, "the same name, another workflow"
    process = watching(home)
    one.patch("Workflow", "waits", {"spec": {"shutdown": "Stop"}})
    shown, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == FAILED
    assert "✖ waits  Failed" in shown
    one.delete("Workflow", "waits")
    one.wait("Workflow", "waits", lambda it: it is None, DEADLINE_SECONDS)


def test_a_workflow_that_somebody_deletes_has_no_known_end(home: Path) -> None:
    process = watching(home)
    embedded(home).delete("Workflow", "waits")
    _, said = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == UNKNOWN
    assert "was deleted while it was watched" in said


def test_a_terminal_sees_the_tree_while_it_runs(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "slow.yaml"
    file.write_text(MANIFEST.replace("echo {{", "sleep 1; echo {{"))
    leader, follower = pty.openpty()
    environment = {**os.environ, "PRIMUS_HOME": str(home), "TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
    process = subprocess.Popen(command(str(file)), stdout=subprocess.PIPE, stderr=follower, env=environment)
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # the other side was closed
            break
        seen += piece
    os.close(leader)
    shown, _ = process.communicate(timeout=DEADLINE_SECONDS)
    assert process.returncode == GOOD
    assert "● say" in seen.decode()
    assert "✔ say" in shown.decode()


def test_a_workflow_can_be_found_read_and_deleted_afterwards(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(home))
    file = tmp_path / "fails.yaml"
    file.write_text(MANIFEST)
    assert run_workflow(RunOptions(str(file), "", ("code=4",), "fails", as_json=False)) == FAILED
    assert "── fails[0].say printed last:\n   hi\n" in capsys.readouterr().out
    assert workflow_list() == workflow_show("fails") == workflow_logs("fails", step="say") == GOOD
    listed, shown = capsys.readouterr().out.split("✖ fails", 1)
    assert "fails  Failed  20" in listed
    assert shown.endswith("── fails[0].say printed last:\n   hi\nhi\n")
    with pytest.raises(NotFound, match="no pod of step no"):
        workflow_logs("fails", step="no")
    assert workflow_delete("fails") == GOOD
    embedded(home).wait("Workflow", "fails", lambda it: it is None, DEADLINE_SECONDS)
    with pytest.raises(NotFound, match="there is no workflow fails"):
        workflow_stop("fails")


def test_why_a_step_cannot_begin_is_told_without_a_terminal(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(home))
    secret = "image: busybox, env: [{name: T, valueFrom: {secretKeyRef: {name: token, key: t}}}], command: [env]"
    given = WAITS.replace("suspend: {}", f"container: {{{secret}}}").replace("waits", "lacks")
    environment = {**os.environ, "PRIMUS_HOME": str(home)}
    pipe = subprocess.PIPE
    with subprocess.Popen(command("-"), stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(given)
        process.stdin.close()
        told = next(line for line in process.stderr if "waits:" in line)
        assert told.startswith("step lacks waits: CreateContainerConfigError: ")
        assert "token" in told
        assert workflow_stop("lacks") == GOOD
        assert process.wait(DEADLINE_SECONDS) == FAILED


def test_a_long_line_is_folded_and_never_cut() -> None:
    line = "├─◷ say  1.0 s  CreateContainerConfigError: " + "secret token not found " * 5
    parts = folded(line, 40)
    assert max(map(len, parts)) <= 40
    assert " ".join(" ".join(parts).split()) == " ".join(line.split())


def node(name: str, kind: str = "Pod", phase: str = "Succeeded", **more: Any) -> dict[str, Any]:
    begun = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:02Z"}
    return {
        "id": name,
        "name": name,
        "displayName": name.rpartition(".")[2],
        "type": kind,
        "phase": phase,
        **begun,
        **more,
    }


def test_the_tree_shows_attempts_items_hooks_and_what_runs() -> None:
    nodes = [
        node("w", "DAG", "Running", finishedAt=None),
        node("w.a", "Retry", boundaryID="w"),
        node("w.a(0)", phase="Failed", boundaryID="w", displayName="a(0)", message="main: Error (exit code 1)"),
        node("w.a(1)", boundaryID="w", displayName="a(1)", outputs={"parameters": [{"name": "o", "value": "1\n2"}]}),
        node("w.b", "TaskGroup", boundaryID="w"),
        node("w.b(0:x)", boundaryID="w", displayName="b(0:x)", templateName="t"),
        node("w.b.onExit", boundaryID="w", displayName="b.onExit"),
        node("w.c", "Suspend", "Running", boundaryID="w", finishedAt=None),
        node("w.d", "Retry", boundaryID="w"),
        node("w.d(0)", boundaryID="w", displayName="d(0)"),
    ]
    status = {"phase": "Running", "nodes": {one["id"]: one for one in nodes}}
    assert tree_lines(status, "w", datetime(2026, 1, 1, tzinfo=UTC).timestamp())[1:] == [
        "├─✔ a  2.0 s",
        "│ ├─✖ a(0)  2.0 s  main: Error (exit code 1)",
        "│ └─✔ a(1)  2.0 s",
        "│     o: 1 …",
        "├─✔ b  2.0 s",
        "│ └─✔ b(0:x) (t)  2.0 s",
        "├─✔ b.onExit  2.0 s",
        "├─● c  0.0 s  waits to be resumed",
        "└─✔ d  2.0 s",
    ]
    assert tree_lines({}, "w", 0.0) == ["◷ w  Pending"]
    lone = {
        "name": "w",
        "type": "Pod",
        "phase": "Pending",
        "message": 'CreateContainerConfigError: secret "s" not found',
    }
    assert tree_lines({"phase": "Running", "nodes": {"w": lone}}, "w", 0.0) == [
        '● w  Running  CreateContainerConfigError: secret "s" not found'
    ]
