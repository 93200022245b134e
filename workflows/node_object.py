"""What Kubernetes itself says of a node: what its kubelet offers there, and whether that kubelet is ready.

Pure: the object is read by whoever may read nodes, which the pod of a preflight may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from workflows.programs.readings import Parsed, Reading

READY = "Ready"
STATES = ("True", "False")
"""Words for which a kubelet stands; `Unknown` is the control plane's word for a kubelet that is silent."""
PARTS_SHOWN = 4


def told_by_node_object(manifest: Mapping[str, Any], gpu_resource: str, nic_resource: str = "") -> Parsed:
    """Readings of the probe `kubernetes-node`.

    Args:
        manifest: the Node as the API gives it.
        gpu_resource: extended resource that counts GPUs (`resource_name` of the hardware); "": it has none to offer.
        nic_resource: extended resource that counts NICs (`nic_resource_name`); "": nobody counts them.

    Returns:
        `allocatable_gpus` and `allocatable_nics` (count, of those resources that are named) and `kubelet_ready` (the
        word `True` or `False`). A silent kubelet leaves that word out: what it offers may be gone, so all is unknown.
    """
    why: list[str] = []
    found: list[Reading] = []
    allocatable = _part(manifest, "status", "allocatable")
    for quantity, resource in (("allocatable_gpus", gpu_resource), ("allocatable_nics", nic_resource)):
        if resource:
            count, line = _count(allocatable, resource)
            if count is None:
                why.append(line)
            else:
                found.append(Reading(quantity, count, "count", line=line))
    state, line = _ready(manifest)
    if state in STATES:
        found.append(Reading("kubelet_ready", word=state, line=line))
    else:
        why.append(line)
    return Parsed(tuple(found), "; ".join(why))


def _part(manifest: Mapping[str, Any], *path: str) -> Mapping[str, Any] | None:
    """The map at that path; None where there is none."""
    found: Any = manifest
    for name in path:
        found = cast("Mapping[str, Any]", found).get(name) if isinstance(found, Mapping) else None
    return cast("Mapping[str, Any]", found) if isinstance(found, Mapping) else None


def _count(allocatable: Mapping[str, Any] | None, resource: str) -> tuple[float | None, str]:
    """How many devices are offered, and what says so; without a count the reason."""
    if allocatable is None:
        return None, "the Node has no status.allocatable: its kubelet has not told yet what it offers"
    text = str(allocatable.get(resource, "")).strip()
    if resource not in allocatable:
        parts = [name for name in sorted(allocatable) if name.partition("/")[0] == resource.partition("/")[0]]
        instead = f"; it offers {', '.join(parts[:PARTS_SHOWN])}" if parts else ""
        return 0.0, f"the kubelet offers no {resource}: its device plug-in never told of any{instead}"
    if not text.isascii() or not text.isdigit():
        return None, f"status.allocatable[{resource}] reads {text[:40]!r}, which is no whole number"
    return float(int(text)), f"status.allocatable[{resource}] = {text}"


def _ready(manifest: Mapping[str, Any]) -> tuple[str, str]:
    """The word of the condition Ready, and what says so."""
    listed = (_part(manifest, "status") or {}).get("conditions")
    conditions = cast("list[Any]", listed if isinstance(listed, list) else [])
    maps = [cast("Mapping[str, Any]", one) for one in conditions if isinstance(one, Mapping)]
    ready = next((one for one in maps if one.get("type") == READY), None)
    if ready is None:
        return "", "the Node has no condition Ready: its kubelet has not told yet how it is"
    told = {name: str(value) for name, value in ready.items()}
    state, reason = told.get("status", ""), told.get("reason", "no reason")
    if state not in STATES:
        since = told.get("lastHeartbeatTime") or told.get("lastTransitionTime") or "a time that is not told"
        return state, f"the kubelet has been silent since {since} ({reason})"
    return state, f"Ready is {state}: {reason}"
