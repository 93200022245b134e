"""One node of a pair that is measured by tools and by our own sockets: `programs.pyz probe-pair --calls=… --rank=0`.

The two nodes meet through a shared folder and talk over connections that only they can open. Each call is made in both
directions, never at the same time; a node reports the calls in which it was the client. Where one machine stands for
several nodes, its pairs are measured one after the other.

A report is always written before the deadline: missing tools, time-outs, garbage and a partner that ends leave their
calls unknown with the reason. Tools' servers let anybody in, so a server runs only as long as its one client needs it,
on a port of its own. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from workflows.programs.fabric import group_member, meeting, transport
from workflows.programs.fabric.meeting import (
    TURN_FILE,
    CardSummary,
    MemberCard,
    RendezvousFolder,
    machine_id,
    machine_turn,
    ranks_on_shared_machines,
    remove_stale_rounds,
)
from workflows.programs.fabric.report import SOCKETS, PairReport
from workflows.programs.fabric.torch_group import free_port
from workflows.programs.fabric.transport import MemberLostError, PartnerLine, RailConnections
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes.call import Call, Parsers, execute, fill_places
from workflows.programs.probes.run import (
    LEAST_SECONDS,
    join_parsed,
    nics_of,
    pack_answers,
    parsers,
    places_of,
    with_subject,
)
from workflows.programs.runtime import flags

READY_SECONDS = 5.0
"""Time after which a living server without a listening socket counts as ready: it may wait by other means."""
LOOK_SECONDS = 0.005
GRACE_SECONDS = 2.0
LAST_CHARACTERS = 200
LISTENING = "0A"
"""State of a TCP socket in /proc/net/tcp."""

OWN_PROBE = "pair-sockets"
"""Name of our own probe; every other call is a tool's."""
DIRECTIONS = 2
"""Each call is made in both directions, with half of its time for each."""
REPORT_SECONDS = 0.5
"""Time before the deadline to write the report."""


