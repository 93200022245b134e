"""All ranks of one pod: how they are started, what they find in their environment, their processes and their output."""

from __future__ import annotations

import errno
import os
import select
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from workflows.programs.launcher.options import (
    Options,
    Place,
    Rendezvous,
    counting,
    rank_command,
    working_directory,
)
from workflows.programs.launcher.output import RankLog, RankOutput, TimestampFormatter
from workflows.programs.progress.formats import Framework
from workflows.programs.progress.reader import ProgressReader, Report
from workflows.programs.runtime import files, processes
from workflows.programs.runtime.files import Appender
from workflows.programs.runtime.proxies import LOOPBACK, exempted, host_of
from workflows.programs.runtime.report_token import SECRETS, VARIABLE
from workflows.wire import RankEnd

READ_BYTES = 64 * 1024
LAST_READS = 64
"""Reads from a rank's pipe after its end; limited, because a child that it left behind may print for ever."""

PYTHON_START = os.path.join(files.PROGRAMS, "stacks", "python_start")
"""Its `sitecustomize` makes any Python answer with its stacks when it is asked."""


class RankSet:
    """The ranks of this pod; `folder` is the pod's folder in the run's, "": no logs are written."""

    def __init__(
        self, appender: Appender, stamps: TimestampFormatter, folder: str, hidden: Sequence[bytes] = ()
    ) -> None:
        self._hidden = hidden
        self._appender = appender
        self._stamps = stamps
        self._folder = folder
        self._epoll = select.epoll()
        self._processes: Dict[int, processes.RankProcess] = {}
        self._outputs: Dict[int, RankOutput] = {}
        self._streams: Dict[int, RankOutput] = {}
        self.flooded = False
        """Whether the last round of reading left output unread."""

    def fileno(self) -> int:
        """Readable when any rank has printed something."""
        return self._epoll.fileno()

    def start(
        self,
        start: processes.Start,
        reader: ProgressReader,
        at: float,
        begin: Callable[[processes.Start], processes.RankProcess] = processes.start,
    ) -> Optional[RankEnd]:
        """Start a rank by `begin`; where that fails, its end."""
        path = os.path.join(self._folder, f"rank-{start.rank}.log") if self._folder else ""
        log = RankLog(path, self._appender, self._stamps)
        output = RankOutput(start.rank, reader, log, self._stamps, self._hidden)
        self._outputs[start.rank] = output
        try:
            process = begin(start)
        except processes.StartError as error:
            output.open(-1)
            output.feed(-1, f"{error}\n".encode(), at)
            return self._end(start.rank, start.local_rank, at, exit_code=error.exit_code)
        self._processes[process.pid] = process
        for fd in (process.stdout, process.stderr):
            output.open(fd)
            self._streams[fd] = output
            self._epoll.register(fd, select.EPOLLIN)
        return None

    def note(self, text: str, at: float) -> None:
        """Write a line of the launcher to every rank's log."""
        for output in self._outputs.values():
            output.log.note(text, at)

    def pids(self) -> List[int]:
        """Process ids of ranks that were not reaped yet."""
        return list(self._processes)

    def pids_by_rank(self) -> Dict[str, int]:
        """Process ids by rank as text."""
        return {str(process.rank): pid for pid, process in self._processes.items()}

    def read(self, at: float) -> List[Report]:
        """Read once from each stream that has output; the progress in it."""
        reports: List[Report] = []
        self.flooded = False
        for fd, _ in self._epoll.poll(0):
            reports += self._read_once(fd, at)[0]
        return reports

    def read_idle_bars(self, at: float) -> List[Report]:
        """Progress in bars that have been silent for a while."""
        if not self.waits_for_bar:
            return []
        return [report for output in self._outputs.values() for report in output.idle(at)]

    @property
    def waits_for_bar(self) -> bool:
        """Whether the newest state of a bar is unread."""
        return any(output.waits_for_bar for output in self._outputs.values())

    def take_relayed(self) -> bytes:
        """Remove and return the bytes for the launcher's output."""
        return b"".join(output.take_relayed() for output in self._outputs.values())

    def reap(self, pid: int, status: int, at: float) -> Tuple[List[Report], Optional[RankEnd]]:
        """After a child was reaped: its last output and, if it was a rank, its end."""
        process = self._processes.pop(pid, None)
        if process is None:
            return [], None
        reports: List[Report] = []
        for fd in (process.stdout, process.stderr):
            for _ in range(LAST_READS):
                more, again = self._read_once(fd, at)
                reports += more
                if not again:
                    break
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        return reports, self._end(process.rank, process.local_rank, at, code, number)

    def close(self, at: float) -> List[Report]:
        """Read what is left and drop every stream."""
        reports: List[Report] = []
        for fd in list(self._streams):
            for _ in range(LAST_READS):
                more, again = self._read_once(fd, at)
                reports += more
                if not again:
                    break
        for fd in list(self._streams):
            reports += self._drop(fd, at)
        return reports

    def _read_once(self, fd: int, at: float) -> Tuple[List[Report], bool]:
        output = self._streams.get(fd)
        if output is None:
            return [], False
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return [], False
        except OSError as error:
            if error.errno != errno.EIO:  # the end of a pseudo terminal
                raise
            data = b""
        if not data:
            return self._drop(fd, at), False
        self.flooded = self.flooded or len(data) == READ_BYTES
        return output.feed(fd, data, at), True

    def _drop(self, fd: int, at: float) -> List[Report]:
        output = self._streams.pop(fd)
        self._epoll.unregister(fd)
        os.close(fd)
        return output.close(fd, at)

    def _end(
        self, rank: int, local_rank: int, at: float, exit_code: Optional[int] = None, signal: Optional[int] = None
    ) -> RankEnd:
        output = self._outputs[rank]
        lines = output.tail.lines()
        mark = ""
        if exit_code != 0:
            # Imported here, so that only failures pay for compiling its patterns.
            from workflows.programs.runtime.last_words import fingerprint

            mark = fingerprint(lines, exit_code, signal)
        return RankEnd(
            rank=rank,
            local_rank=local_rank,
            at=at,
            exit_code=exit_code,
            signal=signal,
            last_step=output.reader.last.step if output.reader.last is not None else None,
            last_lines=lines,
            fingerprint=mark,
            incarnation=output.reader.incarnation,
        )


