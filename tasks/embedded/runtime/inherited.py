"""What a process has from whoever started it, set back to what is documented: signals, limits, niceness and the like.

A background process outlives the shell that started it and starts others for weeks. `nohup`, an ignored or blocked
signal, `ulimit`, `nice`, `taskset` of that shell would else hold for every container and every driver after it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal

from tasks.embedded import linux

FREE = resource.RLIM_INFINITY
LIMITS = {
    "NOFILE": (1_048_576, 1_048_576),
    "CORE": (0, FREE),
    "STACK": (8 << 20, FREE),
    "NPROC": (FREE, FREE),
    "MEMLOCK": (FREE, FREE),
    "FSIZE": (FREE, FREE),
    "CPU": (FREE, FREE),
    "AS": (FREE, FREE),
    "DATA": (FREE, FREE),
    "RSS": (FREE, FREE),
}
"""Soft and hard limit, as `getrlimit(2)` calls and counts them: what containerd gives its containers, but no core files
unless a program asks for them. NOFILE is what `fs.nr_open` allows where nobody changed that."""
UMASK = 0o022
IO_CLASS_NONE = 0


def reset_signals() -> None:
    """Every signal as a program finds it that nobody prepared: the default action, and none is blocked."""
    for number in range(1, signal.NSIG):
        with contextlib.suppress(OSError, ValueError):  # KILL and STOP, and those that the C library keeps
            signal.signal(number, signal.SIG_DFL)
    for number in linux.OWN_SIGNALS:
        with contextlib.suppress(OSError):
            linux.take_default_action(number)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def reset_inherited() -> list[str]:
    """All of it; what this machine does not let us set back, in words: a lower hard limit and a higher niceness stay.

    SIGINT, SIGPIPE and SIGXFSZ are as Python sets them, for errors of their own; a container's are not.
    """
    reset_signals()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    os.umask(UMASK)
    kept = [text for name, wanted in LIMITS.items() if (text := _reset_limit(name, wanted))]
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with contextlib.suppress(OSError):  # the kernel leaves out what a cpuset does not allow
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
    with contextlib.suppress(OSError):
        linux.set_io_class(IO_CLASS_NONE)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("0")
    try:
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    except OSError:
        kept.append(f"niceness {os.getpriority(os.PRIO_PROCESS, 0)} in place of 0")
    return kept


def _reset_limit(name: str, wanted: tuple[int, int]) -> str:
    """Set both, as high as the hard limit that stands lets us; what is missing, "" where nothing is."""
    kind = getattr(resource, f"RLIMIT_{name}")
    try:
        resource.setrlimit(kind, wanted)
    except (OSError, ValueError):
        _, hard = resource.getrlimit(kind)
        soft = wanted[0] if hard == FREE or (wanted[0] != FREE and wanted[0] <= hard) else hard
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (soft, hard))
        return "" if soft == wanted[0] else f"{name} {soft} in place of {_in_words(wanted[0])}"
    return ""


def _in_words(limit: int) -> str:
    return "unlimited" if limit == FREE else str(limit)
