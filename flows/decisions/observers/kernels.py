"""Kernel logs: whose code a stuck process stands in, and machines that came up anew in the middle of a log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.lines import by_stream
from flows.decisions.rules import Blames
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

F = FaultClass

_STUCK = re.compile(r"^(?:INFO: )?task:?[ ]?\S{1,40}(?::\d{1,9} blocked for more than| {1,20}state:D\b)")
_MODULE = re.compile(r"\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8} \[(?P<module>\w{2,40})\]")
_OTHER_TASK = re.compile(r"^(?:INFO: )?task:?[ ]?\S{1,40}(?::\d{1,9} blocked| {1,20}state:)")
_BOOTED = re.compile(r"^Linux version \d{1,2}\.\d{1,3}")
_SAYS_STUCK, _SAYS_BOOTED = Cue("blocked for more than", "state:d", of=(_STUCK,)), Cue("linux version", of=(_BOOTED,))
MAX_FRAMES = 80
"""Lines after the head of a stuck task that still belong to its stack."""
OWNERS: tuple[tuple[re.Pattern[str], FaultClass, float], ...] = (
    (re.compile(r"^(?:nvidia\w{0,20}|amdgpu|amdkfd|gdrdrv|kfd)$"), F.GPU_DRIVER, 0.78),
    (re.compile(r"^(?:lustre|lov|osc|mdc|ptlrpc|nfs\w{0,8}|sunrpc|ceph|libceph|mmfs\w{0,8}|beegfs|wekafs\w{0,8}|fuse|"
                r"xfs|ext4|jbd2|nvme\w{0,8}|dm_\w{1,20}|md_mod|raid\w{1,4})$"), F.STORAGE, 0.75),
    (re.compile(r"^(?:mlx5_\w{2,8}|ib_\w{2,12}|rdma_\w{2,8}|bnxt_\w{2,6}|efa|ionic\w{0,6}|irdma)$"), F.FABRIC, 0.7),
)  # fmt: skip
"""Whose fault it is that a task does not come back, by the first module in its stack: (module, class, weight)."""
_OOPS = re.compile(r"(?:^|\s)(?:BUG: |Oops: |general protection fault|Unable to handle kernel|kernel BUG at )")
_POINTER = re.compile(r"\bRIP: \w{4}:\S{1,120} \[(?P<module>\w{2,40})\]|\bpc : \S{1,120} \[(?P<own>\w{2,40})\]")
_SAYS_OOPS = Cue("bug: ", "oops: ", "general protection fault", "unable to handle kernel", "kernel bug at", of=(_OOPS,))
OOPS_WEIGHT = 0.88
"""The kernel fell within a module: whose code the pointer stood in."""
OOPS_FRAMES = 12
"""Lines after its head in which the pointer stands."""
REBOOT_WEIGHT = 0.65
"""Kernel lines before the first line of a boot: the machine went down while its log was written."""


def stuck(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Tasks that the kernel cannot wake, and the first module in their stacks."""
    for stream in by_stream(lines) if _SAYS_STUCK.anywhere(lines) else ():
        for number, line in enumerate(stream):
            if _STUCK.match(line.text):
                yield from _owner(line, stream[number + 1 : number + 1 + MAX_FRAMES])


def _owner(head: LogLine, frames: Sequence[LogLine]) -> Iterator[Clue]:
    for frame in frames:
        if _OTHER_TASK.match(frame.text):
            return
        hit = _MODULE.search(frame.text)
        if hit is None:
            continue
        for pattern, kind, weight in OWNERS:
            if pattern.match(hit["module"]):
                yield _clue(kind, weight, head, f"{head.text[:120]}: in {frame.text.strip()[:120]}", "kernel-stuck-in")
                return


def fallen(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Kernels that fell within a driver, by the module in which the instruction pointer stood."""
    for stream in by_stream(lines) if _SAYS_OOPS.anywhere(lines) else ():
        for number, line in enumerate(stream):
            if not (_SAYS_OOPS.holds(line.text) and _OOPS.search(line.text)):
                continue
            frames = stream[number + 1 : number + 1 + OOPS_FRAMES]
            hit = next((hit for frame in frames if (hit := _POINTER.search(frame.text)) is not None), None)
            module = (hit["module"] or hit["own"]) if hit is not None else ""
            kinds = (kind for pattern, kind, _ in OWNERS if pattern.match(module))
            if (kind := next(kinds, None)) is not None:
                text = f"{line.text[:160]}: in module {module}"
                yield replace(_clue(kind, OOPS_WEIGHT, line, text, "kernel-fell-in"), supersedes=("node_lost",))
                break


def rebooted(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Nodes whose kernel log goes on with a boot."""
    for stream in by_stream(lines) if _SAYS_BOOTED.anywhere(lines) else ():
        if stream[0].source != "kernel":
            continue
        for line in stream[1:]:
            if _BOOTED.match(line.text):
                yield _clue(F.NODE_LOST, REBOOT_WEIGHT, line, f"booted anew: {line.text[:120]}", "kernel-booted-anew")
                break


def _clue(kind: FaultClass, weight: float, line: LogLine, text: str, rule: str, blames: Blames = "node") -> Clue:
    return Clue(
        kind, weight, text, rule, blames, line.node, None, line.at, file=line.file, line=line.line,
        supersedes=("hung-task", "process_killed", "collective_timeout"),
    )  # fmt: skip


_UNSTARTED = re.compile(r"NVRM: GPU (?P<device>[0-9a-fA-F:.]{7,16}): RmInitAdapter failed")
_SAYS_UNSTARTED = Cue("rminitadapter failed", of=(_UNSTARTED,))


def unstarted(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """The driver starts none of several GPUs, again and again and in the same way: they do not break all at once."""
    for stream in by_stream(_SAYS_UNSTARTED.among(lines)):
        hits = [(line, hit) for line in stream if (hit := _UNSTARTED.search(line.text)) is not None]
        ways = {line.text[hit.end() :] for line, hit in hits}
        if len({hit["device"] for _, hit in hits}) > 1 and len(ways) == 1:
            line = hits[0][0]
            yield Clue(F.GPU_DRIVER, 0.8, line.text[:400], "nvrm-none-started", "node", line.node, at=line.at,
                       supersedes=("nvrm-init-failed",), file=line.file, line=line.line)  # fmt: skip
