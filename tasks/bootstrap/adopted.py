"""What the API of a cluster that is there already tells of its nodes."""

from __future__ import annotations

from pathlib import Path

from profiles.cluster import ClusterProfile
from profiles.errors import PrimusError
from tasks.clusters import open_cluster
from workflows.bootstrap.control_sight import ControlSight, PlaneSight

API = "API"
"""Stands where other engines name a control plane."""


def look_at_cluster(profile: ClusterProfile, home: Path) -> ControlSight:
    """The nodes of a cluster as its API tells them; that it does not answer is part of what was seen."""
    try:
        nodes = open_cluster(profile, home).list("Node")
    except PrimusError as error:
        return ControlSight({}, {API: str(error)})
    return ControlSight({API: PlaneSight(API, there=True, own="", endpoint="", nodes=tuple(nodes), members=())})
