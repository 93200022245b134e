"""What a bootstrap would do, without asking anybody: its plan, and the workflow of its components."""

from __future__ import annotations

from typing import Any

from flows.building.components import rendered_components, wanted_components
from flows.building.ground import run_of
from flows.decisions.bootstrap.judge import Wanted
from flows.decisions.bootstrap.plans import plan_of
from profiles.bootstrap.engines import Kubeadm
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_hardware, load_release
from tasks.bootstrap.kubeadm_variables import authority_of

Document = dict[str, Any]


def rendered_bootstrap(profile: ClusterProfile) -> list[Document]:
    """The plan as one document, then what would be sent for components.

    Raises:
        ProfileError: the profile has no section `bootstrap`, or something in it or in its release is wrong.
    """
    if profile.bootstrap is None:
        raise ProfileError("bootstrap", "the cluster profile has no such section: docs/bootstrap.md shows one")
    engine, brings = profile.bootstrap.engine, profile.bootstrap.install_components
    steps: list[Document] = []
    chosen = wanted_components(profile) if brings else ()
    hardware = {pool.hardware: load_hardware(pool.hardware) for pool in profile.pools}
    authority = authority_of(profile.bootstrap.mirror)
    release = load_release(engine.release) if isinstance(engine, Kubeadm) else None
    wanted = Wanted(profile, release, hardware, chosen, authority=authority, run=run_of(profile))
    for step in plan_of(wanted, BootstrapRequest(cluster=profile.name, verb="check"), {}):
        said: Document = {"step": step.id, "does": step.summary, "wanted": step.wanted, "after": list(step.after)}
        steps.append(said | ({"alone": True} if step.alone else {}) | ({"group": step.group} if step.group else {}))
    return [
        {"plan": profile.name, "engine": engine.kind, "steps": steps},
        *(rendered_components(profile) if brings else []),
    ]
