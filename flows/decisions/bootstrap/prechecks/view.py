"""What checks look at: a host of the inventory with what was seen of it, and all of them together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, ip_address, ip_network
from typing import Literal

from profiles.bootstrap.engines import Adopt, Kubeadm, Kubespray
from profiles.bootstrap.inventory import Bootstrap, ClusterHost
from profiles.cluster import ClusterProfile, Pool
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from workflows.bootstrap.kubespray import balancer_name
from workflows.model.host_facts import HostFacts, Unread
from workflows.model.host_sight import HostSight, HostsSight

CONTROL_PLANES = "control planes"
"""The group of hosts that only control; those that work form one with their pool."""
Standing = Literal["none", "ours", "foreign"]


@dataclass(frozen=True)
class HostView:
    """One host."""

    name: str
    host: ClusterHost
    sight: HostSight
    pool: Pool | None
    """None: it does not work."""
    hardware: HardwareProfile | None

    @property
    def facts(self) -> HostFacts:
        """What it told."""
        return self.sight.facts

    @property
    def group(self) -> str:
        """Hosts that must be alike."""
        return f"pool {self.pool.name}" if self.pool else CONTROL_PLANES


@dataclass(frozen=True)
class Cluster:
    """All hosts, and what is known of the cluster that they are to form."""

    bootstrap: Bootstrap
    views: Mapping[str, HostView]
    """Hosts that were looked at, in the order of the inventory."""
    sight: HostsSight
    begun: frozenset[str]
    """Hosts on which steps of this cluster were begun: what lies there may be ours, half made."""
    authority_sha256: str
    """Of this cluster's authority, where it is known; else that of the inventory's control planes counts."""

    def standing(self, view: HostView) -> Standing | Unread:
        """Whose node a host is."""
        found = view.facts.memberships
        if isinstance(found, Unread):
            return found
        if not found:
            return "none"
        known = {self.authority_sha256} if self.authority_sha256 else self._authorities()
        strange = [one for one in found if one.authority_sha256 not in known and not self._is_here(one.server)]
        if strange or (not self.authority_sha256 and any(not self._is_here(one.server) for one in found)):
            return "foreign"
        if any(not one.authority_sha256 for one in found):
            return Unread("its configuration names no authority: whose node it is cannot be told")
        if len(known) > 1 and any(one.authority_sha256 in known for one in found):
            return Unread("control planes tell different authorities: whose node it is cannot be told")
        if not known and self._has_silent_plane():
            return Unread("no control plane told its authority: whose node it is cannot be told")
        return "foreign" if any(one.authority_sha256 not in known for one in found) else "ours"

    def _has_silent_plane(self) -> bool:
        """Whether a control plane of the inventory may have an authority that nobody read."""
        planes = [self.views.get(name) for name in self.bootstrap.control_planes]
        return any(view is None or isinstance(view.facts.authority, Unread) for view in planes)

    def _authorities(self) -> set[str]:
        """Of control planes in this inventory; an adopted cluster's is what most nodes know."""
        planes = [view.facts for view in self.views.values() if view.host.controls]
        found = {one.authority for one in planes if isinstance(one.authority, str) and one.authority}
        if found or not self.adopted:
            return found
        known = [
            one
            for view in self.views.values()
            if not isinstance(view.facts.memberships, Unread)
            for one in view.facts.memberships
        ]
        names = [one.authority_sha256 for one in known if one.authority_sha256]
        return {max(sorted(set(names)), key=names.count)} if names else set()

    def _is_here(self, server: str) -> bool:
        """Whether a URL of an API leads to this inventory's control planes."""
        if self.adopted:
            return True
        place = server.rsplit("//", maxsplit=1)[-1].rstrip("/").rpartition(":")[0]
        planes = [self.bootstrap.hosts[name] for name in self.bootstrap.control_planes]
        own = {word for host in planes for word in (host.ip, host.address)} | {"127.0.0.1", "localhost"}
        own |= {balancer_name(self.bootstrap.engine)} if isinstance(self.bootstrap.engine, Kubespray) else set()
        endpoint = self.bootstrap.endpoint
        return place in own | ({endpoint.address} if endpoint else set()) | set(self.bootstrap.control_planes)

    @property
    def adopted(self) -> bool:
        """Whether the cluster was there before us: nothing that lies on its hosts is left over."""
        return isinstance(self.bootstrap.engine, Adopt)

    @property
    def allows_old_cgroups(self) -> bool:
        """Whether kubelets are told to run on control groups of version 1."""
        match self.bootstrap.engine:
            case Adopt():
                return True
            case Kubeadm(kubelet=settings):
                return settings.get("failCgroupV1") is False
            case Kubespray(variables=settings):
                return settings.get("kubelet_fail_cgroup_v1") is False

    @property
    def allows_swap(self) -> bool:
        """Whether kubelets are told to run with swap."""
        match self.bootstrap.engine:
            case Adopt():
                return True
            case Kubeadm(kubelet=settings):
                return settings.get("failSwapOn") is False
            case Kubespray(variables=settings):
                return settings.get("kubelet_fail_swap_on") is False


def cluster_of(
    profile: ClusterProfile,
    hardware: Mapping[str, HardwareProfile],
    sight: HostsSight,
    begun: frozenset[str],
    authority_sha256: str,
) -> Cluster:
    """The hosts of a profile with a section `bootstrap` that told facts.

    `hardware` is by its own name; of a pool whose hardware is not there nothing is expected.

    Raises:
        ProfileError: there is no such section.
    """
    bootstrap = profile.bootstrap
    if bootstrap is None:
        raise ProfileError("bootstrap", f"cluster {profile.name} has no such section: say there which hosts it has")
    pools = {pool.name: pool for pool in profile.pools}
    views: dict[str, HostView] = {}
    for name, host in bootstrap.hosts.items():
        seen = sight.hosts.get(name)
        if seen is not None and seen.failure is None:
            pool = pools[host.pool or profile.pools[0].name] if host.works else None
            views[name] = HostView(name, host, seen, pool, hardware.get(pool.hardware) if pool else None)
    return Cluster(bootstrap, views, sight, begun, authority_sha256)


def network_or_none(text: str) -> IPv4Network | None:
    """The network, where it is one."""
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Network) else None


def address_or_none(text: str) -> IPv4Address | None:
    """The address, where it is one."""
    try:
        found = ip_address(text)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Address) else None
