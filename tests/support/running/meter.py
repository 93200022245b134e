"""A meter of processor time for each test, with all the processes that it starts.

`PRIMUS_METER=<file>` writes a line for each part of a test (set up, call, tear down): the test, the part, seconds of
processors and seconds of a clock. Where control groups of version 1 can be made, a worker puts itself into one, and
whatever it starts is counted, daemons included; elsewhere only processes that were waited for.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic  # tests put clocks of their own into the module `time`

import pytest

GROUPS = Path("/sys/fs/cgroup/cpuacct")


def waited_for() -> float:
    """Processor seconds of this process and of all of its children that were waited for."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


class Meter:
    """The plug-in of one worker."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.usage: Path | None = None
        group = GROUPS / f"primus-meter-{os.getpid()}"
        try:
            group.mkdir()
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError:
            return
        self.usage = group / "cpuacct.usage"

    def seconds(self) -> float:
        """Processor seconds until now."""
        return waited_for() if self.usage is None else int(self.usage.read_text()) / 1e9

    def part(self, item: pytest.Item, name: str) -> Iterator[None]:
        """Measure what happens within."""
        processors, clock = self.seconds(), monotonic()
        yield
        with self.file.open("a", encoding="utf-8") as lines:
            used, took = self.seconds() - processors, monotonic() - clock
            lines.write(f"{item.nodeid}\t{name}\t{used:.3f}\t{took:.3f}\n")

    def pytest_unconfigure(self) -> None:
        """Take the group away, where nothing lives in it any more."""
        if self.usage is not None:
            with suppress(OSError):
                (GROUPS / "cgroup.procs").write_text(str(os.getpid()))
                self.usage.parent.rmdir()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        """What a test stands on; what several share is counted at the first of them."""
        yield from self.part(item, "setup")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """The test itself."""
        yield from self.part(item, "call")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """What comes after it."""
        yield from self.part(item, "teardown")
