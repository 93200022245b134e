"""Whole healthy nodes with one thing changed, as cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from profiles.hardware import HardwareProfile
from tests.support.faults.cases import (
    Case,
    Expect,
    answered,
)
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.trees import INFINIBAND, healthy
from workflows.programs.parsers.text import Reading

BOTH = ("h100", "mi300x")
EVERY = ("a100", "h100", "h200", "b200", "gb200", "mi250x", "mi300x", "mi325x", "mi355x")
SOME = ("a100", "h100", "mi250x", "mi355x")
Change = Callable[[VirtualNode], None]


def nothing(_: VirtualNode) -> None:
    """A good node."""


def node(
    name: str, check: str, expect: Expect, change: Change = nothing, kinds: Sequence[str] = ("h100",), changed: str = ""
) -> list[Case]:
    """A whole healthy node with one thing changed, on these kinds."""

    def make(made: VirtualNode, hardware: HardwareProfile) -> None:
        healthy(made, hardware)
        change(made)

    return [Case(f"{name} ({kind})", kind, check, expect, make, changed) for kind in kinds]


def writes(path: str, text: str) -> Change:
    """One file holds something else."""
    return lambda made: made.write(path, text)


def removes(path: str) -> Change:
    """One file is away."""
    return lambda made: (made.folder / "root" / path).unlink()


def gives(**fields: object) -> Change:
    """The node differs in what no file says."""

    def change(made: VirtualNode) -> None:
        for name, value in fields.items():
            setattr(made, name, value)

    return change


def tells(probe: str, *readings: Reading, unknown: str = "") -> Change:
    """A probe of ours tells this."""
    return lambda made: made.answers.update({probe: answered(readings, unknown)})


def grows(counter: str, by: int) -> Change:
    """A counter of a NIC grows while it is looked at."""
    return gives(grows={f"{INFINIBAND}/mlx5_4/ports/1/counters/{counter}": by})


def services(text: str, code: int) -> Change:
    """What systemd says of the services that should run."""

    def change(made: VirtualNode) -> None:
        made.write("run/systemd/system/.keep", "")
        made.tool("systemctl", {"*": Said(text, code)})

    return change


def offers(count: float, ready: str) -> Change:
    """What the kubelet says that the node has."""
    return tells("kubernetes-node", Reading("allocatable_gpus", count, "count"), Reading("kubelet_ready", word=ready))
