"""Stacks of hanging processes: which rank waits in a collective, and which keeps the others waiting.

Dumps come from py-spy, faulthandler, pystack and gdb; of each process the main thread's stack counts. A debugger's list
of threads (`info threads`) shows that somebody stopped a process to see why nothing moves. Kernel logs show whose code
a stuck process stands in, and machines that came up anew in the middle of a log.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from flows.decisions.diagnosis.clues import Blames, Clue
from flows.decisions.diagnosis.lines import by_stream
from flows.decisions.diagnosis.observers.outliers import Lived
from flows.decisions.diagnosis.places import rank_of
from flows.decisions.diagnosis.prefilter import Cue
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

_PROCESS = re.compile(r"^Process (?P<pid>\d{1,9}): ")
_PY_SPY = re.compile(
    r'^Thread (?:0x)?[0-9A-Fa-f]{1,18} \((?P<state>active|idle)[^)]{0,12}\)(?:: "(?P<name>[^"]{0,80})")?'
)
_FAULTHANDLER = re.compile(
    r"^(?P<current>Current thread|Thread) 0x[0-9a-f]{4,18}(?: \[[^\]]{1,40}\])? \(most recent call first\):"
)
_PY_BT = re.compile(r"^Traceback \(most recent call first\):")
"""gdb's Python extension, of the thread that was chosen."""
_PYSTACK = re.compile(r"^Traceback for thread \d{1,9} .{0,60}\(most recent call last\):")
_GDB = re.compile(
    r"^Thread (?P<number>\d{1,5}) \((?:Thread 0x[0-9a-f]{1,18} \(LWP \d{1,9}\)|LWP \d{1,9})(?: \"[^\"]{0,40}\")?\)"
)
_SPY_FRAME = re.compile(r"^ {2,}(?P<function>[\w<>.:~ ]{1,160}) \((?P<file>[^()]{1,300}?)(?::\d{1,7})?\)$")
_FILE_FRAME = re.compile(
    r'^ {2,}(?:\((?:Python|C)\) )?File "(?P<file>[^"]{1,400})", line \d{1,7},? in (?P<function>[\w<>.:~]{1,200})'
)
_GDB_FRAME = re.compile(
    r"^[>* ]{0,3}#\d{1,4} +(?:0x[0-9a-f]{1,18} in )?(?P<function>\?\?|[\w:~<>@.]{1,200}) ?"
    r"\(.{0,400}?\)?(?: (?:from|at) (?P<file>\S{1,300}))?$"
)
_INNERMOST = re.compile(r"[>* ]{0,3}#0 ")
_CRASH = (
    "Fatal Python error",
    "*** Process received signal",
    "Segmentation fault",
    "core dumped",
    "SIGABRT",
    "SIGSEGV",
    "terminated with signal",
    " in abort (",
    " in raise (",
    " in __GI_abort (",
    " in __GI_raise (",
)
"""A dump after one of these is a last word, not a look at something that hangs."""
_SAYS_THREAD = Cue(of=(_PY_SPY, _FAULTHANDLER, _PY_BT, _PYSTACK, _GDB, _GDB_FRAME))
_HEADS = ("Thread ", "Current thread ", "Process ", "Traceback for ", "Traceback (most recent call first)")
KEPT_FRAMES = 40


@dataclass
class Stack:
    """The main thread of one process, innermost frame first."""

    rank: int | None
    node: str
    line: LogLine
    """Where the dump begins."""
    frames: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """(function, file) of each frame."""


@dataclass
class _Thread:
    line: LogLine
    kind: str
    main: bool
    frames: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def stacks(lines: Sequence[LogLine]) -> tuple[Stack, ...]:
    """The stacks of processes that were looked at while they ran; none of those that were dumped in a crash."""
    found: list[Stack] = []
    for stream in by_stream(lines) if _SAYS_THREAD.anywhere(lines) else ():
        if not any(line.text.startswith(_HEADS) or _INNERMOST.match(line.text) for line in stream):
            continue
        if any(word in line.text for line in stream for word in _CRASH):
            continue
        for group in _processes(stream):
            stack = _stack(group)
            if stack is not None:
                found.append(stack)
    return tuple(found)


