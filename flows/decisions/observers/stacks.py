"""Stacks of several ranks: who waits in a collective, and who keeps the others waiting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.observers.dumps import Stack, stacks
from flows.decisions.observers.streams import Lived
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

ALONE_WEIGHT = 0.85
"""Some ranks' stacks stand outside of the collective that all others wait in."""
OTHER_WEIGHT = 0.7
"""All wait, and a few in another collective than the rest."""
STUCK_WEIGHT = 0.7
"""Whoever looks at stacks has a reason: nothing moves. Who holds it up is not seen."""
DEEP = 14
"""Innermost frames that are looked at: a collective's wrappers stand above it."""
_WAITS = re.compile(
    r"(?i)(?:^|[_.:])(?:p?nccl\w*|rccl\w*|mpi_\w+|all_?reduce\w*|all_?gather\w*|reduce_?scatter\w*|all_?to_?all\w*|barrier|"
    r"monitored_barrier|broadcast\w*|wait_for_everyone|batch_isend_irecv|isend|irecv|recv_(?:forward|backward)\w*|"
    r"send_(?:forward|backward)\w*|\w*p2p_communicate|scatter|gather|psum|c10d::\w+|workNCCL\w*|allreduce\w*|"
    r"cuda_?(?:stream|device|event)_?synchronize\w*|hip_?(?:stream|device|event)_?synchronize\w*|sync_global_devices)(?:$|[_.:<(])"
)
_WAITING_FILES = re.compile(
    r"(?:torch/distributed/(?:distributed_c10d|c10d_logger|_functional_collectives|utils|nn/functional)\.py|"
    r"torch/cuda/(?:__init__|streams)\.py|device_communicators/|horovod/|mpi4py|deepspeed/comm/|p2p_communication|"
    r"libnccl|librccl|jax/experimental/multihost_utils)"
)
_MEETING = re.compile(
    r"(?:_create_c10d_store|init_process_group|_env_rendezvous_handler|next_rendezvous|_initialize_workers|TCPStore|"
    r"initialize_distributed|jax\w*\.distributed\.initialize|hvd\.init|_rendezvous)"
)
_OP = re.compile(
    r"(?i)(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier|broadcast|isend|irecv|recv|send|gather|scatter|synchronize)"
)


def stuck(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """What the stacks of running processes say of a hang."""
    found = stacks(lines)
    if not found:
        return
    lived = Lived(lines)
    found = tuple(stack for stack in found if not lived.outlived(stack.line))
    if not found:
        return
    waiting = [stack for stack in found if _waits(stack)]
    others = [stack for stack in found if not _waits(stack)]
    if all(_meets(stack) for stack in found):
        yield _seen(found[0], FaultClass.RENDEZVOUS, STUCK_WEIGHT - 0.1, "stack-in-rendezvous")
    elif others and len(others) < (max(2, len(waiting)) if waiting else 2):
        yield from (_blamed(stack, "stack-outside-collective", ALONE_WEIGHT) for stack in others)
    elif waiting and not others and (apart := _apart(waiting)):
        yield from (_blamed(stack, "stack-in-other-collective", OTHER_WEIGHT) for stack in apart)
    else:
        weight = STUCK_WEIGHT if waiting else STUCK_WEIGHT - 0.15
        yield _seen((waiting or found)[0], FaultClass.HANG, weight, "stack-in-collective" if waiting else "stack-dump")


def _waits(stack: Stack) -> bool:
    return any(_WAITS.search(function) or _WAITING_FILES.search(file) for function, file in stack.frames[:DEEP])


def _meets(stack: Stack) -> bool:
    return any(_MEETING.search(function) for function, _ in stack.frames[:DEEP])


def _apart(waiting: Sequence[Stack]) -> list[Stack]:
    """Those in another collective than at least two thirds of all."""
    ops = [_op(stack) for stack in waiting]
    (most, count), *_ = Counter(ops).most_common(1)
    if len(waiting) < 3 or count == len(waiting) or count * 3 < len(waiting) * 2:
        return []
    return [stack for stack, op in zip(waiting, ops, strict=True) if op not in (most, "synchronize", "")]


def _op(stack: Stack) -> str:
    hits = (_OP.search(function) for function, _ in stack.frames[:DEEP])
    return next((hit[1].lower().replace("_", "") for hit in hits if hit is not None), "")


def _where(stack: Stack) -> str:
    who = f"rank {stack.rank}" if stack.rank is not None else "a process"
    return f"{who} stands in " + " < ".join(f"{function} ({file})" for function, file in stack.frames[:3])


def _blamed(stack: Stack, rule: str, weight: float) -> Clue:
    return Clue(FaultClass.HANG, weight, _where(stack)[:400], rule, "rank", stack.node, stack.rank,
                file=stack.line.file, line=stack.line.line)  # fmt: skip


def _seen(stack: Stack, kind: FaultClass, weight: float, rule: str) -> Clue:
    """Nobody is blamed; as a hang has a cause, this counts little once one is known."""
    return Clue(kind, weight, _where(stack)[:400], rule, "nobody", stack.node, stack.rank, echo=True,
                file=stack.line.file, line=stack.line.line)  # fmt: skip
