"""One member of a group of nodes that are measured together: `programs.pyz probe-gang --folder=… --rank=0 --ranks=8`.

The members meet through a shared folder, and make an all-reduce and an all-to-all: between their GPUs where torch and
the GPUs are there, else by sockets. Where one machine stands for several of the nodes they share its processors, so an
all-reduce would measure those: there each hop of the ring is measured alone, one group after the other.

A member always writes a report before the deadline, names members that did not come, and never waits for ever.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import replace
from typing import Callable, List, NamedTuple, Tuple

from workflows.programs.fabric import meeting, torch_group
from workflows.programs.fabric.meeting import (
    TURN_FILE,
    CardSummary,
    MemberCard,
    Options,
    RendezvousFolder,
    machine_id,
    machine_turn,
    ranks_on_shared_machines,
    remove_stale_rounds,
)
from workflows.programs.fabric.report import GPUS, SOCKETS, GangReport
from workflows.programs.fabric.ring import MOST_FOR_ALL_TO_ALL, RingMember
from workflows.programs.fabric.transport import MemberLostError, RailConnections
from workflows.programs.runtime import flags
from workflows.programs.runtime.files import write_outputs

HOP_BYTES, LAPS = 4 << 20, 7
"""A hop takes some milliseconds on any machine; the median of seven counts."""
REPORT_SECONDS = 0.5
"""Time before the deadline to write the report."""


def report_by_deadline(
    program: str,
    seconds: float,
    out_dir: str,
    measure: Callable[[], str],
    late: Callable[[], str],
    end: Callable[[], object],
) -> int:
    """Print and write the report of `measure`; at the deadline that of `late`, and then end this process.

    `measure` gives the complete report and never raises, `late` the report so far; `end` ends the processes of the
    measurement after the late report is written. The exit code is 3 where the report cannot be written.
    """
    written = threading.Lock()

    def too_late() -> None:
        if written.acquire(blocking=False):
            code = _write(program, late(), out_dir)
            end()
            os._exit(code)

    watchdog = threading.Timer(seconds, too_late)
    watchdog.daemon = True
    watchdog.start()
    report = measure()
    if not written.acquire(blocking=False):
        watchdog.join()
    watchdog.cancel()
    return _write(program, report, out_dir)


def _write(program: str, report: str, out_dir: str) -> int:
    print(report, flush=True)
    return write_outputs(program, out_dir, {"report": report})


class _Rail(NamedTuple):
    rail: float
    """GB/s by which the rail is judged."""
    all_reduce: float
    all_to_all: float
    wrong: int


class GroupMember:
    """Measures; its report always names what it waits for."""

    def __init__(self, options: Options, node: str, pod_address: str) -> None:
        self.options, self._pod_address = options, pod_address
        self.report = GangReport(node, options.group, options.rank, time.time(), why="it has not begun")
        self._began = time.monotonic()
        self.deadline = self._began + options.deadline_seconds - REPORT_SECONDS
        self._folder = RendezvousFolder(
            os.path.join(options.folder, f"group-{options.group}"), options.rank, options.ranks
        )

    def measure(self) -> GangReport:
        """The complete report; never raises."""
        try:
            if self.options.rank == 0 and self.options.group == 0:
                remove_stale_rounds(os.path.dirname(self.options.folder), time.time())
            self._meet()
        except OSError as error:
            self._silent(f"{error.strerror or error} ({error.filename or self.options.folder})")
        except Exception as error:  # whatever it is, it is no pass
            self._silent(f"the probe crashed: {type(error).__name__}: {error}")
        finally:
            self._folder.leave()
        return self.timed()

    def timed(self) -> GangReport:
        """The report so far, with the seconds until now."""
        return replace(self.report, seconds=round(time.monotonic() - self._began, 3))

    def _silent(self, why: str) -> None:
        self.report = replace(self.report, rails=None, why=why)

    def _miss(self, rank: int, why: str) -> None:
        """Tell the others that a rank is missing before our listeners close, or each would blame the next one."""
        first = None
        with contextlib.suppress(OSError):
            first = self._folder.missed_rank()
        if first is not None and first != rank:
            rank, why = first, f"another member misses rank {first}; {why}"
        self._folder.end(rank)
        self.report = replace(self.report, rails=None, missed=(rank,), why=why)

    def _meet(self) -> None:
        doors = RailConnections(
            self.options.rank, self._folder, meeting.rail_addresses(self._pod_address), self.deadline
        )
        try:
            self._silent("it waits for the others")
            means = GPUS if torch_group.is_usable(self.options.gpus) else SOCKETS
            port = torch_group.free_port(doors.addresses[0][0]) if means == GPUS and not self.options.rank else 0
            card = MemberCard(self.options.rank, self.report.node, doors.addresses, doors.key.hex(), port)
            self._folder.publish(card, CardSummary(machine_id(), means))
            missing = self._folder.wait(min(self.deadline, self._began + self.options.meet_seconds))
            if missing:
                self._miss(missing[0], f"{len(missing)} of {self.options.ranks} did not come in time")
                self.report = replace(self.report, missed=tuple(missing))
                return
            self._silent("it measures with the others")
            signs = self._folder.summaries()
            if any(sign.means != GPUS for sign in signs.values()):
                self._by_sockets(doors, alone=not ranks_on_shared_machines(signs))
            else:
                first = self._folder.card(0)
                self._ring(doors, 0).barrier()  # from here on nobody needs a card
                address = (first.addresses[0][0], first.gpu_port)
                self.report = torch_group.measure(self.options, self.report, address, self.deadline)
        except MemberLostError as error:
            self._miss(error.rank, str(error))
        finally:
            doors.close()

    def _ring(self, doors: RailConnections, rail: int) -> RingMember:
        return RingMember(self.options.rank, self.options.ranks, doors, rail, self.deadline)

    def _by_sockets(self, doors: RailConnections, *, alone: bool) -> None:
        path = "" if alone or self.options.rank else os.path.join(self.options.folder, TURN_FILE)
        with machine_turn(path, self.deadline):
            results = [self._rail(self._ring(doors, rail), alone=alone) for rail in range(len(doors.addresses))]
        notes = [] if alone else ["one machine stands for several nodes: each hop of the ring by itself"]
        if self.options.gpus:
            notes.append("not between GPUs: not every member has torch and its GPUs")
        self.report = replace(
            self.report,
            rails=tuple(_rounded(one.rail) for one in results),
            all_reduce=_rounded(sum(one.all_reduce for one in results)),
            all_to_all=_rounded(sum(one.all_to_all for one in results)) if results[0].all_to_all else None,
            wrong=sum(one.wrong for one in results),
            why="",
            notes="; ".join(notes),
        )

    def _rail(self, ring: RingMember, *, alone: bool) -> _Rail:
        options = self.options
        seconds, wrong = _median([ring.all_reduce(options.all_reduce_bytes) for _ in range(options.iterations)])
        all_reduce, all_to_all = bus_bandwidth(options.all_reduce_bytes, options.ranks, seconds, 2.0), 0.0
        if options.all_to_all_bytes and options.ranks <= MOST_FOR_ALL_TO_ALL:
            took, more = _median([ring.all_to_all(options.all_to_all_bytes) for _ in range(options.iterations)])
            all_to_all = bus_bandwidth(options.all_to_all_bytes, options.ranks, took, 1.0)
            wrong += more
        rail = all_reduce if alone else HOP_BYTES / ring.hops(HOP_BYTES, LAPS) / 1e9
        return _Rail(rail, all_reduce, all_to_all, wrong)


def bus_bandwidth(size: int, ranks: int, seconds: float, passes: float) -> float:
    """Bus bandwidth in GB/s as collective libraries' tests define it; an all-reduce passes everything twice."""
    return passes * (ranks - 1) / ranks * size / seconds / 1e9