def _processes(stream: Sequence[LogLine]) -> Iterator[list[LogLine]]:
    """The lines of each dumped process: a `Process` line begins one; without any, the whole stream is one."""
    group: list[LogLine] = []
    for line in stream:
        if _PROCESS.match(line.text) and group:
            yield group
            group = []
        group.append(line)
    yield group


def _stack(group: Sequence[LogLine]) -> Stack | None:
    threads = [thread for thread in _threads(group) if thread.frames]
    if not threads:
        return None
    main = next((thread for thread in threads if thread.main), None)
    if main is None:
        # faulthandler prints the main thread last, the others print it first.
        main = threads[-1] if threads[0].kind == "faulthandler" else threads[0]
    rank = next((known for line in group if (known := rank_of(line)) is not None), None)
    return Stack(rank, main.line.node, main.line, main.frames)


def _threads(group: Sequence[LogLine]) -> Iterator[_Thread]:
    thread: _Thread | None = None
    for line in group:
        begun = _begun(line)
        if begun is not None:
            if thread is not None:
                yield _ordered(thread)
            thread = begun
            continue
        frame = _frame(line.text)
        if frame is not None and thread is None and _INNERMOST.match(line.text):
            thread = _Thread(line, "gdb", True)
        if frame is not None and thread is not None and len(thread.frames) < KEPT_FRAMES:
            thread.frames.append(frame)
    if thread is not None:
        yield _ordered(thread)


def _begun(line: LogLine) -> _Thread | None:
    text = line.text
    if hit := _PY_SPY.match(text):
        return _Thread(line, "py-spy", hit["name"] == "MainThread")
    if hit := _FAULTHANDLER.match(text):
        return _Thread(line, "faulthandler", hit["current"] == "Current thread")
    if _PY_BT.match(text):
        return _Thread(line, "py-bt", True)
    if _PYSTACK.match(text):
        return _Thread(line, "pystack", False)
    if hit := _GDB.match(text):
        return _Thread(line, "gdb", hit["number"] == "1")
    return None


def _frame(text: str) -> tuple[str, str] | None:
    for pattern in (_SPY_FRAME, _FILE_FRAME, _GDB_FRAME):
        hit = pattern.match(text)
        if hit is not None:
            return hit["function"].strip(), hit["file"] or ""
    return None


def _ordered(thread: _Thread) -> _Thread:
    """Innermost first: pystack prints it last."""
    if thread.kind == "pystack":
        thread.frames.reverse()
    return thread


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
    if all(any(_MEETING.search(function) for function, _ in stack.frames[:DEEP]) for stack in found):
        yield _stack_clue(found[0], FaultClass.RENDEZVOUS, STUCK_WEIGHT - 0.1, "stack-in-rendezvous")
    elif others and len(others) < (max(2, len(waiting)) if waiting else 2):
        yield from (_blamed(stack, "stack-outside-collective", ALONE_WEIGHT) for stack in others)
    elif waiting and not others and (apart := _apart(waiting)):
        yield from (_blamed(stack, "stack-in-other-collective", OTHER_WEIGHT) for stack in apart)
    else:
        weight = STUCK_WEIGHT if waiting else STUCK_WEIGHT - 0.15
        yield _stack_clue(
            (waiting or found)[0], FaultClass.HANG, weight, "stack-in-collective" if waiting else "stack-dump"
        )


def _waits(stack: Stack) -> bool:
    return any(_WAITS.search(function) or _WAITING_FILES.search(file) for function, file in stack.frames[:DEEP])


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


def _stack_clue(stack: Stack, kind: FaultClass, weight: float, rule: str) -> Clue:
    """A clue without a culprit; as a hang has a cause, it counts little once one is known."""
    return Clue(kind, weight, _where(stack)[:400], rule, "nobody", stack.node, stack.rank, echo=True,
                file=stack.line.file, line=stack.line.line)  # fmt: skip


