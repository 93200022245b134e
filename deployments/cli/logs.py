"""`primus logs`: what ranks printed, from the run's folder, which outlives pods; `exec`: a command beside a rank."""

from __future__ import annotations

import heapq
import json
import os
import re
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.app import MOST, Run, Since, app
from deployments.cli.approvals import who
from deployments.exit_codes import GOOD, out, say
from flows.decisions.text import since_seconds, timestamp
from profiles.errors import NotFound, ProfileError
from profiles.vocabulary import FINISHED, Action
from tasks.ledger.ledger import Ledger
from tasks.runs.open import resolved_of, run_folder
from tasks.settings import Settings
from workflows.model.records import Story
from workflows.programs.launcher.output import LINE_BYTES, printable_text
from workflows.programs.runtime.files import GENERATIONS
from workflows.wire import LINE_PREFIX

LOOK_SECONDS = 0.2
STAMP_CHARACTERS = len("2026-11-27T18:09:14.276584Z")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z ")
_BEGINS = re.compile(r"^\S+ launcher: incarnation (\d+) begins ")
"""What a launcher writes into its own log and those of its ranks when they begin again; at first it does not."""


Rank = Annotated[
    str, typer.Option("--rank", metavar="N|all", help="One rank's output, or that of all; else the launchers'.")
]
Incarnation = Annotated[
    int,
    typer.Option("--incarnation", min=0, max=MOST, help="Only what ranks printed since their Nth start; 0: all."),
]


@app.command("logs")
def show_logs(  # noqa: PLR0913 - each is a flag that was promised
    run: Run,
    attempt: Annotated[int, typer.Option("--attempt", min=0, max=MOST, help="Number of it; 0: the newest.")] = 0,
    rank: Rank = "",
    incarnation: Incarnation = 0,
    tail: Annotated[int | None, typer.Option("--tail", min=0, max=MOST, help="Only the last so many lines.")] = None,
    since: Since = "",
    *,
    first_failing: Annotated[bool, typer.Option("--first-failing", help="The rank that failed first.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for it, and go on until the attempt ends.")
    ] = False,
    protocol: Annotated[bool, typer.Option("--protocol", help="Also what launchers tell programs.")] = False,
) -> int:
    """What the processes of a run printed, also after their node is gone; of all ranks line by line in order of time.

    Example: primus logs demo-1 --attempt 1 --first-failing
    Example: primus logs demo-1 --rank all --tail 50 --follow
    """
    _check_rank(rank, first_failing=first_failing)
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    wanted = Wanted(incarnation, _stamp(since_seconds(since, time.time())) if since else "", tail, protocol)
    story, number, folder = _attempt(run, attempt, rank, settings, ledger, wait=follow)
    if first_failing:
        rank = str(_first_failing(folder))
    for line in incarnations(story, number):
        say(line)
    logs = [Log(path) for path in _paths(folder, rank)]
    for log in logs if follow else ():
        log.leave_half_lines()
    printed = _print(logs, wanted, prefixed=rank == "all")
    if incarnation and not printed:
        raise NotFound(f"no line there is of incarnation {incarnation}; there: {_incarnations_in(logs)}")
    if follow:
        _follow(lambda: _paths(folder, rank), logs, wanted, rank == "all", lambda: _is_over(ledger, run, number))
    return GOOD


@app.command("exec")
def execute_beside(
    run: Run,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="The program and its arguments.")],
    rank: Annotated[int, typer.Option("--rank", min=0, max=MOST, help="Beside this rank of the role.")] = 0,
    role: Annotated[str, typer.Option("--role", help="Its role; else the one that decides.")] = "",
    timeout: Annotated[float, typer.Option("--timeout", min=1, max=86_400, help="Seconds that it may take.")] = 60.0,
    *,
    raw: Annotated[bool, typer.Option("--raw", help="Its bytes as they are, escape sequences too.")] = False,
) -> int:
    """Run a command in the container of a living rank; its exit status is the exit code.

    On an embedded cluster it sees the rank's files, folder and environment, but no secret; on Kubernetes it is what
    `kubectl exec` does, by your own right to (get and create on pods/exec).

    Example: primus exec demo-1 --rank 1 -- env
    """
    from tasks.runs.execute import execute, place_of

    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    place = place_of(run, rank, role, settings, ledger)
    ledger.act(run, "exec", f"{command[0]} beside rank {rank} of {place.role}", who())
    shown = Shown(raw=raw)
    try:
        return execute(place, command, settings, timeout, shown.take)
    finally:
        shown.close()


