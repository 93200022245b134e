"""Whole healthy nodes with one thing changed, as cases."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from profiles.hardware import HardwareProfile
from tests.support.faults.cases import Case, answered, on_each
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.trees import INFINIBAND, acs_bridge, healthy
from workflows.programs.parsers.text import Reading

BOTH = ("h100", "mi300x")
EVERY = ("a100", "h100", "h200", "b200", "gb200", "mi250x", "mi300x", "mi325x", "mi355x")
FIRST = "<5>[    0.000000] Linux version 6.8.0-60-generic (buildd@lcy02)"
COMPUTE_APPS = "--query-compute-apps=pid --format=csv,noheader,nounits"
Change = Callable[[VirtualNode], None]


def tells(probe: str, *readings: Reading, unknown: str = "") -> Change:
    """A probe of ours tells this."""
    return lambda made: made.answers.update({probe: answered(readings, unknown)})


def services(text: str, code: int) -> Change:
    """What systemd says of the services that should run."""

    def change(made: VirtualNode) -> None:
        made.write("run/systemd/system/.keep", "")
        made.tool("systemctl", {"*": Said(text, code)})

    return change


def offers(count: float, ready: str) -> Change:
    """What the kubelet says that the node has."""
    return tells("kubernetes-node", Reading("allocatable_gpus", count, "count"), Reading("kubelet_ready", word=ready))


def says(lines: tuple[str, ...]) -> Change:
    """The kernel said these lines a minute ago."""

    def change(made: VirtualNode) -> None:
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        young = [f"<3>[{max(now - 60.0, 1.0):12.6f}] {line}" for line in lines]
        made.tool("dmesg", {"-r": Said("\n".join([FIRST, *young, ""]))})

    return change


def sleeps(ran_at_milliseconds: float) -> Change:
    """A process waits for a device since then."""

    def change(made: VirtualNode) -> None:
        made.write("proc/4711/stat", "4711 (ls) D 1 4711 4711 0 -1\n")
        sched = f"ls (4711, #threads: 1)\nse.exec_start      :   {ran_at_milliseconds:.6f}\n"
        made.write("proc/4711/sched", sched)

    return change


def _unloaded(made: VirtualNode) -> None:
    for name in ("initstate", "version"):
        (made.folder / "root/sys/module/amdgpu" / name).unlink()


def _no_counters(made: VirtualNode) -> None:
    for file in (made.folder / "root" / INFINIBAND).glob("*/ports/1/counters/*"):
        file.unlink()


def _no_nics(made: VirtualNode) -> None:
    (made.folder / "root" / INFINIBAND).rename(made.folder / "away")


ALSO: dict[str, Change] = {
    "": lambda _: None,
    "the_driver_is_unloaded": _unloaded,
    "a_bridge_redirects": lambda made: acs_bridge(made, on=True),
    "no_counters_of_nics": _no_counters,
    "no_nics": _no_nics,
}


@dataclass(frozen=True)
class Changed:
    """A row of the table of such nodes."""

    check: str
    expect: str
    kinds: tuple[str, ...] = ("h100",)
    changed: str = ""
    writes: dict[str, str] = field(default_factory=dict[str, str])
    """Path -> the one line that the file holds."""
    removes: str = ""
    gives: dict[str, Any] = field(default_factory=dict[str, Any])
    """In what it differs that no file says: fields of `VirtualNode`."""
    grows: dict[str, int] = field(default_factory=dict[str, int])
    """A counter of a NIC -> by how much it grows while it is looked at."""
    tells: dict[str, tuple[Reading, ...]] = field(default_factory=dict[str, tuple[Reading, ...]])
    """A probe of ours -> what it tells."""
    kernel_says: tuple[str, ...] = ()
    kernel_log: tuple[str, int] | None = None
    """What `dmesg` prints, and its exit code."""
    computes: tuple[str, int] | None = None
    """What nvidia-smi prints of processes that compute, and its exit code."""
    services: tuple[list[str], int] | None = None
    offers: dict[str, Any] = field(default_factory=dict[str, Any])
    sleeps: float | None = None
    also: str = ""
    """A word of `ALSO`."""

    def cases(self, name: str) -> list[Case]:
        """One for each kind."""

        def make(made: VirtualNode, hardware: HardwareProfile) -> None:
            healthy(made, hardware)
            self.change(made)

        return on_each(name, self.kinds, self.check, self.expect, make, self.changed)

    def change(self, made: VirtualNode) -> None:
        """Do it."""
        for path, text in self.writes.items():
            made.write(path, f"{text}\n")
        if self.removes:
            (made.folder / "root" / self.removes).unlink()
        for name, value in self.gives.items():
            setattr(made, name, value)
        if self.grows:
            made.grows = {f"{INFINIBAND}/mlx5_4/ports/1/counters/{name}": by for name, by in self.grows.items()}
        for probe, readings in self.tells.items():
            tells(probe, *readings)(made)
        self._tools(made)
        ALSO[self.also](made)

    def _tools(self, made: VirtualNode) -> None:
        if self.kernel_says:
            says(self.kernel_says)(made)
        if self.kernel_log:
            made.tool("dmesg", {"-r": Said(*self.kernel_log)})
        if self.computes:
            made.tool("nvidia-smi", {COMPUTE_APPS: Said(*self.computes), "*": Said("1\n" * 8)})
        if self.services:
            words, code = self.services
            services("".join(f"{word}\n" for word in words), code)(made)
        if self.offers:
            offers(self.offers["gpus"], self.offers["ready"])(made)
        if self.sleeps is not None:
            sleeps(self.sleeps)(made)
