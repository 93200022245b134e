"""`primus clusters`: the profiles there are, and one made from a living cluster that answers over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deployments.cli.clusters import ImportOptions, import_cluster, list_clusters, show_cluster, text
from deployments.exit_codes import FAILED, GOOD, UNKNOWN
from flows.decisions.cluster_import.profile import ClusterImport
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster
from tests.fake_api_server import FakeApiServer, Fault, status
from tests.test_tasks_inventory import furnish, kubeconfig, made

OWN = """
extends: kubernetes-example
name: mine
"""


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeApiServer]:
    with FakeApiServer().running() as server:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, server.url)))
        furnish(server)
        marks = {"nvidia.com/gpu.product": "NVIDIA-H200", "x": "y"}
        room = {"cpu": "190500m", "memory": "2000Gi", "nvidia.com/gpu": "8"}
        ready = {"capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
        server.put("nodes", made("Node", "n0", labels=marks, spec={}, status=ready))
        yield server


def options(**changes: Any) -> ImportOptions:
    return ImportOptions(**({"context": "big", "namespace": "", "name": "", "storage": (), "out": ""} | changes))


def test_a_living_cluster_becomes_a_profile_that_loads(
    api: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "made.yaml"
    assert import_cluster(options(out=str(path)), as_json=False) == GOOD
    told = capsys.readouterr()
    assert told.out == ""
    assert str(path) in told.err
    profile = load_cluster(str(path))
    assert (profile.name, profile.context, profile.namespace, profile.queue) == ("big", "big", "training", "team")
    assert [(pool.name, pool.hardware, pool.cpus_per_node) for pool in profile.pools] == [("h200", "h200", 190)]
    assert (profile.pools[0].queue_flavor, profile.pools[0].labels) == ("nv", {"nvidia.com/gpu.product": "NVIDIA-H200"})
    assert profile.storage[0].source == "shared"
    assert profile.endpoints.prometheus_url == "http://prometheus.mon:9090"
    assert {seen.method for seen in api.seen} == {"GET"}


def test_the_text_says_where_values_came_from(api: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_cluster(options(name="other"), as_json=False) == GOOD
    printed = capsys.readouterr()
    for words in (
        "  # n0: nvidia.com/gpu.product=NVIDIA-H200, nvidia.com/gpu: 8",
        "# the only LocalQueue of the namespace",
        "a guess from the name and labels",
        "    # ! pools[0].topology: racks are not known",
        "name: other",
    ):
        assert words in printed.out
    assert "marked with !" in printed.err


def test_json_is_the_profile_with_sources_and_remarks(api: FakeApiServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert import_cluster(options(), as_json=True) == GOOD
    found = json.loads(capsys.readouterr().out)
    assert found["whole"] is True
    assert found["profile"]["pools"][0]["nodes"] == 1
    assert "pools[0].labels" in found["sources"]
    assert {"field", "text"} == set(found["remarks"][0])


def test_without_a_shared_folder_the_rest_is_printed_and_the_exit_is_1(
    api: FakeApiServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("shared", "new"):
        api.remove("persistentvolumeclaims", name)
    assert import_cluster(options(), as_json=False) == FAILED
    printed = capsys.readouterr()
    assert "# ! storage: no shared folder" in printed.out
    assert "hardware: h200" in printed.out
    assert "--storage CLAIM" in printed.err
    assert import_cluster(options(storage=("{home}/shared",)), as_json=False) == GOOD
    path = tmp_path / "made.yaml"
    path.write_text(capsys.readouterr().out)
    assert load_cluster(str(path)).storage[0].source == "{home}/shared"


@pytest.mark.parametrize("plural", ["nodes", "persistentvolumeclaims"])
def test_what_may_not_be_read_makes_the_exit_3(
    api: FakeApiServer, plural: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.faults.append(Fault(f"/{plural}", 403, status(403, "Forbidden", f"{plural} is forbidden"), times=9))
    assert import_cluster(options(), as_json=False) == UNKNOWN
    assert "no whole profile yet" in capsys.readouterr().err


def test_a_file_that_exists_is_never_overwritten(api: FakeApiServer, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("precious")
    with pytest.raises(ProfileError, match="exists"):
        import_cluster(options(out=str(path)), as_json=False)
    assert path.read_text() == "precious"
    assert api.seen == []


def test_no_such_context(api: FakeApiServer) -> None:
    with pytest.raises(ProfileError, match="--context"):
        import_cluster(options(context="bog"), as_json=False)


def test_words_of_a_cluster_stay_inside_comments() -> None:
    found = ClusterImport({"name": "a"}, {"name": "evil\nname: other"}, (("name", "# x\r\nb: c"),), (), None, "why")
    lines = text(found).splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["name: a"]


def test_shipped_and_own_profiles_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(OWN + "pools: [{name: g, hardware: h200, nodes: 3}]")
    (tmp_path / "wrong.yaml").write_text("name: wrong\nengine: steam\n")
    (tmp_path / "odd.yaml").write_text("name: odd\nengine: kubernetes\npools: [{name: a, hardware: none, nodes: 1}]")
    (tmp_path / "run.yaml").write_text("extends: demo\nname: run\n")
    (tmp_path / "no.yaml").write_text("[")
    assert list_clusters(str(tmp_path), as_json=True) == GOOD
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert {"local", "kubernetes-example", "mine", "wrong", "odd"} <= rows.keys()
    assert not {"run", "no"} & rows.keys()
    assert (rows["mine"]["gpus"], rows["mine"]["where"]) == (768 + 24, str(tmp_path / "mine.yaml"))
    assert (rows["kubernetes-example"]["gpus"], rows["local"]["gpus"]) == (768, 0)
    assert rows["wrong"]["description"].startswith("wrong: engine")
    assert rows["odd"]["gpus"] is None


def test_a_profile_is_shown_whole(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert show_cluster("kubernetes-example", as_json=False) == GOOD
    printed = capsys.readouterr().out
    assert "# mi300x  mi300x" in printed
    path = tmp_path / "again.yaml"
    path.write_text(printed)
    assert load_cluster(str(path)) == load_cluster("kubernetes-example")
    show_cluster("local", as_json=True)
    assert json.loads(capsys.readouterr().out)["engine"] == "embedded"
