"""Checks of ways between hosts: ports and packet sizes. Of a way that fails the host is blamed to which most lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from flows.decisions.bootstrap.prechecks.findings import Judged, failed, hosts_said, passed, unknown
from flows.decisions.bootstrap.prechecks.view import Cluster, HostView
from workflows.model.host_facts import Unread
from workflows.model.host_sight import PeerReach

Way = tuple[str, str]
"""Source and target."""
ANSWERED_BY = "answered by "
"""Another host has the address: that is a matter of addresses, not of ports."""


def pairs(cluster: Cluster, astray: Collection[str] = ()) -> Iterator[Judged]:
    """Ports and packet sizes between all hosts that were looked at, but for those whose addresses are wrong.

    Where ways should have been tried, and none was, nobody knows of them.
    """
    views = {name: view for name, view in cluster.views.items() if name not in astray}
    tried, mtu = cluster.sight.pairs, cluster.bootstrap.networks.mtu
    limit = f"{mtu} bytes" if mtu else "the interfaces' own"
    if tried is False or len(cluster.bootstrap.hosts) < 2:
        return
    if isinstance(tried, Unread) or len(views) < 2:
        why = tried.why if isinstance(tried, Unread) else "nobody tried: there was no other host to try"
        yield from (unknown("ports", name, why) for name in views)
        yield from (unknown("mtu", name, why, limit) for name in views)
        return
    ways = {
        (name, peer): way
        for name, view in views.items()
        if not isinstance(view.sight.reach, Unread)
        for peer, way in view.sight.reach.items()
        if peer in views
    }
    yield from _judged(views, "ports", "", {way: _shut(told) for way, told in ways.items()})
    yield from _judged(views, "mtu", limit, {way: _cut(told) for way, told in ways.items()})


def _shut(way: PeerReach) -> str:
    """What is wrong with a way's ports; "": nothing."""
    shut = [f"{port} {word}" for port, word in sorted(way.ports.items()) if not _is_open(word)]
    return ", ".join(shut)


def _is_open(word: str) -> bool:
    return word == "open" or word.startswith(ANSWERED_BY)


def _cut(way: PeerReach) -> str:
    if not way.wanted_mtu:
        return "nobody tried packets"
    if way.mtu >= way.wanted_mtu:
        return ""
    return f"{way.mtu} of {way.wanted_mtu} bytes arrive whole" if way.mtu else "no packet arrives"


def _judged(views: Mapping[str, HostView], check: str, limit: str, faults: Mapping[Way, str]) -> Iterator[Judged]:
    blamed = blame({way for way, fault in faults.items() if fault})
    able = [name for name, view in views.items() if not isinstance(view.sight.reach, Unread)]
    for name, view in views.items():
        if isinstance(view.sight.reach, Unread):
            yield unknown(check, name, view.sight.reach.why, limit)
        elif name in blamed:
            yield failed(check, name, _said(faults, blamed[name], name), limit)
        elif missing := [peer for peer in able if peer != name and (name, peer) not in faults]:
            yield unknown(check, name, f"nobody tried the way to {hosts_said(missing)}", limit)
        else:
            yield passed(check, name, "every way there and back" if check == "ports" else "whole", limit)


def _said(faults: Mapping[Way, str], ways: list[Way], host: str) -> str:
    """The commonest fault, and between whom."""
    fault = Counter(faults[way] for way in ways).most_common(1)[0][0]
    there = sorted(source for source, target in ways if target == host and faults[source, target] == fault)
    back = sorted(target for source, target in ways if source == host and faults[source, target] == fault)
    parts = [f"from {hosts_said(there)}" if there else "", f"to {hosts_said(back)}" if back else ""]
    return f"{fault} {' and '.join(part for part in parts if part)}"


def blame(ways: set[Way]) -> dict[str, list[Way]]:
    """Host -> the failing ways that lead to or from it, so that few hosts explain them all.

    The host with most of them is taken first; of two that explain the same, both are.
    """
    left: set[Way] = set(ways)
    found: dict[str, list[Way]] = {}
    while left:
        counts = Counter(host for way in left for host in way)
        most = max(counts.values())
        worst = sorted(host for host, count in counts.items() if count == most)
        for host in worst:
            found[host] = sorted(way for way in left if host in way)
        left = {way for way in left if not set(way) & set(worst)}
    return found
