"""Lines of this node's kernel since a moment that may matter to a training, and counts of fatal ones.

The kernel's own buffer is read where the pod may (`/dev/kmsg`), else `dmesg` is called, else the kernel is asked as it
does. All stamp lines in seconds since boot; those stamps drift against the clock of the day, so lines of one minute
before the moment count too.

The probe counts fatal lines, lock-ups, and links that went down. Its table is a short one of what no node may train
with; the rules of the diagnosis decide on every other line, and a test compares this table with them.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from workflows.programs.parsers.text import EVIDENCE_CHARACTERS, ParsedOutput, Reading
from workflows.programs.probes.node import ArgumentError
from workflows.programs.probes.verdicts import PASS, UNKNOWN, Check
from workflows.programs.runtime.bounded import run_program

WORDS = (
    r"NVRM|Xid|amdgpu|kfd",
    r"mlx5|bnxt_|ionic|[Ll]ink (?:is )?(?:DOWN|[Dd]own)|definitely down|NETDEV WATCHDOG",
    r"\b[Mm][Cc][Ee]\b|[Mm]achine [Cc]heck|Hardware Error|hardware memory error|EDAC|Memory failure|temperature above",
    r"\bAER\b|PCIe Bus Error",
    r"I/O .{0,20}(?:error|timeout)|medium error|controller is down|md/raid|[Rr]emounting filesystem read-only",
    r"EXT4-fs error|XFS \(|BTRFS|\bnfs|Lustre|ceph:",
    r"[Oo]ut of memory|\boom[-_]",
    r"Kernel panic|BUG: |LOCKUP|self-detected stall|blocked for more than|reboot: ",
)
"""Telling words: GPUs, links, chips, buses, disks, file systems, memory, the kernel itself. Wide on purpose: what a
line means is decided by rules elsewhere."""
TELLING = re.compile("|".join(WORDS))
LINES = 200
"""Lines kept: the newest; of equal ones the first."""
LINE_CHARACTERS = 300
REPORT_BYTES = 12288
"""Room for lines, as JSON, in a report of at most 16 KiB."""
DRIFT_SECONDS = 60.0
"""Stamps come from a clock that nobody corrects: at 20 millionths it is off by a minute after five weeks."""
RECORD_BYTES = 16384
"""More than the longest record of the kernel's buffer."""
DEVICE = "/dev/kmsg"
READ_ALL, SIZE_BUFFER = 3, 10
"""Actions of syslog(2): the whole buffer, and how large it is."""
_RAW = re.compile(r"^(?:<\d+>)?\[ *(\d+\.\d+)\](?:\[ *[TC]\d+\])? ?(.*)$")
"""A line of `dmesg --raw`: priority, seconds since boot, perhaps the caller, text."""


@dataclass(frozen=True)
class KernelLine:
    """One line of the kernel."""

    since_boot: float
    """Seconds."""
    text: str


class UnreadableError(Exception):
    """The kernel's log cannot be read here; the message says why."""


def check(node: str, since: float, stand_in: str, timeout_seconds: float) -> Check:
    """The check `kernel`: pass without relevant lines, else unknown, with the lines.

    Lines before `since` (Unix seconds) are left out. `stand_in` is a folder whose `<node>.log` replaces the kernel's
    log, in the form of `dmesg`; empty: the kernel's own. `timeout_seconds` is the longest time of `dmesg`.
    """
    try:
        source, log_lines = read_log(node, stand_in, timeout_seconds)
    except UnreadableError as error:
        return Check("kernel", UNKNOWN, None, None, "lines", str(error))
    booted_at = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    kept = shorten(relevant_lines(log_lines, booted_at, since))
    if not kept:
        return Check("kernel", PASS, 0, None, "lines", f"{source} says nothing telling")
    return Check("kernel", UNKNOWN, len(kept), None, "lines", f"{source}: lines for the rules to judge", kept)


def relevant_lines(log_lines: Iterable[KernelLine], booted_at: float, since: float) -> List[Tuple[float, str]]:
    """(Unix seconds, text) of lines with a telling word, oldest first, each text once: when it was first said."""
    found: List[Tuple[float, str]] = []
    known: Set[str] = set()
    for line in log_lines:
        at, text = booted_at + line.since_boot, line.text[:LINE_CHARACTERS]
        if at >= since - DRIFT_SECONDS and text not in known and TELLING.search(text):
            known.add(text)
            found.append((round(at, 3), text))
    return found


def shorten(lines: Sequence[Tuple[float, str]]) -> Tuple[Tuple[float, str], ...]:
    """The newest lines that fit into a report."""
    kept: List[Tuple[float, str]] = []
    room = REPORT_BYTES
    for at, text in reversed(lines[-LINES:]):
        room -= len(json.dumps([at, text], ensure_ascii=False).encode("utf-8", "replace")) + 1
        if room < 0:
            break
        kept.append((at, text))
    return tuple(reversed(kept))


def read_log(node: str, stand_in: str, timeout_seconds: float) -> Tuple[str, List[KernelLine]]:
    """Where the kernel's lines are from, and all of them.

    Raises:
        UnreadableError: they cannot be read here.
    """
    if stand_in:
        return _from_file(os.path.join(stand_in, f"{node}.log"))
    try:
        descriptor = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        return _from_dmesg(f"{DEVICE}: {error.strerror}", timeout_seconds)
    try:
        return DEVICE, [line for line in map(record, records(descriptor)) if line is not None]
    except OSError as error:
        return _from_dmesg(f"{DEVICE}: {error.strerror}", timeout_seconds)
    finally:
        os.close(descriptor)


