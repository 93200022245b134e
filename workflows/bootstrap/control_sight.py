"""A cluster as its control planes see it: what `plane.py look` prints on each of them, typed. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from workflows.bootstrap.component_configuration import document_of
from workflows.model.host_facts import Unread
from workflows.model.manifest import Json, items, part

UNASKED = "it was not asked"


@dataclass(frozen=True)
class Member:
    """One member of etcd, seen from another one."""

    name: str
    learner: bool = False
    why: str = ""
    """Why it does not serve; "" where it does."""


@dataclass(frozen=True)
class PlaneSight:
    """What one control plane sees."""

    host: str
    there: bool = False
    """It holds a cluster, living or not."""
    own: str = UNASKED
    """Why its own API server is not ready; "" where it is."""
    endpoint: str = UNASKED
    """The same through the endpoint."""
    version: str = ""
    """That the cluster is meant to have, e.g. v1.36.3."""
    nodes: tuple[Json, ...] | None = None
    """None: it could not be asked."""
    pods: tuple[Json, ...] | None = None
    """Of the namespace kube-system."""
    members: tuple[Member, ...] | None = None
    dns: tuple[str, ...] | None = None
    """Keys of the taints that the cluster's DNS tolerates; "" stands for every key."""
    snapshots: tuple[str, ...] = ()
    settings: Mapping[str, Json | Unread] | None = None
    """`cluster`, `kubelet` and `kube-proxy` -> what the cluster keeps as their configuration; who is missing has none.
    None: it could not be asked."""
    names: tuple[str, ...] | None = None
    """Names and addresses in the certificate of its own API server; None: it was not seen."""

    @cached_property
    def by_name(self) -> dict[str, Json]:
        """Node objects by name; none where it could not be asked."""
        return {str(part(node, "metadata").get("name")): node for node in self.nodes or ()}


@dataclass(frozen=True)
class ControlSight:
    """What all of them see."""

    planes: Mapping[str, PlaneSight]
    unseen: Mapping[str, str] = field(default_factory=dict[str, str])
    """Control planes that could not be asked -> why."""

    @property
    def serving(self) -> tuple[str, ...]:
        """Control planes whose own API server is ready and whose etcd can be asked."""
        return tuple(name for name, one in self.planes.items() if one.there and not one.own and one.members is not None)

    @property
    def best(self) -> PlaneSight | None:
        """What one of them sees that serves; None: none does."""
        return self.planes[self.serving[0]] if self.serving else None

    @property
    def nodes(self) -> dict[str, Json] | None:
        """Node objects by name; None: nobody could tell."""
        best = self.best
        if best is None or best.nodes is None:
            return None
        return dict(best.by_name)


def plane_sight(host: str, text: str) -> PlaneSight | None:
    """What a control plane printed; None: it cannot be read."""
    try:
        found = part({"told": json.loads(text)}, "told")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found.get("there"), bool):
        return None
    if not found["there"]:
        return PlaneSight(host)
    members = [
        Member(str(one.get("name", "")), bool(one.get("learner")), str(one.get("why", "")))
        for one in items(found, "members")
    ]
    return PlaneSight(
        host,
        there=True,
        own=str(found.get("own", UNASKED)),
        endpoint=str(found.get("endpoint", UNASKED)),
        version=str(found.get("version", "")),
        nodes=tuple(items(found, "nodes")) if isinstance(found.get("nodes"), list) else None,
        pods=tuple(items(found, "pods")) if isinstance(found.get("pods"), list) else None,
        members=tuple(members) if isinstance(found.get("members"), list) else None,
        dns=tuple(str(one) for one in found["dns"]) if isinstance(found.get("dns"), list) else None,
        snapshots=tuple(str(one) for one in found.get("snapshots") or ()),
        settings=_settings(found.get("settings")),
        names=tuple(str(one) for one in found["names"]) if isinstance(found.get("names"), list) else None,
    )


def _settings(told: object) -> dict[str, Json | Unread] | None:
    if not isinstance(told, dict):
        return None
    texts = {str(name): str(text) for name, text in cast("dict[object, object]", told).items()}
    return {name: document_of(text) for name, text in texts.items() if text}
