"""Components of one cluster, from its profile and the shelf: what it gets, what a mirror must hold, what is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flows.decisions.bootstrap.components import chosen_components, with_digests
from flows.decisions.bootstrap.mirror import mirror_items
from profiles.bootstrap.components import BuiltInSource
from profiles.bootstrap.engines import Kubeadm
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_hardware, load_release, load_shelf
from tasks.bootstrap.components import built_in_objects
from workflows.bootstrap.components import ComponentsPlan, components_workflow, installer
from workflows.bootstrap.endurance import endpoint_for_pods
from workflows.model.components import ChosenComponent, made_of
from workflows.model.mirror import MirrorItem

Manifest = dict[str, Any]


def wanted_components(profile: ClusterProfile, said: Mapping[str, str] | None = None) -> tuple[ChosenComponent, ...]:
    """What the cluster gets, each behind what it needs, with the fingerprint of the objects that would be sent.

    `said`: digests by path, as its mirror says them.

    Raises:
        ProfileError: the profile has no section `bootstrap`, or a choice in it is wrong.
    """
    if profile.bootstrap is None:
        raise ProfileError("bootstrap", "the cluster profile has no such section: docs/bootstrap.md shows one")
    vendors = {load_hardware(pool.hardware).vendor for pool in profile.pools}
    chosen = with_digests(chosen_components(profile.bootstrap, load_shelf(), vendors), said or {})
    pair, endpoint = _nodes(profile) > 1, endpoint_for_pods(profile.bootstrap)
    chosen = tuple(replace(one, standby=pair, endpoint=endpoint) if one.profile.first else one for one in chosen)
    built_in = built_in_objects(profile, chosen)
    return tuple(made_of(one, built_in, profile.bootstrap.mirror.registry) for one in chosen)


def wanted_in_mirror(profile: ClusterProfile, said: Mapping[str, str] | None = None) -> tuple[MirrorItem, ...]:
    """Everything that the cluster's mirror must hold.

    Raises:
        ProfileError: see `wanted_components`; or there is no such release.
    """
    brings = profile.bootstrap is None or profile.bootstrap.install_components
    chosen = wanted_components(profile, said) if brings else ()
    engine = profile.bootstrap.engine if profile.bootstrap else None
    release = load_release(engine.release) if isinstance(engine, Kubeadm) else None
    return mirror_items(profile, release, chosen)


def rendered_components(profile: ClusterProfile) -> list[Manifest]:
    """What would be sent for the components: the installer's account, and the workflow. Nothing is asked or touched.

    Digests that only the mirror says are not in it.

    Raises:
        ProfileError: see `wanted_components`.
    """
    chosen = wanted_components(profile)
    own = [one for one in chosen if isinstance(one.profile.source, BuiltInSource)]
    install = frozenset(one.name for one in chosen if not one.profile.first)
    plan = ComponentsPlan(profile, chosen, install, 1, built_in_objects(profile, own), _nodes(profile))
    return [*installer(), components_workflow(plan)]


def _nodes(profile: ClusterProfile) -> int:
    """How many the cluster is to have."""
    named = len(profile.bootstrap.hosts) if profile.bootstrap else 0
    return named or sum(pool.nodes for pool in profile.pools)
