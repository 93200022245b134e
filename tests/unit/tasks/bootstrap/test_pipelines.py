"""A cluster without a workspace gets the account by which preflights report, and one that has it keeps its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from profiles.errors import Unavailable
from profiles.loading.load import load_cluster
from tasks.bootstrap.pipelines import bring_pipelines
from tests.support.fakes.serving_stand_ins import MadeCluster
from workflows.platform.workspace import pipelines
from workflows.programs.runtime.kubernetes_api import ApiError

PROFILE = load_cluster("kubernetes-example")
SHIPPED = Path(__file__).parents[4] / "deployments" / "kubernetes" / "workspace-training.yaml"
RIGHTS = [
    "/apis/rbac.authorization.k8s.io/v1/namespaces/training/roles/primus-pipelines",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/training/rolebindings/primus-pipelines",
]
ACCOUNT = "/api/v1/namespaces/training/serviceaccounts/primus-pipelines"
KINDS = {
    "/api/v1": [("namespaces", "Namespace", False), ("serviceaccounts", "ServiceAccount", True)],
    "/apis/rbac.authorization.k8s.io/v1": [("roles", "Role", True), ("rolebindings", "RoleBinding", True)],
}


@pytest.fixture
def api() -> MadeCluster:
    made = MadeCluster()
    made.serve(KINDS)
    return made


def test_the_account_comes_last_so_that_where_it_stands_its_rights_do(api: MadeCluster) -> None:
    bring_pipelines(api, PROFILE)
    assert api.applied == ["/api/v1/namespaces/training", *RIGHTS, ACCOUNT]
    bring_pipelines(api, PROFILE)
    assert len(api.applied) == 4, "nothing is done twice"


def test_whoever_was_killed_before_the_account_stood_does_it_again(api: MadeCluster) -> None:
    api.refuses = lambda path: ApiError(403, "forbidden") if path == RIGHTS[1] else None
    with pytest.raises(Unavailable, match="account primus-pipelines in namespace training: "):
        bring_pipelines(api, PROFILE)
    api.refuses = lambda _: None
    bring_pipelines(api, PROFILE)
    assert api.applied[-3:] == [*RIGHTS, ACCOUNT]


def test_an_account_that_is_there_is_left_as_it_is(api: MadeCluster) -> None:
    api.objects[ACCOUNT] = {"metadata": {"name": "primus-pipelines"}}
    bring_pipelines(api, PROFILE)
    assert api.applied == []


def test_it_is_what_a_workspace_has() -> None:
    shipped = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(SHIPPED.read_text())}
    for one in pipelines("training")[1:]:
        assert shipped[one["kind"], one["metadata"]["name"]] == one
