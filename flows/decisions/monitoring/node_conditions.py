"""What a node's conditions say against it: a fault, perhaps one, or nothing; with the table of conditions. Pure.

A fault is a condition of the table whose bad status is fresh and has lasted long enough. What is silent, stale, absent
or too young is unknown, and nothing is done about it. Pressure of memory, disk or process ids is missing on purpose: it
says what runs on a node, not what is wrong with it, and the kubelet keeps pods away by itself. `NetworkUnavailable`
belongs to the network plug-in, `NTPProblem` to the clock.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Literal

from flows.decisions.diagnosis.rules.nvidia import xid
from profiles.cluster import NodeCondition
from profiles.vocabulary import FaultClass, VerdictWord
from workflows import labels
from workflows.model.manifest import Condition
from workflows.model.nodes import Node, NodeFinding

F = FaultClass

STALE_SECONDS = 900.0
"""Kubelets and problem detectors repeat what they say every 5 minutes (`nodeStatusReportFrequency`, and
`--k8s-exporter-heartbeat-period` of node-problem-detector): three beats missed, and nobody stands for it any more."""
FLAPS = 60.0
"""A link or a runtime that comes back within a minute is nobody's fault yet."""
RESTARTS = 300.0
"""Time for a kubelet or a runtime to be restarted by whoever upgrades it; node repair of clouds waits 10 to 30 min,
but it deletes the node, while a quarantine only keeps new pods away."""
LASTING = 600.0

PROGRAM_XIDS = frozenset({13, 31, 43, 45, 63, 94})
"""Xids that the catalog answers with a restart of the program, or with counting: the node stays."""
_XID = re.compile(xid(r"(\d{1,3})"))


@dataclass(frozen=True)
class FaultRule:
    """What one type of condition means."""

    type: str
    """Shell pattern on the condition's type."""
    fault_class: FaultClass
    source: str
    """Who writes it."""
    status: Literal["True", "False"] = "True"
    """The status that means a fault."""
    stands_seconds: float = 0.0
    """How long it must have stood; 0: it does not flap."""
    beats: bool = True
    """Its writer repeats it; False: it is written when it changes, so age alone does not make it doubtful."""
    coming_up: bool = False
    """It is bad on every node that starts: nothing is said about a young one."""
    names_xids: bool = False
    """Its words name Xid numbers, and not every number is the node's fault."""


NPD = "node-problem-detector, config/"
AKS = "AKS node problem detector, GPU health"
EKS = "EKS node monitoring agent"
SENTINEL = "NVSentinel, fatal checks"
AMD = "AMD GPU operator, auto-remediation"

