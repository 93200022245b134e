"""What `primus doctor` asks a cluster, and that it changes nothing there."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.why import show_doctor
from deployments.exit_codes import FAILED, GOOD
from flows.decisions.explain.doctor import checkup
from profiles.errors import Refused, Unavailable
from profiles.loading.load import load_cluster
from profiles.vocabulary import VerdictWord
from tasks.clusters import embedded_cluster
from tasks.kubernetes.api_server import Reply, Request
from tasks.kubernetes.checkup import skew_seconds
from tasks.ledger.ledger import Ledger
from tasks.observe.checkup import look_over, trial_jobset, try_jobset
from tasks.prefect.services import Service, Tries
from tasks.processes import record
from tasks.settings import Settings
from tests.support.builders.attempt_plans import AMD, a_cluster
from tests.support.builders.ledgers import a_run
from tests.support.fakes.fake_api_server import FakeApiServer, Fault
from tests.unit.tasks.observe.test_looking import made
from workflows.model.nodes import beat_of
from workflows.platform.workspace import NODE_RIGHTS, RUNNER_RIGHTS

LOCAL = load_cluster("local")
PASS, FAIL = VerdictWord.PASS, VerdictWord.FAIL
GPU = "amd.com/gpu"
ALWAYS = 10**6


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    """A server that says yes to everything that is asked for its rights and versions."""
    with FakeApiServer().running() as server:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {"server": server.url}}],
            "users": [{"name": "me", "user": {"token": "t"}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        for path, answer in ANSWERS:
            server.faults.append(Fault(path, 200, json.dumps(answer).encode(), times=ALWAYS))
        yield server


def resources(*plurals: str) -> dict[str, Any]:
    return {"kind": "APIResourceList", "resources": [{"name": plural} for plural in plurals]}


ANSWERS: list[tuple[str, dict[str, Any]]] = [
    ("POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"status": {"allowed": True}}),
    ("GET /version", {"gitVersion": "v1.36.3"}),
    ("GET /apis/argoproj.io/v1alpha1 ", resources("workflows")),
    ("GET /apis/jobset.x-k8s.io/v1alpha2 ", resources("jobsets")),
    ("GET /apis/kueue.x-k8s.io/v1beta2 ", resources("workloads", "localqueues")),
]
POOL = a_cluster(AMD).pools[0].model_copy(update={"nodes": 1, "spares": 0})
PROFILE = a_cluster(AMD, engine="kubernetes", queue="team", pools=(POOL,))


def furnish(api: FakeApiServer) -> None:
    """Everything that the profile names."""
    ready = [{"type": "Ready", "status": "True"}]
    node = {"status": {"conditions": ready, "allocatable": {GPU: "8"}}}
    api.put("nodes", made("Node", "node-0", labels={"example.org/kind": "mi300x"}, **node))
    api.put("persistentvolumeclaims", made("PersistentVolumeClaim", "datasets", status={"phase": "Bound"}))
    active = [{"type": "Active", "status": "True", "reason": "Ready", "message": "Can submit new workloads"}]
    api.put("localqueues", made("LocalQueue", "team", status={"conditions": active}))
    api.put("workflows", made("Workflow", "w", status={"phase": "Succeeded"}))


@pytest.fixture
def exact(api: FakeApiServer) -> FakeApiServer:
    """Discovery answers by exact path: a longer one is an object's."""
    plain = api.fault_for
    api.fault_for = lambda line: plain(f"{line} ")  # type: ignore[method-assign]
    furnish(api)
    held = trial_jobset(PROFILE)
    held["spec"]["suspend"] = True
    dry = "PATCH /apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets/primus-doctor?"
    api.faults.append(Fault(dry, 200, json.dumps(held).encode(), times=ALWAYS))
    return api


def verdicts(tmp_path: Path) -> dict[str, VerdictWord]:
    return {item.check: item.verdict for item in checkup(look_over(PROFILE, tmp_path))}


def test_a_cluster_with_everything_passes(exact: FakeApiServer, tmp_path: Path) -> None:
    found = verdicts(tmp_path)
    assert set(found.values()) == {VerdictWord.PASS}, found
    assert {"rights", "gpus main", "claim datasets", "clock", "JobSet", "Argo", "queue team"} <= set(found)
    asked = [seen.json["spec"]["resourceAttributes"] for seen in exact.requests("POST")]
    wanted = [len(resources) * len(verbs) for _, resources, verbs in (*RUNNER_RIGHTS, *NODE_RIGHTS)]
    assert len(asked) == sum(wanted), "exactly the rights that the roles give"
    assert {"namespace": "default", "verb": "get", "resource": "pods", "subresource": "log"} in asked
    assert {"verb": "patch", "resource": "nodes"} in asked, "nodes have no namespace"
    writes = [seen for seen in exact.seen if seen.method not in ("GET", "POST")]
    assert [seen.query["dryRun"] for seen in writes] == ["All"], "nothing is changed"


def test_what_is_missing_fails_by_its_name(exact: FakeApiServer, tmp_path: Path) -> None:
    for plural, name in (("nodes", "node-0"), ("persistentvolumeclaims", "datasets"), ("localqueues", "team")):
        exact.remove(plural, name)
    exact.faults.insert(0, Fault("GET /apis/jobset.x-k8s.io/v1alpha2 ", 404, b"404 page not found\n"))
    failed = {name for name, verdict in verdicts(tmp_path).items() if verdict is VerdictWord.FAIL}
    assert failed == {"nodes main", "claim datasets", "queue team", "serves jobset.x-k8s.io/v1alpha2 jobsets"}


