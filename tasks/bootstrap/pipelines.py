"""The account of pipeline pods on a cluster that has no workspace yet: by it the first preflight reports."""

from __future__ import annotations

import time

from profiles.cluster import ClusterProfile
from profiles.errors import Unavailable
from workflows.platform.workspace import pipelines
from workflows.programs.runtime.kubernetes_api import Api, ApiError
from workflows.programs.serving.objects import Applier, ObjectsError

APPLY_SECONDS = 60.0


def bring_pipelines(api: Api, profile: ClusterProfile) -> None:
    """Namespace, account and rights of the profile's pipeline pods; an account that is there is left as it is.

    The account comes last: where it stands, its rights do too.

    Raises:
        Unavailable: the API server does not answer, or refuses.
    """
    space, account = profile.namespace, profile.service_account
    try:
        if not _is_there(api, f"/api/v1/namespaces/{space}/serviceaccounts/{account}"):
            *before, last = pipelines(space, account)
            applier = Applier(api, time.monotonic() + APPLY_SECONDS)
            applier.apply(before, space, ())
            applier.apply([last], space, ())
    except (ApiError, ObjectsError) as error:
        raise Unavailable(f"account {account} in namespace {space}: {error}") from error


def _is_there(api: Api, path: str) -> bool:
    try:
        api.get(path)
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True