def _rounded(figure: float) -> float:
    return float(f"{figure:.5g}")


def _median(took: List[Tuple[float, int]]) -> Tuple[float, int]:
    """The median of the seconds, and all that was wrong."""
    return sorted(seconds for seconds, _ in took)[len(took) // 2], sum(wrong for _, wrong in took)


def _parse(argv: List[str]) -> Options:
    options = flags.from_argv(Options, argv)
    if not 0 <= options.rank < options.ranks or options.ranks < 2:
        raise flags.UsageError(f"--rank: must be below --ranks, which is at least 2, got {options.rank}")
    if options.iterations < 1 or options.all_reduce_bytes < 1:
        raise flags.UsageError("--iterations, --all-reduce-bytes: must be at least 1")
    return options


@flags.program("probe-gang")
def main(argv: List[str]) -> int:
    """Measure and report."""
    options = _parse(argv)
    node = os.environ.get("PRIMUS_NODE") or os.uname().nodename
    member = GroupMember(options, node, os.environ.get("PRIMUS_POD_IP", ""))

    def late() -> str:
        report = member.timed()
        why = f"no answer within {options.deadline_seconds:g} s: {report.why}"
        return replace(report, rails=None, why=why).text()

    def measured() -> str:
        return member.measure().text()

    return report_by_deadline(
        "probe-gang", options.deadline_seconds, options.out_dir, measured, late, torch_group.end_children
    )