class ServerProcess:
    """One process, with whatever it starts."""

    def __init__(self) -> None:
        self._process: Optional["subprocess.Popen[bytes]"] = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`

    def start(self, argv: List[str], until: float) -> str:
        """Start it and wait until it listens, at most `until` (monotonic clock); why it does not, or ""."""
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            return f"{argv[0]} cannot be started: {error.strerror or error}"
        patience = min(until, time.monotonic() + READY_SECONDS)
        while time.monotonic() < patience:
            if self._process.poll() is not None:
                return f"{argv[0]} ended with {self._process.returncode} before its client came{self._last()}"
            if listens(self._process.pid):
                break
            time.sleep(LOOK_SECONDS)
        return ""

    def end(self) -> str:
        """End it with everything it started; the end of its output. Never raises."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        said = self._last()
        self._output.close()
        return said

    def _last(self) -> str:
        if self._output.closed:
            return ""
        with contextlib.suppress(OSError, ValueError):
            size = self._output.seek(0, os.SEEK_END)
            self._output.seek(max(0, size - 4 * LAST_CHARACTERS))
            said = " ".join(self._output.read().decode("utf-8", "replace").split())
            return f"; it said: {said[-LAST_CHARACTERS:]}" if said else ""
        return ""


def listens(group: int, proc: str = "/proc") -> bool:
    """Whether any process of this process group has a listening TCP socket."""
    waiting = _listening(proc)
    return bool(waiting) and any(_sockets(os.path.join(proc, pid)) & waiting for pid in _members(group, proc))


def _listening(proc: str) -> Set[str]:
    """Inodes of sockets that listen in our network namespace."""
    found: Set[str] = set()
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(os.path.join(proc, "self", "net", name), encoding="ascii") as file:
            for line in file:
                cells = line.split()
                if len(cells) > 9 and cells[3] == LISTENING:
                    found.add(f"socket:[{cells[9]}]")
    return found


def _members(group: int, proc: str) -> List[str]:
    found: List[str] = []
    for pid in os.listdir(proc):
        with contextlib.suppress(OSError, ValueError):
            if os.getpgid(int(pid)) == group:
                found.append(pid)
    return found


def _sockets(process: str) -> Set[str]:
    found: Set[str] = set()
    with contextlib.suppress(OSError):
        folder = os.path.join(process, "fd")
        for name in os.listdir(folder):
            with contextlib.suppress(OSError):
                found.add(os.readlink(os.path.join(folder, name)))
    return found


@dataclass(frozen=True)
class PairCall(Call):
    """A call that one node of a pair makes with the help of the other."""

    peer_command: Tuple[str, ...] = ()
    """Started on the other node before `command`, e.g. a server; empty: nothing."""
    quantities: Tuple[str, ...] = ()
    """Readings that are kept; empty: all."""


def pair_calls(text: str) -> Tuple[PairCall, ...]:
    """The calls in `text`, a JSON list.

    Raises:
        flags.UsageError: it is none.
    """
    try:
        listed: List[Dict[str, Any]] = json.loads(text)
        for one in listed:
            for name in ("command", "needs", "peer_command", "quantities"):
                one[name] = tuple(one[name])
        return tuple(PairCall(**one) for one in listed)
    except (ValueError, TypeError, KeyError) as error:
        raise flags.UsageError(f"no list of calls of a pair: {error}") from error


def to_json(calls: Sequence[PairCall]) -> str:
    """The calls as one argument of the program."""
    return json.dumps([asdict(call) for call in calls], separators=(",", ":"), sort_keys=True)


@dataclass(frozen=True)
class Options(flags.Flags):
    """Place of this node and the calls to make."""

    folder: str
    """Folder of the round; each pair has one of its own in it."""
    calls: str
    """JSON of the calls."""
    group: int
    rank: int
    ranks: int = 2
    meet_seconds: float = 60.0
    """Time after which a partner that has not come counts as missing."""
    deadline_seconds: float = 120.0
    """For everything."""
    gpus: int = 0
    """GPUs that the node should have, for `{gpu}` and `{gpus}`."""
    out_dir: str = ""
    """Folder for the output parameter `report`; empty: standard output only."""


class PairMember:
    """One node of the pair: makes its calls, and serves those of the other."""

    def __init__(self, options: Options, node: str, pod_address: str, nics: Sequence[str], tools: Parsers) -> None:
        self.options, self._pod_address, self._nics, self._tools = options, pod_address, tuple(nics), tools
        self.calls = pair_calls(options.calls)
        self.report = PairReport(node, options.group, options.rank, time.time(), why="it has not begun")
        self._began = time.monotonic()
        self._deadline = self._began + options.deadline_seconds - REPORT_SECONDS
        self._folder = RendezvousFolder(
            os.path.join(options.folder, f"group-{options.group}"), options.rank, options.ranks
        )
        self._answers: Dict[int, List[ParsedOutput]] = {}
        self._server: Optional[ServerProcess] = None

    def measure(self) -> PairReport:
        """What was found out; never raises."""
        try:
            if self.options.rank == 0 and self.options.group == 0:
                remove_stale_rounds(os.path.dirname(self.options.folder), time.time())
            self._meet()
        except MemberLostError as error:
            partner = self.report.partner or f"rank {error.rank}"
            self._note_why(str(error).replace(f"rank {error.rank}", partner))
        except OSError as error:
            self._note_why(f"{error.strerror or error} ({error.filename or self.options.folder})")
        except Exception as error:  # whatever it is, it is no pass
            self._note_why(f"the probe crashed: {type(error).__name__}: {error}")
        finally:
            self.end()
            self._folder.leave()
        return self.timed()

    def timed(self) -> PairReport:
        """The report so far, with the seconds until now."""
        seconds = round(time.monotonic() - self._began, 3)
        return replace(self.report, answers=pack_answers(dict(self._answers)), seconds=seconds)

    def end(self) -> None:
        """End the server that runs for the partner; never raises."""
        self._end_server()

    def _note_why(self, why: str) -> None:
        self.report = replace(self.report, why=why)

    def _meet(self) -> None:
        own, other = self.options.rank, 1 - self.options.rank
        doors = RailConnections(own, self._folder, meeting.rail_addresses(self._pod_address), self._deadline)
        try:
            self._note_why("it waits for its partner")
            card = MemberCard(own, self.report.node, doors.addresses, doors.key.hex())
            self._folder.publish(card, CardSummary(machine_id(), SOCKETS))
            if self._folder.wait(min(self._deadline, self._began + self.options.meet_seconds)):
                self._folder.end(other)
                self._note_why("its partner did not come in time")
                return
            card = self._folder.card(other)
            self.report = replace(self.report, partner=card.node, why="it measures with its partner")
            together_here = bool(ranks_on_shared_machines(self._folder.summaries()))
            line = PartnerLine(doors, other, self._deadline)
            self._hosts = (doors.addresses[0][0], card.addresses[0][0])
            with machine_turn(
                os.path.join(self.options.folder, TURN_FILE) if together_here and not own else "", self._deadline
            ):
                for call in self.calls:
                    self._both_ways(line, call)
            notes = "one machine stands for both nodes" if together_here else ""
            self.report = replace(self.report, why="", notes=notes)
        finally:
            doors.close()

    def _both_ways(self, line: PartnerLine, call: PairCall) -> None:
        for asking in range(DIRECTIONS):
            if asking == self.options.rank:
                done = self._answers.setdefault(call.number, [])
                self._attempts(line, call, done)
                line.send_json(ask="over")
            else:
                self._serve(line, call)

    def _attempts(self, line: PartnerLine, call: PairCall, done: List[ParsedOutput]) -> None:
        ends = min(self._deadline, time.monotonic() + call.deadline_seconds / DIRECTIONS)
        for _ in range(call.attempts):
            if ends - time.monotonic() < LEAST_SECONDS:
                done.append(ParsedOutput(unknown=f"no time was left for {call.title}"))
                return
            places = self._places(call)
            parts = [with_subject(self._once(line, call, index, one, ends), one) for index, one in enumerate(places)]
            none = ParsedOutput(unknown=f"{call.title}: there is no GPU or NIC to ask about")
            done.append(_only(join_parsed(parts) if parts else none, call.quantities))

    def _places(self, call: PairCall) -> List[Dict[str, str]]:
        both = replace(call, command=(*call.command, *call.peer_command))
        return places_of(both, self.options.gpus, self._nics)

    def _once(
        self, line: PartnerLine, call: PairCall, index: int, place: Mapping[str, str], ends: float
    ) -> ParsedOutput:
        """One execution of a call with a server of its own."""
        served = call.probe or call.peer_command
        results = line.request(ask="serve", index=index) if served else {}
        if results.get("why"):
            return ParsedOutput(unknown=f"{self.report.partner}: {results['why']}")
        try:
            if call.probe:
                address = (self._hosts[1], int(results["port"]))
                return transport.measure(line, address, bytes.fromhex(results["token"]), call.arguments, ends)
            words = {**place, **self._words(self._hosts[1], int(results.get("port", 0)))}
            found = execute(call, words, max(LEAST_SECONDS, ends - time.monotonic()), self._tools)
        except (KeyError, TypeError, ValueError) as error:
            return ParsedOutput(unknown=f"{call.title}: {self.report.partner} answered with something else: {error}")
        finally:
            said = str(line.request(ask="end").get("said", "")) if served else ""
        return (
            replace(found, unknown=f"{found.unknown}; on {self.report.partner}{said}")
            if found.unknown and said
            else found
        )

    def _words(self, peer: str, port: int) -> Dict[str, str]:
        return {"gpus": str(self.options.gpus), "peer": peer, "port": str(port), "path": ""}

    def _serve(self, line: PartnerLine, call: PairCall) -> None:
        """Serve the partner until it is done with the call."""
        while (words := line.receive_json()).get("ask") == "serve":
            if call.probe:
                self._echo(line)
                continue
            port, why = self._start(call, int(words["index"]))
            line.send_json(port=port, why=why)
            if not why:
                line.receive_json()  # the end
            said = self._end_server()
            if not why:
                line.send_json(said=said)

    def _end_server(self) -> str:
        """Its last words."""
        server, self._server = self._server, None
        return "" if server is None else server.end()

    def _echo(self, line: PartnerLine) -> None:
        try:
            echo = transport.EchoServer(self._hosts[0])
        except OSError as error:
            line.send_json(why=f"no socket for datagrams: {error.strerror or error}")
            return
        try:
            line.send_json(port=echo.port, token=echo.token.hex())
            line.receive_json()  # round trips until the end
        finally:
            echo.close()
        line.send_json()

    def _start(self, call: PairCall, index: int) -> Tuple[int, str]:
        """The port of the tool's server, or why there is none."""
        places = self._places(call)
        if index >= len(places):
            return 0, f"it has {len(places)} of what {call.title} asks about, not {index + 1}"
        port = free_port(self._hosts[0])
        words = {**places[index], **self._words(self._hosts[1], port)}
        self._server = server = ServerProcess()
        return port, server.start([fill_places(word, words) for word in call.peer_command], self._deadline)


def _only(parsed: ParsedOutput, quantities: Sequence[str]) -> ParsedOutput:
    """The readings that are judged; the others would make a workflow's status large."""
    if not quantities:
        return parsed
    kept = tuple(one for one in parsed.readings if one.quantity in quantities)
    missing = "" if kept or parsed.unknown else f"it did not tell {' or '.join(quantities)}"
    return replace(parsed, readings=kept, unknown=parsed.unknown or missing)


def _parse(argv: List[str]) -> Options:
    options = flags.from_argv(Options, argv)
    if options.ranks != DIRECTIONS or options.rank not in (0, 1):
        raise flags.UsageError(f"--rank, --ranks: must be 0 or 1 of 2, got {options.rank} of {options.ranks}")
    for call in pair_calls(options.calls):
        if call.probe and call.probe != OWN_PROBE:
            raise flags.UsageError(f"--calls: the probe of a pair is {OWN_PROBE}, got {call.probe!r}")
    return options


@flags.program("probe-pair")
def main(argv: List[str]) -> int:
    """Measure and report."""
    options = _parse(argv)
    node = os.environ.get("PRIMUS_NODE") or os.uname().nodename
    tools: Parsers = parsers() if any(call.parser for call in pair_calls(options.calls)) else {}
    half = PairMember(options, node, os.environ.get("PRIMUS_POD_IP", ""), nics_of(), tools)

    def late() -> str:
        report = half.timed()
        return replace(report, why=f"no answer within {options.deadline_seconds:g} s: {report.why}").text()

    def measured() -> str:
        return half.measure().text()

    return group_member.report_by_deadline(
        "probe-pair", options.deadline_seconds, options.out_dir, measured, late, half.end
    )