class Shown:
    """What a command prints, on the streams on which it does; line by line as a terminal may see it, unless `raw`."""

    def __init__(self, *, raw: bool) -> None:
        self._raw, self._rest = raw, {1: b"", 2: b""}

    def take(self, data: bytes, number: int) -> None:
        """Show some more of it."""
        stream = {1: sys.stdout, 2: sys.stderr}[number]
        if self._raw:
            stream.flush()
            stream.buffer.write(data)
            stream.buffer.flush()
            return
        *lines, self._rest[number] = (self._rest[number] + data).split(b"\n")
        for line in lines:
            {1: out, 2: say}[number](printable_text(line))
        stream.flush()

    def close(self) -> None:
        """Show lines that have no end."""
        for number, rest in self._rest.items():
            if rest:
                {1: out, 2: say}[number](printable_text(rest))


def _check_rank(rank: str, *, first_failing: bool) -> None:
    if rank not in ("", "all") and not re.fullmatch("[0-9]{1,9}", rank):
        raise ProfileError("--rank", f"is the number of a rank, or all; got {rank!r}")
    if first_failing and rank:
        raise ProfileError("--rank", "leave it out: --first-failing finds the rank by itself")


def _incarnations_in(logs: Sequence[Log]) -> str:
    there = sorted({found for log in logs for found, _ in numbered(log.lines(), log.is_whole)})
    return ", ".join(str(found) if found else "lines of which nobody knows" for found in there) or "nothing"


@dataclass(frozen=True)
class Wanted:
    """Which lines of a log are shown."""

    incarnation: int = 0
    """0: of all."""
    since: str = ""
    """Only lines that were read at this time, as logs say it, or later; "": all."""
    tail: int | None = None
    protocol: bool = False
    """Also the lines by which a launcher tells what it saw."""

    def is_shown(self, line: str) -> bool:
        """Whether the line is for people."""
        return self.protocol or not line.startswith(LINE_PREFIX)


class Log:
    """One log: what stands in it now, and later what came since. No descriptor is held: a gang may have thousands."""

    def __init__(self, path: Path, at: int | None = None) -> None:
        self.path = path
        self.rank = path.name.removeprefix("rank-").removesuffix(".log")
        found = path.stat()
        self._inode: int = found.st_ino
        self._at: int = found.st_size if at is None else at
        self._rest = b""

    def leave_half_lines(self) -> None:
        """Whoever follows it sees a line that is not whole yet when it is."""
        begin = max(0, self._at - LINE_BYTES)
        data = _after(self.path, begin)[: self._at - begin]
        self._at -= len(data) - (data.rfind(b"\n") + 1)

    @property
    def is_whole(self) -> bool:
        """Whether the log still has its beginning: rotation has not dropped its oldest part."""
        return not self.path.with_name(f"{self.path.name}.{GENERATIONS}").exists()

    def lines(self) -> Iterator[str]:
        """What stood there at first, from its oldest generation on, as a terminal may see it."""
        for part in self._older():
            with part.open("rb") as log:
                yield from (printable_text(line.rstrip(b"\n")) for line in log)
        left = self._at
        with self.path.open("rb") as log:
            for line in log:
                left -= len(line)
                if left < 0:
                    return
                yield printable_text(line.rstrip(b"\n"))

    def more(self, *, all_of_it: bool) -> Iterator[str]:
        """The lines that came since; what is no whole line yet waits, unless this is `all_of_it`."""
        *lines, self._rest = (self._rest + self._read()).split(b"\n")
        if all_of_it and self._rest:
            lines, self._rest = [*lines, self._rest], b""
        yield from map(printable_text, lines)

    def _older(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.name}.*"), reverse=True)

    def _read(self) -> bytes:
        """What was written since the last look, also to a part that was rotated away meanwhile."""
        data = b""
        with suppress(FileNotFoundError):
            inode = self.path.stat().st_ino
            for part in self._older() if inode != self._inode else ():
                if part.stat().st_ino == self._inode:
                    data += _after(part, self._at)
            if inode != self._inode:
                self._inode, self._at = inode, 0
            new = _after(self.path, self._at)
            self._at += len(new)
            data += new
        return data


def _after(path: Path, at: int) -> bytes:
    with path.open("rb") as log:
        log.seek(at)
        return log.read()


