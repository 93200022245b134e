"""The parked process of a pod: a Python with its heavy imports done, which forks a rank when the launcher asks.

Started by `parent.ParkedProcess`, with the ranks' own Python and its options:

    python3 programs.pyz park --socket=7 --parent=41 --name=train.py --preload=numpy,torch

It has no threads, no GPU context and no descriptors beside its socket; where a preloaded module brings one of them, it
reports that and ends, and ranks are started plainly.

A fork then becomes the program, as if that had been started alone. `secrets`, `uuid4` and OpenSSL need nothing for it:
they ask the kernel or notice forks; `random` reseeds itself after each one. Drawn anew are numpy's state and torch's
default seed where each process draws one (in older releases it is a constant). The seed of `hash(str)` and the layout
of memory stay shared, as after any fork.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import gc
import os
import runpy
import select
import signal
import socket
import sys
import threading
import types
from dataclasses import dataclass
from typing import Any, Callable, Dict, Generator, List, Optional, Tuple

from workflows.programs.prefork import process_image, protocol
from workflows.programs.prefork.process_image import InitialState
from workflows.programs.prefork.protocol import DESCRIPTORS, GO, ForkOrder, ParkedProgram, close, mismatch, parse_order
from workflows.programs.runtime import files, flags, processes
from workflows.programs.stacks.python_start import stack_signal

PACKAGE = "workflows"
"""Ours; a program may have a package of that name too."""
TORCH_CONSTANT_SEED = 67280421310721
"""Of torch's default generator where each process begins with the same one."""
TYPED_SEED = 1 << 32
"""Seeds that a preloaded module has set are smaller; those that torch draws from the kernel hardly ever are."""


class OrphanError(Exception):
    """The launcher is not this process's parent: it died, or the kernel gave the orphan to another process."""


def die_with_parent(parent: int) -> None:
    """Die with `parent`.

    Raises:
        OrphanError: it is not the parent.
    """
    ctypes.CDLL(None).prctl(processes.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OrphanError(f"its parent would be process {os.getppid()}, not the launcher {parent}")


def first_path(target: ParkedProgram) -> Optional[str]:
    """The first entry of the module path in a plain start; None: there is none."""
    path = _absolute(target)
    if not target.module and _importer(path):
        return path
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return None
    return target.working_directory if target.module else os.path.dirname(os.path.realpath(path))


def take_path(target: ParkedProgram) -> None:
    """Set the module path that the program will see: preloaded modules must be the same."""
    first = first_path(target)
    # The first entry is where these programs are: what is ours is imported by now.
    sys.path[:] = [*([] if first is None else [first]), *sys.path[1:]]


def prepare_fork(home: InitialState, order: ForkOrder, parent: int, streams: Tuple[int, int], keep: int) -> None:
    """Prepare everything but the program itself; where it fails, a plain start is still possible.

    `streams` are standard output and standard error; the descriptor `keep` stays open.

    Raises:
        OrphanError, OSError, ValueError: the fork cannot be made equal to a plain start.
    """
    if order.terminal:
        os.setsid()
    else:
        os.setpgid(0, 0)
    die_with_parent(parent)
    for number, fd in enumerate(streams, 1):
        os.dup2(fd, number)
    close(fd for fd in process_image.descriptors() if fd not in home.descriptors and fd != keep)
    os.chdir(order.target.working_directory)
    changes = process_image.imported_changes(home)
    process_image.restore_state(home)
    # Name by name, so that `getenv` of libraries in C sees the same.
    os.environ.clear()
    os.environ.update(order.environment)
    for name, text in changes.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
    _reseed()
    process_image.rewrite_proc_files(order.argv, order.environment)
    stack_signal.install()
    if not _is_own(order.target):
        _forget_own_modules()


def run_program(order: ForkOrder) -> int:
    """Run the program; its exit code, once it has ended by itself.

    Raises:
        SystemExit: of the program.
    """
    main = types.ModuleType("__main__")
    vars(main).update({"__builtins__": builtins, **({"__annotations__": {}} if sys.version_info < (3, 14) else {})})
    sys.modules["__main__"] = main
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = order.argv
    target = order.target
    sys.argv[:] = ["-m" if target.module else target.name, *order.arguments]
    if target.module:
        return _run(lambda: _run_module(target.name, True))
    if _importer(_absolute(target)):
        return _run(lambda: _run_module("__main__", False))
    return _run_script(_absolute(target), main.__dict__)


def is_runnable(target: ParkedProgram) -> bool:
    """Whether the script can be read now; modules are looked up when they run."""
    path = _absolute(target)
    return target.module or os.path.isfile(path) or bool(_importer(path))


def _run_module(name: str, alter_argv: bool) -> None:
    # What the interpreter itself calls for `-m` and for archives: the same tracebacks and the same `__spec__`.
    vars(runpy)["_run_module_as_main"](name, alter_argv)


def _run_script(path: str, names: Dict[str, Any]) -> int:
    from importlib.machinery import SourceFileLoader

    names.update(__file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))

    def work() -> None:
        with open(path, "rb") as file:
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), names)  # noqa: S102 - the point of it all

    return _run(work)


