"""What launchers say of the ends of their ranks: torchrun, srun, mpirun, DeepSpeed, Python's own spawn.

Read only where no termination record of our own launcher exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from workflows.evidence import LogLine
from workflows.reports import RankEnd, Termination

_FIELD = re.compile(r"^\s*(?P<name>time|host|rank|exitcode|traceback)\s{0,10}: (?P<value>.{0,400})$")
_ROOT = "Root Cause (first observed failure)"
_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d{1,4})\)(?: .{0,80}?)? local_rank: (?P<rank>\d{1,6})")
_SRUN = re.compile(
    r"srun: error: (?P<node>[\w.\[\],-]{1,200}): tasks? (?P<tasks>[\d,-]{1,400}): (?P<what>Exited with exit code "
    r"(?P<code>\d{1,3})|Killed|Terminated|Segmentation fault|Bus error|Aborted|Out Of Memory|Illegal instruction)"
)
_SRUN_SIGNALS = {
    "Killed": 9, "Terminated": 15, "Segmentation fault": 11, "Bus error": 7, "Aborted": 6, "Illegal instruction": 4,
    "Out Of Memory": 9,
}  # fmt: skip
_MPIRUN = re.compile(
    r"process rank (?P<rank>\d{1,6}) with PID \d{1,9} on node (?P<node>[\w.-]{1,100}) "
    r"exited on signal (?P<signal>\d{1,3})"
)
_MPI_ABORT = re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d{1,6}) in communicator")
_SPAWN = re.compile(
    r"[Pp]rocess (?P<rank>\d{1,5}) terminated with (?:signal (?P<signal>SIG[A-Z]{2,6})|exit code (?P<code>\d+))"
)
_EVENT = re.compile(r'"torchelastic\.worker\.status\.FAILED".{0,300}"global_rank": (?P<rank>\d{1,6})')
_RETURNED = re.compile(
    r"exits with return code = (?P<code>-?\d{1,4})|returned non-zero exit status (?P<status>-?\d{1,3})|"
    r"died with <Signals\.(?P<signal>SIG[A-Z]{2,6})"
)
NUMBERS = {
    "SIGHUP": 1, "SIGINT": 2, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11,
    "SIGPIPE": 13, "SIGTERM": 15,
}  # fmt: skip


@dataclass(frozen=True)
class Exit:
    """One end that a launcher reported."""

    rank: int | None
    node: str
    code: int | None
    """None: ended by a signal, or not said."""
    signal: int | None
    at: float | None
    root: bool
    """The launcher names it as the first one."""
    local: bool
    """`rank` is local to its node."""
    line: LogLine


def exits(lines: Iterable[LogLine]) -> tuple[Exit, ...]:
    """Every end that a launcher reports in the lines, in order; a rank that is told of twice comes once."""
    found: list[Exit] = []
    block: dict[str, str] = {}
    root = False
    for line in lines:
        text = line.text
        root = root or _ROOT in text
        field = _FIELD.match(text)
        if field is not None:
            block[field["name"]] = field["value"]
            if field["name"] == "exitcode" and "rank" in block:
                found += _torchrun(block, root, line)
        elif "[" in text and text.strip().endswith("]:"):
            block = {}
        found += _said(text, line)
    return _once(found)


def terminations(found: Iterable[Exit]) -> tuple[Termination, ...]:
    """The ends with a rank as termination records, one a node; those whom the launcher told to end are marked so."""
    ends = list(found)
    caused = any(item.signal != 15 for item in ends)
    nodes: dict[str, list[RankEnd]] = {}
    first = min((item.at for item in ends if item.at is not None), default=0.0)
    for item in ends:
        if item.rank is None:
            continue
        at = (item.at if item.at is not None else first) - (0.001 if item.root else 0.0)
        end = RankEnd(item.rank, item.rank, at, item.code, item.signal, requested=caused and item.signal == 15)
        nodes.setdefault(item.node, []).append(end)
    return tuple(
        Termination("", 0, "", node, "", "rank-failed", ranks, detail="") for node, ranks in sorted(nodes.items())
    )


def _torchrun(block: dict[str, str], root: bool, line: LogLine) -> list[Exit]:
    rank, code = re.match(r"\d{1,6}", block["rank"]), re.match(r"-?\d{1,4}", block["exitcode"])
    if rank is None or code is None:
        return []
    return [_ended(int(rank[0]), block.get("host", ""), int(code[0]), line, root=root)]


def _said(text: str, line: LogLine) -> list[Exit]:
    if hit := _FAILED.search(text):
        return [_ended(int(hit["rank"]), line.node, int(hit["code"]), line, local=True)]
    if hit := _SRUN.search(text):
        code = int(hit["code"]) if hit["code"] else -_SRUN_SIGNALS[hit["what"]]
        return [_ended(rank, hit["node"], code, line) for rank in _tasks(hit["tasks"])]
    if hit := _MPIRUN.search(text):
        return [_ended(int(hit["rank"]), hit["node"], -int(hit["signal"]), line, root=True)]
    if hit := _MPI_ABORT.search(text):
        return [_ended(int(hit["rank"]), line.node, 1, line, root=True)]
    if hit := _SPAWN.search(text):
        code = int(hit["code"]) if hit["code"] else -NUMBERS.get(hit["signal"], 9)
        return [_ended(int(hit["rank"]), line.node, code, line, local=True)]
    if hit := _EVENT.search(text):
        return [_ended(int(hit["rank"]), line.node, 1, line)]
    if hit := _RETURNED.search(text):
        code = -NUMBERS.get(hit["signal"], 9) if hit["signal"] else int(hit["code"] or hit["status"])
        return [_ended(None, line.node, code, line)] if code else []
    return []


def _ended(rank: int | None, node: str, code: int, line: LogLine, *, root: bool = False, local: bool = False) -> Exit:
    signal = -code if code < 0 else (code - 128 if 128 < code < 160 else None)
    return Exit(rank, node, None if signal is not None else code, signal, line.at, root, local, line)


def _tasks(text: str) -> list[int]:
    """`0-3,7` as numbers; at most 4,096 of them."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            found += range(int(first), min(int(last or first), int(first) + 4096) + 1)
    return found[:4096]


def _once(found: list[Exit]) -> tuple[Exit, ...]:
    globally = [item for item in found if not item.local]
    named = any(item.rank is not None for item in globally)
    kept: dict[int | None, Exit] = {}
    for item in globally if named else found:
        known = kept.get(item.rank)
        if known is None:
            kept[item.rank] = item
        elif item.root and not known.root:
            kept[item.rank] = replace(item, at=known.at if item.at is None else item.at)
    return tuple(item for rank, item in kept.items() if rank is not None or len(kept) == 1)
