"""Results of the node daemon's checks in the form that Autopilot's clients read, and as metrics.

The literal words are Autopilot's HTTP interface: its clients scan answers for FAIL or ABORT near a tag. FAIL stands for
a verdict of fail, ABORT for unknown, so that unknown never reads as healthy. A series of metrics shows the newest
result only, and an unknown figure has no series, so that no alert stays on an old one.
"""

from __future__ import annotations

import pprint
import threading
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.probes.verdicts import FAIL, PASS, UNKNOWN, worst
from workflows.programs.runtime.prometheus import FIGURE_DIGITS, Family, Labels, exposition

OK = "OK"
AWAY = "Connection to Server Failed"
CHECKS: Tuple[str, ...] = ("pciebw", "remapped", "gpupower", "gpumem", "dcgm", "ping", "pvc")
"""Checks of one node; `iperf` is between nodes and judges nothing."""
IPERF = "iperf"
TAGS: Mapping[str, str] = {
    "pciebw": "[[ PCIEBW ]]",
    "remapped": "[[ REMAPPED ROWS ]]",
    "gpupower": "[GPU POWER]",
    "gpumem": "[[ GPU-MEM ]]",
    "dcgm": "[[ DCGM ]]",
    "ping": "[PING]",
    "pvc": "[PVC Create-Delete]",
}
STATUSES: Tuple[Tuple[str, str], ...] = (
    ("PCIE", "PCIE Failed"),
    ("REMAPPED ROWS", "REMAPPED ROWS Failed"),
    ("DCGM", "DCGM Failed"),
    ("GPU POWER", "GPU POWER Failed"),
    ("PING", "PING Failed"),
    ("GPU-MEM", "GPU MEM Test Failed"),
    ("PVC", "PVC Create-Delete Test Failed"),
    ("Disconnected", AWAY),
)
"""Word of a line -> status; the first one wins."""
NOT_SUPPORTED = "check not supported"
"""Begins the line of a check that nobody knows, and is the status of a node that was asked for one."""
RULE = "-" * 37
PASSED_WORDS: Mapping[str, str] = {"gpumem": "Health Check successful", "pvc": "PVC SUCCESS"}
FAILED_WORDS: Mapping[str, str] = {"gpumem": "Health Check unsuccessful. FAIL.", "pvc": "PVC FAIL"}
DOCUMENTED = (
    "No nodes found",
    "IFACES count inconsistent",
    "Storage class not set. Cannot run",
    "Create PVC Failed",
)
"""Reasons that Autopilot's clients know; they stand beside ABORT. All others have a line of their own."""

NAMES: Mapping[str, str] = {"gpupower": "power-slowdown"}
"""Check -> value of the label `health`, where they differ."""
DEPTHS: Mapping[str, str] = {"gpumem": "device", "ping": "fabric", "pvc": "storage"}
"""Depth of a check; `smoke` where it is not named."""
MOST_SERIES = 64
"""Different paths and codes that are counted; more fall under `other`."""


@dataclass(frozen=True)
class DeviceResult:
    """What was found about one GPU, or of one address of another node."""

    identity: str
    """Index of the GPU, or the other node's name."""
    verdict: str
    value: Optional[float] = None
    """The figure in the check's unit; None where there is none."""
    lost: bool = False
    """The node has no longer got it."""


@dataclass(frozen=True)
class Result:
    """What a check found."""

    check: str
    verdict: str
    """`pass`, `fail` or `unknown`."""
    why: str = ""
    """Why it failed, or why nothing is known; "" where it passed."""
    devices: Tuple[DeviceResult, ...] = ()
    lines: Tuple[str, ...] = ()
    """Lines below the first one of its text."""
    unit: str = ""
    """Unit of the devices' figures."""
    level: int = 0
    """Of a diagnostic; 0: the check has none."""
    failing: Tuple[str, ...] = ()
    """Failed tests of a diagnostic, `pcie.3`."""
    at: float = 0.0
    """When it began, seconds since 1970."""
    seconds: float = 0.0
    kept: bool = True
    """False: nothing was tried (other work was going on), so what was known before still holds."""

    def timed(self, at: float, seconds: float) -> "Result":
        """The same with when it began and how long it took."""
        return replace(self, at=at, seconds=round(seconds, 3))


def text_of(result: Result) -> str:
    """The check's answer in Autopilot's words."""
    tag = TAGS.get(result.check, f"[[ {result.check} ]]")
    lines: List[str] = []
    if result.check == "pciebw" and result.verdict != UNKNOWN:
        lines.append(f"{tag} Briefings completed. Continue with PCIe Bandwidth evaluation.")
    if result.verdict == PASS:
        first = PASSED_WORDS.get(result.check, "SUCCESS")
    elif result.verdict == FAIL:
        first = FAILED_WORDS.get(result.check, "FAIL")
    else:
        documented = next((one for one in DOCUMENTED if result.why.startswith(one)), "")
        first = f"{documented}. ABORT" if documented else "ABORT"
    if result.check != "ping" or result.verdict == UNKNOWN:  # the last line of its own is its verdict
        lines.append(f"{tag} {first}")
    # On a line of its own: a reason may name anything, and clients take a tag beside a verdict for its check.
    if result.why and (result.verdict == UNKNOWN or result.check in ("gpumem", "dcgm", "pvc")):
        lines.append(_one_line(result.why))
    return "\n".join([*lines, *result.lines]) + "\n"


