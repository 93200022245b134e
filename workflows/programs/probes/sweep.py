"""A short look at a node without any complaint: read-only, without GPUs, beside whatever runs there.

It checks the kernel's lines since the last look, whether the vendor's tool answers, whether the shared storage is
mounted, answers and may be written, and whether the clock is right. Each check is pass, fail or unknown; one that
crashes or gives no answer is unknown, and unknown is neither healthy nor a fault. It always exits with 0.

    python3 programs.pyz sweep --storage=/data --gpu-vendor=nvidia --expected-gpus=8 --out-dir=/tmp/out
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.probes import gpu_count, kernel_log
from workflows.programs.probes.verdicts import FAIL, PASS, UNKNOWN, Check, at_least, examine
from workflows.programs.runtime import flags
from workflows.programs.runtime.bounded import run_program
from workflows.programs.runtime.files import write_outputs
from workflows.wire import to_json

KERNEL_LINES = 12
"""Lines of the kernel in a report: many nodes share one workflow's status, which may hold 1 MiB."""
_STAT = "import os, sys; os.statvfs(sys.argv[1])"


@dataclass(frozen=True)
class Options(flags.Flags):
    """What is looked at."""

    storage: Tuple[str, ...] = ()
    """Mount paths of the shared storage; the first one, where runs write, must not be read-only."""
    gpu_vendor: str = ""
    """`amd`, `nvidia`; empty: the node has no GPUs that a tool could tell of."""
    expected_gpus: int = 0
    kernel_since: float = 0.0
    """Unix seconds: older lines of the kernel's log are left out."""
    asked_at: float = 0.0
    """Unix seconds of whoever asked, when he did; 0: the clock is not looked at."""
    within_seconds: float = 600.0
    """The pod starts within so long after that."""
    clock_skew_seconds: float = 10.0
    timeout_seconds: float = 15.0
    """Longest time of one check."""
    stand_in: str = ""
    """Folder whose `<node>.log` and `<node>.mounts` stand for the kernel's log and /proc/self/mountinfo."""
    out_dir: str = ""
    """Folder for the output parameters; empty: standard output only."""


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    path: str
    kind: str
    read_only: bool
    """The file system itself, not only this view of it."""


def parse(argv: Sequence[str]) -> Options:
    """The options in `argv`.

    Raises:
        UsageError: an unknown flag or a value out of range.
    """
    options = flags.from_argv(Options, argv)
    if options.gpu_vendor not in ("", *gpu_count.VENDORS):
        raise flags.UsageError(f"--gpu-vendor: {options.gpu_vendor!r} is not one of {', '.join(gpu_count.VENDORS)}")
    return options


def judge_clock(now: float, asked_at: float, within_seconds: float, limit_seconds: float) -> Check:
    """This node's clock against that of whoever asked: it may be later by as long as a pod takes to start."""
    if not asked_at:
        return Check("clock", UNKNOWN, None, limit_seconds, "s", "the time of the request was not given")
    behind, ahead = asked_at - now, now - asked_at - within_seconds
    off = round(max(behind, ahead, 0.0), 3)
    side = "behind" if behind > 0 else "ahead of" if ahead > 0 else "not off"
    evidence = f"this node says {now:.0f}, the request was made at {asked_at:.0f} (Unix seconds): {side} by {off} s"
    return Check("clock", PASS if off <= limit_seconds else FAIL, off, limit_seconds, "s", evidence)


def mounts(text: str) -> Dict[str, Mount]:
    """Mounts by their path, as /proc/self/mountinfo tells them; of several on one path the last is seen."""
    found: Dict[str, Mount] = {}
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, rest = left.split(), right.split()
        if separator and len(fields) >= 6 and len(rest) >= 3:
            path = fields[4].encode().decode("unicode_escape", "replace") if "\\" in fields[4] else fields[4]
            found[path] = Mount(path, rest[0], "ro" in rest[2].split(","))
    return found


