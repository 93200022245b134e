"""What launchers say that their pods use: the newest word of each. No part of the state, and never remembered."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, cast

from workflows.programs.coordination_events import Member
from workflows.programs.coordination_orders import Key

POD = ("memory_bytes", "memory_limit_bytes", "shared_memory_bytes", "shared_memory_limit_bytes")
OF_EACH = {
    "ranks": ("memory_bytes", "cpu_cores", "open_files", "open_files_limit", "processes"),
    "nics": ("received_bytes", "sent_bytes", "errors"),
    "gpus": (
        "memory_bytes",
        "memory_limit_bytes",
        "busy_percent",
        "temperature_celsius",
        "power_watts",
        "uncorrected_errors",
    ),
}
"""Figures by what they are of."""
MOST_OF_EACH = 64
LONGEST_NAME = 64
MOST = 1e18
"""No figure is larger."""
Use = Dict[str, Any]
Labels = Tuple[Tuple[str, Any], ...]


def use_of(told: Any) -> Optional[Use]:
    """A launcher's word, what is no figure left out; None: it says nothing that counts."""
    if not isinstance(told, dict):
        return None
    body = cast("Dict[str, Any]", told)
    at = _figure(body.get("at"))
    if at is None:
        return None
    found: Use = {"at": at, **_figures(body, POD)}
    for kind, names in OF_EACH.items():
        each = body.get(kind)
        items = list(cast("Dict[str, Any]", each).items())[:MOST_OF_EACH] if isinstance(each, dict) else []
        found[kind] = {name[:LONGEST_NAME]: figures for name, one in items if (figures := _figures(one, names))}
    return found


class Uses:
    """The newest word of each launcher. It is checked when somebody asks: a thousand words a second are never read."""

    def __init__(self) -> None:
        self._newest: Dict[Key, Any] = {}

    def hear(self, key: Key, told: Any) -> None:
        """What `key` says with its heartbeat; nothing changes nothing."""
        if told is not None:
            self._newest[key] = told

    def of(self, key: Key) -> Optional[Use]:
        """None: it has said nothing that counts."""
        return use_of(self._newest.get(key))

    def told(self, members: Iterable[Member]) -> Dict[str, Any]:
        """As JSON, for those of whom something is known."""
        pods = [
            {"role": one.role, "pod_index": one.pod_index, "pod": one.pod, "node": one.node, **use}
            for one in members
            if (use := self.of(one.key)) is not None
        ]
        return {"pods": pods}


def samples(uses: Uses, members: Iterable[Member]) -> Dict[str, List[Tuple[Labels, float]]]:
    """Figures by their name, each with whose it is.

    Args:
        uses: what was heard.
        members: that are told one by one.
    """
    found: Dict[str, List[Tuple[Labels, float]]] = {}
    for member in members:
        use = uses.of(member.key) or {}
        place: Labels = (("pod_index", member.pod_index), ("node", member.node))
        _add(found, "pod", use, POD, place)
        for kind, label in (("ranks", "rank"), ("nics", "device"), ("gpus", "gpu")):
            each: Mapping[str, Use] = use.get(kind, {})
            for name, figures in each.items():
                _add(found, label, figures, OF_EACH[kind], (*place, (label, name)))
    return found


def _add(
    found: Dict[str, List[Tuple[Labels, float]]], kind: str, figures: Use, names: Tuple[str, ...], labels: Labels
) -> None:
    for name in names:
        if name in figures:
            found.setdefault(f"{kind}_{name}", []).append((labels, figures[name]))


def _figures(told: Any, names: Tuple[str, ...]) -> Use:
    if not isinstance(told, dict):
        return {}
    body = cast("Dict[str, Any]", told)
    checked = ((name, _figure(body.get(name))) for name in names)
    return {name: value for name, value in checked if value is not None}


def _figure(told: Any) -> Optional[float]:
    is_number = isinstance(told, (int, float)) and not isinstance(told, bool)
    return told if is_number and 0 <= told < MOST else None
