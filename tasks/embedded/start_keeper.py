"""Starts a keeper where a client wrote something that needs one and found none; records keepers that ended wrongly.

The shell that starts a keeper waits for its end and appends time, exit code and the last lines of `keeper.log` to
`keeper.failures`. A keeper that runs well removes the file, so it holds failures in a row; they delay the next start.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import time

from profiles.errors import Unavailable
from tasks.embedded.runtime.processes import CLUSTER_VARIABLE
from tasks.embedded.store import locks

FEW = 3
"""So many failures in a row are no accident: from now on whoever needs the keeper is told."""
KILLS_A_FAILURE = 4
"""A kill from outside is no crash; but a machine that is short of memory kills again and again."""
FIRST_WAIT_SECONDS = 0.1
LONGEST_WAIT_SECONDS = 30.0
"""Between two starts: doubled with every failure. A start costs a tenth of a second of one processor."""
MEMORY_SECONDS = 60.0
"""When nobody has started a keeper for so long the failures before are forgotten: twice the longest wait."""
SETTLED_SECONDS = 2.0
"""A keeper that has lived for so long, after a whole round, makes progress: longer than any burst of its own events."""
RETRY_SECONDS = 5.0
"""Nobody who was told comes back later than this."""
_KILLED = ("exit 137", "exit 143", "zygote ended")
_LINE_CHARACTERS = 300

_PROGRAM = (
    "import sys;sys.path.insert(0,sys.argv[1]);sys.path.extend(sys.argv[3].split(':'));"
    "from tasks.embedded.control.keeper import main;sys.exit(main(sys.argv[2]))"
)
_NURSE = r"""
(
  ( exec 2>>"$0/keeper.log" && cd / && exec "$@" )
  code=$?
  [ "$code" -eq 0 ] || {
    echo "$(date -u +%Y-%m-%dT%H:%M:%SZ) exit $code"
    tail -c 2000 "$0/keeper.log" 2>&1 | tail -n 8 | sed 's/^/  /'
    echo
  } >>"$0/keeper.failures"
  rm -f "$0/keeper.starting"
) </dev/null >/dev/null 2>&1 &
"""
"""The keeper is nobody's child who would have to reap it, and its end is written down whatever ended it, also where it
could not even be started. The file stays small: it is removed by a keeper that works and begun anew after a while."""
START_SECONDS = 2.0
"""A start that has neither come to a living keeper nor to an end after this time is tried again beside it."""
START_CHECK_SECONDS = 0.02
ROOM_BYTES = 1 << 16
"""For the first objects and the log of a keeper; no more is asked for, so that it can put a full cluster in order."""
LOG_BYTES = 1 << 20
"""A log larger than this is put aside when the next keeper is started."""


class FailureLog:
    """Failures in a row, newest last.

    Args:
        ends: how each ended, such as `exit 1`.
        last_line: last line of the newest one.
        at: when the newest one ended or a start was tried since, seconds since 1970.
    """

    def __init__(self, ends: list[str], last_line: str, at: float) -> None:
        self.ends = ends
        self.last_line = last_line
        self.at = at

    @property
    def weight(self) -> int:
        """How many there are; kills count for less."""
        kills = sum(end in _KILLED for end in self.ends)
        return len(self.ends) - kills + kills // KILLS_A_FAILURE

    @property
    def hopeless(self) -> bool:
        """Whether they are too many for an accident."""
        return self.weight >= FEW

    def wait_seconds(self, now: float) -> float:
        """How long the next keeper must not be started, at the time `now`; 0 where a start is due."""
        if self.weight == 0 or now < self.at - 1.0:  # the clock was set back: nobody waits for it to catch up
            return 0.0
        wait = min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2 ** min(self.weight - 1, 20))
        return max(0.0, self.at + wait - now)

    def message(self, root: str) -> str:
        """The message for callers that need the keeper; the same words as long as the cause is the same."""
        end, log = self.ends[-1], os.path.join(root, "keeper.log")
        said = f" ({self.last_line})" if self.last_line else ""
        return f"the embedded cluster stands still: its keeper ends at every start, {end}{said}; see {log}"


def failures_path(root: str) -> str:
    """The file."""
    return os.path.join(root, "keeper.failures")


def read_failures(root: str) -> FailureLog | None:
    """The failures in a row, None where there are none, or none worth remembering."""
    path = failures_path(root)
    try:
        at = os.stat(path).st_mtime
        with open(path, "rb") as file:
            # An empty line ends each of them; what stands behind the last one is being written now.
            entries = file.read().decode(errors="replace").split("\n\n")[:-1]
    except OSError:
        return None
    if not entries or time.time() - at > MEMORY_SECONDS:
        return None
    ends = [entry.partition("\n")[0].partition(" ")[2] for entry in entries]
    told = entries[-1].rpartition("\n  ")[2] if "\n" in entries[-1] else ""
    return FailureLog(ends, told.strip()[:_LINE_CHARACTERS], at)


def write_failure(root: str, end: str) -> None:
    """Append one: how it ended."""
    with open(failures_path(root), "ab") as file:
        file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {end}\n\n".encode())


def note_start(root: str) -> None:
    """Record that a start is tried now, so that no other is for a while. Failures long past are forgotten."""
    path = failures_path(root)
    with contextlib.suppress(OSError):
        if time.time() - os.stat(path).st_mtime > MEMORY_SECONDS:
            os.unlink(path)
        else:
            os.utime(path)


def forget_failures(root: str) -> None:
    """The keeper makes progress."""
    with contextlib.suppress(OSError):
        os.unlink(failures_path(root))


def keeper_lock(root: str) -> str:
    """The lock that a living keeper holds."""
    return os.path.join(root, "keeper.lock")


def busy_mark(root: str) -> str:
    """A file that stands while a keeper has something pending; with no keeper alive it says that one was killed."""
    return os.path.join(root, "keeper.busy")


def look_mark(root: str) -> str:
    """A wish for the keeper; in the folder that it sleeps on, so that it wakes from it."""
    return os.path.join(root, "changes", "look")


def ask_to_look(root: str) -> None:
    """Let the keeper read every object anew: one of them is broken. Also starts one where none lives.

    Raises:
        Unavailable: this machine does not let us start one.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(look_mark(root), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    start_keeper(root)


def look_mark_taken(root: str) -> bool:
    """Whether a look was asked for; the request is then removed."""
    try:
        os.unlink(look_mark(root))
    except OSError:
        return False
    return True


def keeper_command(root: str) -> list[str]:
    """The argument vector of a keeper: no user settings, this project's own folder first, those of libraries last."""
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, here, root, ":".join(_folders_of_libraries())]


