"""One case of the fault matrix: a made-up node, the check that must speak, and what must come of it.

It goes the way of a preflight: suite, calls, program, what it told, judgement, and what is done. A figure that varies
and is bad once is measured again, as the flow does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from flows.decisions.node_tests.actions import NodeFault, actions_of
from flows.decisions.node_tests.grading.comparisons import history_of
from flows.decisions.node_tests.grading.grade import records_of
from flows.decisions.node_tests.grading.model import NodeGrade
from flows.decisions.node_tests.judge import NodeAnswer, again, judge, rule_of
from profiles.checks.check import Check
from profiles.hardware import HardwareProfile
from profiles.loading.load import load_hardware, load_suite
from profiles.vocabulary import FaultClass, NodeAction, VerdictWord
from tests.support.faults.node import Said, VirtualNode
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.call import dump_parsed

A, F, V = NodeAction, FaultClass, VerdictWord
Make = Callable[[VirtualNode, HardwareProfile], None]
NOW = 1_790_000_000.0
BESIDE = "disk-space"
"""Of warnings alone nothing is known of a node: this good check stands beside them."""


@dataclass(frozen=True)
class Expect:
    """What must come of a case."""

    verdict: VerdictWord
    """Of the check."""
    node: VerdictWord
    """Of the node by the checks of that tool."""
    fault_class: FaultClass = F.NONE
    """What the node has; `none` where nothing is done."""
    severity: Literal["fatal", "warning"] = "fatal"
    """Of the check."""
    action: NodeAction | None = None
    certain: bool = False


def fails(fault_class: FaultClass, action: NodeAction, certain: bool = True) -> Expect:
    """The node fails."""
    return Expect(V.FAIL, V.FAIL, fault_class, "fatal", action, certain)


PASSES, WARNED_OF = Expect(V.PASS, V.PASS), Expect(V.FAIL, V.PASS, F.NONE, "warning")
PASSES_QUIETLY = Expect(V.PASS, V.PASS, F.NONE, "warning")
UNKNOWN = Expect(V.UNKNOWN, V.UNKNOWN, F.UNKNOWN)
UNKNOWN_WARNING = Expect(V.UNKNOWN, V.PASS, F.NONE, "warning")
GPU = fails(F.GPU_HARDWARE, A.QUARANTINE)
SLOW_GPU = fails(F.GPU_HARDWARE, A.QUARANTINE, certain=False)
LINK = fails(F.FABRIC, A.QUARANTINE, certain=False)
EXPECTED = {
    "passes": PASSES,
    "passes_quietly": PASSES_QUIETLY,
    "warned_of": WARNED_OF,
    "unknown": UNKNOWN,
    "unknown_warning": UNKNOWN_WARNING,
    "gpu": GPU,
    "slow_gpu": SLOW_GPU,
    "driver": fails(F.GPU_DRIVER, A.DRAIN),
    "slow_driver": fails(F.GPU_DRIVER, A.DRAIN, certain=False),
    "link": LINK,
    "heat": fails(F.THERMAL_POWER, A.REPAIR, certain=False),
    "setting": fails(F.CONFIG, A.REPAIR),
    "wrong_setting": fails(F.CONFIG, A.REPAIR, certain=False),
    "disk": fails(F.STORAGE, A.REPAIR, certain=False),
    "names": fails(F.RENDEZVOUS, A.REPAIR, certain=False),
    "locked_up": fails(F.NODE_LOST, A.QUARANTINE),
    "stuck": fails(F.HANG, A.DRAIN),
    "offer": fails(F.SCHEDULING, A.REPAIR, certain=False),
    "program": fails(F.PROCESS_KILLED, A.REPAIR, certain=False),
    "held": fails(F.GPU_OOM, A.REPAIR, certain=False),
    "wrong_values": fails(F.NUMERIC, A.QUARANTINE),
    "slow": fails(F.STRAGGLER, A.VALIDATE, certain=False),
}
"""By the words of tables."""


@dataclass(frozen=True)
class Case:
    """One thing that a node may have."""

    name: str
    """A sentence."""
    hardware: str
    check: str
    """The one that must speak; all checks of the same call are made."""
    expect: Expect
    make: Make
    """Makes the node."""
    changed: str = ""
    """What differs from what a healthy one prints; "": nothing does."""
    peers: Make | None = None
    """Makes four other nodes; None: it is judged by itself."""
    calls: tuple[str, ...] = field(default=())
    """Further checks whose calls are made."""

    @property
    def tool(self) -> str:
        """Who looks: a program or a probe of ours."""
        own = check_of(self.check)
        return own.probe.name if own.probe else own.command[0]


def on_each(name: str, kinds: Sequence[str], check: str, expect: str, make: Make, changed: str = "") -> list[Case]:
    """The same on several kinds of hardware; `expect` is a word of `EXPECTED`."""
    return [Case(f"{name} ({kind})", kind, check, EXPECTED[expect], make, changed) for kind in kinds]


@dataclass(frozen=True)
class Seen:
    """What came of a case."""

    grade: NodeGrade
    fault: NodeFault | None
    told: tuple[ParsedOutput, ...]
    """By the check's call, each attempt."""

    def reason(self, check: str) -> dict[str, object]:
        """What is said of a check."""
        return next(one for one in self.grade.reasons if one["check"] == check)


