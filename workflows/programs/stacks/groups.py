"""Which ranks keep a gang waiting, from the stacks of all of them: equal stacks grouped, the minority blamed. Pure.

ByteRobust's way (fault tolerance notes 3.1): most ranks wait in the same place for a rank that is elsewhere. Line
numbers, addresses and the innermost frames of waiting loops differ between samples and are removed before grouping.

Ranks are blamed only where there is reason to:

* at most half are outside of a collective in which all others wait (waiting itself separates them); where all others
  wait for their device, it must be few: each of them may wait for a kernel of its own;
* all wait, and few of them in another collective than more than two thirds;
* none is known to wait, and few are elsewhere than more than two thirds;
* few are stopped or in uninterruptible sleep, or their launchers gave no stacks, and all others wait;
* at most half are stopped, whatever the others do: those never go on by themselves.

Otherwise none is: all are alike (they wait for something outside of the gang: a switch, a file server), or half and
half.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.stacks.values import STOPPED, UNINTERRUPTIBLE, Dump, ProcessStacks

FUNCTIONS_KEPT = 24
SILENT, KERNEL, DEVICE = "no stacks", "kernel", "synchronize"
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+|\+0x[0-9a-fA-F/]+|@[0-9A-Z._]+$")
_NUMBER = re.compile(r"\d{3,}")
"""Generated names (compiled kernels, temporary modules) carry numbers of the process."""
_LOOP = re.compile(
    r"^(?:_?_?(?:poll|ppoll|epoll_wait|select|pselect|nanosleep|clock_nanosleep|clock_gettime|sched_yield|futex_\w+|"
    r"syscall|pthread_cond_\w+|pthread_mutex_\w+|sem_wait|read|recv|recv_into|recvfrom|recvmsg|send|sendall|sendmsg|"
    r"sleep|usleep|gettimeofday|__vdso_\w+))(?:$|[^\w])|^\[unknown\]|^0x"
)
_WAITS = re.compile(
    r"(?i)(?:^|[_.:])(?:p?nccl\w*|rccl\w*|mpi_\w+|all_?reduce\w*|all_?gather\w*|reduce_?scatter\w*|all_?to_?all\w*|"
    r"barrier|monitored_barrier|broadcast\w*|wait_for_everyone|batch_isend_irecv|isend|irecv|recv_(?:forward|backward)"
    r"\w*|send_(?:forward|backward)\w*|\w*p2p_communicate|scatter|gather|psum|c10d::\w+|workNCCL\w*|"
    r"(?:cuda|hip)_?(?:stream|device|event)_?synchronize\w*|sync_global_devices)(?:$|[_.:<(])"
)
_WAITING_FILES = re.compile(
    r"(?:torch/distributed/(?:distributed_c10d|c10d_logger|_functional_collectives|utils|nn/functional)\.py|"
    r"torch/cuda/(?:__init__|streams)\.py|device_communicators/|horovod/|mpi4py|deepspeed/comm/|p2p_communication|"
    r"libnccl|librccl|jax/experimental/multihost_utils|programs/demo/collective\.py)"
)
_LIBRARY = re.compile(r"/lib/python3\.\d+/(?!(?:site|dist)-packages/)|<frozen ")
"""Python's own: a queue or a lock says less than who waits at it."""
_SYNCHRONIZES = re.compile(r"(?i)(?:cuda|hip)?_?(?:stream|device|event)?_?synchronize")
"""Waiting for the device is waiting for whatever collective it runs: no reason to tell one from the other."""

Signature = Tuple[str, ...]


@dataclass(frozen=True)
class Stack:
    """Where one rank is, from its stack."""

    rank: int
    node: str
    signature: Signature
    """Normalised, innermost first; equal ones stand in the same place."""
    frame: str = ""
    """Innermost one that says something."""
    waits: str = ""
    """The collective that it waits in; "": in none that is known."""
    state: str = ""
    """`stopped`, `uninterruptible` or `no stacks` where that is all there is to say."""


@dataclass(frozen=True)
class StackGroup:
    """Ranks with equal stacks."""

    signature: Signature
    ranks: Tuple[int, ...]
    frame: str = ""
    waits: str = ""
    state: str = ""


@dataclass(frozen=True)
class BlamedRank:
    """A rank of the minority."""

    rank: int
    node: str
    frame: str


@dataclass(frozen=True)
class StackFinding:
    """Blamed ranks and the groups of stacks."""

    blamed: Tuple[BlamedRank, ...]
    why: str
    groups: Tuple[StackGroup, ...]
    """Largest first."""


def stacks_of(dumps: Sequence[Dump], nodes: Mapping[int, str]) -> List[Stack]:
    """The stack of each rank, from all launchers' dumps; ranks in `nodes` that no dump contains have no stacks."""
    tops = {one.rank: (one, dump.node) for dump in dumps for one in dump.processes if one.top}
    missing = [Stack(rank, node, (SILENT,), SILENT, state=SILENT) for rank, node in nodes.items() if rank not in tops]
    return sorted([*(_stack(*one) for one in tops.values()), *missing], key=lambda stack: stack.rank)


def _stack(process: ProcessStacks, node: str) -> Stack:
    if process.state in (STOPPED, UNINTERRUPTIBLE):
        return Stack(process.rank, node, (process.state,), process.state, state=process.state)
    main = process.main
    frames = [(one.function, one.file) for one in main.frames] if main else []
    if not frames and main is not None:  # not Python: what the kernel says is all there is
        frames = [(name, KERNEL) for name in ([main.waits] if main.waits else []) + main.kernel]
    return stack_from_frames(process.rank, node, frames)


