"""What becomes of checks whose tool or probe does not do its work: seven ways of not doing it.

How a tool fails does not depend on the kind of GPU: its command line, its parser and our program are the same on all.
So the programs run on four nodes, one of each vendor, one of four GPUs and one without, which together make every
check; what they told is judged by the limits of every kind of hardware.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from flows.decisions.node_tests.grading.model import NodeGrade
from flows.decisions.node_tests.judge import NodeAnswer, judge
from profiles.checks.check import Attempts, Check
from profiles.hardware import HardwareProfile
from profiles.loading.load import load_hardware
from tests.proof import everything
from tests.support.cases.tool_samples import printed
from tests.support.faults.cases import every_check, good_answer
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.trees import healthy
from workflows.node_tests.preflight import calls_of
from workflows.programs.probes.call import argv_of
from workflows.programs.probes.run import LEAST_SECONDS

NODES = {
    "h100": ("a100", "h100", "h200", "b200"),
    "gb200": ("gb200",),
    "mi300x": ("mi250x", "mi300x", "mi325x", "mi355x"),
    "cpu": ("cpu",),
}
"""A node that is made up -> the kinds of hardware by whose limits it is judged."""
AS_PROCESSES = "h100"
"""The node whose probes are processes in every run; on the others they are in `make proof`. Tools are always."""
DEADLINE_SECONDS = 1.25 * LEAST_SECONDS
"""Instead of a check's own, where everything hangs: each is waited through, and each call still begins."""
OTHERS = {
    "ping": ("ping", "iputils-20.txt"),
    "ib_write_bw": ("ib-write-bw", "6-duration-gbits.txt"),
    "ib_write_lat": ("ib-write-lat", "6-connectx.txt"),
    "iperf3": ("iperf3", "3.19-written.json"),
    "fio": ("fio", "3.28-nvme.json"),
    "ior": ("ior", "3.4-daos.txt"),
    "mdtest": ("mdtest", "3.4-daos.txt"),
}
"""Tools without a healthy fake of their own: a printed sample."""
GARBAGE = "\x00\x1b[2J\ufffd#@!~%%% 0x7ffe 17 fa\udcffil pass\n{[(<\n" * 40
STRANGER = printed("lspci", "whole-written.txt")
"""No check of a suite reads it."""

Way = Callable[[VirtualNode, HardwareProfile, tuple[Check, ...]], None]


def checks_on(hardware: HardwareProfile) -> tuple[Check, ...]:
    """All shipped checks of that hardware, whoever they span; each is made once."""
    own = (check for check in every_check() if check.applies_to(hardware))
    return tuple(
        check.model_copy(update={"attempts": Attempts(combine=check.attempts.combine)}, deep=True) for check in own
    )


def programs(checks: tuple[Check, ...]) -> set[str]:
    """Programs that their commands start."""
    return {check.command[0] for check in checks if check.command}


def all_say(said: Said) -> Way:
    """Every tool and every probe does the same."""

    def way(node: VirtualNode, _: HardwareProfile, checks: tuple[Check, ...]) -> None:
        for name in programs(checks):
            node.tool(name, {"*": said})
        node.probes = said

    return way


def missing(node: VirtualNode, _: HardwareProfile, __: tuple[Check, ...]) -> None:
    """No tool is installed; a probe that is not in the image says so."""
    node.probes = Said("probe-one: no such program\n", 2)


def cut(shorten: Callable[[str], str]) -> Way:
    """Every tool and every probe prints part of what it prints on a healthy node."""

    def way(node: VirtualNode, hardware: HardwareProfile, checks: tuple[Check, ...]) -> None:
        good = VirtualNode(node.folder / "good")
        healthy(good, hardware)
        for name, (tool, sample) in OTHERS.items():
            good.tool(name, {"*": Said(printed(tool, sample))})
        for program in programs(checks):
            calls = [one for check in checks if program in check.command[:1] for one in _arguments(check, hardware)]
            answers = {" ".join(one): Said(shorten(_printed(good, program, one))) for one in calls}
            node.tool(program, {**answers, "*": next(iter(answers.values()))})
        probes = {check.probe.name for check in checks if check.probe is not None}
        node.answers |= {name: Said(shorten(good_answer(name, hardware).text)) for name in probes}

    return way


def _arguments(check: Check, hardware: HardwareProfile) -> list[tuple[str, ...]]:
    call = calls_of((check,)).calls[0]
    places = {"gpus": str(hardware.gpus_per_node), "nic": "mlx5_0", "peer": "127.0.0.1", "path": "/nowhere"}
    return [tuple(argv_of(call, {**places, "gpu": str(index)})[1:]) for index in range(max(1, hardware.gpus_per_node))]


def _printed(good: VirtualNode, program: str, arguments: tuple[str, ...]) -> str:
    done = subprocess.run([str(good.bin / program), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def half(text: str) -> str:
    """Broken off within a line."""
    return text[: len(text) // 2].rstrip("\n")


def half_of_the_lines(text: str) -> str:
    """Broken off at the end of a line; a text of one line is broken off within it."""
    lines = text.splitlines(keepends=True)
    return "".join(lines[: len(lines) // 2]) if len(lines) > 1 else half(text)


WAYS: Mapping[str, Way] = {
    "missing": missing,
    "hangs": all_say(Said("working\n", hangs=True)),
    "crashes": all_say(Said("Segmentation fault\n", signal=signal.SIGSEGV)),
    "ends-with-an-error-and-no-word": all_say(Said("", 3)),
    "prints-garbage": all_say(Said(GARBAGE.encode("utf-8", "replace").decode())),
    "prints-another-tool-s-text": all_say(Said(STRANGER)),
    "prints-half-of-its-text": cut(half),
    "prints-half-of-its-lines": cut(half_of_the_lines),
}


def grades(way: str, name: str, folder: Path) -> dict[str, NodeGrade]:
    """What is said of a node on which everything fails in that way, by the kind of hardware it is judged as."""
    own = load_hardware(name)
    checks = checks_on(own)
    if way == "hangs":
        checks = tuple(check.model_copy(update={"deadline_seconds": DEADLINE_SECONDS}) for check in checks)
    node = VirtualNode(folder)
    if own.nics_per_node:
        for index in range(2):
            node.write(f"sys/class/infiniband/mlx5_{index}/fw_ver", "28\n")
    WAYS[way](node, own, checks)
    told = node.ask(checks, own, as_processes=everything() or name == AS_PROCESSES)
    shutil.rmtree(folder, ignore_errors=True)
    found: dict[str, NodeGrade] = {}
    for kind in map(load_hardware, NODES[name]):
        mine = tuple(check for check in checks_on(kind) if check.name in told)
        found |= judge({kind.name: mine}, {kind.name: kind}, [NodeAnswer(kind.name, kind.name, told)])
    return found