def _run(work: Callable[[], None]) -> int:
    """Run it; what it raises is shown as the interpreter would show it, without the frames from here."""
    try:
        work()
    except SystemExit:
        raise
    except BaseException as error:
        _show(error)
        if isinstance(error, KeyboardInterrupt):
            _die_of_interrupt()
        return 1
    return 0


def _show(error: BaseException) -> None:
    trace = error.__traceback__
    here = _run.__code__.co_filename
    while trace is not None and trace.tb_frame.f_code.co_filename == here:
        trace = trace.tb_next
    error = error.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    try:
        sys.excepthook(type(error), error, trace)
    except Exception:
        sys.__excepthook__(type(error), error, trace)


def _die_of_interrupt() -> None:
    """As the interpreter does: threads and handlers first, then the signal itself, so that a shell sees it."""
    vars(threading)["_shutdown"]()
    vars(atexit)["_run_exitfuncs"]()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def _reseed() -> None:
    """Streams of random numbers that a plain start takes from the kernel."""
    numpy_random: Any = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    generator: Any = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        seed = generator.initial_seed()
        if seed > TYPED_SEED and seed != TORCH_CONSTANT_SEED:
            generator.seed()
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def _forget_own_modules() -> None:
    for name in [name for name in sys.modules if name == PACKAGE or name.startswith(PACKAGE + ".")]:
        del sys.modules[name]


def _is_own(target: ParkedProgram) -> bool:
    """The program is one of these programs: it runs from the same modules."""
    return not target.module and os.path.realpath(_absolute(target)) == os.path.realpath(files.command("")[-2])


def _absolute(target: ParkedProgram) -> str:
    """As the interpreter writes it: nothing is made shorter."""
    return os.path.join(target.working_directory, target.name)


def _importer(path: str) -> bool:
    """A folder or an archive with a `__main__` in it, which is run as a module."""
    hooks: List[Callable[[str], object]] = list(sys.path_hooks)
    for hook in hooks:
        try:
            hook(path)
        except ImportError:
            continue
        return True
    return False


EXIT_FORK_FAILED = 126


@dataclass(frozen=True)
class Options(flags.Flags):
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

    def modules(self) -> List[str]:
        """To import, in this order."""
        return [name for text in self.preload for name in text.split(",") if name]


def main(argv: List[str]) -> int:
    """Wait and fork. A fork returns from here too: with the exit code of the program that it was."""
    try:
        options = flags.from_argv(Options, argv)
        connection = socket.socket(fileno=options.socket)
        die_with_parent(options.parent)
    except (flags.UsageError, OSError, OrphanError) as error:
        print(f"park: {error}", file=sys.stderr, flush=True)
        return 2
    connection.set_inheritable(False)
    order = _serve_until_fork(options, connection)
    return 0 if order is None else run_program(order)


def _serve_until_fork(options: Options, connection: socket.socket) -> Optional[ForkOrder]:
    """The order that this process, now a fork, is to carry out; None: the talk is over."""
    home = process_image.capture_state([options.socket])
    target = ParkedProgram(options.name, options.module, os.getcwd())
    take_path(target)
    try:
        with _output_discarded(), _low_priority():
            failed, problem = _import_all(options.modules())
        if failed:
            protocol.send(connection, {"not_imported": failed, "why": problem})
            _restart_without(failed, options, home)
        process_image.retire_library_threads()
        why = process_image.fork_obstacle(home, [options.socket])
        protocol.send(connection, {"ready": not why, "why": why})
        if why:
            return None
        gc.collect()
        gc.freeze()  # a collection in a fork would copy every page of what was imported
        return _serve(options, connection, home, target)
    except (OSError, protocol.FrameError):
        return None


