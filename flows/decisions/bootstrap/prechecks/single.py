"""Checks that need one host's own facts and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from flows.decisions.bootstrap.prechecks.findings import Judged, failed, held, passed, unknown
from flows.decisions.bootstrap.prechecks.view import Cluster, HostView, address_or_none, network_or_none
from profiles.bootstrap.inventory import network_of
from profiles.values import amount
from workflows.bootstrap.ports import OWNERS, ports_of
from workflows.model.host_facts import ListeningPort, Unread

GIB = 1 << 30
LEAST_FREE_FILES = 50_000
"""Files of the images of one node."""
LEAST_OPEN_FILES = 16_384
"""containerd and kubelet of a node with 110 pods open some thousand each; Docker's own advice was 1,048,576."""
LEAST_PROCESSES = 16_384
MEMORY_SHARE = 0.9
"""Of what the pool says: firmware and kernel keep some of what is built in."""
NOT_UP = ("maintenance", "stopping", "offline")
STARTED = ("running", "degraded")
OVERLAYS = ("overlay", "overlayfs", "aufs", "fuse-overlayfs")


def single(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    """All checks of one host."""
    yield passed("reachable", view.name, "it answers")
    yield passed("host-key", view.name, "as we know it")
    yield passed("login", view.name, f"as {view.host.user or cluster.bootstrap.ssh.user}")
    for check in (
        _python,
        _sudo,
        _systemd,
        _cgroup,
        _disk,
        _fsync,
        _memory,
        _swap,
        _own_ports,
        _names,
        _resolver,
        _mirror,
    ):
        yield from check(cluster, view)
    for check in (_leftovers, _certificates, _entropy, _limits, _networks):
        yield from check(cluster, view)


def _python(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found = view.facts.python
    yield unknown("python", view.name, found.why) if isinstance(found, Unread) else passed("python", view.name, found)


def _sudo(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found = view.facts.privilege
    if isinstance(found, Unread):
        yield unknown("sudo", view.name, found.why)
    else:
        yield Judged("sudo", view.name, held(found == "root"), found)


def _systemd(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    init, state = view.facts.init, view.facts.systemd
    if isinstance(init, Unread):
        yield unknown("systemd", view.name, init.why)
    elif init != "systemd":
        yield failed("systemd", view.name, f"process 1 is {init}")
    elif isinstance(state, Unread):
        yield unknown("systemd", view.name, state.why)
    elif state in STARTED:
        yield passed("systemd", view.name, state)
    else:
        yield (failed if state in NOT_UP else unknown)("systemd", view.name, f"its state is {state}")


def _cgroup(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found = view.facts.cgroup
    if isinstance(found, Unread):
        yield unknown("cgroup", view.name, found.why)
    else:
        yield Judged("cgroup", view.name, held(found >= 2 or cluster.allows_old_cgroups), f"version {found}")


def _disk(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found, least = view.facts.disks, cluster.bootstrap.limits.free_disk_gib
    limit = f"at least {least:g} GiB free"
    if isinstance(found, Unread) or not found:
        yield unknown("disk", view.name, found.why if isinstance(found, Unread) else "no disk was told", limit)
        return
    tight = min(found, key=lambda one: one.free_bytes)
    few = [one for one in found if 0 <= one.free_files < LEAST_FREE_FILES]
    free = tight.free_bytes / GIB
    if few:
        yield failed("disk", view.name, f"room for {few[0].free_files} files in {few[0].folder}", limit)
    else:
        yield Judged("disk", view.name, held(free >= least), f"{free:.1f} GiB free in {tight.folder}", limit, free)
    for one in found:
        if one.folder.endswith("/containerd"):
            kind = f"{one.folder} lies on {one.kind}"
            yield Judged("containerd-disk", view.name, held(one.kind not in OVERLAYS), kind)


def _fsync(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    if not view.host.controls:
        return
    found, most = view.facts.fsync, cluster.bootstrap.limits.etcd_fsync_ms
    limit = f"at most {most:g} ms"
    if isinstance(found, Unread):
        yield unknown("fsync", view.name, found.why, limit)
    else:
        said = f"99 % within {found.p99_ms:.1f} ms in {found.folder}"
        yield Judged("fsync", view.name, held(found.p99_ms <= most), said, limit, found.p99_ms)


def _memory(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found = view.facts.memory
    least = cluster.bootstrap.limits.memory_gib if view.host.controls else 0.0
    if view.pool is not None:
        wanted = view.pool.memory_per_node or (view.hardware.memory_per_node if view.hardware else "0")
        least = max(least, MEMORY_SHARE * float(amount(wanted)) / GIB)
    limit = f"at least {least:.1f} GiB"
    if isinstance(found, Unread):
        yield unknown("memory", view.name, found.why, limit)
    else:
        own = found.total_bytes / GIB
        yield Judged("memory", view.name, held(own >= least), f"{own:.1f} GiB", limit, own)


def _swap(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found = view.facts.memory
    if isinstance(found, Unread):
        yield unknown("swap", view.name, found.why)
    elif found.swap_bytes and not cluster.allows_swap:
        yield failed("swap", view.name, f"{found.swap_bytes / GIB:.1f} GiB of swap are on")
    else:
        yield passed("swap", view.name, "allowed" if found.swap_bytes else "none")


def _own_ports(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found, needed = view.facts.ports, ports_of(cluster.bootstrap, view.name)
    limit = "free: " + ", ".join(map(str, sorted(needed)))
    if isinstance(found, Unread):
        yield unknown("ports-free", view.name, found.why, limit)
        return
    taken = [one for one in found if one.protocol == "tcp" and one.port in needed and not _is_own(one)]
    nameless = [one for one in taken if not one.process]
    said = ", ".join(sorted({f"{one.process or 'somebody'} has {one.port}" for one in taken}))
    if taken and len(nameless) == len(taken):
        yield unknown("ports-free", view.name, f"{said}, and only root may know who", limit)
    else:
        yield Judged("ports-free", view.name, held(not taken), said or "free, or the cluster's own", limit)


def _is_own(port: ListeningPort) -> bool:
    return port.process.startswith(OWNERS)


def _names(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found = view.facts.names
    unread = [f"{name}: {one.why}" for name, one in found.items() if isinstance(one, Unread)]
    known = ", ".join(name for name, one in found.items() if one and not isinstance(one, Unread))
    missing = [name for name, one in found.items() if one == ()]
    resolver = view.facts.resolver
    if isinstance(resolver, Unread):
        silent, asked = (), ""
        unread.append(f"name servers: {resolver.why}")
    else:
        silent, asked = resolver.silent, ", ".join(filter(_is_asked, resolver.behind or resolver.servers))
    if silent:
        yield failed("names", view.name, f"name server {', '.join(silent)} does not answer")
    elif missing:
        yield failed("names", view.name, f"nobody knows {', '.join(missing)}")
    elif unread:
        yield unknown("names", view.name, "; ".join(unread))
    else:
        said = f"{known} resolve" if known else f"{asked} answer" if asked else "no name has to resolve"
        yield passed("names", view.name, said)


def _is_asked(server: str) -> bool:
    """Whether hosts try a name server by itself: those of IPv4 that are not their own."""
    address = address_or_none(server)
    return address is not None and not address.is_loopback


def _resolver(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found = view.facts.resolver
    if isinstance(found, Unread):
        yield unknown("resolver", view.name, found.why)
        return
    servers = found.behind or found.servers
    own = [one for one in servers if ((address := address_or_none(one)) and address.is_loopback) or one == "::1"]
    if not servers or own:
        said = f"/etc/resolv.conf points at the host itself, {', '.join(own)}" if own else "it names no server"
        yield failed("resolver", view.name, said)
    else:
        yield passed("resolver", view.name, ", ".join(servers))


def _mirror(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    for url, found in view.facts.fetched.items():
        if isinstance(found, Unread):
            yield unknown("mirror", view.name, f"{url}: {found.why}")
        elif found.why:
            yield failed("mirror", view.name, f"{url}: {found.why}")
        elif found.expected and found.sha256 != found.expected:
            other = f"{url} has the digest {found.sha256[:12]}…, not {found.expected[:12]}…"
            yield failed("mirror", view.name, other)
        elif not found.expected:
            yield passed("mirror", view.name, f"{url} came; nobody said its digest")
        else:
            yield passed("mirror", view.name, f"{url} came whole")
    registry = view.facts.registry
    if not cluster.bootstrap.mirror.registry:
        return
    if isinstance(registry, Unread):
        yield unknown("registry", view.name, registry.why)
    else:
        yield Judged("registry", view.name, held(registry in ("ok", "asks for credentials")), registry)


def _leftovers(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    standing, found = cluster.standing(view), view.facts.leftovers
    if isinstance(standing, Unread):
        yield unknown("foreign-cluster", view.name, standing.why)
    elif standing == "foreign" and not isinstance(view.facts.memberships, Unread):
        servers = sorted({f"{one.server} (by {one.file})" for one in view.facts.memberships})
        yield failed("foreign-cluster", view.name, f"it is a node of {', '.join(servers)}")
        return  # what lies there is that cluster's
    else:
        yield passed("foreign-cluster", view.name, "of this one" if standing == "ours" else "of none")
    if isinstance(found, Unread):
        yield unknown("leftovers", view.name, found.why)
    elif found and standing != "ours" and view.name not in cluster.begun and not cluster.adopted:
        parts = {
            "files": found.files,
            "processes": found.processes,
            "interfaces": found.interfaces,
            "mounts": found.mounts,
        }
        said = [f"{name} {', '.join(many[:3])}{' …' if len(many) > 3 else ''}" for name, many in parts.items() if many]
        yield failed("leftovers", view.name, "; ".join(said))
    else:
        yield passed("leftovers", view.name, "this cluster's own" if found else "none")


def _certificates(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found, least = view.facts.certificates, cluster.bootstrap.limits.certificate_days
    limit = f"at least {least} days"
    if cluster.standing(view) == "foreign":
        return
    if isinstance(found, Unread):
        yield unknown("certificates", view.name, found.why, limit)
    elif found:
        first = min(found, key=lambda one: one.days_left)
        said = f"{first.days_left:.0f} days of {first.file}"
        yield Judged("certificates", view.name, held(first.days_left >= least), said, limit, first.days_left)


def _entropy(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found, least = view.facts.entropy, cluster.bootstrap.limits.entropy_bits
    limit = f"at least {least} bits"
    if isinstance(found, Unread):
        yield unknown("entropy", view.name, found.why, limit)
    else:
        yield Judged("entropy", view.name, held(found >= least), f"{found} bits", limit, found)


def _limits(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found = view.facts.limits
    limit = f"at least {LEAST_OPEN_FILES} files, {LEAST_PROCESSES} processes"
    if isinstance(found, Unread):
        yield unknown("limits", view.name, found.why, limit)
        return
    few = [
        f"{value} {name}"
        for name, value, least in (
            ("open files", found.open_files, LEAST_OPEN_FILES),
            ("processes", found.processes, LEAST_PROCESSES),
        )
        if 0 <= value < least
    ]
    yield Judged("limits", view.name, held(not few), ", ".join(few) or "enough", limit)


def _networks(cluster: Cluster, view: HostView) -> Iterator[Judged]:
    found, networks = view.facts.routes, cluster.bootstrap.networks
    limit = f"pods {networks.pods}, services {networks.services}"
    if isinstance(found, Unread):
        yield unknown("networks", view.name, found.why, limit)
        return
    made = cluster.standing(view) == "ours" or view.name in cluster.begun
    met: list[str] = []
    for route in found:
        network = network_or_none(route.network)
        if network is None or network.prefixlen == 0:
            continue
        for name in ("pods", "services"):
            own = network_of(name, getattr(networks, name))
            if network.overlaps(own) and not (made and network.subnet_of(own)):
                met.append(f"its route to {network} over {route.interface} meets {name}")
    yield Judged("networks", view.name, held(not met), "; ".join(met) or "apart from its routes", limit)
