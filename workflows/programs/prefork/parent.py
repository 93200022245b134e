"""The launcher's side of forked ranks. What cannot be forked is started plainly, by `processes.start`.

The parked process (`child`) is a child of the launcher, in a group of its own, and not a rank: a sweep over leftovers
must spare `ParkedProcess.pid`, as it spares the prover's. Its forks become children of the launcher, as if
`processes.start` had started them: reaped, reported and swept like any other rank.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from workflows.programs.prefork import protocol
from workflows.programs.prefork.protocol import GO, ForkOrder, ParkedProgram, Program, parse_command
from workflows.programs.runtime import files, processes

ANSWER_SECONDS = 3.0
"""A fork takes some milliseconds, on two cores with twenty busy processes more than a second, and a plain start then
several. An answer that comes later is not heard, and the fork ends without having begun."""
RANK_NAMES = frozenset({"RANK", "LOCAL_RANK", "ROLE_RANK", "PRIMUS_RANK"})
"""Not in the parked process's environment: whoever looks for a rank must not take it for one."""

PARKED_VARIABLE = "PRIMUS_PARKED"
"""In the environment of the parked process alone: `python_start` leaves it as it is, since forks share files."""


class ForkUnavailableError(Exception):
    """No fork was made, for the reason in the message; the rank must be started plainly."""


class ParkedProcess:
    """The parked process of a pod.

    `environment` is a rank's, without secrets; variables of `protocol.RANK_PREFIXES` may differ later.
    """

    def __init__(
        self,
        program: Program,
        preload: Sequence[str],
        environment: Mapping[str, str],
        working_directory: str,
        pseudo_terminal: bool = False,
    ) -> None:
        self._program = program
        self._preload = tuple(preload)
        self._environment = environment
        self._working_directory = working_directory
        self._pseudo_terminal = pseudo_terminal
        self._connection: Optional[socket.socket] = None
        self._outputs: Tuple[int, ...] = ()
        self._why = "it was not started"
        self.ready = False
        """It has imported everything and can be forked."""
        self.pid = 0
        """To be spared by sweeps; 0: not running."""

    def start(self) -> None:
        """Start it once; it imports while the launcher goes on.

        Raises:
            ForkUnavailableError: the system or the ranks' Python does not allow it.
        """
        mine, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        try:
            process = processes.start(self._start_of(theirs.fileno()))
        except processes.StartError as error:
            mine.close()
            self._why = str(error)
            raise ForkUnavailableError(self._why) from error
        finally:
            theirs.close()
        self._connection, self.pid = mine, process.pid
        self._outputs = (process.stdout, process.stderr)
        self._why = "it still imports"

    def fileno(self) -> int:
        """Descriptor that is readable when it has a message, see `read`; -1: it has ended."""
        return -1 if self._connection is None else self._connection.fileno()

    def read(self) -> List[str]:
        """Its messages for the launcher's log; called when `fileno` is readable."""
        connection = self._connection
        if connection is None:
            return []
        connection.settimeout(ANSWER_SECONDS)
        frame: Optional[Tuple[Dict[str, Any], List[int]]] = None
        why = "the parked process has ended"
        try:
            frame = protocol.receive(connection)
        except ConnectionError:
            pass  # it ended without having read everything
        except (OSError, protocol.FrameError) as error:
            why = f"the parked process is not understood: {error}"
        if frame is None:
            self._give_up(f"{why}{self._last_words()}")
            return [f"ranks are started plainly: {self._why}"]
        return self._take_message(frame[0])

    def fork(self, start: processes.Start, timeout_seconds: float = ANSWER_SECONDS) -> processes.RankProcess:
        """Fork a rank within `timeout_seconds`; raises ForkUnavailableError, with nothing started, where that fails."""
        deadline = time.monotonic() + timeout_seconds
        order = self._order(start)
        out_read, out_write, err_read, err_write = _channels(start.pseudo_terminal)
        try:
            pid = self._await_child(order, (out_write, err_write), deadline)
        except (OSError, ForkUnavailableError) as error:
            protocol.close((out_read, err_read))
            raise (
                error
                if isinstance(error, ForkUnavailableError)
                else ForkUnavailableError(f"it does not answer: {error}")
            ) from error
        finally:
            protocol.close((out_write, err_write))
        for fd in (out_read, err_read):
            os.set_blocking(fd, False)
        return processes.RankProcess(start.rank, start.local_rank, pid, out_read, err_read)

    def mark_ended(self) -> None:
        """Note that its process was reaped."""
        self.pid = 0
        self._give_up(f"the parked process has ended{self._last_words()}")

    def close(self) -> None:
        """End it. It is reaped as any child."""
        self._give_up("it was ended")
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def _start_of(self, fd: int) -> processes.Start:
        program = self._program
        words = [f"--socket={fd}", f"--parent={os.getpid()}", f"--name={program.name}"]
        words += ["--module=true"] if program.module else []
        words += [f"--preload={','.join(self._preload)}"] if self._preload else []
        argv = (program.interpreter, *program.options, *files.command("park")[-2:], *words)
        environment = {name: text for name, text in self._environment.items() if name not in RANK_NAMES}
        environment[PARKED_VARIABLE] = "1"
        return processes.Start(-1, -1, argv, environment, self._working_directory, self._pseudo_terminal)

    def _take_message(self, message: Dict[str, Any]) -> List[str]:
        if "not_imported" in message:
            return [f"the parked process goes on without {message['not_imported']}: {message.get('why')}"]
        self.ready = message.get("ready") is True
        if self.ready:
            self._why = ""
            return []
        self._give_up(str(message.get("why")))
        return [f"ranks are started plainly: {self._why}"]

    def _order(self, start: processes.Start) -> ForkOrder:
        program = parse_command(start.argv)
        if program is None:
            raise ForkUnavailableError(f"{' '.join(start.argv)[:200]}: not a Python program that can be forked")
        if not self.ready:
            raise ForkUnavailableError(self._why)
        if (program.interpreter, program.options) != (self._program.interpreter, self._program.options):
            raise ForkUnavailableError("it was parked with another interpreter or other options of it")
        target = ParkedProgram(program.name, program.module, os.path.realpath(start.working_directory))
        return ForkOrder(target, start.argv, program.arguments, start.environment, start.pseudo_terminal)

    def _await_child(self, order: ForkOrder, streams: Tuple[int, int], deadline: float) -> int:
        connection = self._connection
        if connection is None:
            raise ForkUnavailableError(self._why)
        channel, theirs = socket.socketpair()
        with channel:
            with theirs:
                connection.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    protocol.send(connection, order.message(), (theirs.fileno(), *streams))
                except OSError as error:
                    # A part may be on its way: nothing that follows would be understood.
                    self.close()
                    raise ForkUnavailableError(f"it takes no orders: {error}") from error
            return _answer(channel, deadline)

    def _give_up(self, why: str) -> None:
        self.ready = False
        if self._connection is not None:
            self._why = why
            self._connection.close()
            self._connection = None
        protocol.close(self._outputs)
        self._outputs = ()

    def _last_words(self) -> str:
        for fd in self._outputs[1:]:
            with contextlib.suppress(OSError):
                lines = os.read(fd, 65536).decode("utf-8", "replace").split("\n")
                return next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
        return ""