@cache
def every_check() -> tuple[Check, ...]:
    """All shipped checks, those that images of ours leave out as well."""
    own = load_suite("full").checks
    names = {check.name for check in own}
    return (*own, *(check for check in load_suite("any-machine").checks if check.name not in names))


def check_of(name: str) -> Check:
    """A shipped check."""
    return next(check for check in every_check() if check.name == name)


def _call(check: Check) -> tuple[object, ...]:
    own = (check.probe.name, *sorted(check.probe.arguments.items())) if check.probe else ()
    return (own, check.command, check.parser)


def together(case: Case, hardware: HardwareProfile) -> tuple[Check, ...]:
    """The checks that a case makes: those that share its calls."""
    wanted = {_call(check_of(name)) for name in (case.check, *case.calls)}
    found = tuple(one for one in every_check() if _call(one) in wanted and one.applies_to(hardware))
    lone = all(one.severity == "warning" for one in found)
    return (*found, check_of(BESIDE)) if lone else found


def run(case: Case, folder: Path, as_processes: bool = False) -> Seen:
    """Make the node, test it as a preflight does, and judge."""
    hardware = load_hardware(case.hardware)
    checks = together(case, hardware)
    node = VirtualNode(folder / "node-0")
    case.make(node, hardware)
    answers = [NodeAnswer("node-0", hardware.name, node.ask(checks, hardware, as_processes=as_processes))]
    if case.peers is not None:
        other = VirtualNode(folder / "other")
        case.peers(other, hardware)
        told = other.ask(checks, hardware, as_processes=as_processes)
        answers += [NodeAnswer(f"node-{number}", hardware.name, told) for number in range(1, 5)]
    rules = [rule_of(check, hardware) for check in checks]
    found = judge({hardware.name: checks}, {hardware.name: hardware}, answers)
    if again(found) or any("repeat" in one for one in found["node-0"].reasons):  # of a warning the next night tells
        records = [one for grade in found.values() for one in records_of(grade, rules, "lab", NOW)]
        past = history_of(records, rules, [item.node for item in answers], NOW + 60.0)
        answers[0] = NodeAnswer("node-0", hardware.name, node.ask(checks, hardware, as_processes=as_processes))
        found = judge({hardware.name: checks}, {hardware.name: hardware}, answers, past)
    grade = found["node-0"]
    return Seen(grade, actions_of(grade, checks), tuple(answers[0].parsed[case.check]))


def answered(readings: Sequence[Reading], unknown: str = "") -> Said:
    """What a probe of ours prints when it has looked."""
    return Said(dump_parsed(ParsedOutput(tuple(readings), unknown)) + "\n")


def good_answer(probe: str, hardware: HardwareProfile, worse: dict[tuple[str, str], float] | None = None) -> Said:
    """What a probe that computes on GPUs tells of a healthy node: a figure a GPU, well within every limit.

    Args:
        probe: its name.
        hardware: of the node.
        worse: (quantity, subject) -> another figure.
    """
    readings: dict[tuple[str, str], Reading] = {}
    for check in every_check():
        if check.probe is None or check.probe.name != probe or not check.applies_to(hardware):
            continue
        bounds = check.bounds_on(hardware)
        figures = [bound.figure for bound in bounds if bound.figure is not None]
        word = next((bound.words[0] for bound in bounds if bound.words), "")
        one_for_all = check.unit in ("count", "")
        for subject in [""] if one_for_all else [f"gpu {index}" for index in range(hardware.gpus_per_node)]:
            value = None if word else _good(check, figures)
            value = (worse or {}).get((check.quantity, subject), value)
            readings[check.quantity, subject] = Reading(check.quantity, value, check.unit, subject, word)
    return answered(list(readings.values()))


def _good(check: Check, figures: Sequence[float]) -> float:
    if check.direction == "higher_is_better":
        return max(figures, default=100.0) * 1.02
    return figures[0] if figures and check.direction == "equal" else 0.0
