"""The parked process of a pod: a Python with its heavy imports done, which forks a rank when the launcher asks.

Started by `warm.Parked`, with the ranks' own Python and its options:

    python3 programs.pyz park --socket=7 --parent=41 --name=train.py --preload=numpy,torch

It has no threads, no GPU context and no descriptors beside its socket; where a preloaded module brings one of them, it
says so and ends, and ranks are started plainly.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import socket
import sys
from dataclasses import dataclass
from typing import Generator, List, Optional, Tuple

from workflows.programs import flags, warm_become, warm_frames, warm_home
from workflows.programs.warm_home import Home
from workflows.programs.warm_order import DESCRIPTORS, GO, Order, Target, mismatch, order_of

EXIT_NOT_BORN = 126


@dataclass(frozen=True)
class Options:
    """Made by the launcher."""

    socket: int
    """Descriptor of the talk with the launcher."""
    parent: int
    """The launcher: this process dies with it."""
    name: str
    """Script or module that forks will be."""
    module: bool = False
    preload: Tuple[str, ...] = ()
    """Modules to import, separated by commas or repeated."""

    def argv(self) -> List[str]:
        """The flags that say this."""
        return flags.to_argv(self)

    def modules(self) -> List[str]:
        """To import, in this order."""
        return [name for text in self.preload for name in text.split(",") if name]


def main(argv: List[str]) -> int:
    """Wait and fork. A fork returns from here too: with the exit code of the program that it was."""
    try:
        options = flags.from_argv(Options, argv)
        connection = socket.socket(fileno=options.socket)
        warm_become.tie(options.parent)
    except (flags.UsageError, OSError, warm_become.OrphanError) as error:
        print(f"park: {error}", file=sys.stderr, flush=True)
        return 2
    connection.set_inheritable(False)
    order = _parked(options, connection)
    return 0 if order is None else warm_become.become(order)


def _parked(options: Options, connection: socket.socket) -> Optional[Order]:
    """The order that this process, now a fork, is to carry out; None: the talk is over."""
    home = warm_home.remember([options.socket])
    target = Target(options.name, options.module, os.getcwd())
    warm_become.take_path(target)
    try:
        with _quiet(), _low_priority():
            failed, problem = _import_all(options.modules())
        if failed:
            warm_frames.send(connection, {"not_imported": failed, "why": problem})
            _again_without(failed, options, home)
        warm_home.retire_library_threads()
        why = warm_home.obstacle(home, [options.socket])
        warm_frames.send(connection, {"ready": not why, "why": why})
        if why:
            return None
        gc.collect()
        gc.freeze()  # a collection in a fork would copy every page of what was imported
        return _serve(options, connection, home, target)
    except (OSError, warm_frames.FrameError):
        return None


def _serve(options: Options, connection: socket.socket, home: Home, target: Target) -> Optional[Order]:
    while True:
        heard = warm_frames.receive(connection, DESCRIPTORS)
        if heard is None:
            return None
        message, descriptors = heard
        try:
            if len(descriptors) != DESCRIPTORS:
                raise warm_frames.FrameError(f"{len(descriptors)} descriptors")
            order = order_of(message)
            with socket.socket(fileno=descriptors[0]) as channel:
                why = _refusal(options, home, target, order, [options.socket, *descriptors])
                if why:
                    _answer(channel, why)
                elif not _gone(channel) and _fork(options, home, order, channel, (descriptors[1], descriptors[2])):
                    connection.detach()  # its descriptor is closed already, and so are these; others bear their numbers
                    del descriptors[1:]
                    return order
        finally:
            warm_frames.close(descriptors[1:])


def _refusal(options: Options, home: Home, target: Target, order: Order, ours: List[int]) -> str:
    why = mismatch(target, home.environment, order) or warm_home.obstacle(home, ours)
    if why:
        return why
    if not warm_become.runnable(order.target):
        return f"{order.target.name}: cannot be read"
    return "" if os.getppid() == options.parent else "its launcher is gone"


def _fork(options: Options, home: Home, order: Order, channel: socket.socket, streams: Tuple[int, int]) -> bool:
    """Have the launcher get a child; True in that child, which has been told to go on."""
    read, write = os.pipe()
    try:
        middle = os.fork()
        if middle == 0:
            os.close(write)
            _leave_as_orphan()
            _wait_and_settle(options, home, order, channel, streams, read)
            return True
        # Once the middle one is reaped, its child has its parent for good.
        if os.waitpid(middle, 0)[1] != 0:
            raise OSError("no room for another process")
        with contextlib.suppress(BrokenPipeError):  # the child died: the launcher hears it from the channel
            os.write(write, GO)
    except OSError as error:
        _answer(channel, f"it cannot be forked: {error}")
    warm_frames.close((read, write))
    return False


def _leave_as_orphan() -> None:
    """Go on as a child of this process, which ends: the orphan falls to the launcher."""
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(EXIT_NOT_BORN)


def _wait_and_settle(
    options: Options, home: Home, order: Order, channel: socket.socket, streams: Tuple[int, int], gate: int
) -> None:
    """In the new process, until the launcher knows it and tells it to go on; nothing here may return otherwise."""
    try:
        if os.read(gate, len(GO)) != GO:
            os._exit(EXIT_NOT_BORN)
        try:
            warm_become.settle(home, order, options.parent, streams, channel.fileno())
        except (OSError, ValueError, warm_become.OrphanError) as error:
            _answer(channel, str(error))
            os._exit(EXIT_NOT_BORN)
        warm_frames.send(channel, {"pid": os.getpid()})
        if channel.recv(len(GO)) != GO:
            os._exit(EXIT_NOT_BORN)
        channel.close()
    except BaseException:
        # A fork that nobody knows must never be a rank, nor a second parked process.
        os._exit(EXIT_NOT_BORN)


def _answer(channel: socket.socket, why: str) -> None:
    with contextlib.suppress(OSError):  # whoever asked has started the rank plainly by now
        warm_frames.send(channel, {"refused": why})


def _gone(channel: socket.socket) -> bool:
    """Whoever asked has given up."""
    poll = select.poll()
    poll.register(channel.fileno(), 0)
    return bool(poll.poll(0))


def _import_all(modules: List[str]) -> Tuple[str, str]:
    """The first module that cannot be imported, and why; "" where all are there."""
    for name in modules:
        try:
            __import__(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # also SystemExit: a module may end its process when it finds no GPU
            return name, f"{type(error).__name__}: {error}"[:500]
    return "", ""


def _again_without(name: str, options: Options, home: Home) -> None:
    """Start over without a module: what its half import left behind must not be found by the program."""
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    others = ",".join(one for one in options.modules() if one != name)
    argv = [*(word for word in words if not word.startswith("--preload=")), f"--preload={others}"]
    os.set_inheritable(options.socket, True)
    os.execve(sys.executable, argv, dict(home.environment))  # noqa: S606 - the same program once more


@contextlib.contextmanager
def _quiet() -> Generator[None, None, None]:
    """What modules print while they are imported reaches nobody: it belongs to no rank."""
    kept = [os.dup(1), os.dup(2)]
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        warm_frames.close([nothing, *kept])


@contextlib.contextmanager
def _low_priority() -> Generator[None, None, None]:
    """Below the ranks, where the way back is open: forks must be as quick as a plain start."""
    lower = warm_home.can_be_raised()
    was = os.getpriority(os.PRIO_PROCESS, 0)
    if lower:
        os.setpriority(os.PRIO_PROCESS, 0, was + warm_home.NICE)
    try:
        yield
    finally:
        if lower:
            os.setpriority(os.PRIO_PROCESS, 0, was)