class Refusing:
    """A cluster that answers a dry run with an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def apply(self, manifest: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        assert dry_run
        raise self.error


@pytest.mark.parametrize(
    ("error", "worked"),
    [
        (Unavailable('failed calling webhook "mjobset.kb.io": connection refused'), False),
        (Refused("spec", "unknown field"), False),
        (Refused("apply JobSet", 'jobsets "primus-doctor" is forbidden: User "me" cannot patch'), None),
    ],
)
def test_a_webhook_that_does_not_answer_fails_and_a_missing_right_is_unknown(
    error: Exception, worked: bool | None
) -> None:
    cluster: Any = Refusing(error)
    assert try_jobset(PROFILE, cluster).worked is worked


def test_a_queue_that_kueue_does_not_heed_fails(exact: FakeApiServer, tmp_path: Path) -> None:
    exact.faults.insert(0, Fault("dryRun=All", 200, json.dumps(trial_jobset(PROFILE)).encode()))
    assert verdicts(tmp_path)["JobSet"] is VerdictWord.FAIL


def test_no_access_is_one_failed_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert verdicts(tmp_path) == {"answers": VerdictWord.FAIL}


class ServerWithClock:
    """Answers with a Date header."""

    def __init__(self, date: str) -> None:
        self.date = date

    def ask(self, request: Request) -> Reply:
        return Reply(200, {"Date": self.date} if self.date else {}, b"{}")


@pytest.mark.parametrize(("ahead", "skew"), [(0, 0.5), (-120, -119.5), (30, 30.5)])
def test_the_clock_is_read_from_the_answer_s_date(ahead: int, skew: float) -> None:
    server: Any = ServerWithClock(formatdate(1000 + ahead, usegmt=True))
    assert skew_seconds(server, lambda: 1000.0) == skew
    silent: Any = ServerWithClock("")
    assert skew_seconds(silent) is None


def test_this_machine_is_looked_over_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PRIMUS_HOME", str(tmp_path))
    assert show_doctor("local", as_json=True) in (GOOD, FAILED)
    found = json.loads(capsys.readouterr().out)
    assert [item["check"] for item in found["checks"]] == [
        *("answers", "nodes", "namespaces", "disk", "clock"),
        *("ledger", "server", "runner", "monitor"),
    ]
    assert abs(time.time() - tmp_path.stat().st_mtime) < 3600
    assert show_doctor("local", as_json=False) in (GOOD, FAILED)
    assert capsys.readouterr().out.splitlines()[0].startswith(f"local: {found['verdict']}: ")


def about_home(settings: Settings) -> dict[str, tuple[VerdictWord, str]]:
    ledger = Ledger(settings.ledger_url)
    found = checkup(look_over(LOCAL, settings.home, ledger))
    ledger.close()
    return {item.check: (item.verdict, item.measured) for item in found}


def test_a_ledger_that_is_damaged_or_gone_is_a_failure(settings: Settings) -> None:
    assert about_home(settings)["ledger"] == (PASS, f"{settings.home}/ledger.sqlite is made with the first run")
    path = settings.home / "ledger.sqlite"
    ledger = Ledger(settings.ledger_url)
    for number in range(200):
        ledger.open_run(a_run(f"run-{number}"))
    ledger.close()
    assert about_home(settings)["ledger"] == (PASS, "every page and index was read; 200 runs")
    whole = path.read_bytes()
    for damaged in (
        whole[: len(whole) // 2] + b"\xaa" * 8192 + whole[len(whole) // 2 + 8192 :],
        whole[: len(whole) // 2],
        b"\0" * len(whole),
    ):
        path.write_bytes(damaged)
        verdict, said = about_home(settings)["ledger"]
        assert (verdict, str(path) in said, "damaged" in said) == (FAIL, True, True), said
    path.unlink()
    (settings.home / "runs" / "run-1").mkdir(parents=True)
    assert about_home(settings)["ledger"] == (FAIL, f"{path} is gone, though this home has 1 runs")


def test_services_that_should_run_and_do_not_are_failures(settings: Settings) -> None:
    for service in Service:
        assert about_home(settings)[service] == (PASS, "nobody asked for it: `primus up` does")
    (settings.home / "up.json").write_text(json.dumps({"cluster": "local"}))
    (settings.home / "logs").mkdir()
    (settings.home / "logs" / "server.log").write_text("OSError: No space left on device\n")
    Tries(settings.home).note(Service.SERVER, "")
    found = about_home(settings)
    assert found["server"] == (FAIL, "it is dead: OSError: No space left on device; started 1 times in a row")
    assert [found[service][0] for service in Service] == [FAIL, FAIL, FAIL]
    record(settings.home / "monitor.json", os.getpid())
    assert about_home(settings)["monitor"][0] is VerdictWord.UNKNOWN, "it has completed no round yet"
    ledger = Ledger(settings.ledger_url)
    ledger.move_cursor(beat_of(LOCAL.name), 1, time.time())
    assert about_home(settings)["monitor"][0] is PASS
    ledger.move_cursor(beat_of(LOCAL.name), 2, time.time() - 100)
    ledger.close()
    assert about_home(settings)["monitor"][0] is FAIL


def test_nodes_without_power_and_nodes_that_are_out_are_told(settings: Settings) -> None:
    cluster = embedded_cluster(LOCAL, settings.home)
    assert about_home(settings)["nodes"][0] is PASS
    names = sorted(item["metadata"]["name"] for item in cluster.list("Node"))
    cluster.patch("Node", names[0], {"spec": {"unschedulable": True}})
    verdict, said = about_home(settings)["nodes"]
    assert (verdict, said.endswith(f"taken out: {names[0]}")) == (PASS, True)
    cluster.lose_node(names[-1])
    verdict, said = about_home(settings)["nodes"]
    assert (verdict, f"without power or not ready: {names[-1]}" in said) == (FAIL, True)
