from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from flows.decisions.bootstrap.components import component_proofs, removal_order
from profiles.bootstrap.components import InlineSource, ManifestsSource
from profiles.bootstrap.inventory import Mirror
from profiles.errors import NotFound, ProfileError, Unavailable
from profiles.loading.load import dump, load_workspace
from tasks.bootstrap import components
from tasks.bootstrap.components import (
    ComponentsSite,
    bring_components,
    built_in_objects,
    look_components,
    remove_components,
    source_objects,
)
from tasks.bootstrap.installer import forget_installer
from tasks.cluster import Cluster, Manifest, Seen
from tasks.kubernetes.any_object import AnyObject
from tasks.kubernetes.api_server import ApiServer
from tests.support.builders.components import chosen_of, cluster_with, shelf
from tests.support.fakes.fake_api_server import FakeApiServer
from tests.support.fakes.serving_stand_ins import MadeCluster
from workflows import labels
from workflows.bootstrap.endurance import HOST, PORT
from workflows.bootstrap.removal import Leaving
from workflows.model.components import NAMESPACE, ChosenComponent, note_name, pinned
from workflows.programs.runtime.kubernetes_api import ApiError, Json
from workflows.programs.serving import objects as serving_objects
from workflows.tolerations import LOST, STARTUP
from workflows.wire import ServingReport, to_json

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.made.io"},
}
LIST = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made", "namespace": "made"}}, DEFINITION]
DATA = json.dumps(LIST).encode()
CORE = {
    "/api/v1": [
        ("namespaces", "Namespace", False),
        ("configmaps", "ConfigMap", True),
        ("serviceaccounts", "ServiceAccount", True),
    ],
    "/apis/apps/v1": [("deployments", "Deployment", True)],
    "/apis/apiextensions.k8s.io/v1": [("customresourcedefinitions", "CustomResourceDefinition", False)],
    "/apis/rbac.authorization.k8s.io/v1": [("clusterrolebindings", "ClusterRoleBinding", False)],
}
RIGHT = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/primus-installer"
NOTES = f"/api/v1/namespaces/{NAMESPACE}/configmaps/"


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving_objects, "WAIT_SECONDS", 0.0)


class Seam:
    """Workflows by name; each ends as `ends` says once it is watched. Before Argo is there the kind is unknown."""

    name = "made"

    def __init__(self, ends: Callable[[Manifest], dict[str, Any]]) -> None:
        self.ends, self.workflows, self.submitted = ends, dict[str, Manifest](), list[str]()
        self.followed: list[str] = []
        self.knows: Callable[[], bool] = lambda: True

    def get(self, kind: str, name: str) -> Manifest | None:
        return self.workflows.get(name)

    def list(self, kind: str, wanted: dict[str, str]) -> list[Manifest]:
        if not self.knows():
            raise NotFound(kind, "the server could not find the requested resource")
        [(key, value)] = wanted.items()
        return [one for one in self.workflows.values() if one["metadata"].get("labels", {}).get(key) == value]

    def apply(self, manifest: Manifest, *, dry_run: bool = False) -> Manifest:
        self.submitted.append(manifest["metadata"]["name"])
        self.workflows[manifest["metadata"]["name"]] = manifest
        return manifest

    def watch(self, kind: str, wanted: dict[str, str], **_: Any) -> Iterator[Seen]:
        [name] = wanted.values()
        found = self.workflows[name]
        self.followed.append(name)
        found["status"] = self.ends(found)
        yield Seen("MODIFIED", found, "1")

    def delete(self, kind: str, name: str, **_: Any) -> None:
        self.workflows.pop(name, None)


