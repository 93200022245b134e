from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes.serving_stand_ins import Answer, Asked, MadeCluster, serving
from workflows.programs.runtime.kubernetes_api import ApiError, Json
from workflows.programs.serving import helper, install, objects
from workflows.programs.serving.install import Options
from workflows.programs.serving.objects import Applier, Kinds, ObjectsError, in_order

CORE = {
    "/api/v1": [
        ("namespaces", "Namespace", False),
        ("configmaps", "ConfigMap", True),
        ("pods", "Pod", True),
        ("persistentvolumeclaims", "PersistentVolumeClaim", True),
        ("persistentvolumes", "PersistentVolume", False),
    ],
    "/apis/apps/v1": [("deployments", "Deployment", True), ("deployments/status", "Deployment", True)],
    "/apis/made.io/v1": [("things", "Thing", True)],
    "/apis/apiextensions.k8s.io/v1": [("customresourcedefinitions", "CustomResourceDefinition", False)],
    "/apis/admissionregistration.k8s.io/v1": [
        ("validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False)
    ],
}


def made_cluster() -> MadeCluster:
    cluster = MadeCluster()
    cluster.serve(CORE)

    def established(path: str, found: Json) -> None:
        if "/customresourcedefinitions/" in path:
            found["status"] = {"conditions": [{"type": "Established", "status": "True"}]}

    cluster.becomes.append(established)
    return cluster


def thing(kind: str, name: str, version: str = "v1", **metadata: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}}


THINGS = thing("CustomResourceDefinition", "things.made.io", "apiextensions.k8s.io/v1")
HOOK = thing("ValidatingWebhookConfiguration", "hook", "admissionregistration.k8s.io/v1")
OBJECTS = [
    HOOK,
    thing("Deployment", "d", "apps/v1"),
    thing("Thing", "t", "made.io/v1"),
    THINGS,
    thing("Namespace", "made"),
]


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "WAIT_SECONDS", 0.0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1.0


def applier(cluster: MadeCluster) -> Applier:
    clock = Clock()
    return Applier(cluster, 10.0, clock, clock.sleep)


def test_definitions_come_first_and_whoever_intercepts_last() -> None:
    assert [one["kind"] for one in in_order(OBJECTS)] == [
        "Namespace",
        "CustomResourceDefinition",
        "Deployment",
        "Thing",
        "ValidatingWebhookConfiguration",
    ]


def test_objects_are_found_where_the_api_says_they_live() -> None:
    kinds = Kinds(made_cluster())
    assert kinds.path(thing("Deployment", "d", "apps/v1"), "made") == "/apis/apps/v1/namespaces/made/deployments/d"
    own = thing("ConfigMap", "c", namespace="other")
    assert kinds.path(own, "made") == "/api/v1/namespaces/other/configmaps/c"
    assert kinds.path(thing("Namespace", "made"), "x") == "/api/v1/namespaces/made"
    with pytest.raises(ApiError, match="serves no Nothing of v1"):
        kinds.path(thing("Nothing", "n"), "made")


def test_a_definition_is_waited_for_and_one_that_never_comes_is_named() -> None:
    cluster = made_cluster()
    assert applier(cluster).apply(OBJECTS, "made", ["things.made.io"]) == 5
    assert cluster.applied[:2] == [
        "/api/v1/namespaces/made",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.made.io",
    ]
    cluster.becomes.clear()
    for path in cluster.applied:
        cluster.objects.pop(path)
    cluster.applied.clear()
    with pytest.raises(ObjectsError, match=r"definition things\.made\.io: it is not Established"):
        applier(cluster).apply(OBJECTS, "made", [])
    assert not [path for path in cluster.applied if "things/" in path], "nothing that uses it was applied"