def _from_file(path: str) -> Tuple[str, List[KernelLine]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return path, parse_text(file.read())
    except FileNotFoundError:
        raise UnreadableError("nodes of this cluster have no kernel of their own") from None
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error


def _from_dmesg(refused: str, timeout_seconds: float) -> Tuple[str, List[KernelLine]]:
    ended = run_program(("dmesg", "-r"), timeout_seconds)
    if ended.code != 0:
        said = ended.problem or ended.errors.strip() or f"dmesg: exit code {ended.code}"
        return _from_system_call(f"{refused}; {said}")
    return "dmesg", parse_text(ended.output)


def _from_system_call(refused: str) -> Tuple[str, List[KernelLine]]:
    """As `dmesg` reads it: images of programs alone have neither the device nor the command."""
    try:
        buffer = ctypes.create_string_buffer(ask_kernel(SIZE_BUFFER))
        count = ask_kernel(READ_ALL, buffer, len(buffer))
    except OSError as error:
        raise UnreadableError(f"{refused}; syslog(2): {error.strerror}") from error
    return "syslog(2)", parse_text(buffer.raw[:count].decode("utf-8", "replace"))


def ask_kernel(action: int, buffer: Optional["ctypes.Array[ctypes.c_char]"] = None, size: int = 0) -> int:
    """The system call syslog(2); what it answers.

    Raises:
        OSError: it is refused.
    """
    answer = int(ctypes.CDLL(None, use_errno=True).klogctl(action, buffer, size))
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return answer


def parse_text(text: str) -> List[KernelLine]:
    """The lines that `dmesg --raw` printed; those without a time are left out, since they may be of last year."""
    hits = (_RAW.match(line) for line in text.splitlines())
    return [KernelLine(float(hit.group(1)), hit.group(2)) for hit in hits if hit]


def records(descriptor: int) -> Iterator[bytes]:
    """The records of the kernel's buffer, one a read, up to the newest.

    Raises:
        OSError: reading is not allowed.
    """
    while True:
        try:
            data = os.read(descriptor, RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            continue  # the record was overwritten meanwhile; the next read goes on behind it
        if not data:
            return
        yield data


def record(data: bytes) -> Optional[KernelLine]:
    """`<priority>,<number>,<microseconds since boot>,<flags>;<text>` and lines of properties; None: something else."""
    head, found, rest = data.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if not found or len(fields) < 3 or not fields[2].isdigit():
        return None
    return KernelLine(int(fields[2]) / 1e6, rest.split("\n", 1)[0])


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


def kernel_log(arguments: Mapping[str, str]) -> ParsedOutput:
    """Counts of the last `hours` (2): `kernel_fatal_lines`, `kernel_lockups`, and of each port `kernel_link_losses`.

    A log that may not be read is unknown, and so is one that does not reach back so far and shows nothing.

    Raises:
        ArgumentError: `hours` is no number above zero.
    """
    hours = _hours(arguments)
    try:
        source, log_lines = read_log("", "", DMESG_SECONDS)
    except UnreadableError as error:
        return ParsedOutput(
            unknown=f"the kernel's log may not be read here ({error}): set read_kernel_log for the cluster"
        )
    if not log_lines:
        return ParsedOutput(unknown=f"{source} is empty: a kernel says something when it boots")
    booted_at = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    since = time.time() - hours * HOUR_SECONDS
    return ParsedOutput(tuple(count_readings(log_lines, booted_at, since)), _gap(log_lines, booted_at, since, hours))


def count_readings(log_lines: Sequence[KernelLine], booted_at: float, since: float) -> List[Reading]:
    """The readings of lines that are younger than `since`, in Unix seconds; stamps count from `booted_at`."""
    young = [line.text for line in log_lines if booted_at + line.since_boot >= since - DRIFT_SECONDS]
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
    different: Dict[str, None] = dict.fromkeys(reversed(texts))
    line = " | ".join(list(different)[:SHOWN]) or "no such line"
    return Reading(quantity, float(len(texts)), "count", line=_cut(line))


def _losses(texts: Sequence[str]) -> List[Tuple[str, str]]:
    """(port, line) of each loss of a link."""
    hits = ((_LINK_LOSS.search(text), text) for text in texts)
    return [(hit.group(1) or hit.group(2), text) for hit, text in hits if hit]


def _gap(log_lines: Sequence[KernelLine], booted_at: float, since: float, hours: float) -> str:
    """Why older lines may be missing; "" where none is."""
    oldest = min(line.since_boot for line in log_lines)
    if oldest <= FROM_BOOT_SECONDS or booted_at + oldest <= since:
        return ""
    reach = (time.time() - booted_at - oldest) / HOUR_SECONDS
    return f"the kernel's buffer reaches back {reach:.2f} h of {hours:g} h: make it larger (log_buf_len=)"


def _cut(line: str) -> str:
    return line[:EVIDENCE_CHARACTERS]


PROBES = {"kernel-log": kernel_log}
"""By the names of `profiles/checks/catalogue.py`."""
