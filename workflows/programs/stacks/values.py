"""Stacks of processes as values: JSON for `POST /v1/stacks`, text for people and for the diagnosis.

The text is that of `py-spy dump`, which `primus diagnose` reads like any other dump; what py-spy does not print (what
the kernel waits for, open files) is behind `#`. The body of a request is `{"pod", "node", "id", "at", "seconds",
"left_out", "stacks": [{"rank", "processes": [...]}]}`, with each `ProcessStacks` without its rank.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, cast

from workflows import wire

MAIN = "MainThread"
STOPPED, UNINTERRUPTIBLE = "stopped", "uninterruptible"
STATES = {"R": "running", "S": "sleeping", "D": UNINTERRUPTIBLE, "T": STOPPED, "t": STOPPED, "Z": "zombie",
          "X": "dead", "I": "idle"}  # fmt: skip
"""As /proc writes them."""
LEVELS = ((64, 64, 32), (16, 40, 16), (4, 24, 8), (1, 16, 4), (1, 6, 0))
"""Threads, frames and files that are kept, until the whole is small enough."""


@dataclass(frozen=True)
class Frame:
    """One function that has not returned."""

    function: str
    file: str = ""
    line: int = 0
    """0: not known."""


@dataclass(frozen=True)
class Thread:
    """One thread, innermost frame first."""

    id: int
    """Of the kernel; from faulthandler the interpreter's own."""
    name: str = ""
    """`MainThread` is the one that was there first."""
    state: str = ""
    """`running`, `sleeping`, `uninterruptible`, `stopped`, `zombie`, `dead`, `idle`; "": not known."""
    frames: List[Frame] = field(default_factory=lambda: [])
    waits: str = ""
    """System call and kernel function it stands in, and the file that it is about."""
    kernel: List[str] = field(default_factory=lambda: [])
    """Kernel functions, innermost first; only root may see them."""


@dataclass(frozen=True)
class ProcessStacks:
    """One process of a rank."""

    rank: int
    pid: int
    program: str = ""
    """Name that the kernel knows it by."""
    top: bool = True
    """The rank itself; False: a process below it (data loader, checkpoint writer)."""
    state: str = ""
    """Of its first thread."""
    how: str = ""
    """`py-spy`, `faulthandler`, `kernel`; "": nothing was seen."""
    why: str = ""
    """What stood in the way of a better look."""
    threads: List[Thread] = field(default_factory=lambda: [])
    files: List[str] = field(default_factory=lambda: [])
    """Open ones, as `5 socket:[1234]`."""

    @property
    def main(self) -> Optional[Thread]:
        """The thread that was there first."""
        named = (thread for thread in self.threads if thread.name == MAIN)
        return next(named, self.threads[0] if self.threads else None)


@dataclass(frozen=True)
class Dump:
    """Stacks of the ranks of one launcher."""

    node: str
    at: float
    """Unix time in seconds when it began."""
    seconds: float
    """How long it took."""
    processes: List[ProcessStacks] = field(default_factory=lambda: [])
    left_out: int = 0
    """Processes that there was no room for."""


def to_json(dump: Dump) -> str:
    """One line."""
    return wire.to_json(dump)


def from_dict(data: Dict[str, Any]) -> Dump:
    """The dump in a parsed object.

    Raises:
        ValueError: a key is missing or has the wrong type (it is named).
    """
    return wire.from_dict(Dump, data)


def fit_dump(dump: Dump, limit_bytes: int) -> Dump:
    """As much of the dump as fits: first threads, frames and files go, then processes from the end."""
    for threads, frames, files in LEVELS:
        dump = replace(dump, processes=[_cut(one, threads, frames, files) for one in dump.processes])
        if _bytes(dump) <= limit_bytes:
            return dump
    tops = [one for one in dump.processes if one.top]
    dump = replace(dump, processes=[*tops, *(one for one in dump.processes if not one.top)])
    while dump.processes and _bytes(dump) > limit_bytes:
        kept = len(dump.processes) * 3 // 4
        dump = replace(dump, processes=dump.processes[:kept], left_out=dump.left_out + len(dump.processes) - kept)
    return dump


def text(dump: Dump) -> str:
    """As py-spy writes it, one process after the other."""
    lines = (line for process in dump.processes for line in _process_lines(process, dump.node))
    return "\n".join(lines) + ("\n" if dump.processes else "")


def _process_lines(process: ProcessStacks, node: str) -> Iterator[str]:
    whose = f"rank {process.rank}" if process.top else f"below rank {process.rank}"
    yield f"Process {process.pid}: {process.program} ({whose} on {node})"
    yield f"# {process.state or 'state not known'}; {process.how or 'nothing seen'}" + (
        f"; {process.why}" if process.why else ""
    )
    for thread in process.threads:
        active = "active" if thread.state == "running" else "idle"
        yield f'Thread {thread.id} ({active}): "{thread.name}"'
        yield from (f"    {one.function} ({one.file or '?'}:{one.line})" for one in thread.frames)
        if thread.waits:
            yield f"    # waits in {thread.waits}"
        if thread.kernel:
            yield f"    # kernel: {' < '.join(thread.kernel)}"
    if process.files:
        yield f"# open: {', '.join(process.files)}"
    yield ""