def _folders_of_libraries() -> list[str]:
    import importlib.util  # noqa: PLC0415 - only for a start; supervisors, which stay small, import this module too

    folders: dict[str, None] = {}
    for module, package in _LIBRARIES.items():
        found = importlib.util.find_spec(module)
        if found is None or found.origin is None:
            raise OSError(errno.ENOENT, f"the package {package} is not installed")
        folders[os.path.dirname(os.path.dirname(found.origin))] = None
    return list(folders)


_LIBRARIES = {"yaml": "PyYAML", "re2": "google-re2"}
"""What a keeper imports that is not Python's own, and the package that has it."""


def keeper_environment(root: str) -> dict[str, str]:
    """The whole environment of keeper and supervisors; the marker makes them findable."""
    return {CLUSTER_VARIABLE: root, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def start_keeper(root: str) -> float:
    """Start a keeper unless one lives, is being started, or the last ones failed a moment ago. Returns at once.

    Of two started together one leaves.

    Returns:
        Seconds after which it is worth asking again; 0 where one lives or was started.

    Raises:
        Unavailable: this machine does not let us start one.
    """
    try:
        if locks.holder(keeper_lock(root)) is not None:
            return 0.0
        failures = read_failures(root)
        wait = failures.wait_seconds(time.time()) if failures else 0.0
        if wait:
            return wait
        _reserve(root)
        if not _claim_start(root):
            return START_CHECK_SECONDS
        _spawn(root)
    except OSError as error:
        raise Unavailable(f"no keeper can be started for {root}: {error}", RETRY_SECONDS) from error
    return 0.0


def start_mark(root: str) -> str:
    """A file that stands from the start of a keeper until its end is written down."""
    return os.path.join(root, "keeper.starting")


def _claim_start(root: str) -> bool:
    """Whether it is ours to start one; a keeper takes a tenth of a second until it holds its lock."""
    path = start_mark(root)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        with contextlib.suppress(FileNotFoundError):
            if 0.0 <= time.time() - os.stat(path).st_mtime < START_SECONDS:
                return False
            os.utime(path)
    return True


def _reserve(root: str) -> None:
    """Raise where the disk is full: a keeper would end at once, and not even its failure could be written down.

    Raises:
        OSError: what the disk says.
    """
    probe = os.path.join(root, f".room-{os.getpid()}")
    try:
        descriptor = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, ROOM_BYTES)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(error.errno, "disk full: free some space") from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(probe)


