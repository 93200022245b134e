from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from deployments.exit_codes import FAILED, GOOD, UNKNOWN
from deployments.screen.mirror import check, code_of, fill, list_mirror
from flows.building import components
from flows.building.components import rendered_components, wanted_components
from profiles.bootstrap.inventory import Mirror
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster, load_shelf
from profiles.vocabulary import VerdictWord
from tests.support.builders.components import cluster_with
from workflows.lint.lint import lint
from workflows.model.mirror import MirrorFinding, MirrorItem


def with_folder(folder: Path) -> ClusterProfile:
    cluster = cluster_with(["metrics-server"])
    assert cluster.bootstrap is not None
    own = cluster.bootstrap.model_copy(update={"mirror": Mirror(files_folder=str(folder))})
    return cluster.model_copy(update={"bootstrap": own})


def test_the_list_is_for_people_and_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cluster_with(["metrics-server"])
    assert list_mirror(cluster, as_json=False) == GOOD
    assert "charts/metrics-server-3.13.1.tgz" in capsys.readouterr().out
    assert list_mirror(cluster, as_json=True) == GOOD
    found = json.loads(capsys.readouterr().out)
    assert {"charts/metrics-server-3.13.1.tgz", "manifests/kueue-v0.19.2.json"} <= {one["name"] for one in found}


def test_a_cluster_that_gets_no_components_needs_none_in_its_mirror() -> None:
    cluster = cluster_with(["metrics-server"])
    assert cluster.bootstrap is not None
    bare = cluster.model_copy(update={"bootstrap": cluster.bootstrap.model_copy(update={"install_components": False})})
    assert [item.name for item in components.wanted_in_mirror(bare)] == [cluster.programs_image]
    assert len(components.wanted_in_mirror(cluster)) > 9


def test_a_mirror_is_filled_and_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.bootstrap import mirror

    def away(*_: object) -> object:
        raise ValueError("no way out")

    monkeypatch.setattr(mirror.httpx.Client, "stream", away)
    hand, folder = tmp_path / "hand", tmp_path / "mirror"
    hand.mkdir()
    cluster = with_folder(folder)
    assert fill(cluster, str(folder), [str(hand)], as_json=False) == FAILED
    assert "missing" in capsys.readouterr().out
    for name in ("argo-workflows-v4.1.4", "jobset-v0.12.0", "kueue-v0.19.2"):
        (hand / f"{name}.yaml").write_text(f"kind: Namespace\napiVersion: v1\nmetadata: {{name: {name[:4]}}}\n")
    (hand / "metrics-server-3.13.1.tgz").write_bytes(b"a chart")
    assert fill(cluster, str(folder), [str(hand)], as_json=True) == GOOD
    assert {one["how"] for one in json.loads(capsys.readouterr().out)} == {"copied"}
    assert check(cluster, as_json=True) == UNKNOWN, "no registry is named"
    found = {one["name"]: one["verdict"] for one in json.loads(capsys.readouterr().out)}
    assert found["charts/metrics-server-3.13.1.tgz"] == "pass"
    (folder / "charts" / "metrics-server-3.13.1.tgz").write_bytes(b"bitten")
    assert check(cluster, as_json=False) == FAILED
    assert "charts/metrics-server-3.13.1.tgz: has" in capsys.readouterr().out
    with pytest.raises(ProfileError, match="is no folder"):
        fill(cluster, str(folder), [str(hand / "nowhere")], as_json=False)


def test_a_list_that_contradicts_a_profile_is_told_beside_all_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, shelf = "charts/metrics-server-3.13.1.tgz", dict(load_shelf())
    one = shelf["metrics-server"]
    source = one.source.model_copy(update={"sha256": "1" * 64})
    shelf["metrics-server"] = one.model_copy(update={"source": source})
    monkeypatch.setattr(components, "load_shelf", lambda: shelf)
    (tmp_path / "charts").mkdir()
    (tmp_path / path).write_bytes(b"a chart")
    (tmp_path / "SHA256SUMS").write_text(f"{'2' * 64}  {path}\n")
    assert check(with_folder(tmp_path), as_json=True) == FAILED
    found = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert "its SHA256SUMS says 2222" in found[path]["why"]
    assert found["manifests/kueue-v0.19.2.json"]["why"] == "is not there"


def test_another_image_registry_or_profile_makes_other_components() -> None:
    def fingerprints(**changes: object) -> dict[str, str]:
        cluster = cluster_with(["primus-health", "primus-runner", "registry"]).model_copy(update=changes)
        return {one.name: one.wanted for one in wanted_components(cluster)}

    def changed(**changes: object) -> set[str]:
        before, after = fingerprints(), fingerprints(**changes)
        return {name for name in before if before[name] != after[name]}

    assert changed() == set()
    assert changed(programs_image="primus-flows/programs:next") >= {"primus-health", "primus-runner"}
    assert changed(name="another") == {"primus-runner"}
    other = cluster_with([], registry="other.example.org:5000").bootstrap
    assert other is not None
    own = cluster_with(["primus-health", "primus-runner", "registry"]).bootstrap
    assert own is not None
    assert changed(bootstrap=own.model_copy(update={"mirror": other.mirror})) == set(fingerprints())


def test_a_file_of_deployments_that_was_edited_makes_another_component(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks.bootstrap import components as sent

    cluster = cluster_with(["primus-monitor"])
    before = {one.name: one.wanted for one in wanted_components(cluster)}
    copy = shutil.copytree(sent.KUBERNETES, tmp_path / "kubernetes")
    monkeypatch.setattr(sent, "KUBERNETES", copy)
    assert {one.name: one.wanted for one in wanted_components(cluster)} == before
    monitor = copy / "base" / "monitor.yaml"
    monitor.write_text(monitor.read_text().replace("replicas: 1", "replicas: 0"))
    after = {one.name: one.wanted for one in wanted_components(cluster)}
    assert {name for name in before if before[name] != after[name]} == {"primus-monitor"}


def test_unknown_is_never_good() -> None:
    item = MirrorItem("file", "x")
    words = [VerdictWord.PASS, VerdictWord.UNKNOWN, VerdictWord.FAIL]
    findings = [MirrorFinding(item, word, "") for word in words]
    assert [code_of(findings[: number + 1]) for number in range(3)] == [GOOD, UNKNOWN, FAILED]


def test_what_would_be_sent_is_rendered_without_asking_anybody() -> None:
    cluster = cluster_with(["primus-health", "victoria-metrics"])
    *account, workflow = rendered_components(cluster)
    assert [one["kind"] for one in account] == ["Namespace", "ServiceAccount", "ClusterRoleBinding"]
    assert lint(workflow) == []
    assert rendered_components(cluster) == rendered_components(cluster)
    with pytest.raises(ProfileError, match="no such section"):
        wanted_components(load_cluster("local"))


def test_controllers_of_the_first_stand_by_for_each_other_where_there_is_a_second_node() -> None:
    cluster = load_cluster("bootstrap-example")
    assert cluster.bootstrap is not None
    one = dict(list(cluster.bootstrap.hosts.items())[:1])
    alone = cluster.model_copy(update={"bootstrap": cluster.bootstrap.model_copy(update={"hosts": one})})
    paired = {found.name: found for found in wanted_components(cluster)}
    single = {found.name: found for found in wanted_components(alone)}
    assert {name for name, found in paired.items() if found.standby} == {"argo-workflows", "jobset", "kueue"}
    assert not any(found.standby for found in single.values())
    assert {name for name, found in paired.items() if found.endpoint} == {"argo-workflows", "jobset", "kueue"}
    assert paired["jobset"].wanted != single["jobset"].wanted