class RankStart(NamedTuple):
    """One rank to start, and the reader of its output."""

    start: processes.Start
    reader: ProgressReader


def rank_starts(
    options: Options,
    place: Place,
    environment: Mapping[str, str],
    meeting: Rendezvous,
    framework: Optional[Framework],
    at: float,
) -> List[RankStart]:
    """Every rank of this pod, for the incarnation of `meeting`.

    `place` holds the checkpoint to resume from; `framework` describes the program's lines (None: they say nothing);
    `at` is Unix time in seconds.
    """
    argv, folder = rank_command(options, place, meeting.incarnation), working_directory(options, place)
    found: List[RankStart] = []
    for local_rank in range(options.processes_per_node):
        rank = meeting.first_rank + local_rank
        own = rank_environment(environment, options, place, meeting, local_rank)
        reader = ProgressReader(framework, counting(options, place), rank, at, meeting.incarnation)
        start = processes.Start(rank, local_rank, argv, own, folder, options.pseudo_terminal)
        found.append(RankStart(start, reader))
    return found


def describe_restart(place: Place, meeting: Rendezvous) -> str:
    """A line for people on what a further incarnation resumes from."""
    resumed = "from scratch" if place.resume_step is None else f"after step {place.resume_step}"
    return f"incarnation {meeting.incarnation} begins {resumed}"


def python_path(before: str) -> str:
    """`PYTHONPATH` of a rank: our folder, then the pod's own value `before`."""
    if os.pathsep in PYTHON_START:  # it would be read as two folders that are not there
        return before
    return os.pathsep.join([PYTHON_START, *([before] if before else [])])


def _replica(options: Options, first_pod: int) -> Dict[str, str]:
    """The rank's replica group, in torchft's variables; empty where there is only one."""
    if options.replica_groups == 1:
        return {}
    return {
        "REPLICA_GROUP_ID": str(first_pod // options.pods_together),
        "NUM_REPLICA_GROUPS": str(options.replica_groups),
    }


def rank_environment(
    base: Mapping[str, str], options: Options, place: Place, meeting: Rendezvous, local_rank: int
) -> Dict[str, str]:
    """The environment of one rank: the pod's own, torchrun's names and ours; no secret but its own."""
    first = options.first_pod(place.pod_index)
    environment = {name: value for name, value in base.items() if name not in (*SECRETS, VARIABLE)}
    if options.processes_per_node > 1:
        # As torchrun does it: else each of the ranks would start as many threads as the node has cores.
        environment.setdefault("OMP_NUM_THREADS", "1")
    return {
        "PYTHONUNBUFFERED": "1",
        **environment,
        # A program that has a proxy for the outside asks the coordinator and its own first rank directly.
        **exempted(environment, (*LOOPBACK, host_of(place.coordinator_url), meeting.master_address)),
        **(_torchrun(options, place, meeting, local_rank) if options.torchrun_variables else {}),
        "ROLE_NAME": options.role,
        **_replica(options, first),
        "PYTHONPATH": python_path(environment.get("PYTHONPATH", "")),
        "PRIMUS_RUN": place.run,
        "PRIMUS_ATTEMPT": str(place.attempt),
        "PRIMUS_INCARNATION": str(meeting.incarnation),
        "PRIMUS_CHECKPOINT_DIR": place.checkpoint_dir,
        "PRIMUS_RESUME_FROM": place.resume_from,
        "PRIMUS_RESUME_STEP": "" if place.resume_step is None else str(place.resume_step),
        "PRIMUS_COORDINATOR_URL": place.coordinator_url,
        **_reporting(base, place, meeting.first_rank + local_rank),
    }


def _torchrun(options: Options, place: Place, meeting: Rendezvous, local_rank: int) -> Dict[str, str]:
    """What torchrun would tell the rank."""
    first = options.first_pod(place.pod_index)
    rank = meeting.first_rank + local_rank - first * options.processes_per_node
    world_size = options.world_size // options.replica_groups
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(options.processes_per_node),
        "GROUP_RANK": str(place.pod_index - first),
        "GROUP_WORLD_SIZE": str(options.pods_together),
        "ROLE_RANK": str(rank),
        "ROLE_WORLD_SIZE": str(world_size),
        "MASTER_ADDR": meeting.master_address,
        "MASTER_PORT": str(meeting.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(meeting.incarnation - 1),
        "TORCHELASTIC_RUN_ID": f"{place.run}-a{place.attempt}",
    }


def _reporting(base: Mapping[str, str], place: Place, rank: int) -> Dict[str, str]:
    """Who a rank is to the coordinator, where it may report there: the file with its token stands in `base`."""
    if not base.get(VARIABLE):
        return {}
    return {VARIABLE: base[VARIABLE], "PRIMUS_POD_INDEX": str(place.pod_index), "PRIMUS_RANK": str(rank)}
