"""Two documents differ where kubeadm would make another node of them, and nowhere else."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from profiles.bootstrap.arguments import KUBEADM_DEFAULTS, KUBEADM_OWN
from tests.support.builders.kubeadm_cluster import kubeadm_cluster
from workflows.bootstrap import component_configuration as components
from workflows.bootstrap import fallback, kubeadm_documents
from workflows.bootstrap.component_configuration import differences, document_of
from workflows.bootstrap.control_arguments import argument_differences
from workflows.model.host_facts import Unread

SAME: tuple[tuple[Any, Any], ...] = (
    ({"a": "1m"}, {"a": "1m0s"}),
    ({"a": "1h30m"}, {"a": "90m"}),
    ({"a": False}, {}),
    ({}, {"a": {"b": {"c": "0s", "d": None, "e": []}}, "f": 0, "g": "0", "h": False}),
    (
        {"a": [{"name": "x", "value": "1"}, {"name": "y", "value": "2"}]},
        {"a": [{"name": "y", "value": "2"}, {"name": "x", "value": "1"}]},
    ),
)
UNLIKE: tuple[tuple[Any, Any, bool, str], ...] = (
    ({"a": 1}, {"a": 2}, False, "x a: wanted 1, found 2"),
    ({"a": True}, {}, False, "x a: wanted true, found none"),
    ({}, {"a": {"b": 3}}, False, 'x a: wanted none, found {"b": 3}'),
    ({"a": {"b": 1}}, {"a": {"b": 1, "c": "d"}}, False, "x a.c: wanted none, found d"),
    ({"a": "1m"}, {"a": "2m"}, False, "x a: wanted 1m, found 2m"),
    ({"a": ["b"]}, {"a": ["c"]}, False, 'x a: wanted ["b"], found ["c"]'),
    ({"a": [{"name": "y", "value": "1"}]}, {"a": [{"name": "y", "value": "2"}]}, False, "x a.y: wanted 1, found 2"),
    ({"a": False}, {}, True, "x a: wanted false, found none"),
    ({"a": ""}, {"a": "b"}, False, 'x a: wanted "", found b'),
)


@pytest.mark.parametrize(("wanted", "found"), SAME)
def test_what_kubeadm_makes_the_same_of_is_the_same(wanted: Any, found: Any) -> None:
    assert [one.text for one in differences("x", wanted, found)] == []


@pytest.mark.parametrize(("wanted", "found", "exact", "why"), UNLIKE)
def test_what_differs_is_named_with_what_is_wanted_and_found(wanted: Any, found: Any, exact: bool, why: str) -> None:
    assert [one.text for one in differences("x", wanted, found, exact=exact)] == [why]


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text(max_size=4), inner, max_size=3) | st.lists(inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), PLAIN, max_size=4), st.booleans())
def test_nothing_differs_from_itself(document: dict[str, Any], exact: bool) -> None:
    assert differences("x", document, document, exact=exact) == []


def test_a_document_is_read_or_told_as_none() -> None:
    assert document_of("a: 1") == {"a": 1}
    for text in ("a: [", "- a", "7", "a: !!python/object:os.system {}"):
        assert isinstance(document_of(text), Unread), text


def test_the_whole_of_what_kubeadm_is_told_stands_in_what_is_wanted() -> None:
    """No field that a document says is lost on the way to what is held against the cluster."""
    engine = {"kind": "kubeadm", "kubelet": {"authentication": {"anonymous": {"enabled": True}}, "maxPods": 9}}
    cluster = kubeadm_cluster(engine=engine)
    text = kubeadm_documents.configuration_documents(cluster, "1.36.3", "c1")
    init, whole, kubelet, proxy = yaml.safe_load_all(text)
    assert "bootstrapTokens" not in init
    wanted = components.wanted_kubelet(cluster)
    assert wanted["authentication"]["anonymous"] == {"enabled": True}
    assert wanted["authentication"]["webhook"] == {"enabled": True}, "the profile's field stands beside kubeadm's"
    assert {key: wanted[key] for key in kubelet if key != "authentication"} == {
        key: value for key, value in kubelet.items() if key != "authentication"
    }
    assert proxy["mode"] == components.wanted_kube_proxy(cluster)["mode"]
    assert whole["networking"] == components.wanted_cluster(cluster)["networking"]


def test_kubeadm_is_told_arguments_in_the_order_of_their_names() -> None:
    arguments = {"kube-apiserver": {"v": "2", "profiling": "false"}, "kube-scheduler": {"v": "4"}}
    cluster = kubeadm_cluster(engine={"kind": "kubeadm", "arguments": arguments})
    told = kubeadm_documents.cluster_configuration(cluster, "1.36.3")
    assert [one["name"] for one in told["apiServer"]["extraArgs"]] == ["profiling", "v"]
    assert told["scheduler"] == {"extraArgs": [{"name": "v", "value": "4"}]}
    bare = kubeadm_documents.cluster_configuration(kubeadm_cluster(), "1.36.3")
    assert ("scheduler" in bare, "extraArgs" in bare["apiServer"]) == (False, False)


def test_an_authorization_of_files_takes_the_mode_away() -> None:
    wanted = {"authorization-config": "/etc/kubernetes/pki/authorization.yaml"}
    running = [f"--{name}={value}" for name, value in wanted.items()]
    assert argument_differences("kube-apiserver", wanted, running) == []
    both = [*running, "--authorization-mode=Node,RBAC"]
    assert [one.text for one in argument_differences("kube-apiserver", wanted, both)] == [
        "kube-apiserver --authorization-mode: wanted none, found Node,RBAC"
    ]


def test_no_argument_is_kubeadms_own_and_a_default_at_once() -> None:
    assert set(KUBEADM_OWN) == set(KUBEADM_DEFAULTS)
    for program, own in KUBEADM_OWN.items():
        assert own.isdisjoint(KUBEADM_DEFAULTS[program])


def shell(script: str, folder: Path, *words: str) -> str:
    """What it prints, with `folder` in place of where a host keeps such files."""
    text = script.replace(fallback.BEFORE, f"{folder}/before")
    done = subprocess.run(["/bin/sh", "-c", text, "keep", *words], check=True, capture_output=True, text=True)
    return done.stdout


def test_what_was_there_first_is_put_back_however_often_a_change_was_tried(tmp_path: Path) -> None:
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    file, gone = manifests / "etcd.yaml", manifests / "none.yaml"
    file.write_text("good")
    shell(fallback.KEEP, tmp_path, str(file), str(gone))
    file.write_text("tried once")
    (tmp_path / f"before{file}.half").write_text("cut off")
    shell(fallback.KEEP, tmp_path, str(file))
    file.write_text("tried twice")
    assert (tmp_path / "before").stat().st_mode & 0o077 == 0, "a key may be among them"
    assert (tmp_path / "before" / Path(fallback.BEGUN).name).exists(), "who is killed now is told of it"
    assert "etcd.yaml" in shell(fallback.PUT_BACK, tmp_path)
    assert file.read_text() == "good"
    assert sorted(path.name for path in manifests.iterdir()) == ["etcd.yaml"], "kubelet runs whatever lies there"
    assert not (tmp_path / "before").exists()
    assert shell(fallback.PUT_BACK, tmp_path) == ""


def test_every_part_of_a_control_plane_is_kept_before_it_is_made_anew() -> None:
    assert set(fallback.PHASES) < set(fallback.FILES)
    assert fallback.phases({"kube-scheduler", "certificate", "etcd"}) == [
        ["certs", "apiserver"],
        ["etcd", "local"],
        ["control-plane", "scheduler"],
    ]
    assert fallback.kept_files({"kubelet", "kube-proxy"}) == []
