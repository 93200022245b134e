"""Work that must not hang its caller: other programs with a deadline and a limit of output, functions side by side.

Work that many callers want at the same time is done once, and works that disturb each other take turns; a caller that
cannot have its turn in time gets an answer that says so.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import (
    IO,
    TYPE_CHECKING,
    Any,
    Callable,
    Dict,
    Generator,
    Hashable,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
    Union,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

MOST_BYTES = 4 << 20
"""More output than that no tool has reason for; the rest is read and dropped."""
GRACE_SECONDS = 2.0
"""For a killed process to be gone, and for its last output; a process that stays is the kernel's, and is left."""

T = TypeVar("T")


@dataclass(frozen=True)
class Ended:
    """How another program ended."""

    code: Optional[int]
    """Exit code, negative for a signal; None: it could not be started, or was killed at the deadline."""
    output: str
    errors: str = ""
    """What it wrote to standard error, where that is kept apart."""
    problem: str = ""
    """Why there is no exit code, as a sentence that names the program."""

    @property
    def last_words(self) -> str:
        """The end of what it printed, on one line; errors first."""
        return " ".join((self.errors or self.output).split())[-200:]


def run_program(
    argv: Sequence[str],
    seconds: float,
    *,
    name: str = "",
    environment: Optional[Mapping[str, str]] = None,
    apart: bool = True,
    grace_seconds: float = GRACE_SECONDS,
) -> Ended:
    """Run a program; at its end, or after `seconds`, everything is killed that it started and left in its session.

    `name` stands for it in `problem`; `apart` keeps its two outputs apart, else both are `output`; `grace_seconds` is
    how long a killed one is waited for, 0 where it may hang in the kernel.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if apart else subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )
    except OSError as error:
        return Ended(None, "", problem=f"{argv[0]} cannot be started: {describe_start_error(error)}")
    readers = [_Reader(stream) for stream in (process.stdout, process.stderr) if stream is not None]
    in_time = _ends_within(process.pid, seconds)
    # Before it is fetched: its number is nobody else's until then. What it left behind ends with it.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    grace = GRACE_SECONDS if in_time else grace_seconds
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    output, errors = [*(reader.text(grace) for reader in readers), ""][:2]
    if in_time:
        return Ended(process.returncode, output, errors)
    process.returncode = -signal.SIGKILL  # also of one that is left: nobody waits for it any more
    return Ended(None, output, errors, f"{name or os.path.basename(argv[0])} did not end within {seconds:g} s")


class _Reader:
    """Reads one output in a thread."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._kept = stream, bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while block := os.read(self._stream.fileno(), 1 << 16):
                self._kept.extend(block[: max(0, MOST_BYTES - len(self._kept))])

    def text(self, seconds: float) -> str:
        """What came; whoever left the program's session may hold the pipe open, and is not waited for."""
        self._thread.join(seconds)
        return bytes(self._kept).decode("utf-8", "replace")


def _ends_within(pid: int, seconds: float) -> bool:
    """Whether the process ends by itself in that time; it is not fetched."""
    deadline, pause = time.monotonic() + seconds, 0.001
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(0.05, 2 * pause)
    return True


def describe_start_error(error: OSError) -> str:
    """Why a program could not be started; where its file asks for capabilities that the pod dropped, what to do."""
    why = error.strerror or str(error)
    if error.errno != errno.EPERM:
        return why
    return f"{why}: its file may carry capabilities that this pod may not have; take them off in the image (setcap -r)"


def outcomes(
    works: Sequence[Callable[[], T]], at_once: int = 0, seconds: Optional[float] = None
) -> List[Union[T, Exception]]:
    """What each work returned or raised, in their order, from threads.

    `at_once` limits their number (0: one each). After `seconds` (None: no limit) what is not ready is a TimeoutError.
    """
    found: Dict[int, Union[T, Exception]] = {}
    left = iter(enumerate(works))
    lock = threading.Lock()

    def worker() -> None:
        while True:
            with lock:
                following: Optional[Tuple[int, Callable[[], T]]] = next(left, None)
            if following is None:
                return
            try:
                found[following[0]] = following[1]()
            except Exception as error:
                found[following[0]] = error

    count = min(len(works), at_once or len(works))
    threads = [threading.Thread(target=worker, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    ends = None if seconds is None else time.monotonic() + seconds
    for thread in threads:
        thread.join(None if ends is None else max(0.0, ends - time.monotonic()))
    ready = dict(found)  # what comes later comes too late
    late = TimeoutError(f"no answer within {seconds:g} s" if seconds is not None else "its thread died")
    return [ready.get(index, late) for index in range(len(works))]


def side_by_side(works: Sequence[Callable[[], T]], at_once: int = 0) -> List[T]:
    """What the works return, in their order, from threads; `at_once` limits their number (0: one each).

    Raises:
        the first one's exception, after all have ended.
    """
    answers: List[T] = []
    for outcome in outcomes(works, at_once):
        if isinstance(outcome, Exception):
            raise outcome
        answers.append(outcome)
    return answers


class SharedResult:
    """Runs one thing at a time for each key; whoever asks meanwhile gets the same answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Dict[Hashable, "Future[Any]"] = {}

    def do(self, key: Hashable, work: Callable[[], T]) -> T:
        """The answer of `work`, run here or by whoever began it first.

        Raises:
            whatever `work` raises, for all who wait for it.
        """
        from concurrent.futures import Future  # with logging, which no probe and no gate waits for

        mine: "Future[T]" = Future()
        with self._lock:
            running = self._running.setdefault(key, mine)
        if running is not mine:
            return running.result()
        try:
            answer = work()
        except BaseException as error:
            self._forget(key)
            mine.set_exception(error)
            raise
        self._forget(key)
        mine.set_result(answer)
        return answer

    def _forget(self, key: Hashable) -> None:
        with self._lock:
            del self._running[key]


class ExclusiveTurns:
    """What cannot be shared: one holder at a time for each name."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holders: Dict[str, str] = {}

    @contextmanager
    def turn(self, name: str, holder: str, seconds: float) -> Generator[str, None, None]:
        """Have `name` for oneself; waits at most so long.

        Yields:
            "" with the turn, or who had it all the time.
        """
        ends = time.monotonic() + seconds
        with self._changed:
            while name in self._holders and time.monotonic() < ends:
                self._changed.wait(max(0.0, ends - time.monotonic()))
            other = self._holders.get(name, "")
            if not other:
                self._holders[name] = holder
        try:
            yield other
        finally:
            if not other:
                with self._changed:
                    del self._holders[name]
                    self._changed.notify_all()

    def holder(self, name: str) -> str:
        """Who has it now; "": nobody."""
        with self._changed:
            return self._holders.get(name, "")