ALL_WAIT_WEIGHT = 0.6
"""Nobody lists the threads of a process that works; but why they wait is not seen."""
FEWEST = 3
WAITING_SHARE = 0.8
_LISTED = re.compile(r"^[* ] {1,4}\d{1,4} {1,6}(?:Thread 0x[0-9a-f]{1,16} )?\(?LWP \d{1,9}\)?.{0,60}? (?P<at>\S.*)$")
_THREAD_WAITS = re.compile(
    r"(?:pthread_cond_(?:timed)?wait|futex\w*|sem_(?:timed)?wait\w*|\w{0,20}poll\w{0,10}|epoll_p?wait|select\w{0,12}|lll_lock_wait\w*|"
    r"\w*lock_wait\w*|accept4?|nanosleep|recv\w{0,4}|read|wait4|waitpid)(?:@@?[\w.]{1,20})?(?:[ .(]|$)"
)
_FELL = re.compile(r"received signal SIG(?!INT|STOP)|Program terminated|Core was generated|core dumped")
_SAYS_LISTED = Cue(of=(_LISTED,))
_SAYS_FELL = Cue(of=(_FELL,))


def waiting(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Processes all of whose threads wait, and that did not crash."""
    for stream in by_stream(_SAYS_LISTED.among(lines)):
        listed = [(line, hit["at"]) for line, hit in _SAYS_LISTED.hits(stream, 400)]
        if len(listed) < FEWEST:
            continue
        waits = sum(_THREAD_WAITS.search(at) is not None for _, at in listed)
        if waits < WAITING_SHARE * len(listed) or any(_SAYS_FELL.hits(lines)):
            continue
        line = listed[0][0]
        text = f"{waits} of {len(listed)} threads wait: {line.text.strip()[:300]}"
        yield Clue(FaultClass.HANG, ALL_WAIT_WEIGHT, text, "threads-wait", "nobody", line.node, line.rank, echo=True,
                   file=line.file, line=line.line)  # fmt: skip


F = FaultClass

_STUCK = re.compile(r"^(?:INFO: )?task:?[ ]?\S{1,40}(?::\d{1,9} blocked for more than| {1,20}state:D\b)")
_MODULE = re.compile(r"\+0x[0-9a-f]{1,8}/0x[0-9a-f]{1,8} \[(?P<module>\w{2,40})\]")
_OTHER_TASK = re.compile(r"^(?:INFO: )?task:?[ ]?\S{1,40}(?::\d{1,9} blocked| {1,20}state:)")
_BOOTED = re.compile(r"^Linux version \d{1,2}\.\d{1,3}")
_SAYS_STUCK, _SAYS_BOOTED = Cue(of=(_STUCK,)), Cue(of=(_BOOTED,))
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
_SAYS_OOPS = Cue(of=(_OOPS,))
OOPS_WEIGHT = 0.88
"""The kernel fell within a module: whose code the pointer stood in."""
OOPS_FRAMES = 12
"""Lines after its head in which the pointer stands."""
REBOOT_WEIGHT = 0.65
"""Kernel lines before the first line of a boot: the machine went down while its log was written."""


def stuck_in_kernel(lines: Sequence[LogLine]) -> Iterator[Clue]:
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
_SAYS_UNSTARTED = Cue(of=(_UNSTARTED,))


def unstarted(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """The driver starts none of several GPUs, again and again and in the same way: they do not break all at once."""
    for stream in by_stream(_SAYS_UNSTARTED.among(lines)):
        hits = list(_SAYS_UNSTARTED.hits(stream))
        ways = {line.text[hit.end() :] for line, hit in hits}
        if len({hit["device"] for _, hit in hits}) > 1 and len(ways) == 1:
            line = hits[0][0]
            yield Clue(F.GPU_DRIVER, 0.8, line.text[:400], "nvrm-none-started", "node", line.node, at=line.at,
                       supersedes=("nvrm-init-failed",), file=line.file, line=line.line)  # fmt: skip