def _channels(pseudo_terminal: bool) -> Tuple[int, int, int, int]:
    """Ends to read and to write, of standard output and of standard error."""
    opened: List[int] = []
    try:
        for _ in range(2):
            opened += processes.channel(pseudo_terminal)
    except OSError as error:
        protocol.close(opened)
        raise ForkUnavailableError(f"there is no room for its output: {error.strerror}") from error
    return opened[0], opened[1], opened[2], opened[3]


def _answer(channel: socket.socket, deadline: float) -> int:
    """The process that was made, told to go on.

    Raises:
        ForkUnavailableError: refused, or what was made is no child of this process.
        OSError: no answer in time.
    """
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000.0):
        raise ForkUnavailableError("it does not answer in time")
    channel.settimeout(max(0.001, deadline - time.monotonic()))
    try:
        frame = protocol.receive(channel)
    except protocol.FrameError as error:
        raise ForkUnavailableError(f"its answer is not understood: {error}") from error
    message: Dict[str, Any] = frame[0] if frame is not None else {"refused": "it died over it"}
    pid = message.get("pid")
    if not isinstance(pid, int):
        raise ForkUnavailableError(str(message.get("refused")))
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (ChildProcessError, OverflowError) as error:
        raise ForkUnavailableError(f"process {pid} is no child of the launcher") from error
    channel.sendall(GO)
    return pid
