"""Checks of GPUs, NICs and firmware: what the pool says, and alike within it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flows.decisions.bootstrap.prechecks.findings import Judged, failed, held, passed, unknown
from flows.decisions.bootstrap.prechecks.groups import equal
from flows.decisions.bootstrap.prechecks.view import Cluster, HostView
from workflows.model.host_facts import HostNic, Unread

SHARE_OF_RATE = 0.99
"""The kernel rounds rates."""


def devices(cluster: Cluster) -> Iterator[Judged]:
    """All checks of devices; of hosts that do not work only their firmware is compared."""
    groups: dict[str, list[HostView]] = {}
    for view in cluster.views.values():
        groups.setdefault(view.group, []).append(view)
        if view.hardware is not None:
            yield _gpus(view, view.hardware.gpus_per_node, view.hardware.vendor)
            yield _nics(view, view.hardware.nics_per_node, view.hardware.nic_gbit_per_second)
    for group, views in groups.items():
        with_gpus = [view for view in views if view.hardware is not None and view.hardware.gpus_per_node]
        yield from _drivers(group, with_gpus)
        yield from equal("firmware", group, views, _firmware)


def _gpus(view: HostView, wanted: int, vendor: str) -> Judged:
    found = view.facts.gpus
    limit = f"{wanted} of {vendor}" if wanted else "none"
    if isinstance(found, Unread):
        return unknown("gpus", view.name, found.why, limit)
    own = [one for one in found if one.vendor == vendor]
    others = sorted({one.vendor for one in found} - {vendor})
    said = f"{len(own)} of {vendor}" if wanted else "none"
    if others:
        said = f"{len(found) - len(own)} of {', '.join(others)}" + (f", {said}" if wanted else "")
    return Judged("gpus", view.name, held(len(own) == wanted and not others), said, limit, len(own))


def _nics(view: HostView, wanted: int, rate: int) -> Judged:
    found = view.facts.nics
    limit = f"{wanted} up" + (f" at {rate} Gb/s" if rate else "") if wanted else ""
    if isinstance(found, Unread):
        return unknown("nics", view.name, found.why, limit)
    if not wanted:
        return passed("nics", view.name, "none is expected", limit)
    dull = [one for one in found if not _is_fit(one, rate)]
    if len(found) - len(dull) >= wanted:
        return passed("nics", view.name, f"{len(found) - len(dull)} up", limit)
    said = ", ".join(f"{one.name} {f'at {one.gbit_per_second:g} Gb/s' if one.active else 'down'}" for one in dull[:4])
    return failed(
        "nics", view.name, f"{len(found) - len(dull)} of {len(found)} up" + (f": {said}" if said else ""), limit
    )


def _is_fit(nic: HostNic, rate: int) -> bool:
    return nic.active and (not rate or nic.gbit_per_second >= SHARE_OF_RATE * rate)


def _drivers(group: str, views: Sequence[HostView]) -> Iterator[Judged]:
    """A GPU without a driver fails by itself; versions are compared among the others."""
    bound: list[HostView] = []
    for view in views:
        found = view.facts.gpus
        bare = [] if isinstance(found, Unread) else [one.place for one in found if not one.driver]
        if bare:
            said = f"no driver serves {len(bare)} GPUs ({bare[0]}{', …' if len(bare) > 1 else ''})"
            yield failed("gpu-driver", view.name, said, f"the same in {group}")
        elif isinstance(found, Unread) or found:
            bound.append(view)
    yield from equal("gpu-driver", group, bound, _driver)


def _driver(view: HostView) -> str | Unread:
    found = view.facts.gpus
    if isinstance(found, Unread):
        return found
    return ", ".join(sorted({f"{one.driver} {one.driver_version}".strip() for one in found}))


def _firmware(view: HostView) -> str | Unread:
    gpus, nics, machine = view.facts.gpus, view.facts.nics, view.facts.firmware
    if isinstance(gpus, Unread):
        return gpus
    if isinstance(nics, Unread):
        return nics
    if isinstance(machine, Unread):
        return machine
    parts = {
        "GPU": sorted({one.firmware for one in gpus if one.firmware}),
        "NIC": sorted({one.firmware for one in nics if one.firmware}),
        "BIOS": [machine["bios"]] if machine.get("bios") else [],
    }
    return ", ".join(f"{name} {' and '.join(many)}" for name, many in parts.items() if many) or "none is told"
