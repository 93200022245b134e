"""Who may do what, asked of the cluster itself: exactly what the product grants, and nothing beside it.

Every verb of every resource that the bed serves is asked about, for each account, in its own workspace, in another
one, and in the whole cluster. What must never be granted is listed by hand as well: a list that grows wrong with the
product would find nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

import pytest

from profiles.workspace import WorkspaceProfile
from tests.bed import samples, tenancy, up
from tests.bed.api import Manifest, RefusedError, path_of
from tests.bed.commands import until
from tests.bed.up import Bed
from tests.support.cases.rows import tables
from workflows.platform import workspace

OWN, OTHER, HOME, OTHER_HOME = "training", "other-team", "primus-flows", "other-flows"
"""The workspace of the bed and another team's, each with a runner's namespace."""
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
Asked = tuple[str, str, str, str]
"""Namespace ("" for all), API group, resource with its subresource, verb."""
GIVEN_TO_ALL: dict[str, set[tuple[str, str]]] = {
    "authorization.k8s.io": {("selfsubjectaccessreviews", "create"), ("selfsubjectrulesreviews", "create")},
    "authentication.k8s.io": {("selfsubjectreviews", "create")},
}
"""What Kubernetes itself lets every account ask: what it may do, and who it is."""


@dataclass(frozen=True)
class Account:
    """One account and what the product means to give it."""

    name: str
    namespace: str
    inside: Iterable[workspace.Right]
    """In its workspace."""
    everywhere: Iterable[workspace.Right] = ()

    @property
    def user(self) -> str:
        """As the API server calls it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def may(self, asked: Asked) -> bool:
        """Whether the product grants it."""
        space, group, resource, verb = asked
        rights = [*self.everywhere, *(self.inside if space == OWN else ())]
        granted = any(group == mine and resource in names and verb in verbs for mine, names, verbs in rights)
        return granted or (resource, verb) in GIVEN_TO_ALL.get(group, set())


ACCOUNTS = (
    Account(workspace.RUNNER, HOME, workspace.RUNNER_RIGHTS, workspace.NODE_RIGHTS),
    Account(workspace.PIPELINES, OWN, workspace.PIPELINE_RIGHTS),
    Account(tenancy.MONITOR, HOME, workspace.READER_RIGHTS, workspace.NODE_READER_RIGHTS),
)
STRANGERS = (
    Account(workspace.RUNNER, OTHER_HOME, (), workspace.NODE_RIGHTS),
    Account(workspace.PIPELINES, OTHER, ()),
    Account(tenancy.MONITOR, OTHER_HOME, (), workspace.NODE_READER_RIGHTS),
    Account("default", OWN, ()),
)
"""In the bed's own workspace they have nothing."""


@pytest.fixture(scope="module")
def two_teams(standing: None) -> Iterator[Bed]:
    """A second workspace beside the bed's own, with a runner of its own."""
    del standing
    found = up.find()
    assert found is not None
    found.settle()
    profile = WorkspaceProfile(
        name=OTHER, queue=samples.QUEUE, flavors=(samples.played(1),), runner_namespace=OTHER_HOME
    )
    control = workspace.control(OTHER_HOME)
    home = samples.namespace(OTHER_HOME)
    until(f"{OTHER_HOME} free", lambda: found.find(home) is None, samples.LIMIT_S, 0.3)  # of the run before
    tenancy.apply(found.api, control)
    with samples.workspaces(found, profile):
        yield found
    for manifest in control:
        if manifest["kind"] != "ClusterRole":  # both runners share it
            found.api.delete(manifest)


def served(bed: Bed) -> list[tuple[str, str, bool]]:
    """Group, resource with its subresource, and whether it is namespaced, of all that the API server serves."""
    versions = [f"apis/{group['preferredVersion']['groupVersion']}" for group in bed.api.get("/apis")["groups"]]
    return [
        (version.split("/")[1] if version != "api/v1" else "", resource["name"], resource["namespaced"])
        for version in ("api/v1", *versions)
        for resource in bed.api.get(f"/{version}")["resources"]
    ]


