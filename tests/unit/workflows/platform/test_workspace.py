"""The objects of a workspace: what is shipped is what is built, and no right is wider than it must be."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from profiles.errors import ProfileError
from profiles.loading.load import load_text, load_workspace
from profiles.workspace import WorkspaceProfile
from tests.support.cases.rows import rows
from tests.support.cases.yaml_files import read_all_yaml
from workflows import labels
from workflows.attempt.gang_pods import TOPOLOGY_LABELS
from workflows.platform.workspace import (
    NODE_READER_RIGHTS,
    NODE_RIGHTS,
    PIPELINE_RIGHTS,
    READER_RIGHTS,
    RUNNER_RIGHTS,
    control,
    workspace,
)

SHIPPED = Path(__file__).parents[4] / "deployments" / "kubernetes"
REWRITE = os.environ.get("PRIMUS_GOLDEN") == "1"
SMALL = """
name: team
flavors:
  - name: gpus
    taints: ["amd.com/gpu=present:NoSchedule", "old:NoExecute"]
    quotas: {cpu: {nominal: "8"}, amd.com/gpu: {nominal: "4"}}
"""


def built() -> dict[str, list[dict[str, Any]]]:
    example = load_workspace("training")
    return {"accounts/control.yaml": control(), "workspace-training.yaml": workspace(example)}


def by_kind(manifests: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [item for item in manifests if item["kind"] == kind]


@pytest.mark.parametrize("name", ["accounts/control.yaml", "workspace-training.yaml"])
def test_what_is_shipped_is_what_is_built(name: str) -> None:
    made, file = built()[name], SHIPPED / name
    if REWRITE:
        file.write_text(
            "# Written by `make golden` from workflows/platform/workspace.py.\n"
            + yaml.safe_dump_all(made, sort_keys=False, width=110)
        )
    assert list(read_all_yaml(file.read_text())) == made, "run: make golden, and look at the difference"


def test_what_is_used_comes_after_what_it_uses() -> None:
    order = ["Namespace", "ServiceAccount", "Role", "ResourceFlavor", "ClusterQueue", "LocalQueue"]
    kinds = [item["kind"] for item in workspace(load_workspace("training"))]
    places = [kinds.index(kind) for kind in order]
    assert all(one < other for one, other in pairwise(places))


@pytest.mark.parametrize("rights", [PIPELINE_RIGHTS, RUNNER_RIGHTS, READER_RIGHTS, NODE_RIGHTS, NODE_READER_RIGHTS])
def test_no_right_is_for_everything(rights: Any) -> None:
    words = [word for _, resources, verbs in rights for word in (*resources, *verbs)]
    assert "*" not in words
    assert not {"impersonate", "escalate", "bind", "pods/exec", "serviceaccounts/token"} & set(words)


def test_whoever_only_looks_writes_nothing_and_sees_no_secret() -> None:
    rights = [*READER_RIGHTS, *NODE_READER_RIGHTS]
    assert {verb for _, _, verbs in rights for verb in verbs} == {"get", "list", "watch"}
    assert "secrets" not in {name for _, names, _ in rights for name in names}


def test_tokens_cannot_be_listed() -> None:
    verbs = {verb for _, names, verbs in RUNNER_RIGHTS if "secrets" in names for verb in verbs}
    assert not {"list", "watch"} & verbs


def test_rights_of_a_workspace_end_at_its_namespace() -> None:
    made = workspace(load_text(WorkspaceProfile, SMALL))
    assert by_kind(made, "ClusterRoleBinding") == []
    assert {item["metadata"]["namespace"] for item in by_kind(made, "RoleBinding")} == {"team"}
    homes = {item["subjects"][0]["name"]: item["subjects"][0]["namespace"] for item in by_kind(made, "RoleBinding")}
    assert homes == {"primus-pipelines": "team", "primus-runner": "primus-flows", "primus-monitor": "primus-flows"}


def test_two_runners_of_one_cluster_do_not_take_each_others_rights() -> None:
    ones, others = (by_kind(control(space), "ClusterRoleBinding") for space in ("primus-flows", "other-flows"))
    for one, other in zip(ones, others, strict=True):
        assert one["metadata"]["name"] != other["metadata"]["name"]
        assert one["roleRef"] == other["roleRef"]


def test_each_priority_has_a_sister_one_step_above_unless_places_are_not_kept() -> None:
    def values(profile: WorkspaceProfile) -> dict[str, int]:
        kinds = [item for item in workspace(profile) if item["kind"] == "WorkloadPriorityClass"]
        return {item["metadata"]["name"]: item["value"] for item in kinds}

    small = load_text(WorkspaceProfile, SMALL)
    assert values(small.model_copy(update={"priorities": {"low": 10}})) == {
        "low": 10,
        "returning": 1,
        "low-returning": 11,
    }
    assert "returning" not in values(small.model_copy(update={"keep_place": False}))


def test_admitted_pods_tolerate_what_keeps_others_away() -> None:
    flavor = by_kind(workspace(load_text(WorkspaceProfile, SMALL)), "ResourceFlavor")[0]["spec"]
    assert flavor["nodeTaints"] == [
        {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"},
        {"key": "old", "effect": "NoExecute"},
    ]
    assert [item["operator"] for item in flavor["tolerations"]] == ["Equal", "Exists"]


def test_gangs_are_placed_by_the_labels_that_their_pods_name() -> None:
    racked = load_text(
        WorkspaceProfile, SMALL.replace("- name:", "- topology: racks\n    node_labels: {a: b}\n    name:")
    )
    made = workspace(racked)
    [topology] = by_kind(made, "Topology")
    kinds = [item["kind"] for item in made]
    assert kinds.index("Topology") < kinds.index("ResourceFlavor"), "one for all flavors that name it"
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    assert levels == [TOPOLOGY_LABELS["block"], TOPOLOGY_LABELS["rack"], labels.HOSTNAME], "the widest first"
    assert by_kind(workspace(load_text(WorkspaceProfile, SMALL)), "Topology") == []


def test_a_queue_takes_runs_of_its_own_workspace_only() -> None:
    made = workspace(load_text(WorkspaceProfile, SMALL))
    wanted = by_kind(made, "ClusterQueue")[0]["spec"]["namespaceSelector"]["matchLabels"]
    assert wanted.items() <= by_kind(made, "Namespace")[0]["metadata"]["labels"].items()


@rows("workflows/platform/workspace")
def test_what_cannot_be_is_refused_by_its_field(change: str, field: str, words: str) -> None:
    with pytest.raises(ProfileError, match=words) as caught:
        load_text(WorkspaceProfile, f"name: team\n{change}\n")
    assert caught.value.field == field
