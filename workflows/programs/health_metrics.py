"""What is known of the node as metrics: Autopilot's gauge, and verdicts, ages and requests of ours.

Pure apart from its lock; standard library only, Python 3.9. A series speaks of the newest result only: it turns when
the cause is gone, and a figure that is not known has no series, so that no alert stands on an old one.
"""

from __future__ import annotations

import threading
from typing import Dict, Iterable, List, Mapping, Tuple

from workflows.programs.health_words import CHECKS, FAIL, PASS, UNKNOWN, Result, worst

NAMES: Mapping[str, str] = {"gpupower": "power-slowdown"}
"""Check -> value of the label `health`, where they differ."""
DEPTHS: Mapping[str, str] = {"gpumem": "device", "ping": "fabric", "pvc": "storage"}
"""Depth of a check; `smoke` where it is not named."""
MOST_SERIES = 64
"""Different paths and codes that are counted; more fall under `other`."""


class Known:
    """The newest result of each check (of each level of a diagnostic), and how often each path was asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: Dict[Tuple[str, int], Result] = {}
        self._requests: Dict[Tuple[str, int], int] = {}

    def learn(self, result: Result) -> None:
        """Keep it; what was not tried changes nothing, an older one neither."""
        key = (result.check, result.level)
        with self._lock:
            before = self._results.get(key)
            if not result.kept or (before is not None and before.at > result.at):
                return
            self._results[key] = result
            if result.verdict == PASS:  # a deeper level runs what shallower ones run
                for other in [one for one in self._results if one[0] == key[0] and one[1] < key[1]]:
                    if self._results[other].at <= result.at and self._results[other].verdict != PASS:
                        del self._results[other]

    def results(self) -> Tuple[Result, ...]:
        """Newest results."""
        with self._lock:
            return tuple(self._results[key] for key in sorted(self._results))

    def count(self, path: str, code: int) -> None:
        """A request was answered."""
        with self._lock:
            key = (path, code)
            if key not in self._requests and len(self._requests) >= MOST_SERIES:
                key = ("other", code)
            self._requests[key] = self._requests.get(key, 0) + 1

    def requests(self) -> Dict[Tuple[str, int], int]:
        """(path, code) -> how often."""
        with self._lock:
            return dict(self._requests)


def depth_of(result: Result) -> str:
    """Depth of the test that a result is from."""
    return "device" if result.level > 1 else DEPTHS.get(result.check, "smoke")


def verdicts(results: Iterable[Result]) -> Dict[str, str]:
    """Verdict by depth: the worst of its checks."""
    words: Dict[str, List[str]] = {}
    for one in results:
        words.setdefault(depth_of(one), []).append(one.verdict)
    return {depth: worst(found) for depth, found in words.items()}


def metrics_text(
    node: str, models: Tuple[str, str], results: Tuple[Result, ...], requests: Mapping[Tuple[str, int], int], now: float
) -> str:
    """The page of metrics.

    Args:
        node: name of the node.
        models: CPU's and GPU's.
        results: newest results.
        requests: (path, code) -> how often.
        now: seconds since 1970.
    """
    lines = ["# HELP autopilot_health_checks Result of a health check: GB/s for pciebw, else 0 good, 1 bad"]
    lines.append("# TYPE autopilot_health_checks gauge")
    for result in _worst_level(results):
        lines += [_series(result, node, models, device, value) for device, value in _values(result)]
    lines.append("# HELP primus_node_verdict Verdict of the newest tests by depth: pass, fail or unknown")
    lines.append("# TYPE primus_node_verdict gauge")
    for depth, verdict in sorted(verdicts(results).items()):
        lines.append(_line("primus_node_verdict", {"node": node, "depth": depth, "verdict": verdict}, 1.0))
    lines.append("# HELP primus_node_check_age_seconds Age of the newest result of a check")
    lines.append("# TYPE primus_node_check_age_seconds gauge")
    for check, at in sorted(_newest(results).items()):
        lines.append(_line("primus_node_check_age_seconds", {"node": node, "check": check}, max(0.0, now - at)))
    lines.append("# HELP primus_health_requests_total Answered requests")
    lines.append("# TYPE primus_health_requests_total counter")
    for (path, code), count in sorted(requests.items()):
        lines.append(_line("primus_health_requests_total", {"path": path, "code": str(code)}, float(count)))
    return "\n".join(lines) + "\n"


def _worst_level(results: Tuple[Result, ...]) -> List[Result]:
    """One result of each check: of a diagnostic's levels one that failed, else the shallowest one."""
    chosen: Dict[str, Result] = {}
    for one in results:
        before = chosen.get(one.check)
        if before is None or (one.verdict == FAIL and before.verdict != FAIL):
            chosen[one.check] = one
    return list(chosen.values())


def _newest(results: Tuple[Result, ...]) -> Dict[str, float]:
    """When each check ended last; levels of a diagnostic beyond the first one are checks of their own."""
    names = {one: f"{one.check}-{one.level}" if one.level > 1 else one.check for one in results}
    return {names[one]: one.at + one.seconds for one in results}


def _values(result: Result) -> List[Tuple[str, float]]:
    """(device, value) of the gauge."""
    if result.check not in CHECKS:
        return []
    if result.unit:
        return [(one.identity, one.value) for one in result.devices if one.value is not None]
    if result.devices:
        known = [one for one in result.devices if one.verdict != UNKNOWN]
        return [(one.identity, float(one.verdict == FAIL)) for one in known]
    return [("", float(result.verdict == FAIL))] if result.verdict in (PASS, FAIL) else []


def _series(result: Result, node: str, models: Tuple[str, str], device: str, value: float) -> str:
    health = NAMES.get(result.check, result.check)
    labels = {"health": health, "node": node, "cpumodel": models[0], "gpumodel": models[1], "deviceid": device}
    return _line("autopilot_health_checks", labels, value)


def _line(name: str, labels: Mapping[str, str], value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{shown}}} {value:.6g}" if value != int(value) else f"{name}{{{shown}}} {int(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