TABLE: tuple[FaultRule, ...] = (
    FaultRule("Ready", F.NODE_LOST, "kubelet: it says itself that it is not ready", "False", LASTING, coming_up=True),
    FaultRule("KernelDeadlock", F.NODE_LOST, NPD + "kernel-monitor.json"),
    FaultRule("CperHardwareErrorFatal", F.NODE_LOST, NPD + "kernel-monitor.json"),
    FaultRule("XfsShutdown", F.STORAGE, NPD + "kernel-monitor.json"),
    FaultRule("ReadonlyFilesystem", F.STORAGE, NPD + "readonly-monitor.json"),
    FaultRule("CorruptDockerOverlay2", F.STORAGE, NPD + "docker-monitor.json", stands_seconds=FLAPS),
    FaultRule("FilesystemCorruptionProblem", F.STORAGE, AKS),
    FaultRule("KubeletUnhealthy", F.NODE_LOST, NPD + "health-checker-kubelet.json", stands_seconds=RESTARTS),
    FaultRule("ContainerRuntimeUnhealthy", F.NODE_LOST, NPD + "health-checker-*.json", stands_seconds=RESTARTS),
    FaultRule("Frequent*Restart", F.NODE_LOST, NPD + "systemd-monitor-counter.json", stands_seconds=RESTARTS),
    FaultRule("FrequentUnregisterNetDevice", F.NODE_LOST, NPD + "kernel-monitor-counter.json", stands_seconds=RESTARTS),
    FaultRule("KubeletProblem", F.NODE_LOST, AKS, stands_seconds=RESTARTS),
    FaultRule("ContainerRuntimeProblem", F.NODE_LOST, AKS, stands_seconds=RESTARTS),
    FaultRule("GPUMissing", F.GPU_HARDWARE, AKS, stands_seconds=FLAPS),
    FaultRule("XIDErrors", F.GPU_HARDWARE, AKS, stands_seconds=FLAPS, names_xids=True),
    FaultRule("NVLinkStatusInactive", F.GPU_HARDWARE, AKS, stands_seconds=FLAPS),
    FaultRule("IBLinkFlapping", F.FABRIC, AKS, stands_seconds=RESTARTS),
    FaultRule("GPUClockThrottling", F.THERMAL_POWER, AKS, stands_seconds=LASTING),
    FaultRule("UnhealthyNvidiaDevicePlugin", F.GPU_DRIVER, AKS, stands_seconds=RESTARTS),
    FaultRule("AcceleratedHardwareReady", F.GPU_HARDWARE, EKS, "False", FLAPS, coming_up=True, names_xids=True),
    FaultRule("KernelReady", F.NODE_LOST, EKS, "False", RESTARTS, coming_up=True),
    FaultRule("StorageReady", F.STORAGE, EKS, "False", RESTARTS, coming_up=True),
    FaultRule("NetworkingReady", F.FABRIC, EKS, "False", RESTARTS, coming_up=True),
    FaultRule("ContainerRuntimeReady", F.NODE_LOST, EKS, "False", RESTARTS, coming_up=True),
    FaultRule("GpuThermalWatch", F.THERMAL_POWER, SENTINEL, stands_seconds=LASTING, beats=False),
    FaultRule("GpuPowerWatch", F.THERMAL_POWER, SENTINEL, stands_seconds=LASTING, beats=False),
    FaultRule("GpuNv[Ss]witch*Watch", F.FABRIC, SENTINEL, stands_seconds=FLAPS, beats=False),
    FaultRule("GpuDriverWatch", F.GPU_DRIVER, SENTINEL, stands_seconds=FLAPS, beats=False),
    FaultRule("Gpu*Watch", F.GPU_HARDWARE, SENTINEL, beats=False, names_xids=True),
    FaultRule("GpuXid*", F.GPU_HARDWARE, "problem detectors with a rule for Xids", names_xids=True),
    FaultRule("SysLogsGPUFallenOff", F.GPU_HARDWARE, SENTINEL, beats=False),
    FaultRule("SysLogsXIDError", F.GPU_HARDWARE, SENTINEL, beats=False, names_xids=True),
    FaultRule("SysLogsSXIDError", F.FABRIC, SENTINEL, beats=False),
    FaultRule("SysLogsNICDriverError", F.FABRIC, SENTINEL, stands_seconds=FLAPS, beats=False),
    FaultRule("AMDGPUXgmi", F.GPU_HARDWARE, AMD),
    FaultRule("AMDGPU*", F.GPU_HARDWARE, AMD),
    FaultRule("NebiusGPUError", F.GPU_HARDWARE, "Nebius node health"),
    FaultRule("NebiusBootDiskIOError", F.STORAGE, "Nebius node health"),
)
"""The first entry whose pattern fits a type counts."""


@dataclass(frozen=True)
class FaultRules:
    """The shipped table behind a site's own entries."""

    own: tuple[FaultRule, ...] = ()

    @cached_property
    def _known(self) -> dict[str, FaultRule | None]:
        """Types that were asked for: a cluster has a few dozen, and each is asked for on every node."""
        return {}

    def of(self, condition: str) -> FaultRule | None:
        """The entry for a type of condition; None where it says nothing about the node."""
        if condition not in self._known:
            found = (rule for rule in (*self.own, *TABLE) if fnmatchcase(condition, rule.type))
            rule = next(found, None)
            self._known[condition] = None if rule is None or rule.fault_class is F.NONE else rule
        return self._known[condition]


def rules_of(conditions: Iterable[NodeCondition]) -> FaultRules:
    """The table for a cluster: its profile's entries come first, and `none` takes a shipped one away."""
    return FaultRules(
        tuple(
            FaultRule(item.type, item.fault_class, "cluster profile", item.status, item.stands_seconds)
            for item in conditions
        )
    )


def only_programs_xids(text: str) -> bool:
    """Whether the text names Xids and each of them is one that programs cause."""
    numbers = {int(number) for number in _XID.findall(text)}
    return bool(numbers) and numbers <= PROGRAM_XIDS


