"""Checks that compare hosts: what must be the same in a pool, what no two may share, and clocks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from statistics import median

from flows.decisions.bootstrap.prechecks.findings import Judged, failed, hosts_said, passed, unknown
from flows.decisions.bootstrap.prechecks.view import Cluster, HostView, address_or_none
from workflows.model.host_facts import Unread
from workflows.model.host_sight import ClockBounds, PeerReach

Value = Callable[[HostView], str | Unread]


def grouped(cluster: Cluster) -> Iterator[Judged]:
    """All checks that need more than one host."""
    groups: defaultdict[str, list[HostView]] = defaultdict(list)
    for view in cluster.views.values():
        groups[view.group].append(view)
    for group, views in groups.items():
        yield from equal("system", group, views, _system)
        if cluster.bootstrap.limits.kernels_may_differ:
            yield from (_told("kernel", view, view.facts.kernel) for view in views)
        else:
            yield from equal("kernel", group, views, lambda view: view.facts.kernel)
    views = list(cluster.views.values())
    yield from unique("machine-id", views, lambda view: _one(view.facts.machine_id))
    yield from unique("mac", views, _macs)
    yield from unique("hostname", views, lambda view: _one(view.facts.hostname))
    yield from _addresses(cluster)
    yield from _clocks(cluster)


def _told(check: str, view: HostView, found: str | Unread) -> Judged:
    return unknown(check, view.name, found.why) if isinstance(found, Unread) else passed(check, view.name, found)


def _system(view: HostView) -> str | Unread:
    system, arch = view.facts.system, view.facts.arch
    if isinstance(system, Unread):
        return system
    return arch if isinstance(arch, Unread) else f"{system.id} {system.version} {arch}"


def equal(check: str, group: str, views: Sequence[HostView], value: Value) -> Iterator[Judged]:
    """What must be the same on all of them: whoever differs from most fails; where there is no most, all do."""
    found = {view.name: value(view) for view in views}
    counts = Counter(one for one in found.values() if not isinstance(one, Unread))
    ranked = counts.most_common(2)
    most = ranked[0][0] if ranked and (len(ranked) == 1 or ranked[0][1] > ranked[1][1]) else None
    limit = f"the same in {group}"
    for name, one in found.items():
        if isinstance(one, Unread):
            yield unknown(check, name, one.why, limit)
        elif one == most:
            yield passed(check, name, one, limit)
        elif most is None:
            yield failed(check, name, one, limit)
        else:
            yield failed(check, name, f"{one}, where {counts[most]} have {most}", limit)


def unique(
    check: str, views: Sequence[HostView], values: Callable[[HostView], tuple[str, ...] | Unread]
) -> Iterator[Judged]:
    """What no two hosts may share."""
    found = {view.name: values(view) for view in views}
    owners: defaultdict[str, list[str]] = defaultdict(list)
    for name, many in found.items():
        for one in () if isinstance(many, Unread) else many:
            owners[one.lower()].append(name)
    for name, many in found.items():
        if isinstance(many, Unread):
            yield unknown(check, name, many.why)
            continue
        shared = [one for one in many if len(owners[one.lower()]) > 1]
        if shared:
            yield failed(check, name, f"{shared[0]} is that of {hosts_said(owners[shared[0].lower()])}")
        else:
            yield passed(check, name, "its own")


def _one(found: str | Unread) -> tuple[str, ...] | Unread:
    return found if isinstance(found, Unread) else (found,)


def _macs(view: HostView) -> tuple[str, ...] | Unread:
    """Of its devices, and of the interface that carries its own address."""
    links, addresses = view.facts.interfaces, view.facts.addresses
    if isinstance(links, Unread):
        return links
    if isinstance(addresses, Unread):
        return addresses
    own = {one.interface for one in addresses if one.address == view.host.ip}
    kept = {one.mac for one in links if (one.physical or one.name in own) and one.mac.strip("0:")}
    return tuple(sorted(kept)) or Unread("it tells no MAC of a device or of the interface of its own address")


def _addresses(cluster: Cluster) -> Iterator[Judged]:
    """Whether a host has its own address, and nobody else has it or answers there."""
    having: dict[str, list[str]] = {}
    for view in cluster.views.values():
        for one in () if isinstance(view.facts.addresses, Unread) else view.facts.addresses:
            having.setdefault(one.address, []).append(view.name)
    owner = {host.ip: name for name, host in cluster.bootstrap.hosts.items()}
    answered = _answered_by_others(cluster.views)
    for view in cluster.views.values():
        if isinstance(view.facts.addresses, Unread):
            yield unknown("address", view.name, view.facts.addresses.why)
            continue
        fault = _wrong_address(view, [one.address for one in view.facts.addresses], having, owner)
        fault = fault or _virtual(cluster, view)
        if not fault and view.name in answered:
            fault = f"{view.host.ip} is answered by {answered[view.name]}"
        yield failed("address", view.name, fault) if fault else passed("address", view.name, "its own")


def _virtual(cluster: Cluster, view: HostView) -> str:
    """Whether a host that is no node yet has the virtual address of the API."""
    endpoint, found = cluster.bootstrap.endpoint, view.facts.addresses
    if endpoint is None or endpoint.kind != "virtual" or isinstance(found, Unread):
        return ""
    has = any(one.address == endpoint.address for one in found)
    new = cluster.standing(view) != "ours" and view.name not in cluster.begun
    return f"it has {endpoint.address}, the API's virtual address, already" if has and new else ""


def _wrong_address(view: HostView, own: list[str], having: Mapping[str, list[str]], owner: Mapping[str, str]) -> str:
    """What is wrong with the addresses of a host; "": nothing. An address -> hosts that have it, whose it should be."""
    wanted = view.host.ip
    if wanted not in own:
        return f"it does not have {wanted} but {', '.join(one for one in own if not _is_local(one)) or 'none'}"
    if len(having[wanted]) > 1:
        return f"{wanted} is that of {hosts_said(having[wanted])}"
    taken = [one for one in own if owner.get(one, view.name) != view.name]
    return f"it has {taken[0]}, which is {owner[taken[0]]}'s" if taken else ""


def _is_local(text: str) -> bool:
    address = address_or_none(text)
    return address is None or address.is_loopback


def _answered_by_others(views: Mapping[str, HostView]) -> dict[str, str]:
    """Host -> who answers at its address in its place."""
    found: dict[str, str] = {}
    for view in views.values():
        reach: Mapping[str, PeerReach] = {} if isinstance(view.sight.reach, Unread) else view.sight.reach
        for peer, way in reach.items():
            for word in way.ports.values():
                if word.startswith("answered by "):
                    found.setdefault(peer, word.removeprefix("answered by "))
    return found


def _clocks(cluster: Cluster) -> Iterator[Judged]:
    """Whether all clocks lie in one window as wide as the limit, which is laid where most of them are."""
    width = cluster.bootstrap.limits.clock_offset_seconds
    limit = f"within {width:g} s of each other"
    told = {name: view.sight.clock for name, view in cluster.views.items()}
    known = {name: one for name, one in told.items() if isinstance(one, ClockBounds)}
    begin = _window([_middle(one) for one in known.values()], width)
    centre = median([_middle(one) for one in known.values()]) if known else 0.0
    for name, bounds in told.items():
        if isinstance(bounds, Unread):
            yield unknown("clock", name, bounds.why, limit)
            continue
        offset = _middle(bounds) - centre
        said = f"{offset:+.1f} s beside the others"
        if bounds.latest_seconds < begin or bounds.earliest_seconds > begin + width:
            yield failed("clock", name, said, limit, abs(offset))
        elif begin <= bounds.earliest_seconds and bounds.latest_seconds <= begin + width:
            yield passed("clock", name, "they agree", limit)
        else:
            wide = bounds.latest_seconds - bounds.earliest_seconds
            yield unknown("clock", name, f"{said}, but its answer took {wide:.1f} s: nobody knows nearer", limit)


def _middle(bounds: ClockBounds) -> float:
    return (bounds.earliest_seconds + bounds.latest_seconds) / 2


def _window(middles: Iterable[float], width: float) -> float:
    """Where the window begins that holds most of them; of equals the one that is nearest to our own clock."""
    ordered = sorted(middles)
    best = (0, 0.0, -width / 2)
    last = 0
    for first, middle in enumerate(ordered):
        while last < len(ordered) and ordered[last] <= middle + width:
            last += 1
        centre = (middle + ordered[last - 1]) / 2
        best = max(best, (last - first, -abs(centre), centre - width / 2), key=lambda one: one[:2])
    return best[2]
