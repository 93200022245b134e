"""The short gate on one node before an attempt: does it answer, count its GPUs, store, keep time and have room?

Seconds, no rendezvous. Each check is pass, fail or unknown; one that crashes or gives no answer is unknown, and unknown
is not healthy. The exit code is 0 only for pass, 1 for fail and unknown, 3 where the report could not be written. After
a failure the same program examines suspects: it then also passes on the kernel's lines, and always exits with 0.

    python3 programs.pyz gate --run-dir=/data/runs/x --expected-gpus=8 --gpu-vendor=amd --out-dir=/tmp/out
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import Callable, List, Mapping

from workflows.programs.checkpoints.listing import storage_is_there
from workflows.programs.probes import gpu_count, kernel_log, measure, verdicts
from workflows.programs.probes.node import read
from workflows.programs.probes.verdicts import FAIL, PASS, UNKNOWN, Check, at_least, at_most
from workflows.programs.runtime import flags
from workflows.programs.runtime.files import write_outputs
from workflows.wire import GateReport, to_json

PROBE_BYTES = 1 << 20
FIRST_SANE_YEAR_SECONDS = 1735689600.0
"""2025-01-01: a clock before it was never set."""
LAST_SANE_YEAR_SECONDS = 4102444800.0
"""2100-01-01."""


@dataclass(frozen=True)
class Options(flags.Flags):
    """What this node must show."""

    run_dir: str
    """The run's folder on shared storage."""
    expected_gpus: int = 0
    gpu_vendor: str = ""
    """`amd`, `nvidia`; empty: count whatever is there."""
    fake_gpus: bool = False
    """Count what `PRIMUS_FAKE_GPUS` says: the embedded cluster's nodes have no devices."""
    minimum_memory_bytes: int = 268435456
    minimum_disk_bytes: int = 1073741824
    """Free in the run's folder."""
    clock_skew_seconds: float = 10.0
    """Most that this node's clock and the storage's may differ."""
    timeout_seconds: float = 20.0
    """Longest time of one check; silent for longer is unknown."""
    out_dir: str = ""
    """Folder for the output parameter `report`; empty: standard output only."""
    examination: bool = False
    """Look at a suspect after a failure: at the kernel's log too, and end well whatever is found."""
    kernel_since: float = 0.0
    """Unix seconds: older lines of the kernel's log are left out."""
    kernel_folder: str = ""
    """Folder whose `<node>.log` stands for the kernel's log: embedded nodes have no kernel of their own."""


def parse(argv: List[str]) -> Options:
    """The options in `argv`.

    Raises:
        UsageError: an unknown flag or a value out of range.
    """
    options = flags.from_argv(Options, argv)
    if options.gpu_vendor not in ("", *gpu_count.VENDORS):
        raise flags.UsageError(f"--gpu-vendor: {options.gpu_vendor!r} is not one of {', '.join(gpu_count.VENDORS)}")
    if options.timeout_seconds <= 0:
        raise flags.UsageError(f"--timeout-seconds: must be positive, got {options.timeout_seconds}")
    return options


def judge_clock(now: float, storage_now: float, limit_seconds: float) -> Check:
    """The node's clock against a plausible year and the storage's clock."""
    skew = round(abs(now - storage_now), 3)
    evidence = f"this node says {now:.3f}, the storage {storage_now:.3f} (Unix seconds)"
    if not FIRST_SANE_YEAR_SECONDS <= now < LAST_SANE_YEAR_SECONDS:
        return Check("clock", FAIL, skew, limit_seconds, "s", f"{evidence}: no plausible date")
    return at_most("clock", skew, limit_seconds, "s", evidence)


def available_memory(meminfo: str, cgroup_limit: str, cgroup_used: str) -> int:
    """Bytes this pod may still use: the least of the machine's and the control group's.

    Raises:
        ValueError: /proc/meminfo does not say.
    """
    for text in meminfo.splitlines():
        if text.startswith("MemAvailable:"):
            machine = int(text.split()[1]) * 1024
            break
    else:
        raise ValueError("/proc/meminfo names no MemAvailable")
    if cgroup_limit.strip().isdigit() and cgroup_used.strip().isdigit():
        return min(machine, int(cgroup_limit) - int(cgroup_used))
    return machine


