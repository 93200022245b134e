"""What the embedded cluster does not accept, each by the path of the field; nothing is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.errors import NotFound, ProfileError, Refused
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.schema.validate import validate
from tasks.embedded.spec import ImageSpec, NodeSpec, Spec
from tests.support.builders.manifests import with_field
from tests.support.cases.rows import rows
from tests.support.harness.embedded_stage import cluster, jobset, pod, role

POD = pod("p", "true")
SET = jobset("j", role("t", 1, "true"))
JOB = "spec.replicatedJobs.0.template.spec"


@rows("embedded/refused")
def test_refused_by_path(kind: str, at: str, value: Any, reason: str, path: str = "") -> None:
    manifest = {"Pod": POD, "JobSet": SET}[kind]
    validate(manifest, "default")
    with pytest.raises(Refused) as refused:
        validate(with_field(manifest, at, value), "default")
    assert refused.value.path == (path or at)
    assert reason in refused.value.reason


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
PLACES = [
    "kind", "metadata", "metadata.name", "metadata.generateName", "metadata.labels", "spec", "spec.containers",
    "spec.containers.0", "spec.containers.0.env", "spec.containers.0.resources", "spec.volumes", "spec.affinity",
    "spec.tolerations", "spec.replicatedJobs", f"{JOB}", f"{JOB}.template", f"{JOB}.podFailurePolicy",
    "spec.successPolicy",
]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.sampled_from([POD, SET]), st.sampled_from(PLACES), JSON)
def test_anything_malformed_is_refused_and_never_crashes(manifest: dict[str, Any], at: str, value: Any) -> None:
    try:
        changed = with_field(manifest, at, value)
    except (KeyError, TypeError, IndexError):
        return
    with contextlib.suppress(Refused):
        validate(changed, "default")


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with cluster(tmp_path_factory.mktemp("refused") / "cluster") as made:
        yield made


def test_a_refused_manifest_leaves_nothing(one: EmbeddedCluster) -> None:
    with pytest.raises(Refused):
        one.apply(with_field(POD, "spec.oops", 1))
    assert one.list("Pod") == []
    assert one.processes() == []


def test_nodes_come_from_the_profile_alone(one: EmbeddedCluster) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}}
    with pytest.raises(Refused, match="nodes are in the profile"):
        one.apply(node)
    with pytest.raises(Refused):
        one.delete("Node", "node-0")
    one.patch("Node", "node-0", {"metadata": {"labels": {"primus-flows.io/verdict": "pass"}}})
    found = one.get("Node", "node-0")
    assert found is not None
    assert found["metadata"]["labels"]["primus-flows.io/verdict"] == "pass"
    with pytest.raises(Refused) as refused:
        one.patch("Node", "node-0", {"spec": {"taints": [{"key": "k"}]}})
    assert refused.value.path == "spec.taints[0].effect"


def test_what_is_not_there(one: EmbeddedCluster) -> None:
    for call in (
        lambda: one.logs("nobody"),
        lambda: one.patch("Pod", "nobody", {}),
        lambda: one.lose_node("nobody"),
        lambda: one.restore_node("nobody"),
        lambda: one.volume_path("nobody", "v"),
        lambda: one.call("nobody", 1, "GET", "/"),
    ):
        with pytest.raises(NotFound, match="nobody"):
            call()


def test_a_changed_specification_changes_the_nodes(one: EmbeddedCluster) -> None:
    root = one.root.parent / "changing"
    first = EmbeddedCluster(root, Spec("c", nodes=(NodeSpec("a"), NodeSpec("b", capacity={"amd.com/gpu": "8"}))))
    first.patch("Node", "b", {"spec": {"unschedulable": True}})
    second = EmbeddedCluster(root, Spec("c", nodes=(NodeSpec("b", capacity={"amd.com/gpu": "4"}), NodeSpec("c"))))
    assert [node["metadata"]["name"] for node in second.list("Node")] == ["b", "c"]
    found = second.get("Node", "b")
    assert found is not None
    assert found["status"]["allocatable"]["amd.com/gpu"] == "4"
    assert found["spec"]["unschedulable"] is True


def test_a_specification_round_trips() -> None:
    made = Spec(
        "c",
        nodes=(NodeSpec("a", {"l": "v"}, {"cpu": "1"}, ({"key": "k", "effect": "NoSchedule"},), "pool", True),),
        images=(ImageSpec("*", {"sh": ["/bin/sh"]}, {"A": "b"}, True),),
        namespaces="never",
        priority_classes={"high": 5},
    )
    assert Spec.from_json(made.to_json()) == made
    for text in ("", "{}", "[]", '{"name": "x", "nodes": [{}], "images": []}', '{"nodes": 1}'):
        with pytest.raises(ProfileError):
            Spec.from_json(text)
