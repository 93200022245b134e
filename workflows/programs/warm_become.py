"""What a fork of the parked process does to be the program, as if the program had been started alone.

What needs nothing: `secrets`, `uuid4` and OpenSSL ask the kernel or notice forks; `random` reseeds itself after each
one. What is drawn anew here: numpy's state, torch's default seed where each process draws one (in older releases it
is a constant). What stays shared: the seed of `hash(str)` and the layout of memory, as after any fork.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import ctypes
import os
import runpy
import signal
import sys
import threading
import types
from typing import Any, Callable, Dict, List, Optional, Tuple

from workflows.programs import own, ranks, warm_home, warm_name
from workflows.programs.python_start import stack_signal
from workflows.programs.warm_frames import close
from workflows.programs.warm_home import Home
from workflows.programs.warm_order import Order, Target

PACKAGE = "workflows"
"""Ours; a program may have a package of that name too."""
TORCH_CONSTANT_SEED = 67280421310721
"""Of torch's default generator where each process begins with the same one."""
TYPED_SEED = 1 << 32
"""Seeds that a preloaded module has set are smaller; those that torch draws from the kernel hardly ever are."""


class OrphanError(Exception):
    """The launcher is not this process's parent: it died, or the kernel gave the orphan to somebody else."""


def tie(parent: int) -> None:
    """Die with `parent`.

    Raises:
        OrphanError: it is not the parent.
    """
    ctypes.CDLL(None).prctl(ranks.PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        raise OrphanError(f"its parent would be process {os.getppid()}, not the launcher {parent}")


def first_path(target: Target) -> Optional[str]:
    """What a plain start puts first on the path of modules; None: nothing."""
    path = _absolute(target)
    if not target.module and _importer(path):
        return path
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return None
    return target.working_directory if target.module else os.path.dirname(os.path.realpath(path))


def take_path(target: Target) -> None:
    """The path of modules as the program will see it, from now on: preloaded modules must be the same."""
    first = first_path(target)
    # The first entry is where these programs are: what is ours is imported by now.
    sys.path[:] = [*([] if first is None else [first]), *sys.path[1:]]


def settle(home: Home, order: Order, parent: int, streams: Tuple[int, int], keep: int) -> None:
    """Everything but the program itself. Where it fails, nobody has noticed and a plain start is still possible.

    Args:
        home: how the parked process began.
        order: what is asked.
        parent: the launcher.
        streams: standard output and standard error.
        keep: a descriptor that stays open.

    Raises:
        OrphanError, OSError, ValueError: the system does not let it be the same as a plain start.
    """
    if order.terminal:
        os.setsid()
    else:
        os.setpgid(0, 0)
    tie(parent)
    for number, fd in enumerate(streams, 1):
        os.dup2(fd, number)
    close(fd for fd in warm_home.descriptors() if fd not in home.descriptors and fd != keep)
    os.chdir(order.target.working_directory)
    changes = warm_home.imported_changes(home)
    warm_home.restore(home)
    # Name by name, so that `getenv` of libraries in C sees the same.
    os.environ.clear()
    os.environ.update(order.environment)
    for name, text in changes.items():
        if text is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = text
    _reseed()
    warm_name.show(order.argv, order.environment)
    stack_signal.install()
    if not _is_own(order.target):
        _forget_own_modules()


def become(order: Order) -> int:
    """Be the program: its exit code, once it has ended by itself.

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


def runnable(target: Target) -> bool:
    """The script can be read now; modules are found or not where they are run."""
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


def _is_own(target: Target) -> bool:
    """The program is one of these programs: it runs from the same modules."""
    return not target.module and os.path.realpath(_absolute(target)) == os.path.realpath(own.command("")[-2])


def _absolute(target: Target) -> str:
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