YOUNG_SECONDS = 600.0
"""A node that joined a shorter time ago may still be starting its network, its drivers, its plug-ins."""
OURS = (labels.QUARANTINE_TAINT, labels.HOLD_TAINT)
NOTHING: Mapping[str, float] = {}


def out_of_service(node: Node) -> str:
    """What keeps the node out of service already; "": nothing, and only then is anything done about it."""
    if node.leaving:
        return "it is being deleted"
    ours = next((taint.key for taint in node.taints if taint.key in OURS), "")
    if ours:
        return f"it carries our taint {ours}"
    return "cordoned by somebody" if node.cordoned else ""


def find(node: Node, rules: FaultRules, now: float, turned: Mapping[str, float] = NOTHING) -> NodeFinding | None:
    """The worst that the node's conditions say against it; None where they say nothing.

    `turned`: condition type -> when we ourselves saw it change; the node's clock may be wrong.
    """
    found = [_judge(node, item, rule, now, turned) for item, rule in _matching_conditions(node, rules)]
    if all(item.type != "Ready" for item in node.conditions):
        found.append(_unknown(node, "Ready", FaultClass.NODE_LOST, "it reports no Ready condition"))
    return worst(found)


def worst(found: Iterable[NodeFinding]) -> NodeFinding | None:
    """Faults before suppositions, certain ones first, then the older; ties by name. None where there is none."""
    return min(found, key=_order, default=None)


def _order(item: NodeFinding) -> tuple[bool, bool, float, str]:
    return item.verdict is not VerdictWord.FAIL, not item.certain, item.since or 0.0, item.condition


def _matching_conditions(node: Node, rules: FaultRules) -> list[tuple[Condition, FaultRule]]:
    """Conditions that the table knows and that are not as they should be."""
    known = ((item, rules.of(item.type)) for item in node.conditions)
    good = {"True": "False", "False": "True"}
    return [(item, rule) for item, rule in known if rule is not None and item.status != good[rule.status]]


def _judge(node: Node, item: Condition, rule: FaultRule, now: float, turned: Mapping[str, float]) -> NodeFinding:
    state = f"{item.type} is {item.status}" + (f" ({item.reason})" if item.reason else "")
    if item.status != rule.status:
        return _unknown(node, item.type, rule.fault_class, state, item.at)
    if doubt := _doubt(node, item, rule, now):
        return _unknown(node, item.type, rule.fault_class, f"{state}: {doubt}", item.at)
    begun = max((at for at in (item.at, turned.get(item.type)) if at is not None), default=None)
    if rule.stands_seconds and begun is None:
        return _unknown(node, item.type, rule.fault_class, f"{state}: the time of the change is missing")
    due_at = (begun or 0.0) + rule.stands_seconds
    if rule.stands_seconds and now < due_at:
        return _unknown(
            node,
            item.type,
            rule.fault_class,
            f"{state}: for {max(0.0, now - (begun or 0.0)):.0f} s; it counts after {rule.stands_seconds:g} s",
            item.at,
            due_at,
        )
    why = f"{state}: {item.message}" if item.message else state
    return NodeFinding(
        node.name, node.pool, item.type, VerdictWord.FAIL, rule.fault_class, why, item.at, not rule.stands_seconds
    )


def _doubt(node: Node, item: Condition, rule: FaultRule, now: float) -> str:
    """Why a bad status says nothing now; "" where it does."""
    if rule.coming_up and node.created_at is not None and now - node.created_at < YOUNG_SECONDS:
        return "the node has just joined"
    heard_at = item.heard_at if item.heard_at is not None else item.at
    if rule.beats and heard_at is None:
        return "the condition has no time"
    if rule.beats and heard_at is not None and now - heard_at > STALE_SECONDS:
        return f"not confirmed for {now - heard_at:.0f} s"
    if rule.names_xids and only_programs_xids(f"{item.reason} {item.message}"):
        return "it names only Xids that programs cause"
    return ""


def _unknown(
    node: Node,
    condition: str,
    fault_class: FaultClass,
    why: str,
    since: float | None = None,
    due_at: float | None = None,
) -> NodeFinding:
    return NodeFinding(
        node.name, node.pool, condition, VerdictWord.UNKNOWN, fault_class, why, since, certain=False, due_at=due_at
    )
