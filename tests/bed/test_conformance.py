"""The conformance corpus on Argo's own controller: the same files and expectations as on the embedded cluster.

Through the code behind `primus workflow run`, with the rights of the product's runner, in a workspace of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from profiles.load import load_cluster
from profiles.workspace import WorkspaceProfile
from tasks.clusters import embedded_spec
from tasks.kubernetes import KubernetesCluster
from tasks.kubernetes_configuration import configuration_of
from tasks.kubernetes_server import ApiServer
from tests import embedded_stage
from tests.bed import samples, up
from tests.conformance_cases import Case, check, load_cases, run_all
from tests.conformance_trees import differences, tree_of
from workflows.workspace import PIPELINES

SPACE = "bed-conformance"
AT_ONCE = 16
"""Workflows; more of them let a machine of two cores start pods so slowly that deadlines are met before them."""
LIMIT_S = 460.0
"""For all: some 290 pods."""
A_RACE = {"timeout-step"}
"""How far its second step comes in the five seconds that it has is a matter of the machine."""
CASES = [case for case in load_cases() if not case.refused]


def by_pipelines(case: Case) -> Case:
    """The case with the account whose rights let a pod report its outputs."""
    return replace(case, manifest={**case.manifest, "spec": {**case.manifest["spec"], "serviceAccountName": PIPELINES}})


@pytest.fixture(scope="module")
def ended(standing: None) -> Iterator[dict[str, dict[str, Any]]]:
    """Every case as it ended."""
    del standing
    bed = up.find()
    assert bed is not None
    bed.settle()
    profile = load_cluster("bed").model_copy(update={"namespace": SPACE})
    environment = {"KUBECONFIG": str(bed.folder.account("runner"))}
    cluster = KubernetesCluster(profile, ApiServer(lambda: configuration_of(profile.context, environment)))
    asked = [by_pipelines(case) for case in CASES]
    with samples.workspaces(bed, WorkspaceProfile(name=SPACE, queue=samples.QUEUE, flavors=(samples.played(4),))):
        yield run_all(cluster, asked, SPACE, at_once=AT_ONCE, seconds=LIMIT_S)
    cluster.close()


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The same cases as the embedded cluster ends them."""
    home = tmp_path_factory.mktemp("conformance")
    profile = load_cluster("local")
    with embedded_stage.cluster(home / "cluster", embedded_spec(profile, home)) as one:
        return run_all(one, CASES, profile.namespace)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_argo_itself_ends_it_as_expected(case: Case, ended: dict[str, dict[str, Any]]) -> None:
    assert case.name in ended, f"not begun within {LIMIT_S:.0f} s"
    check(case, ended[case.name])


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in A_RACE], ids=lambda case: case.name)
def test_both_engines_tell_the_same_tree(
    case: Case, ended: dict[str, dict[str, Any]], embedded: dict[str, dict[str, Any]]
) -> None:
    assert differences(tree_of(embedded[case.name]), tree_of(ended[case.name])) == []
