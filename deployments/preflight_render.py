"""`primus render preflight`: the workflows of a test as they would be sent. Imports nothing that runs anything."""

from __future__ import annotations

import os
from typing import Any

from deployments.edge import GOOD, out, out_json
from profiles.admission import own_suite
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.load import load_cluster, load_hardware, load_suite
from profiles.suite import SuiteProfile
from profiles.suite_words import DEPTHS, Depth
from tasks.home_storage import localised
from tasks.settings import Settings
from workflows.node_pods import first_nodes
from workflows.preflight import MOST, planned, preflight_workflow
from workflows.preflight_calls import node_checks

Json = dict[str, Any]


def render_preflight(cluster: str, suite: str, depth: str, nodes: str, *, as_json: bool) -> int:
    """Print the workflows that would be sent; touches nothing.

    Raises:
        ProfileError: no such cluster, suite or depth; the suite does not fit the hardware.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    chosen = load_suite(suite or profile.admission.suite or own_suite(profile.engine), cluster=profile)
    named = [name for name in nodes.split(",") if name]
    places = {name: profile.pools[0].name for name in named} or first_nodes(profile, 1.0)
    documents = [item for one in _depths(profile, chosen, depth) for item in _documents(profile, chosen, one, places)]
    if as_json:
        out_json(documents)
    else:
        import yaml

        # The C writer where PyYAML was built with it: ten times as fast, and a fleet is 131 documents.
        writer = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        out(yaml.dump_all(documents, Dumper=writer, sort_keys=False, width=120))
    return GOOD


def _documents(profile: ClusterProfile, suite: SuiteProfile, depth: Depth, places: dict[str, str]) -> list[Json]:
    names = list(places)
    parts = [names[begin : begin + MOST] for begin in range(0, len(names), MOST)]
    return [
        preflight_workflow(planned(profile, suite, depth, {name: places[name] for name in part}, number)).to_dict()
        for number, part in enumerate(parts, 1)
    ]


def _depths(profile: ClusterProfile, suite: SuiteProfile, wanted: str) -> tuple[Depth, ...]:
    kinds = [load_hardware(pool.hardware) for pool in profile.pools]
    made: tuple[Depth, ...] = tuple(one for one in DEPTHS if any(node_checks(suite, one, kind) for kind in kinds))
    found: list[Depth] = [depth for depth in made if not wanted or str(depth) == wanted]
    if not found:
        raise ProfileError(
            "depth", f"suite {suite.name} has checks of single nodes at {', '.join(made)}, got {wanted!r}"
        )
    return tuple(found)
