"""A node's probe outside of a pod: what the end of a container would do is done here.

Everything that the probe started ends with it, also processes that left its session; the caller limits its time;
`{path}` is on the cluster's storage where this host has it. Used for tests by SSH or through a batch system.

    python3 programs.pyz probe-host --folder=/tmp/own --storage=/data --deadline-seconds=40 -- --calls='[…]'
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import List, Tuple

from workflows.programs.runtime import flags, processes
from workflows.programs.runtime.files import entry_path

OLD_SECONDS = 86_400.0
"""Folders that a killed test left are removed after a day: no test takes so long."""
GRACE_SECONDS = 5.0
"""For killed processes to be gone; one that stays is the kernel's, and is left."""
MARK = "test"
"""File in `folder` that says which test it is of."""
OUT = "out"
"""Folder of the report, in `folder`."""


@dataclass(frozen=True)
class Options:
    """Where, and for how long."""

    folder: str
    """Our own on this host: the report goes to `out/report` in it. It is left to the caller to remove it."""
    storage: Tuple[str, ...] = ()
    """Folders at which this host may have the storage that is tested; the first that is there counts."""
    prefix: str = ""
    """Folders beside ours that begin so and are of the same user may be what killed tests left; empty: none are."""
    test: str = ""
    """Which test of which node this is. One of the same user that is still here is ended: whoever asked for it is gone,
    and figures of two at once are none."""
    deadline_seconds: float = 60.0
    """After so long everything is killed."""
    probe: Tuple[str, ...] = field(default=(), metadata=flags.REST)
    """Flags of the probe, but for its folders."""


def storage_folder(options: Options) -> str:
    """Where `{path}` is: on the storage, or in our own folder where this host has none."""
    for place in options.storage:
        if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
            return os.path.join(place, "preflight")
    return options.folder


def remove_left(options: Options, now: float) -> List[str]:
    """Remove leftovers of killed tests beside our folder, older ones only after a day; the removed paths."""
    gone: List[str] = []
    own = os.path.abspath(options.folder)
    with contextlib.suppress(OSError), os.scandir(os.path.dirname(own)) as entries:
        for entry in entries:
            if not options.prefix or not entry.name.startswith(options.prefix) or entry.path == own:
                continue
            found = entry.stat(follow_symlinks=False)
            ours = entry.is_dir(follow_symlinks=False) and found.st_uid == os.geteuid()
            if ours and (now - found.st_mtime > OLD_SECONDS or _test_of(entry.path) == options.test != ""):
                shutil.rmtree(entry.path, ignore_errors=True)
                gone.append(entry.path)
    return gone


def _test_of(folder: str) -> str:
    with contextlib.suppress(OSError), open(os.path.join(folder, MARK), encoding="utf-8", errors="replace") as file:
        return file.read()
    return ""


def end_earlier(options: Options) -> List[int]:
    """End the same test where it still runs; its process ids."""
    ended = _earlier(options)
    deadline = time.monotonic() + 2 * GRACE_SECONDS
    for pid in ended:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
        while os.path.exists(f"/proc/{pid}/cwd") and time.monotonic() < deadline:
            time.sleep(0.02)
    return ended


def _earlier(options: Options) -> List[int]:
    """Processes of the same test."""
    found: List[int] = []
    for name in os.listdir("/proc") if options.test else ():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if not name.isdigit() or int(name) == os.getpid() or os.stat(f"/proc/{name}").st_uid != os.geteuid():
                continue
            with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="surrogateescape") as file:
                words = file.read().split("\0")[:-1]
            if words[2] != "probe-host":
                continue
            if flags.from_argv(Options, words[3:]).test == options.test:
                found.append(int(name))
    return found


@flags.program("probe-host")
def main(argv: List[str]) -> int:
    """Run the probe and end whatever is left of it; its exit code, or as shells say it 128 and the signal."""
    options = flags.from_argv(Options, argv)
    end_earlier(options)
    remove_left(options, time.time())
    with contextlib.suppress(OSError), open(os.path.join(options.folder, MARK), "w", encoding="utf-8") as file:
        file.write(options.test)
    processes.become_subreaper()  # where that is refused, processes whose own parent died are missed
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end_by_signal)
    places = [f"--path={storage_folder(options)}", f"--out-dir={os.path.join(options.folder, OUT)}"]
    process = subprocess.Popen(
        [sys.executable, entry_path(), "probe", *options.probe, *places], stdin=subprocess.DEVNULL
    )
    try:
        code = process.wait(options.deadline_seconds)
    except subprocess.TimeoutExpired:
        print(f"probe-host: the probe did not end within {options.deadline_seconds:g} s", file=sys.stderr, flush=True)
        return 124
    finally:
        processes.kill_everything(frozenset(), GRACE_SECONDS)
    if code < 0:
        print(f"probe-host: the probe was ended by signal {-code}", file=sys.stderr, flush=True)
    return code if code >= 0 else 128 - code


def _end_by_signal(number: int, frame: object) -> None:
    del frame
    sys.exit(128 + number)