def stack_from_frames(rank: int, node: str, frames: Sequence[Tuple[str, str]]) -> Stack:
    """The stack of a rank from (function, file) frames, innermost first; none: nothing was seen."""
    seen = frames[:FUNCTIONS_KEPT]
    telling = [one for one in seen if one[1] == KERNEL or not _LOOP.search(one[0])] or list(seen[:1])
    if not telling:
        return Stack(rank, node, (SILENT,), SILENT, state=SILENT)
    named = next((name for name, _ in telling if _WAITS.search(name)), "")  # says more than a file's helper functions
    waits = named or next((name for name, file in telling if _WAITING_FILES.search(file)), "")
    own = next((one for one in telling if not _LIBRARY.search(one[1])), telling[0])
    return Stack(rank, node, tuple(_words(one) for one in telling), _words(own), _plain(waits))


def _words(frame: Tuple[str, str]) -> str:
    return f"{_plain(frame[0])} ({_tail(frame[1])})"


def _plain(name: str) -> str:
    return _NUMBER.sub("#", _ADDRESS.sub("", name))


def _tail(file: str) -> str:
    """The last two parts of a path: hosts install in different places."""
    return "/".join(_plain(file).replace("\\", "/").split("/")[-2:])


def group_stacks(stacks: Sequence[Stack]) -> Tuple[StackGroup, ...]:
    """Group ranks with equal stacks; ranks that wait in the same collective belong together."""
    found: Dict[Tuple[str, str, Signature], List[Stack]] = {}
    for one in stacks:
        key = ("waits", _collective(one.waits), ()) if one.waits else ("stands", one.state, one.signature)
        found.setdefault(key, []).append(one)
    groups = [
        StackGroup(same[0].signature, tuple(one.rank for one in same), same[0].frame, same[0].waits, same[0].state)
        for same in found.values()
    ]
    return tuple(sorted(groups, key=lambda group: (-len(group.ranks), group.ranks)))


def _collective(name: str) -> str:
    return DEVICE if _SYNCHRONIZES.search(name) else name.lower().replace("_", "").rpartition(".")[2]


def find_minority(stacks: Sequence[Stack]) -> StackFinding:
    """Find the ranks for which the others wait."""
    found = _by_place(stacks)
    stopped = [one for one in stacks if one.state == STOPPED]
    if found.blamed or not stopped or 2 * len(stopped) > len(stacks):
        return found
    return StackFinding(
        _named(stopped), f"{len(stopped)} of {len(stacks)} ranks are stopped: {_who(stopped)}", found.groups
    )


def _by_place(stacks: Sequence[Stack]) -> StackFinding:
    groups = group_stacks(stacks)
    waiting = [one for one in stacks if one.waits]
    others = [one for one in stacks if not one.waits]
    if len(groups) < 2:
        why = f"all {len(stacks)} ranks stand in {groups[0].frame}" if groups else "no stacks"
        return StackFinding((), why + "; what they wait for is none of them" if groups else why, groups)
    if waiting and others:
        if len(others) > len(waiting):
            return StackFinding((), f"{len(others)} of {len(stacks)} ranks stand outside of a collective", groups)
        if all(_collective(one.waits) == DEVICE for one in waiting) and 3 * len(waiting) <= 2 * len(stacks):
            told = f"{len(waiting)} ranks wait for the device, {len(others)} not: either may wait for the other"
            return StackFinding((), f"{told}: {_who(others)}", groups)
        return StackFinding(
            _named(others),
            f"{len(waiting)} ranks wait in {group_stacks(waiting)[0].waits}, outside of it: {_who(others)}",
            groups,
        )
    return _apart(stacks, groups, waiting=bool(waiting))


def _apart(stacks: Sequence[Stack], groups: Tuple[StackGroup, ...], waiting: bool) -> StackFinding:
    """All wait, or none is known to: who is elsewhere than most."""
    most = groups[0]
    word = "wait" if waiting else "stand"
    if 3 * len(most.ranks) <= 2 * len(stacks):
        parts = ", ".join(f"{len(group.ranks)} in {group.frame}" for group in groups[:4])
        return StackFinding((), f"no place holds more than two thirds: {parts}", groups)
    if most.state:  # they say nothing of where the gang stands: who could still be seen is not to blame
        return StackFinding((), f"{len(most.ranks)} of {len(stacks)} ranks: {most.frame}", groups)
    few = [one for one in stacks if one.rank not in most.ranks and _collective(one.waits) != DEVICE]
    if not few or (waiting and _collective(most.waits) == DEVICE):
        return StackFinding((), f"all {len(stacks)} ranks {word}, some for the device", groups)
    return StackFinding(_named(few), f"{len(most.ranks)} ranks {word} in {most.frame}, elsewhere: {_who(few)}", groups)


def _named(stacks: Sequence[Stack]) -> Tuple[BlamedRank, ...]:
    return tuple(BlamedRank(one.rank, one.node, one.frame) for one in stacks)


def _who(stacks: Sequence[Stack]) -> str:
    first = stacks[0]
    what = f"rank {first.rank} on {first.node} in {first.frame}"
    return what + (f" and {len(stacks) - 1} more" if len(stacks) > 1 else "")


def blamed_node(finding: StackFinding) -> Optional[str]:
    """The node of all blamed ranks; None: none is blamed, or they are on several nodes."""
    nodes = {one.node for one in finding.blamed}
    return nodes.pop() if len(nodes) == 1 else None