def served(manifest: Manifest, bad: str = "", installs: bool = True) -> dict[str, Any]:
    """What becomes of a workflow whose components serve, but for one."""
    nodes: dict[str, Any] = {}
    for template in manifest["spec"]["templates"]:
        beginning = template["name"].partition("-")[0]
        if beginning not in ("put", "ask", "rid", "end"):
            continue
        words = dict(
            one.removeprefix("--").split("=", 1) for one in _flags(template) if one.startswith("--") and "=" in one
        )
        name = words["component"]
        fails = name == bad and (beginning == "ask" or not installs)
        report = ServingReport(name, "fail" if fails else "pass", "it loses what is pushed" if fails else "ok", 1.0)
        outputs = {"parameters": [{"name": "report", "value": to_json(report)}]} if beginning == "ask" else {}
        nodes[template["name"]] = {
            "type": "Pod",
            "displayName": name,
            "templateName": template["name"],
            "phase": "Failed" if fails else "Succeeded",
            "message": "exit code 1" if fails else "",
            "outputs": outputs,
        }
        if fails and beginning == "put":
            break
    return {"phase": "Failed" if bad else "Succeeded", "nodes": nodes}


def _flags(template: Json) -> list[str]:
    containers = [template["container"], *template.get("initContainers", [])]
    return [word for one in containers if one["command"][0] == "primus-programs" for word in one["command"]]


def made_api() -> MadeCluster:
    api = MadeCluster("a")
    api.serve(CORE)

    def established(path: str, found: Json) -> None:
        if "/customresourcedefinitions/" in path:
            found["status"] = {"conditions": [{"type": "Established", "status": "True"}]}

    api.becomes.append(established)
    return api


def site_of(folder: Path, api: MadeCluster, seam: Seam, data: bytes = DATA) -> ComponentsSite:
    """The first ones, each made of one small list in the mirror, and a registry."""
    cluster = cluster_with(["registry"])
    assert cluster.bootstrap is not None
    mirror = Mirror(files_folder=str(folder))
    cluster = cluster.model_copy(update={"bootstrap": cluster.bootstrap.model_copy(update={"mirror": mirror})})
    (folder / "list.json").write_bytes(data)
    source = ManifestsSource(kind="manifests", path="list.json")
    chosen: list[ChosenComponent] = []
    for one in chosen_of(cluster):
        if one.profile.first:
            profile = one.profile.model_copy(update={"source": source, "crds": (), "namespace": "made"})
            chosen.append(replace(one, profile=profile, sha256=hashlib.sha256(data).hexdigest()))
        else:
            chosen.append(one)
    seam.knows = lambda: f"{NOTES}{note_name('argo-workflows')}" in api.objects
    return ComponentsSite(cluster, tuple(chosen), api, cast("Cluster", seam), ledger="abcdef0123")


def bring(site: ComponentsSite) -> dict[str, str]:
    return bring_components(site, [one.name for one in site.chosen], lambda line: None)


def test_the_first_are_applied_by_ourselves_and_the_rest_by_one_workflow(tmp_path: Path) -> None:
    api, seam = made_api(), Seam(served)
    site = site_of(tmp_path, api, seam)
    assert bring(site) == {}
    [workflow] = seam.workflows.values()
    steps = [
        task["name"] for template in workflow["spec"]["templates"] for task in template.get("dag", {}).get("tasks", [])
    ]
    assert "install-registry" in steps
    assert not [name for name in steps if name.startswith("install-") and name != "install-registry"]
    assert {"prove-argo-workflows", "prove-jobset", "prove-kueue", "prove-registry"} <= set(steps)
    assert api.objects["/api/v1/namespaces/made/configmaps/made"]["metadata"]["labels"][labels.COMPONENT]
    assert api.objects[f"{NOTES}{note_name('kueue')}"]["data"]["wanted"] == "", "only its proof says that it is there"
    assert workflow["metadata"]["annotations"][labels.LEDGER] == "abcdef0123"


