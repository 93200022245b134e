"""What the embedded cluster does not accept, each by the path of the field; nothing is written."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiles.errors import NotFound, ProfileError, Refused
from tasks.embedded.api import EmbeddedCluster
from tasks.embedded.schema.validate import validate
from tasks.embedded.spec import ImageSpec, NodeSpec, Spec
from tests.support.harness.embedded_stage import cluster, jobset, pod, role


def put(manifest: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with the value at a path like `spec.containers.0.env`."""
    changed = copy.deepcopy(manifest)
    target: Any = changed
    *way, last = path.split(".")
    for key in way:
        target = target[int(key)] if isinstance(target, list) else target.setdefault(key, {})
    if isinstance(target, list):
        target[int(last)] = value
    else:
        target[last] = value
    return changed


POD = pod("p", "true")
SET = jobset("j", role("t", 1, "true"))
JOB = "spec.replicatedJobs.0.template.spec"


@pytest.mark.parametrize(
    ("manifest", "at", "value", "path", "says"),
    [
        (POD, "kind", "Deployment", "kind", "is none of"),
        (POD, "kind", "Job", "kind", "apply a JobSet"),
        (POD, "apiVersion", "v2", "apiVersion", "is not 'v1'"),
        (POD, "metadata", [], "metadata", "needs a name"),
        (POD, "metadata.name", "Upper", "metadata.name", "is no name"),
        (POD, "metadata.name", "x" * 64, "metadata.name", "at most 63"),
        (POD, "metadata.name", 7, "metadata.name", "text is needed"),
        (POD, "metadata.namespace", "other", "metadata.namespace", "is not this cluster's"),
        (POD, "metadata.labels", {"a": 1}, "metadata.labels[a]", "quote it"),
        (POD, "metadata.labels", {"a": "no good"}, "metadata.labels[a]", "no label value"),
        (POD, "metadata.oops", 1, "metadata.oops", "unknown field"),
        (POD, "spec.contaners", [], "spec.contaners", "did you mean containers?"),
        (POD, "spec.containers", [], "spec.containers", "at least one"),
        (POD, "spec.containers", "x", "spec.containers", "a list is needed"),
        (POD, "spec.containers.0", "x", "spec.containers[0]", "an object is needed"),
        (POD, "spec.containers.0.name", "", "spec.containers[0].name", "missing"),
        (POD, "spec.containers.0.image", None, "spec.containers[0].image", "missing"),
        (POD, "spec.containers.0.lifecycle", {}, "spec.containers[0].lifecycle", "does not run this field"),
        (POD, "spec.containers.0.livenessProbe", {}, "spec.containers[0].livenessProbe", "does not run this field"),
        (POD, "spec.containers.0.command", "sh", "spec.containers[0].command", "a list of texts"),
        (POD, "spec.containers.0.command", ["sleep", 1], "spec.containers[0].command", "quote numbers"),
        (POD, "spec.containers.0.env", [{"value": "x"}], "spec.containers[0].env[0].name", "missing"),
        (
            POD,
            "spec.containers.0.env",
            [{"name": "X", "valueFrom": {"resourceFieldRef": {}}}],
            "spec.containers[0].env[0].valueFrom.resourceFieldRef",
            "does not run this field",
        ),
        (
            POD,
            "spec.containers.0.env",
            [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": "status.phase"}}}],
            "spec.containers[0].env[0].valueFrom.fieldRef.fieldPath",
            "is none of",
        ),
        (
            POD,
            "spec.containers.0.volumeMounts",
            [{"name": "v", "mountPath": "/v"}],
            "spec.containers[0].volumeMounts[0].name",
            "no volume 'v'",
        ),
        (
            POD,
            "spec.containers.0.volumeMounts",
            [{"name": "v", "mountPath": "v"}],
            "spec.containers[0].volumeMounts[0].mountPath",
            "must begin with /",
        ),
        (
            POD,
            "spec.containers.0.volumeMounts",
            [{"name": "v", "mountPath": "/v", "subPath": "../up"}],
            "spec.containers[0].volumeMounts[0].subPath",
            "stay inside",
        ),
        (
            POD,
            "spec.containers.0.resources",
            {"limits": {"cpu": "many"}},
            "spec.containers[0].resources.limits[cpu]",
            "is no quantity",
        ),
        (POD, "spec.restartPolicy", "Sometimes", "spec.restartPolicy", "is none of"),
        (POD, "spec.volumes", [{"name": "v"}], "spec.volumes[0]", "one source"),
        (POD, "spec.volumes", [{"name": "v", "nfs": {}}], "spec.volumes[0].nfs", "does not run this field"),
        (POD, "spec.terminationGracePeriodSeconds", "30", "spec.terminationGracePeriodSeconds", "a whole number"),
        (POD, "spec.hostNetwork", "yes", "spec.hostNetwork", "true or false"),
        (POD, "spec.topologySpreadConstraints", [], "spec.topologySpreadConstraints", "does not run this field"),
        (SET, "spec.replicatedJobs", [], "spec.replicatedJobs", "at least one"),
        (SET, "spec.failurePolicy.maxRestarts", 1, "spec.failurePolicy.maxRestarts", "only 0"),
        (SET, "spec.failurePolicy.rules", [], "spec.failurePolicy.rules", "does not run this field"),
        (
            SET,
            "spec.startupPolicy",
            {"startupPolicyOrder": "InOrder"},
            "spec.startupPolicy.startupPolicyOrder",
            "is none of",
        ),
        (SET, "spec.successPolicy", {"operator": "Most"}, "spec.successPolicy.operator", "is none of"),
        (
            SET,
            "spec.successPolicy",
            {"targetReplicatedJobs": ["x"]},
            "spec.successPolicy.targetReplicatedJobs[0]",
            "no replicated job 'x'",
        ),
        (SET, "spec.coordinator", {"replicatedJob": "x"}, "spec.coordinator.replicatedJob", "is none of t"),
        (SET, "metadata.name", "j" * 55, "metadata.name", "longer than 63"),
        (SET, f"{JOB}.completionMode", "NonIndexed", "spec.replicatedJobs[0].template.spec.completionMode", "none of"),
        (SET, f"{JOB}.parallelism", -1, "spec.replicatedJobs[0].template.spec.parallelism", "negative"),
        (SET, f"{JOB}.backoffLimitPerIndex", 1, "spec.replicatedJobs[0].template.spec.backoffLimitPerIndex", "not run"),
        (
            SET,
            f"{JOB}.template.spec.restartPolicy",
            "Always",
            "spec.replicatedJobs[0].template.spec.template.spec.restartPolicy",
            "OnFailure or Never",
        ),
        (
            SET,
            f"{JOB}.podFailurePolicy",
            {"rules": [{"action": "Explode", "onExitCodes": {"operator": "In", "values": [1]}}]},
            "spec.replicatedJobs[0].template.spec.podFailurePolicy.rules[0].action",
            "is none of",
        ),
    ],
)  # fmt: skip
def test_refused_by_path(manifest: dict[str, Any], at: str, value: Any, path: str, says: str) -> None:
    validate(manifest, "default")
    with pytest.raises(Refused) as refused:
        validate(put(manifest, at, value), "default")
    assert refused.value.path == path
    assert says in refused.value.reason


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
        changed = put(manifest, at, value)
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
        one.apply(put(POD, "spec.oops", 1))
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
