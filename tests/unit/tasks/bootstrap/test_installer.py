"""The right to install is there while it is needed, and what hinders it to go is told and hides nothing."""

from __future__ import annotations

from typing import cast

import pytest

from profiles.errors import NotFound, PrimusError, Unavailable
from tasks.bootstrap.installer import forget_installer, installing
from tasks.cluster import Cluster, Manifest
from tests.support.fakes.serving_stand_ins import MadeCluster
from workflows import labels
from workflows.bootstrap.components import PIPELINE
from workflows.model.components import NAMESPACE
from workflows.programs.runtime.kubernetes_api import ApiError

RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
RIGHT = f"{RIGHTS}/clusterrolebindings/primus-installer"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/primus-installer"
KINDS = {
    "/api/v1": [("namespaces", "Namespace", False), ("serviceaccounts", "ServiceAccount", True)],
    RIGHTS: [("clusterrolebindings", "ClusterRoleBinding", False)],
}


class Workflows:
    """Workflows by name, each with its phase, or why nobody can tell."""

    def __init__(self, wrong: PrimusError | None = None, **phases: str) -> None:
        self.wrong, self.phases = wrong, phases

    def list(self, kind: str, wanted: dict[str, str]) -> list[Manifest]:
        assert (kind, wanted) == ("Workflow", {labels.PIPELINE: PIPELINE})
        if self.wrong:
            raise self.wrong
        return [{"metadata": {"name": name}, "status": {"phase": phase}} for name, phase in self.phases.items()]


def made_api() -> MadeCluster:
    api = MadeCluster()
    api.serve(KINDS)
    return api


def install(api: MadeCluster, workflows: Workflows, wrong: BaseException | None = None) -> list[str]:
    """What is told while somebody installs; whether the right was there meanwhile is asserted."""
    told: list[str] = []
    with installing(api, cast("Cluster", workflows), told.append):
        assert RIGHT in api.objects
        if wrong:
            raise wrong
    return told


@pytest.mark.parametrize(
    "workflows", [Workflows(), Workflows(NotFound("Workflow", "unknown")), Workflows(a="Succeeded", b="Failed")]
)
def test_the_right_goes_and_the_account_stays(workflows: Workflows) -> None:
    api = made_api()
    assert install(api, workflows) == []
    assert (RIGHT in api.objects, ACCOUNT in api.objects) == (False, True)


@pytest.mark.parametrize("wrong", [Unavailable("away"), KeyboardInterrupt()])
def test_after_a_failure_it_goes_too(wrong: BaseException) -> None:
    api = made_api()
    with pytest.raises(type(wrong)):
        install(api, Workflows(), wrong)
    assert (RIGHT in api.objects, ACCOUNT in api.objects) == (False, True)


@pytest.mark.parametrize("phase", ["Running", "Pending", ""])
def test_it_stays_while_a_workflow_needs_it_and_the_next_command_takes_it_away(phase: str) -> None:
    api = made_api()
    [line] = install(api, Workflows(ended="Failed", other=phase))
    assert "workflow other still runs" in line
    assert RIGHT in api.objects
    assert install(api, Workflows(other="Succeeded")) == []
    assert RIGHT not in api.objects


def install_and_refuse(api: MadeCluster, told: list[str]) -> None:
    """Fail while the right may no longer be looked at."""
    with installing(api, cast("Cluster", Workflows()), told.append):
        api.refuses = lambda path: ApiError(403, f"{path}: forbidden") if path == RIGHT else None
        raise Unavailable("what went wrong")


def test_that_it_cannot_be_taken_away_is_told_in_one_line_and_hides_nothing() -> None:
    api = made_api()
    [line] = install(api, Workflows(Unavailable("nobody answers")))
    assert line.startswith("primus-installer stays cluster-admin: nobody answers; the next command")
    told: list[str] = []
    with pytest.raises(Unavailable, match="what went wrong"):
        install_and_refuse(api, told)
    [line] = told
    assert "clusterrolebindings/primus-installer: forbidden" in line


def test_nothing_of_it_is_left_at_the_end() -> None:
    api = made_api()
    before = set(api.objects)
    install(api, Workflows(other="Running"))
    forget_installer(api)
    assert set(api.objects) == before
