"""What a team finds on its cluster: the workspace that the product itself builds, and its accounts' kubeconfigs."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal

from profiles.loading.load import load_workspace
from profiles.values import amount
from profiles.workspace import Flavor, Quota, WorkspaceProfile
from tests.bed import artifacts, certificates
from tests.bed.api import Api, Manifest
from tests.bed.layout import HERE, Folder
from tests.bed.options import Options
from workflows.platform import workspace

PROFILE = HERE / "workspace.yaml"
GPU = "nvidia.com/gpu"
"""What the profile calls the GPUs; a bed may be started with others."""
MONITOR = "primus-monitor"
ACCOUNTS = {"runner": workspace.RUNNER, "monitor": MONITOR}
"""Who gets a kubeconfig of the product's rights, by the ending of its name."""
TOKEN_S = 30 * 24 * 3600


def settle(api: Api, folder: Folder, options: Options) -> None:
    """Make all of it; Kueue must answer, it checks its own objects."""
    profile = fitted(load_workspace(str(PROFILE)), api.nodes(), options)
    made = [*workspace.control(profile.runner_namespace), *workspace.workspace(profile)]
    apply(api, [*made, artifacts.keys(profile.name)])
    for ending, account in ACCOUNTS.items():
        token = request_token(api, account, profile.runner_namespace)
        path = folder.account(ending)
        certificates.write_account(folder, options, path, account, token, profile.name)


def apply(api: Api, manifests: Iterable[Manifest]) -> None:
    """In their order as far as that matters: namespaces first."""
    found = list(manifests)
    api.ensure_all(manifest for manifest in found if manifest["kind"] == "Namespace")
    api.ensure_all(manifest for manifest in found if manifest["kind"] != "Namespace")


def request_token(api: Api, account: str, namespace: str) -> str:
    """A token of a service account, as `kubectl create token` asks for one."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": TOKEN_S}}
    return api.request("POST", path, asked)["status"]["token"]


def fitted(profile: WorkspaceProfile, nodes: list[Manifest], options: Options) -> WorkspaceProfile:
    """The workspace with what the nodes of each flavor can give as its quotas."""
    return profile.model_copy(update={"flavors": tuple(_filled(flavor, nodes, options) for flavor in profile.flavors)})


def _filled(flavor: Flavor, nodes: list[Manifest], options: Options) -> Flavor:
    rooms = [
        node["status"]["allocatable"]
        for node in nodes
        if flavor.node_labels.items() <= node["metadata"]["labels"].items()
    ]
    names = [options.gpu if name == GPU else name for name in flavor.quotas]
    sums = {name: sum((amount(room.get(name, "0")) for room in rooms), Decimal(0)) for name in names}
    return flavor.model_copy(update={"quotas": {name: Quota(nominal=str(int(value))) for name, value in sums.items()}})
