"""What this node's kernel said of late: lines that are fatal, lock-ups, and links that went down, each counted.

Standard library only, Python 3.9. The table is a short one of what no node may train with; what any other line means is
decided by the rules of the diagnosis, and a test holds this table against them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from typing import Dict, List, Mapping, Sequence, Tuple

from workflows.programs.gate_kernel import DRIFT_SECONDS, Said, UnreadableError, spoken
from workflows.programs.measure import ArgumentError
from workflows.programs.readings import EVIDENCE_CHARACTERS, Parsed, Reading

HOUR_SECONDS = 3600.0
DMESG_SECONDS = 8.0
FROM_BOOT_SECONDS = 60.0
"""A buffer whose oldest line is younger than that since boot has lost nothing: a kernel speaks in its first second."""
SHOWN = 3

XIDS = "46|48|5[678]|6[2-5]|68|69|7[34]|79|8[01]|92|95|109|110|119|120|136|140|143|15[568]|17[12]"
"""Numbers that Azure's NHC fails within two hours, and those that NVIDIA's catalog answers with a reset or a reboot."""
FATAL = (
    rf"\bXid \([^)]{{1,40}}\): (?:{XIDS})(?![0-9])",
    r"\bSXid \([^)]{1,40}\): (?:[0-9]{5}, (?:Fatal|Severity 1)|(?:12020|22003|22011|230(?:0[0-9]|1[0-7]))\b)",
    r"NVRM: .{0,80}(?:fallen off the bus|RmInitAdapter failed)",
    r"amdgpu.{0,80}\b[1-9][0-9]* (?:new )?uncorrectable hardware errors? .{0,20}detected",
    r"amdgpu.{0,80}uncorrectable hardware error ?\(",
    r"amdgpu.{0,80}(?:RAS poison consumption, fall ?back to gpu reset|poison is consumed)",
    r"amdgpu.{0,80}RAS records:[0-9]+ exceed threshold",
    r"amdgpu.{0,120}(?:memory|link|cp) training failed",
    r"amdgpu.{0,60}(?:GPU reset end with ret = -|GPU Recovery Failed|ASIC reset failed)",
    r"amdgpu.{0,60}(?:device lost from bus|GPU has been removed)",
    r"\[Hardware Error\]: .{0,40}(?:severity: (?:fatal|recoverable)|type: fatal)",
    r"\[Hardware Error\]: CPU ?[0-9]+: Machine Check Exception",
    r"EDAC .{0,60}\b[1-9][0-9]* UE |Uncorrected hardware memory error",
)
LOCKUPS = (
    r"BUG: soft lockup - CPU#[0-9]+ stuck for|hard LOCKUP",
    r"rcu_(?:sched|preempt) (?:self-)?detected (?:expedited )?stall",
    r"task \S{1,40}:[0-9]+ blocked for more than [0-9]+ seconds",
    r"Kernel panic - not syncing|BUG: unable to handle|kernel BUG at |Oops: [0-9]{4} \[#[0-9]",
)
_FATAL, _LOCKUP = re.compile("|".join(FATAL)), re.compile("|".join(LOCKUPS))
_LINK_LOSS = re.compile(
    r"([\w.-]{2,40}):? (?:Port:? ?[0-9]{1,3} )?(?:NIC |Copper )?[Ll]ink (?:is )?(?:DOWN|[Dd]own)\b(?!ing)|"
    r"([\w.-]{2,40}): [Ll]ost carrier"
)
"""The port's name stands right before it, in the words of mlx5, bnxt, ionic, ice, ixgbe and of network services."""


def kernel_log(arguments: Mapping[str, str]) -> Parsed:
    """Counts of the last `hours` (2): `kernel_fatal_lines`, `kernel_lockups`, and of each port `kernel_link_losses`.

    A log that may not be read is unknown, and so is one that does not reach back so far and shows nothing.

    Raises:
        ArgumentError: `hours` is no number above zero.
    """
    hours = _hours(arguments)
    try:
        source, said = spoken("", "", DMESG_SECONDS)
    except UnreadableError as error:
        return Parsed(unknown=f"the kernel's log may not be read here ({error}): set read_kernel_log for the cluster")
    if not said:
        return Parsed(unknown=f"{source} is empty: a kernel says something when it boots")
    booted_at = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    since = time.time() - hours * HOUR_SECONDS
    return Parsed(tuple(counted(said, booted_at, since)), _gap(said, booted_at, since, hours))


def counted(said: Sequence[Said], booted_at: float, since: float) -> List[Reading]:
    """The readings of lines that are younger than `since`, in Unix seconds; stamps count from `booted_at`."""
    young = [line.text for line in said if booted_at + line.since_boot >= since - DRIFT_SECONDS]
    found = [
        _count("kernel_fatal_lines", [text for text in young if _FATAL.search(text)]),
        _count("kernel_lockups", [text for text in young if _LOCKUP.search(text)]),
    ]
    losses = _losses(young)
    for port, count in sorted(Counter(port for port, _ in losses).items()):
        line = next(text for own, text in reversed(losses) if own == port)
        found.append(Reading("kernel_link_losses", float(count), "count", port, line=_cut(line)))
    if not losses:
        found.append(Reading("kernel_link_losses", 0.0, "count", line=f"none in {len(young)} lines"))
    return found


def _hours(arguments: Mapping[str, str]) -> float:
    text = arguments.get("hours", "2")
    try:
        hours = float(text)
    except ValueError:
        hours = 0.0
    if not 0.0 < hours < 1e5:
        raise ArgumentError(f"hours: must be a number above 0, got {text!r}")
    return hours


def _count(quantity: str, texts: Sequence[str]) -> Reading:
    """How many lines there are, with the newest different ones."""
    shown: Dict[str, None] = dict.fromkeys(reversed(texts))
    line = " | ".join(list(shown)[:SHOWN]) or "no such line"
    return Reading(quantity, float(len(texts)), "count", line=_cut(line))


def _losses(texts: Sequence[str]) -> List[Tuple[str, str]]:
    """(port, line) of each loss of a link."""
    hits = ((_LINK_LOSS.search(text), text) for text in texts)
    return [(hit.group(1) or hit.group(2), text) for hit, text in hits if hit]


def _gap(said: Sequence[Said], booted_at: float, since: float, hours: float) -> str:
    """Why older lines may be missing; "" where none is."""
    oldest = min(line.since_boot for line in said)
    if oldest <= FROM_BOOT_SECONDS or booted_at + oldest <= since:
        return ""
    reach = (time.time() - booted_at - oldest) / HOUR_SECONDS
    return f"the kernel's buffer reaches back {reach:.2f} h of {hours:g} h: make it larger (log_buf_len=)"


def _cut(line: str) -> str:
    return line[:EVIDENCE_CHARACTERS]


PROBES = {"kernel-log": kernel_log}
"""By the names of `profiles/suite_words.py`."""