def allowed(bed: Bed, account: Account, asked: Iterable[Asked]) -> list[bool]:
    """What the API server's authorizer says to each."""
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{account.namespace}", "system:authenticated"]
    reviews = (
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": account.user, "groups": groups, "resourceAttributes": _attributes(one)},
        }
        for one in asked
    )
    answers = bed.api.post_each("/apis/authorization.k8s.io/v1/subjectaccessreviews", reviews)
    return [answer["status"]["allowed"] for answer in answers]


def _attributes(asked: Asked) -> Manifest:
    space, group, resource, verb = asked
    name, _, part = resource.partition("/")
    return {"namespace": space, "group": group, "resource": name, "subresource": part, "verb": verb}


@pytest.mark.parametrize("account", [*ACCOUNTS, *STRANGERS], ids=lambda account: account.user.split(":", 2)[2])
def test_each_account_may_do_what_is_granted_and_nothing_else(two_teams: Bed, account: Account) -> None:
    found = served(two_teams)
    assert len(found) > 100, "the list is wide"
    asked = [
        (space, group, resource, verb)
        for group, resource, namespaced in found
        for space in ((OWN, "") if namespaced else ("",))
        for verb in VERBS
    ]
    differs = [
        f"{'allowed' if yes else 'refused'}: {one}"
        for one, yes in zip(asked, allowed(two_teams, account, asked), strict=True)
        if yes != account.may(one)
    ]
    assert differs == []


@pytest.mark.parametrize("account", ACCOUNTS, ids=lambda account: account.name)
def test_what_is_granted_ends_at_the_workspace(two_teams: Bed, account: Account) -> None:
    asked = [
        (space, group, resource, verb)
        for group, names, verbs in account.inside
        for resource in names
        for verb in verbs
        for space in (OTHER, HOME, OTHER_HOME, "default", "kube-system", "argo", "")
    ]
    answers = allowed(two_teams, account, asked)
    assert [one for one, yes in zip(asked, answers, strict=True) if yes and not account.may(one)] == []


@pytest.mark.parametrize(
    ("account", "refused"),
    [
        *((account, "what_nobody_may") for account in ACCOUNTS),
        (ACCOUNTS[1], "what_pipelines_may_not"),
        (ACCOUNTS[2], "what_the_monitor_may_not"),
    ],
    ids=["runner", "pipelines", "monitor", "more-for-pipelines", "more-for-the-monitor"],
)
def test_what_nobody_may(two_teams: Bed, account: Account, refused: str) -> None:
    wanted = [itemgetter("group", "resource", "verb")(row.columns) for row in tables("bed/rights")[refused]]
    asked = [(space, *one) for one in wanted for space in (OWN, HOME, "kube-system", "")]
    answers = allowed(two_teams, account, asked)
    assert [one for one, yes in zip(asked, answers, strict=True) if yes] == []


def test_a_token_of_one_workspace_cannot_touch_runs_of_another(two_teams: Bed) -> None:
    run = samples.jobset("a-run", OWN, 1, samples.pod_spec(samples.BUSYBOX, ["true"]))
    run["spec"]["suspend"] = True
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a-run", "namespace": OWN}}
    two_teams.api.ensure_all([run, secret])
    pods = f"/api/v1/namespaces/{OWN}/pods"
    try:
        for account in STRANGERS:
            api = two_teams.as_account(account.name, account.namespace)
            for method, path in (
                ("GET", path_of(run)),
                ("GET", path_of(run, name=False)),
                ("DELETE", path_of(run)),
                ("GET", path_of(secret)),
                ("GET", path_of(secret, name=False)),
                ("DELETE", path_of(secret)),
                ("GET", pods),
                ("DELETE", pods),
                ("GET", f"{pods}/a-run-w-0-0-x:8000/proxy/"),
            ):
                with pytest.raises(RefusedError) as refused:
                    api.request(method, path)
                assert refused.value.status == 403, (account, method, path)
        mine = two_teams.as_account(workspace.RUNNER, HOME)
        assert mine.get(path_of(run))["metadata"]["name"] == "a-run", "its own runner may"
        mine.delete(run)
        mine.delete(secret)
    finally:
        two_teams.api.delete(run)
        two_teams.api.delete(secret)
