"""Who installs components: a service account of the cluster, which is cluster-admin only while a command needs it.

A workflow that outlives its command keeps the right until it has ended; then the next command takes it away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from profiles.errors import NotFound, PrimusError, Unavailable
from tasks.cluster import Cluster, Manifest
from tasks.workflow_runs import ENDED, phase_of
from workflows import labels
from workflows.bootstrap.components import INSTALLER, PIPELINE, installer
from workflows.model.components import NAMESPACE
from workflows.model.manifest import part
from workflows.programs.runtime.kubernetes_api import Api, ApiError
from workflows.programs.serving.objects import Applier, ObjectsError

PUT_SECONDS = 300.0
TAKE_SECONDS = 30.0
"""Nobody waits longer for the right to go: what the command itself did is told first."""
FORGET_SECONDS = 600.0
RIGHT = "ClusterRoleBinding"
NEXT = "the next command that brings or removes components takes that right away"


@contextmanager
def installing(api: Api, seam: Cluster, tell: Callable[[str], None]) -> Generator[None]:
    """Within, workflows in the namespace of the components may do everything; afterwards nobody there may.

    Raises:
        ApiError, ObjectsError: the account or its right is refused, or could not be put in time.
    """
    try:
        Applier(api, time.monotonic() + PUT_SECONDS).apply(installer(), NAMESPACE, ())
        yield
    finally:
        _take_back(api, seam, tell)


def _take_back(api: Api, seam: Cluster, tell: Callable[[str], None]) -> None:
    """The right goes, and the account stays; whatever hinders it is told and hides nothing."""
    right = [one for one in installer() if one["kind"] == RIGHT]
    try:
        if living := living_workflows(seam):
            name = part(living[0], "metadata")["name"]
            tell(f"{INSTALLER} stays cluster-admin: workflow {name} still runs; {NEXT}")
            return
        Applier(api, time.monotonic() + TAKE_SECONDS).remove(right, NAMESPACE)
    except (PrimusError, ApiError, ObjectsError, OSError) as error:
        tell(f"{INSTALLER} stays cluster-admin: {error}; {NEXT}")


def living_workflows(seam: Cluster) -> list[Manifest]:
    """Workflows that bring or remove components and have not ended."""
    try:
        found = seam.list("Workflow", {labels.PIPELINE: PIPELINE})
    except NotFound:  # before Argo is there the API server does not know the kind
        return []
    return [one for one in found if phase_of(one) not in ENDED]


def forget_installer(api: Api) -> None:
    """The right to install, its account and the namespace of the notes go; nothing of ours is left.

    Raises:
        Unavailable: something holds them.
    """
    applier = Applier(api, time.monotonic() + FORGET_SECONDS)
    try:
        applier.remove(installer(), NAMESPACE)
    except (ApiError, ObjectsError) as error:
        raise Unavailable(f"components: {error}") from error