def test_pods_of_the_first_come_to_nodes_that_no_preflight_has_passed_yet(tmp_path: Path) -> None:
    own = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
    pod = {"containers": [{"name": "main", "image": "made:1"}], "tolerations": [own]}
    metadata = {"name": "controller", "namespace": "made"}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": {"spec": pod}}}
    api = made_api()
    site = site_of(tmp_path, api, Seam(served), json.dumps([made]).encode())
    paired = tuple(
        replace(one, standby=True, endpoint="192.0.2.10:6443") if one.profile.first else one for one in site.chosen
    )
    assert bring(replace(site, chosen=paired)) == {}
    sent = api.objects["/apis/apps/v1/namespaces/made/deployments/controller"]["spec"]
    found = sent["template"]["spec"]
    assert sent["replicas"] == 2, "one leads, and another one stands by"
    assert found["tolerations"] == [own, STARTUP, *LOST]
    way = [{"name": HOST, "value": "192.0.2.10"}, {"name": PORT, "value": "6443"}]
    assert found["containers"] == [{"name": "main", "image": "made:1", "env": way}]


def test_what_does_not_serve_is_told_with_the_proof_s_own_words(tmp_path: Path) -> None:
    failures = bring(site_of(tmp_path, made_api(), Seam(lambda one: served(one, "registry"))))
    assert failures == {"components/registry": "it loses what is pushed"}
    failures = bring(site_of(tmp_path, made_api(), Seam(lambda one: served(one, "registry", installs=False))))
    assert failures == {"components/registry": "its install failed: exit code 1"}
    failures = bring(site_of(tmp_path, made_api(), Seam(lambda one: {"phase": "Error", "message": "no such account"})))
    assert failures.keys() == {f"components/{name}" for name in ("argo-workflows", "jobset", "kueue", "registry")}
    assert set(failures.values()) == {"nobody asked it to serve: no such account"}


def test_what_became_of_each_component_is_told_once_as_it_comes(tmp_path: Path) -> None:
    class Slow(Seam):
        """Tells of each change twice: first nothing serves, then all but one."""

        def watch(self, kind: str, wanted: dict[str, str], **_: Any) -> Iterator[Seen]:
            [name] = wanted.values()
            ended = self.ends(self.workflows[name])
            begun = {key: {**node, "phase": "Running", "outputs": {}} for key, node in ended["nodes"].items()}
            for status in ({"phase": "Running", "nodes": begun}, ended):
                for _ in range(2):
                    yield Seen("MODIFIED", {**self.workflows[name], "status": status}, "1")

    lines: list[str] = []
    site = site_of(tmp_path, made_api(), Slow(lambda one: served(one, "registry")))
    bring_components(site, [one.name for one in site.chosen], lines.append)
    assert len(set(lines)) == len(lines)
    assert lines.index("kueue: pass: ok") > lines.index("kueue: asked whether it serves")
    assert "registry: fail: it loses what is pushed" in lines


def test_a_workflow_that_nobody_begins_ends_with_what_argo_s_own_pods_wait_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = made_api()
    why = "0/3 nodes are available: 3 node(s) had untolerated taint(s)"
    scheduled = {"type": "PodScheduled", "status": "False", "message": why}
    pod = {"metadata": {"name": "controller"}, "status": {"phase": "Pending", "conditions": [scheduled]}}
    api.objects["/api/v1/namespaces/made/pods/controller"] = pod
    site = site_of(tmp_path, api, Seam(lambda one: {}))
    monkeypatch.setattr(components, "BEGIN_SECONDS", 0.0)
    failures = bring(site)
    assert set(failures) == {f"components/{one.name}" for one in site.chosen}
    [said] = set(failures.values())
    assert "was not begun within 0 s" in said
    assert f"argo-workflows: Pending: {why}" in said


@pytest.mark.parametrize(
    ("values", "field"),
    [({"profile": "nobody"}, "nobody"), ({"queue": "other"}, "values.queue"), ({"profile": "{other}"}, "copy the")],
)
def test_a_workspace_is_that_of_its_component(tmp_path: Path, values: dict[str, str], field: str) -> None:
    cluster = cluster_with(["primus-workspace"])
    [one] = [one for one in chosen_of(cluster) if one.name == "primus-workspace"]
    made = built_in_objects(cluster, [one])["primus-workspace"]
    assert {"Namespace", "ClusterQueue", "LocalQueue", "ResourceFlavor"} <= {item["kind"] for item in made}
    other = tmp_path / "other.yaml"
    other.write_text(dump(load_workspace("training").model_copy(update={"name": "research"})))
    given = {name: value.format(other=other) for name, value in values.items()}
    with pytest.raises(ProfileError, match=field):
        built_in_objects(cluster, [replace(one, values={**one.values, **given})])