def _spawn(root: str) -> None:
    # From now on somebody must see to it that there is a keeper, also if this one never comes to say so itself.
    with contextlib.suppress(OSError):
        os.close(os.open(busy_mark(root), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
    note_start(root)
    log = os.path.join(root, "keeper.log")
    with contextlib.suppress(OSError):
        if os.stat(log).st_size > LOG_BYTES:
            os.rename(log, log + ".1")
    argv = ["/bin/sh", "-c", _NURSE, root, *keeper_command(root)]
    # The shell is to see the keeper's end, whatever our own starter ignores or blocks.
    every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    pid = os.posix_spawn("/bin/sh", argv, keeper_environment(root), setsid=True, setsigmask=(), setsigdef=every)
    with contextlib.suppress(ChildProcessError):  # who ignores SIGCHLD has nobody to wait for
        os.waitpid(pid, 0)


def insist_on_keeper(root: str, longest_wait_seconds: float) -> None:
    """Start a keeper for a caller that does not come back; waits where that is worth it, no longer than this."""
    while 0.0 < (wait := start_keeper(root)) <= longest_wait_seconds:
        time.sleep(wait)


def revive_keeper(root: str) -> float:
    """Start a keeper where one was killed with something pending; see `start_keeper`.

    Who may only read the cluster starts none: whoever may write it does.
    """
    return start_keeper(root) if os.path.exists(busy_mark(root)) and os.access(root, os.W_OK) else 0.0


def demand_keeper(root: str) -> None:
    """Raise where keepers are known to fail; else return.

    Raises:
        Unavailable: the last ones ended one after the other; it names their log.
    """
    failures = read_failures(root)
    if failures is not None and failures.hopeless:
        wait = failures.wait_seconds(time.time())
        raise Unavailable(failures.message(root), min(RETRY_SECONDS, max(0.5, wait)))


def ask_for_keeper(root: str) -> None:
    """Without one that works nothing moves: what the objects say is old, and nothing new is done.

    Raises:
        Unavailable: keepers end at every start; their log is named.
    """
    revive_keeper(root)
    demand_keeper(root)


def probe_namespaces(setting: str) -> str:
    """What `detect_namespaces` finds, asked in a process of its own: a caller with threads must not fork.

    Raises:
        Unavailable: that process did not come to an answer, so nothing is known.
    """
    here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = (
        "import sys;sys.path.insert(0,sys.argv[1]);from tasks.embedded.runtime.container import detect_namespaces as d;"
    )
    argv = [sys.executable, "-I", "-S", "-c", f"{program}print(d(sys.argv[2]),end='')", here, setting]
    reading, writing = os.pipe()
    try:
        moves = [(os.POSIX_SPAWN_DUP2, writing, 1)]
        pid = os.posix_spawn(sys.executable, argv, {"PATH": "/usr/bin:/bin"}, file_actions=moves)
    finally:
        os.close(writing)
    with open(reading) as answers:
        answer = answers.read()
    how = f"{sys.executable} ended"
    with contextlib.suppress(ChildProcessError):
        how += f" with {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}"
    if answer not in ("mount", "user", "none"):
        raise Unavailable(f"what this machine allows cannot be found out: {how}", RETRY_SECONDS)
    return answer
