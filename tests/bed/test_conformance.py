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
from tasks.kubernetes import KubernetesCluster
from tasks.kubernetes_configuration import configuration_of
from tasks.kubernetes_server import ApiServer
from tests.bed import samples, up
from tests.conformance_cases import Case, check, load_cases, run_all
from workflows.workspace import PIPELINES

SPACE = "bed-conformance"
AT_ONCE = 24
"""Workflows; more of them let a machine of two cores start pods so slowly that deadlines are met before them."""
LIMIT_S = 460.0
"""For all: some 290 pods."""
CASES = [case for case in load_cases() if not case.refused]


def needs_artifacts(case: Case) -> bool:
    """Whether it asks for what the bed does not have."""
    return "artifacts" in case.expected.get("needs", ())


def by_pipelines(case: Case) -> Case:
    """The case with the account whose rights let a pod report its outputs."""
    return replace(case, manifest={**case.manifest, "spec": {**case.manifest["spec"], "serviceAccountName": PIPELINES}})


@pytest.fixture(scope="module")
def ended(standing: None) -> Iterator[dict[str, dict[str, Any]]]:
    """Every case that the bed can run, as it ended."""
    del standing
    bed = up.find()
    assert bed is not None
    bed.settle()
    profile = load_cluster("bed").model_copy(update={"namespace": SPACE})
    environment = {"KUBECONFIG": str(bed.folder.account("runner"))}
    cluster = KubernetesCluster(profile, ApiServer(lambda: configuration_of(profile.context, environment)))
    asked = [by_pipelines(case) for case in CASES if not needs_artifacts(case)]
    with samples.workspaces(bed, WorkspaceProfile(name=SPACE, queue=samples.QUEUE, flavors=(samples.played(4),))):
        yield run_all(cluster, asked, SPACE, at_once=AT_ONCE, seconds=LIMIT_S)
    cluster.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_argo_itself_ends_it_as_expected(case: Case, ended: dict[str, dict[str, Any]]) -> None:
    if needs_artifacts(case):
        pytest.skip("the bed has no artifact repository")
    assert case.name in ended, f"not begun within {LIMIT_S:.0f} s"
    check(case, ended[case.name])
