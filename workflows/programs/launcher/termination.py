"""What is said about the end of a pod's ranks: was it the planned end, which exit code, who was out of memory.

Whether all ranks' end with 0 is the planned end; the last step may have been reported by another pod's rank.

What a failure looks like, as a short text that is the same in every attempt: no numbers, addresses, times, paths.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from workflows.programs.launcher.lifecycle import PodState
from workflows.programs.launcher.options import STEPLESS, Options, Place
from workflows.programs.launcher.reporting import StepFilter
from workflows.wire import RankEnd, Termination, to_json

EXIT_TERMINATED = 143
"""Ended because it was told to: 128 + SIGTERM, as shells say it."""
EXIT_ENDED_EARLY = 90
"""Every rank exited with 0, but the planned last step was not reported."""
EXIT_LAUNCHER_ERROR = 91
"""The launcher could not do its work; no rank is to blame."""
STORAGE_SECONDS = 2.0
"""How long the record may take to reach the run's folder: an end must not wait for a hanging storage."""


@dataclass(frozen=True)
class Goal:
    """What a good end of this pod looks like."""

    steps: int
    """Planned steps; 0: not known, exit 0 is success."""
    resume_step: Optional[int]
    """None: started from scratch."""
    sees_steps: bool
    """The deciding role, with a progress source that reports steps."""
    pod_index: int