def _serve(
    options: Options, connection: socket.socket, home: InitialState, target: ParkedProgram
) -> Optional[ForkOrder]:
    while True:
        heard = protocol.receive(connection, DESCRIPTORS)
        if heard is None:
            return None
        message, descriptors = heard
        try:
            if len(descriptors) != DESCRIPTORS:
                raise protocol.FrameError(f"{len(descriptors)} descriptors")
            order = parse_order(message)
            with socket.socket(fileno=descriptors[0]) as channel:
                why = _refusal(options, home, target, order, [options.socket, *descriptors])
                if why:
                    _answer(channel, why)
                elif not _has_peer_closed(channel) and _fork(
                    options, home, order, channel, (descriptors[1], descriptors[2])
                ):
                    connection.detach()  # its descriptor is closed already, and so are these; others bear their numbers
                    del descriptors[1:]
                    return order
        finally:
            protocol.close(descriptors[1:])


def _refusal(options: Options, home: InitialState, target: ParkedProgram, order: ForkOrder, ours: List[int]) -> str:
    why = mismatch(target, home.environment, order) or process_image.fork_obstacle(home, ours)
    if why:
        return why
    if not is_runnable(order.target):
        return f"{order.target.name}: cannot be read"
    return "" if os.getppid() == options.parent else "its launcher is gone"


def _fork(
    options: Options, home: InitialState, order: ForkOrder, channel: socket.socket, streams: Tuple[int, int]
) -> bool:
    """Fork a child for the launcher; True in that child, once the launcher lets it go on."""
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
    protocol.close((read, write))
    return False


def _leave_as_orphan() -> None:
    """Continue as a child of this process, which ends, so that the launcher adopts the orphan."""
    try:
        if os.fork():
            os._exit(0)
    except OSError:
        os._exit(EXIT_FORK_FAILED)


def _wait_and_settle(
    options: Options, home: InitialState, order: ForkOrder, channel: socket.socket, streams: Tuple[int, int], gate: int
) -> None:
    """In the new process, until the launcher knows it and tells it to go on; nothing here may return otherwise."""
    try:
        if os.read(gate, len(GO)) != GO:
            os._exit(EXIT_FORK_FAILED)
        try:
            prepare_fork(home, order, options.parent, streams, channel.fileno())
        except (OSError, ValueError, OrphanError) as error:
            _answer(channel, str(error))
            os._exit(EXIT_FORK_FAILED)
        protocol.send(channel, {"pid": os.getpid()})
        if channel.recv(len(GO)) != GO:
            os._exit(EXIT_FORK_FAILED)
        channel.close()
    except BaseException:
        # A fork that nobody knows must never be a rank, nor a second parked process.
        os._exit(EXIT_FORK_FAILED)


def _answer(channel: socket.socket, why: str) -> None:
    with contextlib.suppress(OSError):  # whoever asked has started the rank plainly by now
        protocol.send(channel, {"refused": why})


def _has_peer_closed(channel: socket.socket) -> bool:
    """Whether the launcher has given up on this fork."""
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


def _restart_without(name: str, options: Options, home: InitialState) -> None:
    """Start again without a module: the program must not find the leftovers of its failed import."""
    with open("/proc/self/cmdline", "rb") as file:
        words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]]
    others = ",".join(one for one in options.modules() if one != name)
    argv = [*(word for word in words if not word.startswith("--preload=")), f"--preload={others}"]
    os.set_inheritable(options.socket, True)
    os.execve(sys.executable, argv, dict(home.environment))  # noqa: S606 - the same program once more


@contextlib.contextmanager
def _output_discarded() -> Generator[None, None, None]:
    """Discard what modules print while they are imported: it belongs to no rank."""
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
        protocol.close([nothing, *kept])


@contextlib.contextmanager
def _low_priority() -> Generator[None, None, None]:
    """Lower the priority below the ranks, where it can be raised again: forks must be as quick as a plain start."""
    lower = process_image.can_be_raised()
    was = os.getpriority(os.PRIO_PROCESS, 0)
    if lower:
        os.setpriority(os.PRIO_PROCESS, 0, was + process_image.NICE)
    try:
        yield
    finally:
        if lower:
            os.setpriority(os.PRIO_PROCESS, 0, was)
