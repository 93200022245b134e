"""The conformance corpus on Argo's own controller: the same files and expectations as on the embedded cluster.

Through the code behind `primus workflow run`, with the rights of the product's runner, in a workspace of its own. Argo
is a fixed program and a case a fixed text, so its trees are recorded (`tests/support/cases/conformance_recorded.py`).
It is asked about cases that changed since and about eight in turn, about all with `PRIMUS_PROOF=all`; `make bed-golden`
records.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from profiles.loading.load import load_cluster
from profiles.workspace import WorkspaceProfile
from tasks.clusters import embedded_spec
from tasks.kubernetes.api_server import ApiServer
from tasks.kubernetes.cluster import KubernetesCluster
from tasks.kubernetes.configuration import configuration_of
from tests import proof
from tests.bed import samples, up
from tests.support.cases import conformance_recorded
from tests.support.cases.conformance_cases import Case, check, load_cases, run_all
from tests.support.cases.conformance_recorded import A_RACE
from tests.support.cases.conformance_trees import differences, tree_of
from tests.support.harness import embedded_stage
from tests.support.running.waiting import patience
from workflows.platform.workspace import PIPELINES

SPACE = "bed-conformance"
AT_ONCE = 16
"""Workflows; more of them let a machine of two cores start pods so slowly that deadlines are met before them."""
LIMIT_S = patience(460.0)
"""For all: some 290 pods."""
REWRITE = os.environ.get("PRIMUS_GOLDEN") == "1"
RUN = [case for case in load_cases() if not case.refused]
CASES = conformance_recorded.asked_anew(RUN, proof.of_this_checkout().number, proof.everything())
STEADY = [case for case in CASES if case.name not in A_RACE]


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


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_argo_tells_the_recorded_tree(case: Case, ended: dict[str, dict[str, Any]]) -> None:
    tree = tree_of(ended[case.name])
    if REWRITE:
        check(case, ended[case.name])
        conformance_recorded.record(case.name, tree)
    recorded = conformance_recorded.tree_by_argo(case.name)
    assert recorded is not None, "run: make bed-golden"
    if case.name not in A_RACE:
        assert differences(recorded, tree) == [], "Argo tells another tree than the recorded one; run: make bed-golden"


@pytest.mark.parametrize("case", STEADY, ids=lambda case: case.name)
def test_both_engines_tell_the_same_tree(
    case: Case, ended: dict[str, dict[str, Any]], embedded: dict[str, dict[str, Any]]
) -> None:
    assert differences(tree_of(embedded[case.name]), tree_of(ended[case.name])) == []