def _check_node(options: Options) -> Check:
    """A process can still be started here."""
    began = time.monotonic()
    child = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", "pass"], os.environ)
    _, status = os.waitpid(child, 0)
    seconds = round(time.monotonic() - began, 3)
    if status != 0:
        return Check("node", FAIL, seconds, options.timeout_seconds, "s", f"a new process ended with status {status}")
    return at_most("node", seconds, options.timeout_seconds, "s", f"started a process on {os.uname().nodename}")


def _check_gpus(options: Options) -> Check:
    if options.expected_gpus == 0:
        return Check("gpus", PASS, None, 0, "GPUs", "none is expected")
    found = gpu_count.count(options.gpu_vendor, options.fake_gpus, os.environ, options.timeout_seconds)
    if found is None:
        return Check("gpus", UNKNOWN, None, options.expected_gpus, "GPUs", "PRIMUS_FAKE_GPUS says no number")
    return at_least("gpus", found.gpus, options.expected_gpus, "GPUs", found.evidence)


def _check_storage(options: Options) -> Check:
    """Write, sync, read back from the storage, delete."""
    if not storage_is_there(options.run_dir):
        return Check("storage", FAIL, None, None, "s", f"the storage of {options.run_dir} is not mounted")
    began = time.monotonic()
    measured = measure.storage({"path": options.run_dir, "bytes": str(PROBE_BYTES)})
    seconds = round(time.monotonic() - began, 3)
    if any(one.value for one in measured.readings if one.quantity == "storage_wrong_bytes"):
        evidence = "read back something else than was written"
        return Check("storage", FAIL, seconds, options.timeout_seconds, "s", evidence)
    evidence = f"wrote, synced, read and deleted {PROBE_BYTES} bytes in {options.run_dir}"
    return at_most("storage", seconds, options.timeout_seconds, "s", evidence)


def _check_clock(options: Options) -> Check:
    if not storage_is_there(options.run_dir):
        return Check("clock", UNKNOWN, None, options.clock_skew_seconds, "s", "there is no storage to compare with")
    _, now, storage_now = measure.storage_times(options.run_dir)
    return judge_clock(now, storage_now, options.clock_skew_seconds)


def _check_memory(options: Options) -> Check:
    limit, used = read("sys/fs/cgroup/memory.max") or "", read("sys/fs/cgroup/memory.current") or ""
    free = available_memory(read("proc/meminfo") or "", limit, used)
    return at_least("memory", free, options.minimum_memory_bytes, "bytes", "MemAvailable and the pod's own limit")


def _check_disk(options: Options) -> Check:
    if not storage_is_there(options.run_dir):
        return Check("disk", UNKNOWN, None, options.minimum_disk_bytes, "bytes", "there is no storage to measure")
    os.makedirs(options.run_dir, exist_ok=True)
    found = os.statvfs(options.run_dir)
    free = found.f_bavail * found.f_frsize
    return at_least("disk", free, options.minimum_disk_bytes, "bytes", f"free in {options.run_dir}")


CHECKS: Mapping[str, Callable[[Options], Check]] = {
    "node": _check_node,
    "gpus": _check_gpus,
    "storage": _check_storage,
    "clock": _check_clock,
    "memory": _check_memory,
    "disk": _check_disk,
}
"""Everything the gate looks at, side by side."""


def checks_of(options: Options, node: str) -> Mapping[str, Callable[[Options], Check]]:
    """What is looked at on this node."""
    if not options.examination:
        return CHECKS

    def kernel(asked: Options) -> Check:
        return kernel_log.check(node, asked.kernel_since, asked.kernel_folder, asked.timeout_seconds)

    return {**CHECKS, "kernel": kernel}


def examine(
    options: Options, node: str, checks: Mapping[str, Callable[[Options], Check]] = CHECKS, now: float = 0.0
) -> GateReport:
    """All checks with these options, side by side."""
    bound = {name: partial(check, options) for name, check in checks.items()}
    return verdicts.examine(node, bound, options.timeout_seconds, now)


@flags.program("gate")
def main(argv: List[str]) -> int:
    """Look at this node and report; the exit code of a gate is 0 only for pass, so that nothing is started past it."""
    options = parse(argv)
    node = os.environ.get("PRIMUS_NODE") or os.uname().nodename
    report = examine(options, node, checks_of(options, node), now=time.time())
    print(to_json(report), flush=True)
    code = write_outputs("gate", options.out_dir, {"report": to_json(report), "verdict": report.verdict})
    return code or (0 if options.examination or report.verdict == PASS else 1)