def _cut(process: ProcessStacks, threads: int, frames: int, files: int) -> ProcessStacks:
    main = process.main
    ordered = sorted(process.threads, key=lambda thread: thread is not main)[:threads]
    kept = [
        replace(one, frames=one.frames[:frames], kernel=one.kernel[:frames], name=one.name[:80], waits=one.waits[:200])
        for one in ordered
    ]
    kept = [
        replace(
            one, frames=[replace(frame, function=frame.function[:160], file=frame.file[-200:]) for frame in one.frames]
        )
        for one in kept
    ]
    return replace(process, threads=kept, files=[one[:200] for one in process.files[:files]], why=process.why[:200])


def _bytes(dump: Dump) -> int:
    return len(json.dumps(dump, default=vars, ensure_ascii=False, separators=(",", ":")).encode())


LIMIT_BYTES = 1024 * 1024
"""Of a body."""
DUMP_BYTES = 256 * 1024
"""Of the dump in it, in UTF-8: escaped for JSON it may become three times as long."""
NAME_BYTES = 4096
"""Of the pod, the node and the id together."""
MOST = 1e15
"""No count of processes and no time in seconds is larger."""


@dataclass(frozen=True)
class StackAnswer:
    """A launcher's answer to an order `stacks`; the dump names its node."""

    pod: str
    id: str
    """Of the order."""
    dump: Dump


def answer_to_json(answer: StackAnswer) -> Dict[str, Any]:
    """The object that travels; of a dump that is too long as much as fits.

    Raises:
        ValueError: the names are too long.
    """
    dump = fit_dump(answer.dump, DUMP_BYTES)
    names = {"pod": answer.pod, "node": dump.node, "id": answer.id}
    if len("".join(names.values()).encode("utf-8", "replace")) > NAME_BYTES:
        raise ValueError(f"pod, node, id: longer than {NAME_BYTES} bytes together")
    stacks: Dict[int, List[Dict[str, Any]]] = {}
    for process in dump.processes:
        told = dataclasses.asdict(process)
        stacks.setdefault(told.pop("rank"), []).append(told)
    ranks = [{"rank": rank, "processes": processes} for rank, processes in stacks.items()]
    return {**names, "at": dump.at, "seconds": dump.seconds, "left_out": dump.left_out, "stacks": ranks}


def from_json(body: Mapping[str, Any]) -> StackAnswer:
    """The answer in a parsed body; `to_json` makes the same body of it again.

    Raises:
        ValueError: names the key that is missing or wrong, and what is wrong with it.
    """
    _bounded(body)
    pod, node, order = (str(_typed(body, key, str)) for key in ("pod", "node", "id"))
    if len((pod + node + order).encode()) > NAME_BYTES:
        raise ValueError(f"pod, node, id: longer than {NAME_BYTES} bytes together")
    at, seconds = (float(_typed(body, key, (float, int))) for key in ("at", "seconds"))
    found: Dict[int, List[ProcessStacks]] = {}
    for index, one in enumerate(_objects(body, "stacks")):
        where = f"stacks[{index}]."
        rank = int(_typed(one, "rank", int, where))
        if rank in found:
            raise ValueError(f"{where}rank: {rank} stands there twice")
        found[rank] = [_process(item, rank, where) for item in _objects(one, "processes", where)]
    processes = [process for one in found.values() for process in one]
    return StackAnswer(pod, order, Dump(node, at, seconds, processes, int(_typed(body, "left_out", int))))


def _bounded(body: Mapping[str, Any]) -> None:
    """It is small enough, and no text in it holds what UTF-8 cannot say: reports and logs take it as it is."""
    try:
        size = len(json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"a text in it is not Unicode: {error.reason}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if size > LIMIT_BYTES:
        raise ValueError(f"it has {size} bytes, more than {LIMIT_BYTES}")


def _typed(body: Mapping[str, Any], key: str, kind: Any, where: str = "") -> Any:
    """A text, or a number that is neither negative nor infinite."""
    value = body.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        wanted = "a text" if kind is str else "a number"
        raise ValueError(f"{where}{key}: expected {wanted}, got {type(value).__name__ if key in body else 'nothing'}")
    if isinstance(value, (int, float)) and not 0 <= value < MOST:
        raise ValueError(f"{where}{key}: expected a number from 0 to {MOST:g}, got {value}")
    return value


def _objects(body: Mapping[str, Any], key: str, where: str = "") -> List[Dict[str, Any]]:
    value: Any = body.get(key)
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("List[Any]", value)):
        raise ValueError(f"{where}{key}: expected a list of objects")
    return cast("List[Dict[str, Any]]", value)


def _process(item: Dict[str, Any], rank: int, where: str) -> ProcessStacks:
    try:
        return wire.from_dict(ProcessStacks, {**item, "rank": rank})
    except ValueError as error:
        raise ValueError(f"{where}processes: {error}") from error