def test_a_webhook_that_does_not_answer_yet_is_waited_for_and_a_wrong_object_is_not() -> None:
    cluster, tries = made_cluster(), [0]

    def refuses(path: str) -> ApiError | None:
        if "/things/" in path and (tries := counted()) < 3:
            return ApiError(500, f'failed calling webhook "hook" ({tries})')
        return None

    def counted() -> int:
        tries[0] += 1
        return tries[0]

    cluster.refuses = refuses
    assert applier(cluster).apply([thing("Thing", "t", "made.io/v1")], "made", []) == 1
    assert tries[0] == 3

    def invalid(path: str) -> ApiError | None:
        return ApiError(422, "spec.x: Invalid value") if "/things/" in path else None

    cluster.refuses = invalid
    with pytest.raises(ObjectsError, match=r"Thing t: spec\.x: Invalid value"):
        applier(cluster).apply([thing("Thing", "t", "made.io/v1")], "made", [])


def test_what_is_held_is_told_with_what_holds_it() -> None:
    cluster = made_cluster()
    cluster.objects["/apis/made.io"] = {"metadata": {"name": "g"}, "preferredVersion": {"groupVersion": "made.io/v1"}}
    path = "/apis/made.io/v1/namespaces/x/things/t"
    held = {"metadata": {"name": "t", "namespace": "x", "finalizers": ["made.io/keeper"]}}
    cluster.objects[path] = held
    assert applier(cluster).remove_all_of("things.made.io") == 1
    assert cluster.deleted == [path]
    cluster.objects[path] = held
    cluster.keeps = True
    with pytest.raises(ObjectsError, match=r"t is held by made\.io/keeper"):
        applier(cluster).remove_all_of("things.made.io")
    assert applier(cluster).remove_all_of("others.nobody.io") == 0


def options(**fields: Any) -> Options:
    return replace(Options("made", version="1", wanted="w", namespace="made", deadline_seconds=5.0), **fields)


def test_apply_marks_all_that_it_makes_and_leaves_an_unfinished_note(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps([thing("ConfigMap", "c"), thing("Namespace", "kube-system")]))
    cluster = made_cluster()
    install.apply(options(objects=str(file)), cluster)
    assert not [path for path in cluster.applied if "kube-system" in path], "Kubernetes' own is nobody's component"
    made = cluster.objects["/api/v1/namespaces/made/configmaps/c"]
    assert made["metadata"]["labels"] == {"primus-flows.io/component": "made"}
    assert made["metadata"]["annotations"] == {"primus-flows.io/wanted": "w"}
    assert "/api/v1/namespaces/made" in cluster.applied, "its namespace is made where nobody makes it"
    note = cluster.objects["/api/v1/namespaces/primus-bootstrap/configmaps/primus-component-made"]
    assert note["data"] == {"version": "1", "wanted": ""}, "only a proof says what it is"


def test_what_the_mirror_gives_is_taken_by_its_digest_alone(tmp_path: Path) -> None:
    data = json.dumps({"items": [thing("ConfigMap", "c")]}).encode()
    digest, cluster = hashlib.sha256(data).hexdigest(), made_cluster()

    def mirror(asked: Asked) -> Answer:
        return (200, {}, data) if asked.path == "/a.json" else (404, {}, b"")

    with serving(mirror) as url:
        install.apply(options(url=f"{url}/a.json", sha256=digest), cluster)
        assert "/api/v1/namespaces/made/configmaps/c" in cluster.applied
        before = list(cluster.applied)
        for asked, says in (
            (options(url=f"{url}/a.json", sha256="0" * 64), "was asked for"),
            (options(url=f"{url}/b"), "404"),
        ):
            with pytest.raises(install.FetchError, match=says):
                install.apply(asked, cluster)
            with pytest.raises(install.FetchError, match=says):
                install.fetch(asked, cluster)
        assert cluster.applied == before, "nothing half applied, and no note says that it began"
        install.fetch(options(url=f"{url}/a.json", sha256=digest, to=str(tmp_path)), cluster)
    assert [path.name for path in tmp_path.iterdir()] == ["chart.tgz"]