def _stamp(seconds: float) -> str:
    """The time as launchers write it before each line of a log."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _stamped(lines: Iterable[str], since: str = "") -> Iterator[tuple[str, str]]:
    """Each line with the time at which it was read; one that says none belongs to the line before."""
    at = ""
    for line in lines:
        if _STAMP.match(line):
            at = line[:STAMP_CHARACTERS]
        if not since or at >= since:
            yield at, line


def _chosen(log: Log, wanted: Wanted) -> Iterator[tuple[str, str]]:
    lines = log.lines()
    if wanted.incarnation:
        lines = (line for number, line in numbered(lines, log.is_whole) if number == wanted.incarnation)
    return ((at, line) for at, line in _stamped(lines, wanted.since) if wanted.is_shown(line))


def _of_rank(log: Log, wanted: Wanted) -> Iterator[tuple[str, str]]:
    return ((at, f"[rank {log.rank}] {line}") for at, line in _chosen(log, wanted))


def _print(logs: Sequence[Log], wanted: Wanted, *, prefixed: bool) -> int:
    """Print what stands in the logs; returns the number of lines."""
    if prefixed:
        ways = [_of_rank(log, wanted) for log in logs]
        return _last((line for _, line in heapq.merge(*ways, key=itemgetter(0))), wanted.tail)
    printed = 0
    for log in logs:
        if len(logs) > 1:
            out(f"==> {log.path.parent.name}/{log.path.name} <==")
        printed += _last((line for _, line in _chosen(log, wanted)), wanted.tail)
    return printed


def _last(lines: Iterable[str], most: int | None) -> int:
    printed = 0
    for line in lines if most is None else deque(lines, most):
        out(line)
        printed += 1
    return printed


def _attempt(
    run: str, attempt: int, rank: str, settings: Settings, ledger: Ledger, *, wait: bool
) -> tuple[Story, int, Path]:
    """The story, the number of the attempt and its folder; where it is followed, once it has the log."""
    told = False
    while True:
        story = ledger.story(run)
        number = attempt or (story.attempt.number if story.attempt else 0)
        folder = run_folder(resolved_of(story.run), run) / f"a{number}"
        over = story.run.state in FINISHED or any(item.number > number > 0 for item in story.attempts)
        if not wait or over or next(folder.glob(_pattern(rank)), None) is not None:
            return story, number, folder
        if not told:
            say(f"nothing of it was printed yet ({story.run.why}); waiting")
            told = True
        time.sleep(LOOK_SECONDS)


def numbered(lines: Iterable[str], whole: bool = True) -> Iterator[tuple[int, str]]:
    """The lines of a log, each with the incarnation in which it was written.

    Args:
        lines: in order.
        whole: the log begins where the first incarnation did. Of one whose beginning was rotated away, the lines before
            the first that says so are of the incarnation before it; where none says so nobody knows, and it is 0.
    """
    number, unknown = (1, []) if whole else (0, list[str]())
    for line in lines:
        begins = _BEGINS.match(line)
        if begins is not None:
            yield from ((int(begins[1]) - 1, before) for before in unknown)
            number, unknown = int(begins[1]), []
        if number:
            yield number, line
        else:
            unknown.append(line)
    yield from ((0, line) for line in unknown)


def incarnations(story: Story, attempt: int) -> list[str]:
    """When the attempt's ranks began again in their pods: their logs go on in the same files."""
    return [
        f"{timestamp(item.detected_at)} {item.why}: {item.seen}"
        for item in story.incidents
        if item.attempt == attempt and item.action is Action.RESTART_IN_PLACE
    ]


def _pattern(rank: str) -> str:
    return {"": "*/launcher.log", "all": "*/rank-*.log"}.get(rank, f"*/rank-{rank}.log")


def _paths(folder: Path, rank: str) -> list[Path]:
    paths = sorted(folder.glob(_pattern(rank)), key=lambda path: (len(path.name), path.name, path.parent.name))
    if not paths:
        there = sorted({path.name for path in folder.glob("*/*.log")})
        raise NotFound(f"no such log in {folder}; there: {', '.join(there) or 'nothing (yet)'}")
    return paths


def _first_failing(folder: Path) -> int:
    """The rank that ended first among those that were not asked to end."""
    ends: list[tuple[float, int]] = []
    for path in folder.glob("*/termination.json"):
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        first = record.get("first_failing_rank")
        ends += [(end["at"], end["rank"]) for end in record.get("ranks", []) if end.get("rank") == first]
    if not ends:
        raise NotFound(f"no rank of this attempt left a record of a failure in {folder}")
    rank = min(ends)[1]
    say(f"rank {rank} failed first")
    return rank


def _is_over(ledger: Ledger, run: str, number: int) -> bool:
    return any(item.number == number and item.ended_at is not None for item in ledger.story(run).attempts)


def _follow(
    paths: Callable[[], list[Path]], logs: Sequence[Log], wanted: Wanted, prefixed: bool, is_over: Callable[[], bool]
) -> None:
    """Print what comes, of logs that begin later too, until the attempt is over or a next incarnation begins."""
    known = {log.path: log for log in logs}
    shown, left = None if len(known) != 1 or prefixed else next(iter(known)), set[Path]()
    while len(left) < len(known):
        over = is_over()
        for path in paths():
            log = known.setdefault(path, known.get(path) or Log(path, at=0))
            for line in log.more(all_of_it=over):
                begins = _BEGINS.match(line)
                if wanted.incarnation and begins is not None and int(begins[1]) > wanted.incarnation:
                    left.add(path)
                if path in left or not wanted.is_shown(line):
                    continue
                if not prefixed and shown != path:
                    out(f"==> {path.parent.name}/{path.name} <==")
                    shown = path
                out(f"[rank {log.rank}] {line}" if prefixed else line)
        sys.stdout.flush()
        if over:
            return
        time.sleep(LOOK_SECONDS)