def mount_of(path: str, known: Mapping[str, Mount]) -> Optional[Mount]:
    """The mount that a path lies on."""
    above = [mount for at, mount in known.items() if path == at or path.startswith(at.rstrip("/") + "/")]
    return max(above, key=lambda mount: len(mount.path), default=None)


def check_mounts(options: Options, node: str) -> Check:
    """Each storage is there, answers in time, and the first one may be written."""
    if not options.storage:
        return Check("mounts", UNKNOWN, None, None, "", "no storage was named")
    source = os.path.join(options.stand_in, f"{node}.mounts") if options.stand_in else "/proc/self/mountinfo"
    known = mounts(_text(source))
    for number, path in enumerate(options.storage):
        lies_on = mount_of(path, known)
        if number == 0 and lies_on is not None and lies_on.read_only:
            return Check("mounts", FAIL, None, None, "", f"{path} lies on {lies_on.kind}, which is mounted read-only")
        limit = options.timeout_seconds * 0.6
        # One that hangs in the kernel is not waited for: it ends when its storage does.
        ended = run_program([sys.executable, "-I", "-S", "-c", _STAT, path], limit, grace_seconds=0.0)
        if ended.code is None:
            return Check("mounts", FAIL, None, limit, "s", f"{path} does not answer")
        if ended.code != 0:
            return Check(
                "mounts", FAIL, None, None, "", f"{path}: {ended.errors.strip().splitlines()[-1:] or ended.code}"
            )
    return Check("mounts", PASS, len(options.storage), None, "mounts", f"{', '.join(options.storage)} answer")


def check_tools(options: Options) -> Check:
    """The vendor's tool answers, and tells of as many GPUs as there should be."""
    if not options.gpu_vendor:
        return Check("tools", PASS, None, None, "", "no GPUs are expected")
    limit = options.timeout_seconds * 0.8
    listing = gpu_count.ask_tool(options.gpu_vendor, limit)
    if listing is None:
        wanted = " or ".join(argv[0] for argv, _ in gpu_count.TOOLS[options.gpu_vendor])
        return Check("tools", UNKNOWN, None, options.expected_gpus, "GPUs", f"this image has no {wanted}")
    name, ended, count = listing.command, listing.ended, listing.gpus
    if ended.code is None:
        return Check("tools", FAIL, None, limit, "s", f"{name} does not answer")
    if not count:
        # The pod may have no way to the devices: that is no fault of theirs.
        why = f"{name}: {ended.last_words or ended.code}"
        return Check("tools", UNKNOWN, count, options.expected_gpus, "GPUs", why)
    return at_least("tools", count, options.expected_gpus, "GPUs", f"{name} lists {count}")


def check_kernel(options: Options, node: str) -> Check:
    """What the kernel said; judged by rules elsewhere."""
    found = kernel_log.check(node, options.kernel_since, options.stand_in, options.timeout_seconds * 0.8)
    return Check("kernel", found.verdict, found.measured, None, "lines", found.evidence, found.lines[-KERNEL_LINES:])


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except FileNotFoundError:
        return ""


@flags.program("sweep")
def main(argv: List[str]) -> int:
    """Look and report; 0 whatever was found, 2 for wrong flags, 3 where the report could not be written."""
    options = parse(argv)
    node = os.environ.get("PRIMUS_NODE") or os.uname().nodename
    now = time.time()
    checks: Dict[str, Callable[[], Check]] = {
        "kernel": lambda: check_kernel(options, node),
        "tools": lambda: check_tools(options),
        "mounts": lambda: check_mounts(options, node),
        "clock": lambda: judge_clock(now, options.asked_at, options.within_seconds, options.clock_skew_seconds),
    }
    report = examine(node, checks, options.timeout_seconds, now)
    print(to_json(report), flush=True)
    return write_outputs("sweep", options.out_dir, {"report": to_json(report), "verdict": report.verdict})