def values_line(result: Result) -> str:
    """Values of the devices in their order, as the last line of a check on GPUs has them."""
    if result.unit:
        return " ".join("?" if one.value is None else f"{one.value:.4g}" for one in result.devices)
    return " ".join("?" if one.verdict == UNKNOWN else str(int(one.verdict == FAIL)) for one in result.devices)


def _one_line(text: str) -> str:
    """Without words that a client would take for a verdict of another check."""
    return " ".join(text.split()).replace("FAIL", "Fail").replace("ABORT", "Abort")


def statuses_in(text: str) -> List[str]:
    """Statuses of a node by the text of its answer; `OK` where nothing in it says otherwise.

    Each status once, also where several lines say it.
    """
    found: Dict[str, None] = {}
    for line in text.splitlines():
        if "FAIL" in line or "ABORT" in line:
            status = next((status for word, status in STATUSES if word in line), "")
            if status:
                found[status] = None
        elif line.startswith(f"{NOT_SUPPORTED}:"):
            found[NOT_SUPPORTED] = None
    return list(found) or [OK]


@dataclass(frozen=True)
class Report:
    """What one node said of itself."""

    node: str
    results: Tuple[Result, ...]
    gpu_health: str = ""
    """PASS, WARN, EVICT, TESTING or nothing."""
    notes: Tuple[str, ...] = ()
    """Of what could not be done at all, e.g. a check that is not known."""

    @property
    def verdict(self) -> str:
        """The worst of its checks."""
        return worst([*(one.verdict for one in self.results), *([UNKNOWN] if self.notes else [])])

    @property
    def text(self) -> str:
        """Text of all checks."""
        return "".join([*(text_of(one) for one in self.results), *(f"{note}\n" for note in self.notes)])


def report_to_json(report: Report) -> Dict[str, Any]:
    """The typed answer of a node."""
    return {
        "node": report.node,
        "verdict": report.verdict,
        "gpu_health": report.gpu_health,
        "notes": list(report.notes),
        "checks": [result_to_json(one) for one in report.results],
        "text": report.text,
    }


def result_to_json(result: Result) -> Dict[str, Any]:
    """One check in the typed answer."""
    plain = asdict(result)
    del plain["kept"]
    for device in plain["devices"]:
        if not device["lost"]:
            del device["lost"]
    plain["text"] = text_of(result)
    return plain


@dataclass(frozen=True)
class NodeAnswer:
    """What became of asking one node."""

    node: str
    host: str
    url: str
    response: str
    """Its raw text."""
    statuses: Tuple[str, ...]
    why: str = ""
    """Why it gave no answer; "" where it did."""
    report: Optional[Mapping[str, Any]] = None
    """Its typed answer, where it gives one."""

    @property
    def verdict(self) -> str:
        """What it said of itself; a node that says nothing is unknown."""
        if self.why:
            return UNKNOWN
        if self.report is not None:
            said = str(self.report.get("verdict"))
            return said if said in (PASS, FAIL) else UNKNOWN
        return PASS if self.statuses == (OK,) else FAIL


def away(node: str, host: str, url: str, why: str) -> NodeAnswer:
    """A node that did not answer, with the reason."""
    response = f"Server Disconnected. ABORT\n{_one_line(why)}\n"
    return NodeAnswer(node, host, url, response, (AWAY,), why)


def node_block(answer: NodeAnswer) -> str:
    """What is shown of one asked node."""
    return (
        f"\nAutopilot Endpoint: {answer.host}\nNode: {answer.node}\nurl(s): {answer.url}\n"
        f"Response:\n{answer.response}\nNode Status: {', '.join(answer.statuses)}\n{RULE}\n\n"
    )


def summary(answers: Sequence[NodeAnswer], seconds: float) -> str:
    """What stands at the end of an answer about many nodes."""
    statuses = pprint.pformat({one.node: list(one.statuses) for one in answers})
    return f"Node Summary:\n\n{statuses}\n\nruntime: {seconds} sec\n"


class ResultStore:
    """The newest result of each check (of each level of a diagnostic), and how often each path was asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: Dict[Tuple[str, int], Result] = {}
        self._requests: Dict[Tuple[str, int], int] = {}

    def add(self, result: Result) -> None:
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

    `models` are the CPU's and the GPUs'; `requests` counts by (path, code); `now` is in Unix seconds.
    """
    checks = [
        _sample(value, health=NAMES.get(one.check, one.check), node=node, cpumodel=models[0], gpumodel=models[1],
                deviceid=device)
        for one in _worst_level(results)
        for device, value in _values(one)
    ]  # fmt: skip
    words = [_sample(1.0, node=node, depth=depth, verdict=word) for depth, word in sorted(verdicts(results).items())]
    ages = [_sample(max(0.0, now - at), node=node, check=check) for check, at in sorted(_newest(results).items())]
    answered = [_sample(count, path=path, code=str(code)) for (path, code), count in sorted(requests.items())]
    families = (
        Family("autopilot_health_checks", "gauge",
               "Result of a health check: GB/s for pciebw, else 0 good, 1 bad", checks),
        Family("primus_node_verdict", "gauge", "Verdict of the newest tests by depth: pass, fail or unknown", words),
        Family("primus_node_check_age_seconds", "gauge", "Age of the newest result of a check", ages),
        Family("primus_health_requests_total", "counter", "Answered requests", answered),
    )  # fmt: skip
    return exposition(families, FIGURE_DIGITS)


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


def _sample(value: float, **labels: str) -> Tuple[Labels, float]:
    """A series; a line feed in a name or a model is written as a space."""
    return tuple((name, text.replace("\n", " ")) for name, text in labels.items()), value