def test_after_a_kill_the_workflow_that_runs_is_found_and_one_that_ended_is_made_anew(tmp_path: Path) -> None:
    api, seam = made_api(), Seam(served)
    site = site_of(tmp_path, api, seam)
    bring(site)
    [name] = seam.submitted
    seam.workflows[name]["status"] = {"phase": "Running"}
    assert bring(site) == {}
    assert seam.submitted == [name], "it was adopted"
    assert bring(site) == {}
    assert seam.submitted == [name, name], "what has ended says nothing of now"
    seam.workflows[name]["status"] = {"phase": "Running"}
    seam.workflows[name]["metadata"]["annotations"][labels.WANTED] = "another"
    seam.followed.clear()
    assert bring(site) == {}
    assert seam.followed == [name, name], "another one comes to its end first"
    assert seam.submitted == [name, name, name]


def test_what_holds_as_it_is_wanted_is_only_asked_again(tmp_path: Path) -> None:
    api, seam = made_api(), Seam(served)
    site = site_of(tmp_path, api, seam)
    for one in site.chosen:
        report = to_json(ServingReport(one.name, "pass", "ok", 5.0, one.wanted))
        data = {"version": one.profile.version, "wanted": one.wanted, "report": report}
        metadata = {"name": note_name(one.name), "labels": {labels.COMPONENT: one.name}}
        api.objects[f"{NOTES}{note_name(one.name)}"] = {"metadata": metadata, "data": data}
    there = look_components(api)
    assert {proof.word for proof in component_proofs(site.chosen, there, 1.0).values()} == {"pass"}
    assert bring(site) == {}
    [workflow] = seam.workflows.values()
    assert not [one for one in workflow["spec"]["templates"] if one["name"].startswith("put-")]
    assert "/api/v1/namespaces/made/configmaps/made" not in api.objects, "nothing was applied"


@pytest.mark.parametrize(("word", "again"), [("fail", True), ("unknown", False), ("pass", False)])
def test_what_was_seen_not_to_serve_is_applied_again(tmp_path: Path, word: str, again: bool) -> None:
    api, seam = made_api(), Seam(served)
    site = site_of(tmp_path, api, seam)
    for one in site.chosen:
        report = to_json(ServingReport(one.name, word, "seen", 5.0, one.wanted))
        data = {"version": one.profile.version, "wanted": one.wanted, "report": report}
        metadata = {"name": note_name(one.name), "labels": {labels.COMPONENT: one.name}}
        api.objects[f"{NOTES}{note_name(one.name)}"] = {"metadata": metadata, "data": data}
    assert bring(site) == {}
    [workflow] = seam.workflows.values()
    installs = [one["name"] for one in workflow["spec"]["templates"] if one["name"].startswith("put-")]
    assert bool(installs) is again
    assert ("/api/v1/namespaces/made/configmaps/made" in api.objects) is again


@pytest.mark.parametrize("data", [b"{", b"[1]", b"{}", b'{"items": 3}', b"\xff"])
def test_a_list_that_is_none_is_told_by_its_name(tmp_path: Path, data: bytes) -> None:
    site = site_of(tmp_path, made_api(), Seam(served))
    (tmp_path / "list.json").write_bytes(data)
    [one] = [replace(one, sha256=hashlib.sha256(data).hexdigest()) for one in site.chosen if one.name == "kueue"]
    with pytest.raises(ProfileError, match=r"list\.json") as refused:
        source_objects(site, one)
    assert refused.value.field == "components.kueue.source.path"