def test_remove_takes_all_of_it_and_forgets_it(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps(OBJECTS))
    cluster = made_cluster()
    Applier(cluster, 10.0, Clock()).apply(OBJECTS, "made", [])
    install.begin(options(), cluster)
    install.remove(options(objects=str(file)), cluster)
    assert "/apis/apps/v1/namespaces/made/deployments/d" not in cluster.objects
    assert "/api/v1/namespaces/made" in cluster.objects, "what others may live in goes by its own name"
    install.remove(options(crd=("things.made.io",), remove_namespace="made", forget=True), cluster)
    assert cluster.objects.keys() == CORE.keys(), "what is there is what was there before"
    install.remove(options(crd=("things.made.io",), remove_namespace="made", forget=True), cluster)


@pytest.mark.parametrize("data", [False, True])
def test_volumes_stay_unless_data_goes_too(tmp_path: Path, data: bool) -> None:
    file = tmp_path / "objects.json"
    kept = [thing("PersistentVolumeClaim", "c"), thing("PersistentVolume", "v")]
    file.write_text(json.dumps([*kept, thing("ConfigMap", "m")]))
    cluster = made_cluster()
    install.apply(options(objects=str(file)), cluster)
    install.remove(options(objects=str(file), data=data), cluster)
    claim, volume = "/api/v1/namespaces/made/persistentvolumeclaims/c", "/api/v1/persistentvolumes/v"
    assert [path in cluster.objects for path in (claim, volume)] == [not data, not data]
    assert "/api/v1/namespaces/made/configmaps/m" not in cluster.objects


def test_definitions_go_also_where_only_the_list_names_them(tmp_path: Path) -> None:
    file = tmp_path / "objects.json"
    file.write_text(json.dumps([THINGS]))
    cluster = made_cluster()
    install.apply(options(objects=str(file)), cluster)
    install.remove(options(objects=str(file)), cluster)
    assert not [path for path in cluster.objects if path.endswith("/things.made.io")]


def test_a_release_whose_helm_was_ended_is_free_again(tmp_path: Path) -> None:
    data, cluster, place = b"a chart", made_cluster(), "/api/v1/namespaces/made/secrets"

    def revision(number: int, status: str, name: str = "made", owner: str = "helm") -> str:
        path = f"{place}/sh.helm.release.v1.{name}.v{number}"
        told = {"owner": owner, "name": name, "status": status}
        cluster.objects[path] = thing("Secret", path.rpartition("/")[2], labels=told)
        return path

    stay = [revision(1, "superseded"), revision(2, "deployed"), revision(9, "pending-upgrade", "other")]
    stay.append(revision(3, "pending-upgrade", owner="somebody"))
    go = [revision(number, f"pending-{word}") for number, word in ((4, "install"), (5, "upgrade"), (6, "rollback"))]
    with serving(lambda asked: (200, {}, data)) as url:
        digest = hashlib.sha256(data).hexdigest()
        install.fetch(options(url=f"{url}/x.tgz", sha256=digest, to=str(tmp_path)), cluster)
    assert (sorted(cluster.deleted), [path in cluster.objects for path in stay]) == (go, [True] * 4)


def test_the_program_ends_with_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = made_cluster()
    found: list[MadeCluster | None] = [cluster]

    def api_from(environment: object, url: str) -> MadeCluster | None:
        return found[0]

    monkeypatch.setattr(install, "api_from", api_from)
    assert install.main(options().argv()) == 0
    cluster.away = True
    assert install.main(options().argv()) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("install-component: made: ")
    assert install.main(["--component=x", "--do=nothing"]) == 2
    found[0] = None
    assert install.main(["--component=x"]) == 2


def test_pods_of_proofs_write_read_and_answer(tmp_path: Path) -> None:
    file = f"--file={tmp_path / 'x'}"
    assert helper.main(["--do=write", file, "--text=mark"]) == 0
    assert helper.main(["--do=read", file, "--text=mark"]) == 0
    assert helper.main(["--do=read", file, "--text=other"]) == 1
    server = helper.serve(helper.Options("answer", "mark", port=0))
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    from workflows.programs.serving.ask import ask

    assert ask("GET", f"http://127.0.0.1:{server.server_port}/x").body == b"mark"
    thread.join()
    server.server_close()