def last_recorded_step(folders: str, role: str) -> Optional[int]:
    """The newest step that any pod of `role` recorded in its `steps.jsonl`; None where there is none.

    Args:
        folders: the attempt's folder, with one folder for each pod.
        role: whose pods.
    """
    steps: List[int] = []
    try:
        names = [name for name in os.listdir(folders) if name.startswith(f"{role}-")]
    except OSError:
        return None
    for name in names:
        try:
            with open(os.path.join(folders, name, "steps.jsonl"), "rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 4096))
                steps.append(int(json.loads(file.read().splitlines()[-1])["step"]))
        except (OSError, ValueError, KeyError, IndexError, TypeError):
            continue
    return max(steps, default=None)


@dataclass(frozen=True)
class Seen:
    """Steps that were seen until the end."""

    own: Optional[int]
    """Last step of this pod's ranks; None: they reported none."""
    gang: Optional[int]
    """Last step that the coordinator knows of."""
    gang_known: bool
    """False: the coordinator did not answer."""
    interval: int = 1
    """Steps between two reports of the program."""


def with_gang(seen: Seen, status: Optional[Mapping[str, Any]], recorded: Callable[[], Optional[int]]) -> Seen:
    """What is seen of the whole gang.

    Args:
        seen: by this pod.
        status: of the coordinator; None where it did not answer.
        recorded: the last step on the shared storage, asked for only then.
    """
    if status is None:
        step = recorded()
        return replace(seen, gang=step, gang_known=step is not None)
    interval = max(seen.interval, int(status.get("step_interval") or 1))
    return replace(seen, gang=status.get("step"), gang_known=True, interval=interval)


def ended_early(goal: Goal, seen: Seen) -> str:
    """Why an exit with 0 is no success; "" where it is one.

    Programs that find no device or no checkpoint exit with 0 as well. One that was resumed at or beyond the planned end
    has rightly nothing to report. A program that reports every tenth step is done when less than ten are missing.
    """
    if not goal.steps or not goal.sees_steps or (goal.resume_step or 0) >= goal.steps:
        return ""
    known = [step for step in (seen.own, seen.gang) if step is not None]
    last = max(known, default=None)
    if last is None:
        if not seen.gang_known and goal.pod_index > 0:
            return ""  # another pod's ranks may report the steps; that pod, or the first one, is the judge
        return f"exit 0 without any step of the {goal.steps} planned ones"
    if last + max(1, seen.interval) > goal.steps:
        return ""
    return f"exit 0 after step {last}, before the planned last step {goal.steps}"


def conclude(state: PodState, early: str) -> Tuple[str, str, int]:
    """Reason, detail and exit code of a launcher whose ranks have ended.

    Args:
        state: the final one.
        early: what `ended_early` said.
    """
    if state.reason == "completed":
        return ("rank-failed", early, EXIT_ENDED_EARLY) if early else ("completed", "", 0)
    if state.reason == "launcher-error":
        return state.reason, state.detail, EXIT_LAUNCHER_ERROR
    if state.reason == "rank-failed":
        first = next((end for end in state.present if end.rank == state.first_failing), None)
        return state.reason, state.detail, exit_code(first) if first else EXIT_LAUNCHER_ERROR
    all_well = bool(state.present) and all(end.exit_code == 0 for end in state.present)
    return state.reason, state.detail, 0 if all_well else EXIT_TERMINATED


def exit_code(end: RankEnd) -> int:
    """A rank's end as one number, as shells say it."""
    return 128 + end.signal if end.signal is not None else (end.exit_code or 0)


def of_ranks(record: Termination, state: PodState, last_step: Optional[int]) -> Termination:
    """The record of a pod's end with how its ranks ended.

    Args:
        record: without them.
        state: the final one.
        last_step: that they reported; None: none.
    """
    ends = sorted(state.present, key=lambda end: end.rank)
    return replace(record, ranks=ends, first_failing_rank=state.first_failing, last_step=last_step)


def write(termination: Termination, message_path: str, record_path: str) -> Tuple[str, ...]:
    """Leave the summary as termination message and the whole in the run's folder.

    Args:
        termination: what to say.
        message_path: of the termination message; "": none.
        record_path: of the whole record; "": none.

    Returns:
        What could not be written, and why.
    """
    problems = list(_problem(message_path, termination.summary()))
    # The storage may hang: the thread is left behind then, and the pod still ends in time.
    done: "list[Tuple[str, ...]]" = []
    thread = threading.Thread(target=lambda: done.append(_problem(record_path, to_json(termination))), daemon=True)
    thread.start()
    thread.join(STORAGE_SECONDS)
    problems += done[0] if done else (f"{record_path}: the storage did not answer in {STORAGE_SECONDS:g} s",)
    return tuple(problems)


def _problem(path: str, text: str) -> Tuple[str, ...]:
    if not path:
        return ()
    try:
        folder = os.path.dirname(path)
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        return (f"{path}: {error.strerror or error}",)
    return ()


class OutOfMemory:
    """Whether the kernel killed a process of this container for its memory, by the control group's own counter.

    Args:
        root: where control groups are mounted.
    """

    def __init__(self, root: str = "/sys/fs/cgroup") -> None:
        self._paths = (
            os.path.join(root, "memory.events"),
            os.path.join(root, "memory", "memory.oom_control"),
        )
        self._before = self._count()

    def marked(self, ends: Tuple[RankEnd, ...]) -> Tuple[RankEnd, ...]:
        """The ends, those marked that the kernel caused for lack of memory; it is asked only where one looks so."""
        killed = any(end.signal == 9 or end.exit_code == 137 for end in ends)
        return with_oom(ends, killed and self.happened())

    def happened(self) -> bool:
        """True where the counter grew since the last question."""
        now = self._count()
        grew = now > self._before
        self._before = now
        return grew

    def _count(self) -> int:
        for path in self._paths:
            try:
                with open(path, encoding="ascii", errors="replace") as file:
                    words = [line.split() for line in file]
            except OSError:
                continue
            return sum(int(pair[1]) for pair in words if len(pair) == 2 and pair[0] == "oom_kill" and pair[1].isdigit())
        return 0


def with_oom(ends: Tuple[RankEnd, ...], out_of_memory: bool) -> Tuple[RankEnd, ...]:
    """The ends, those by SIGKILL marked where the kernel says that memory was the reason."""
    if not out_of_memory:
        return ends
    return tuple(
        replace(end, oom_killed=True) if not end.requested and (end.signal == 9 or end.exit_code == 137) else end
        for end in ends
    )


GANG_STEP_SECONDS = 2.0
"""How long the last step of another pod's rank may take to arrive at the coordinator."""
TURN_SECONDS = 0.05


def why_early(
    options: Options,
    place: Place,
    steps: StepFilter,
    ask: Callable[[], Optional[Dict[str, Any]]],
    recorded: Callable[[], Optional[int]],
    turn: Callable[[float], None],
) -> str:
    """Why the end came too early; "" where it did not.

    Args:
        options: of the launcher.
        place: with what was resumed last.
        steps: that this pod's ranks reported.
        ask: the coordinator's `/status`; None where no answer came.
        recorded: the last step on the shared storage.
        turn: lets the launcher work for so many seconds.
    """
    sees_steps = options.decides and options.framework not in STEPLESS
    goal = Goal(options.steps, place.resume_step, sees_steps, place.pod_index)
    seen = Seen(steps.last_step, None, True, steps.interval)
    deadline = time.monotonic() + GANG_STEP_SECONDS
    while ended_early(goal, seen) and options.pods > 1:
        seen = with_gang(seen, ask(), recorded)
        if time.monotonic() > deadline:
            break
        turn(TURN_SECONDS)
    return ended_early(goal, seen)


LIMIT = 300
"""Characters of a fingerprint."""
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line \d+, in (?P<function>.+)$')
_RAISED = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_PREFIX = re.compile(r"^\[?(?:rank|default)[ _-]?\d+\]?: ?", re.IGNORECASE)
_NOT_THE_USERS = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python\d|^<frozen |^<string>$|/torch/distributed/")
_NATIVE = re.compile(
    r"terminate called after throwing an instance of|^\s*what\(\): |[Aa]ssertion .{0,300}failed|[Ss]egmentation fault"
    r"|^Fatal Python error: |double free or corruption|CHECK failed|F\d{4} \d\d:\d\d"
)
_VOLATILE: Tuple[Tuple["re.Pattern[str]", str], ...] = (
    (re.compile(r"0x[0-9a-fA-F]+"), "@"),
    (re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "@"),
    (re.compile(r"(?:/[^\s/:'\",)]+)+/"), ""),
    (re.compile(r"\d+(?:\.\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
)


def fingerprint(lines: Iterable[str], exit_code: Optional[int], signal: Optional[int]) -> str:
    """The fingerprint of a rank's end.

    Args:
        lines: the last lines of the rank, oldest first.
        exit_code: None when it ended by a signal.
        signal: number of the signal, None when it exited by itself.

    Returns:
        `type@file:function: message` of the exception that came first, else the program's own last words with its end,
        else the end alone; "" for an end without an error.
    """
    if exit_code == 0:
        return ""
    cleaned = [_PREFIX.sub("", line.rstrip()) for line in lines]
    end = f"signal {signal}" if signal is not None else f"exit {exit_code}"
    raised = _first_exception(cleaned)
    # A rank that was killed did not die of an exception that it had printed and survived.
    if raised and signal is None:
        return stable(raised)[:LIMIT]
    native = next((line for line in cleaned if _NATIVE.search(line)), "")
    if native:
        return f"{end}: {stable(native)}"[:LIMIT]
    if signal is not None:
        return end
    last = next((line for line in reversed(cleaned) if line.strip()), "")
    return f"{end}: {stable(last)}"[:LIMIT] if last else end


def stable(text: str) -> str:
    """`text` without what differs between two runs of the same program."""
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return text.strip()


def _first_exception(lines: List[str]) -> str:
    """The exception that started the last chain of tracebacks."""
    starts = [index for index, line in enumerate(lines) if line.strip() == _TRACEBACK]
    if not starts:
        return ""
    first = starts[-1]
    for earlier in reversed(starts[:-1]):
        if not any("exception" in line and line.endswith(":") for line in lines[earlier + 1 : first]):
            break
        first = earlier
    return _exception_at(lines[first + 1 :])


def _exception_at(lines: List[str]) -> str:
    frames: List[Tuple[str, str]] = []
    for line in lines:
        frame = _FRAME.match(line)
        if frame is not None:
            frames.append((frame["file"], frame["function"]))
        elif line and not line[0].isspace():
            raised = _RAISED.match(line)
            if raised is None:
                continue
            where = _user_frame(frames)
            message = raised["message"]
            return f"{raised['type']}{'@' + where if where else ''}" + (f": {message}" if message else "")
    return ""


def _user_frame(frames: List[Tuple[str, str]]) -> str:
    users = [frame for frame in frames if not _NOT_THE_USERS.search(frame[0])] or frames
    if not users:
        return ""
    file, function = users[-1]
    return f"{file.rsplit('/', 1)[-1]}:{function}"