@pytest.mark.parametrize("text", ["", "no certificate", None])
def test_an_authority_that_is_none_is_told_by_its_field(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    site = site_of(tmp_path, made_api(), Seam(served))
    bootstrap = site.profile.bootstrap
    assert bootstrap is not None
    mirror = bootstrap.mirror.model_copy(update={"ca_file": str(path)})
    profile = site.profile.model_copy(update={"bootstrap": bootstrap.model_copy(update={"mirror": mirror})})
    with pytest.raises(ProfileError) as refused:
        _ = replace(site, profile=profile).authority
    assert refused.value.field == "bootstrap.mirror.ca_file"


def test_another_list_in_the_mirror_stops_it_before_anything_is_applied(tmp_path: Path) -> None:
    api, seam = made_api(), Seam(served)
    site = site_of(tmp_path, api, seam)
    (tmp_path / "list.json").write_bytes(b"[]")
    failures = bring(site)
    assert len(failures) == 4
    assert all("has the digest" in why for why in failures.values())
    assert seam.submitted == []
    assert not [path for path in api.applied if "/namespaces/made/" in path]


def test_an_api_that_is_away_is_told_for_each() -> None:
    api = made_api()
    api.away = True
    with pytest.raises(Unavailable):
        look_components(api)
    site = ComponentsSite(
        cluster_with(["registry"]), chosen_of(cluster_with(["registry"])), api, cast("Cluster", Seam(served))
    )
    assert len(bring(site)) == 4


def test_everything_goes_and_leaves_what_was_there_before(tmp_path: Path) -> None:
    api, seam = made_api(), Seam(served)
    before = set(api.objects)
    site = site_of(tmp_path, api, seam)
    assert bring(site) == {}
    seam.workflows.clear()
    by_name = {one.name: one for one in site.chosen}
    order = removal_order([one for one in by_name], {one.name: one.profile for one in site.chosen}, with_data=True)
    leaving = [Leaving(by_name[one.profile.name], one.namespace) for one in order]
    assert remove_components(site, leaving, lambda line: None) == {}
    [workflow] = seam.workflows.values()
    assert [task["name"] for template in workflow["spec"]["templates"] for [task] in template.get("steps", [])] == [
        "remove-registry",
        "clear-registry",
    ]
    forget_installer(api)
    assert set(api.objects) == before


def test_what_stays_is_told_and_nothing_that_it_needs_goes(tmp_path: Path) -> None:
    api, seam = made_api(), Seam(lambda one: served(one, "registry", installs=False))
    site = site_of(tmp_path, api, seam)
    bring(site)
    applied = set(api.objects)
    leaving = [Leaving(one, "") for one in reversed(site.chosen)]
    left = remove_components(site, leaving, lambda line: None)
    assert left.keys() == {"registry"}
    assert set(api.objects) == applied


def test_who_installs_and_removes_may_do_everything_only_meanwhile(tmp_path: Path) -> None:
    api, held = made_api(), list[bool]()

    def ends(manifest: Manifest) -> dict[str, Any]:
        held.append(RIGHT in api.objects)
        return served(manifest, "registry")

    site = site_of(tmp_path, api, Seam(ends))
    assert bring(site).keys() == {"components/registry"}
    assert (held, RIGHT in api.objects) == ([True], False)
    assert remove_components(site, [Leaving(one, "") for one in reversed(site.chosen)], lambda line: None)
    assert (held, RIGHT in api.objects) == ([True, True], False)
    (tmp_path / "list.json").write_bytes(b"[]")
    api.objects = {path: one for path, one in api.objects.items() if not path.startswith(NOTES)}
    assert len(bring(site)) == 4
    assert api.applied.count(RIGHT) == api.deleted.count(RIGHT) == 3, "before any workflow was made it goes too"


def test_published_lists_get_the_images_of_the_component(tmp_path: Path) -> None:
    site = site_of(tmp_path, made_api(), Seam(served))
    [kueue] = [one for one in site.chosen if one.name == "kueue"]

    def images(registry: str, image: str) -> str:
        pod = {"spec": {"containers": [{"name": "manager", "image": image, "args": ["--x"]}]}}
        [found] = pinned(kueue, [{"kind": "Deployment", "spec": {"template": pod}}], registry)
        return found["spec"]["template"]["spec"]["containers"][0]["image"]

    staging = "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue:main"
    assert images("", staging) == "registry.k8s.io/kueue/kueue:v0.19.2"
    assert images("mirror:5000", staging) == "mirror:5000/kueue/kueue:v0.19.2"
    assert images("mirror:5000", "docker.io/others/proxy@sha256:1") == "docker.io/others/proxy@sha256:1"


def test_our_own_components_are_what_is_shipped() -> None:
    cluster = cluster_with(["primus-health", "primus-monitor"])
    chosen = chosen_of(cluster)
    found = built_in_objects(cluster, chosen)
    assert found.keys() == {"primus-health", "primus-monitor", "primus-runner"}
    kinds = {name: {one["kind"] for one in objects} for name, objects in found.items()}
    assert "DaemonSet" in kinds["primus-health"]
    assert {"Deployment", "ConfigMap", "ServiceAccount", "NetworkPolicy"} <= kinds["primus-runner"]
    [profile] = [
        one["data"]["cluster.yaml"] for one in found["primus-runner"] if one["metadata"]["name"] == "primus-site"
    ]
    assert "kubernetes-example" in profile
    assert "192.0.2.1" not in profile, "hosts are nobody's business there"
    assert isinstance(shelf()["registry"].source, InlineSource)


def test_any_kind_is_asked_for_over_the_client_s_own_connection() -> None:
    from kubernetes.client.configuration import Configuration

    with FakeApiServer().running() as server:
        configuration = Configuration()
        configuration.host = server.url
        api = AnyObject(ApiServer(lambda: configuration))
        body = {"apiVersion": "made.io/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"a": 1}}
        path = "/apis/made.io/v1/namespaces/x/things"
        api.apply(f"{path}/t", body)
        assert api.get(f"{path}/t")["spec"] == {"a": 1}
        assert [one["metadata"]["name"] for one in api.items(path)] == ["t"]
        api.delete(f"{path}/t")
        with pytest.raises(ApiError) as missing:
            api.get(f"{path}/t")
        assert missing.value.code == 404
    with pytest.raises(ApiError) as away:
        AnyObject(
            ApiServer(lambda: configuration, clock=iter(range(0, 10**6, 100)).__next__, sleep=lambda _: None)
        ).get(path)
    assert away.value.code == 0


def left(name: str, **status: str) -> Manifest:
    """A workflow that a command which died had begun."""
    marks = {"labels": {labels.PIPELINE: "bootstrap"}, "annotations": {labels.WANTED: "other"}}
    return {"metadata": {"name": name, **marks}, "spec": {"templates": []}, "status": status}


def test_a_workflow_of_a_command_that_died_comes_to_its_end_before_another_one_begins(tmp_path: Path) -> None:
    told: list[str] = []
    seam = Seam(served)
    seam.workflows = {
        "runs": left("runs", phase="Running"),
        "ended": left("ended", phase="Failed"),
        "never-begun": left("never-begun"),
    }
    api = made_api()
    metadata = {"name": note_name("argo-workflows"), "labels": {labels.COMPONENT: "argo-workflows"}}
    api.objects[f"{NOTES}{metadata['name']}"] = {"metadata": metadata}
    site = site_of(tmp_path, api, seam)
    assert bring_components(site, [one.name for one in site.chosen], told.append) == {}
    [own] = seam.submitted
    assert seam.followed == ["runs", own]
    assert set(seam.workflows) == {"runs", "ended", own}, "who has not begun has done nothing"
    assert told[0] == "workflow runs of an earlier command still runs: its end comes first"
    again = Seam(served)
    again.workflows = {own: seam.workflows[own]}
    again.workflows[own]["status"] = {"phase": "Running"}
    bring(replace(site, seam=cast("Cluster", again)))
    assert (again.submitted, set(again.followed)) == ([], {own}), "one that does the same is adopted"
