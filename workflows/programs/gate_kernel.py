"""What this node's kernel said since a moment: only lines with a telling word, and no judgement on them.

The kernel's own buffer is read where the pod may (`/dev/kmsg`), else `dmesg` is asked. Both stamp lines in seconds
since boot; those stamps drift against the clock of the day, so lines of one minute before the moment count too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from typing import Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from workflows.programs.gate_verdicts import PASS, UNKNOWN, Check

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
_RAW = re.compile(r"^(?:<\d+>)?\[ *(\d+\.\d+)\](?:\[ *[TC]\d+\])? ?(.*)$")
"""A line of `dmesg --raw`: priority, seconds since boot, perhaps the caller, text."""


@dataclass(frozen=True)
class Said:
    """One line of the kernel."""

    since_boot: float
    """Seconds."""
    text: str


class UnreadableError(Exception):
    """The kernel's log cannot be read here; the message says why."""


def check(node: str, since: float, stand_in: str, timeout_seconds: float) -> Check:
    """The check `kernel`: pass where nothing telling was said, else unknown, with the lines where there are any.

    Args:
        node: name of this node.
        since: Unix seconds; older lines are left out.
        stand_in: folder whose `<node>.log` stands for the kernel's log, as `dmesg` prints it; empty: the kernel's own.
        timeout_seconds: longest time of `dmesg`.
    """
    try:
        source, said = spoken(node, stand_in, timeout_seconds)
    except UnreadableError as error:
        return Check("kernel", UNKNOWN, None, None, "lines", str(error))
    booted_at = time.time() - time.clock_gettime(time.CLOCK_MONOTONIC)
    kept = small(telling(said, booted_at, since))
    if not kept:
        return Check("kernel", PASS, 0, None, "lines", f"{source} says nothing telling")
    return Check("kernel", UNKNOWN, len(kept), None, "lines", f"{source}: lines for the rules to judge", kept)


def telling(said: Iterable[Said], booted_at: float, since: float) -> List[Tuple[float, str]]:
    """(Unix seconds, text) of lines with a telling word, oldest first, each text once: when it was first said."""
    found: List[Tuple[float, str]] = []
    known: Set[str] = set()
    for line in said:
        at, text = booted_at + line.since_boot, line.text[:LINE_CHARACTERS]
        if at >= since - DRIFT_SECONDS and text not in known and TELLING.search(text):
            known.add(text)
            found.append((round(at, 3), text))
    return found


def small(lines: Sequence[Tuple[float, str]]) -> Tuple[Tuple[float, str], ...]:
    """The newest lines that fit into a report."""
    kept: List[Tuple[float, str]] = []
    room = REPORT_BYTES
    for at, text in reversed(lines[-LINES:]):
        room -= len(json.dumps([at, text], ensure_ascii=False).encode("utf-8", "replace")) + 1
        if room < 0:
            break
        kept.append((at, text))
    return tuple(reversed(kept))


def spoken(node: str, stand_in: str, timeout_seconds: float) -> Tuple[str, List[Said]]:
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


def _from_file(path: str) -> Tuple[str, List[Said]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return path, raw(file.read())
    except FileNotFoundError:
        raise UnreadableError("nodes of this cluster have no kernel of their own") from None
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error


def _from_dmesg(refused: str, timeout_seconds: float) -> Tuple[str, List[Said]]:
    try:
        done = subprocess.run(("dmesg", "-r"), capture_output=True, timeout=timeout_seconds, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnreadableError(f"{refused}; dmesg: {getattr(error, 'strerror', None) or error}") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}"
        raise UnreadableError(f"{refused}; {said}")
    return "dmesg", raw(done.stdout.decode("utf-8", "replace"))


def raw(text: str) -> List[Said]:
    """The lines that `dmesg --raw` printed; those without a time are left out, since they may be of last year."""
    hits = (_RAW.match(line) for line in text.splitlines())
    return [Said(float(hit.group(1)), hit.group(2)) for hit in hits if hit]


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


def record(data: bytes) -> Optional[Said]:
    """`<priority>,<number>,<microseconds since boot>,<flags>;<text>` and lines of properties; None: something else."""
    head, found, rest = data.decode("utf-8", "replace").partition(";")
    fields = head.split(",")
    if not found or len(fields) < 3 or not fields[2].isdigit():
        return None
    return Said(int(fields[2]) / 1e6, rest.split("\n", 1)[0])
