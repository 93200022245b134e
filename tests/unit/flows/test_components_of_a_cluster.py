from __future__ import annotations

import json
from pathlib import Path

import pytest

from deployments.exit_codes import FAILED, GOOD, UNKNOWN
from deployments.screen.mirror import check, code_of, fill, list_mirror
from flows.building.components import rendered_components, wanted_components
from profiles.bootstrap.inventory import Mirror
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster
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
    assert "charts/metrics-server-3.12.2.tgz" in capsys.readouterr().out
    assert list_mirror(cluster, as_json=True) == GOOD
    found = json.loads(capsys.readouterr().out)
    assert {"charts/metrics-server-3.12.2.tgz", "manifests/kueue-v0.19.2.json"} <= {one["name"] for one in found}


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
    (hand / "metrics-server-3.12.2.tgz").write_bytes(b"a chart")
    assert fill(cluster, str(folder), [str(hand)], as_json=True) == GOOD
    assert {one["how"] for one in json.loads(capsys.readouterr().out)} == {"copied"}
    assert check(cluster, as_json=True) == UNKNOWN, "no registry is named"
    found = {one["name"]: one["verdict"] for one in json.loads(capsys.readouterr().out)}
    assert found["charts/metrics-server-3.12.2.tgz"] == "pass"
    (folder / "charts" / "metrics-server-3.12.2.tgz").write_bytes(b"bitten")
    assert check(cluster, as_json=False) == FAILED
    assert "charts/metrics-server-3.12.2.tgz: has" in capsys.readouterr().out
    with pytest.raises(ProfileError, match="is no folder"):
        fill(cluster, str(folder), [str(hand / "nowhere")], as_json=False)


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
