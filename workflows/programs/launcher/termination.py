"""The record of a pod's end: was it the planned end, its exit code, ranks killed for memory, fingerprints of failures.

A fingerprint is a short text that is the same in every attempt: without numbers, addresses, times and paths.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from workflows.programs.launcher.lifecycle import PodState
from workflows.programs.launcher.options import STEPLESS, Options, Place
from workflows.programs.launcher.reporting import StepFilter
from workflows.wire import LauncherCause, RankEnd, Termination, to_json

EXIT_TERMINATED = 143
"""Ended on request: 128 + SIGTERM, as in shells."""
EXIT_ENDED_EARLY = 90
"""Every rank exited with 0, but the planned last step was not reported."""
EXIT_LAUNCHER_ERROR = 91
"""The launcher could not do its work; no rank is to blame."""
STORAGE_SECONDS = 2.0
"""How long the end of the launcher waits for the record to reach the run's folder, since a storage may hang."""

GANG_STEP_SECONDS = 2.0
"""How long the last step of another pod's rank may take to arrive at the coordinator."""
TURN_SECONDS = 0.05
ENDED = ("ended", "failed")
"""States in which the coordinator knows a pod whose ranks have ended."""
RECORD = "termination.json"

FINGERPRINT_CHARACTERS = 300
"""Longest fingerprint."""
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


@dataclass(frozen=True)
class Goal:
    """The planned end of this pod."""

    steps: int
    """Planned steps; 0: not known, exit 0 is success."""
    resume_step: Optional[int]
    """None: started from scratch."""
    sees_steps: bool
    """Whether this is the deciding role with a progress source that reports steps."""
    pod_index: int


def last_recorded_step(folders: str, role: str) -> Optional[int]:
    """The newest step in any `steps.jsonl` of `role` below the attempt's folder `folders`; None: there is none."""
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


def others_run(folders: str, options: Options, place: Place, status: Optional[Mapping[str, Any]]) -> bool:
    """Whether another pod of this role still trains, or may: only the last one can judge how the role's ranks ended.

    By the coordinator's `status`; where that is None, by the records of ends below the attempt's folder `folders`.
    """
    if status is None:
        names = [f"{options.role}-{index}" for index in range(options.pods)]
        ended = {index for index, name in enumerate(names) if os.path.exists(os.path.join(folders, name, RECORD))}
    else:
        known = [one for one in status.get("members", ()) if one.get("role") == options.role]
        ended = {one.get("pod_index") for one in known if one.get("state") in ENDED}
    return any(index not in ended for index in range(options.pods) if index != place.pod_index)


@dataclass(frozen=True)
class SeenSteps:
    """Last steps before the end."""

    own: Optional[int]
    """Last step of this pod's ranks; None: they reported none."""
    gang: Optional[int]
    """Last step of the gang, from the coordinator."""
    gang_known: bool
    """Whether the coordinator answered."""
    interval: int = 1
    """Steps between two reports of the program."""

    @property
    def last(self) -> Optional[int]:
        """The last step of any rank; None: there was none."""
        return max((step for step in (self.own, self.gang) if step is not None), default=None)


def with_gang(seen: SeenSteps, status: Optional[Mapping[str, Any]], recorded: Callable[[], Optional[int]]) -> SeenSteps:
    """`seen` with the gang's last step: from the coordinator's `status`, or from storage where that is None."""
    if status is None:
        step = recorded()
        return replace(seen, gang=step, gang_known=step is not None)
    interval = max(seen.interval, int(status.get("step_interval") or 1))
    return replace(seen, gang=status.get("step"), gang_known=True, interval=interval)


def ended_early(goal: Goal, seen: SeenSteps) -> str:
    """Why an exit with 0 is not a success; "": it is one.

    Programs that find no device or no checkpoint exit with 0 as well. One that resumed at or beyond the planned end
    rightly reports nothing. A program that reports every tenth step is done when less than ten are missing.
    """
    if not goal.steps or not goal.sees_steps or (goal.resume_step or 0) >= goal.steps:
        return ""
    last = seen.last
    if last is None:
        if not seen.gang_known and goal.pod_index > 0:
            return ""  # another pod's ranks may report the steps; that pod, or the first one, decides
        return f"exit 0 without any step of the {goal.steps} planned ones"
    if last + max(1, seen.interval) > goal.steps:
        return ""
    return f"exit 0 after step {last}, before the planned last step {goal.steps}"


def conclude(state: PodState, early: str) -> Tuple[str, str, int]:
    """Reason, detail and exit code of a launcher whose ranks have ended; `early` comes from `ended_early`."""
    if state.reason == "completed":
        return ("rank-failed", early, EXIT_ENDED_EARLY) if early else ("completed", "", 0)
    if state.reason == "launcher-error":
        return state.reason, state.detail, EXIT_LAUNCHER_ERROR
    if state.reason == "rank-failed":
        first = next((end for end in state.present_ends if end.rank == state.first_failing), None)
        return state.reason, state.detail, exit_code(first) if first else EXIT_LAUNCHER_ERROR
    all_well = bool(state.present_ends) and all(end.exit_code == 0 for end in state.present_ends)
    return state.reason, state.detail, 0 if all_well else EXIT_TERMINATED


def exit_code(end: RankEnd) -> int:
    """A rank's end as an exit code of shells: 128 + signal for a signal."""
    return 128 + end.signal if end.signal is not None else (end.exit_code or 0)


def with_rank_ends(record: Termination, state: PodState, last_step: Optional[int]) -> Termination:
    """The record of a pod's end with the ends of its ranks and their last reported step (None: none)."""
    ends = sorted(state.present_ends, key=lambda end: end.rank)
    return replace(record, ranks=ends, first_failing_rank=state.first_failing, last_step=last_step)


def write(termination: Termination, message_path: str, record_path: str) -> Tuple[str, ...]:
    """Write the summary as termination message and the whole record to the run's folder; "" as a path: neither.

    Returns the problems, one sentence for each file that could not be written.
    """
    problems = list(_problem(message_path, termination.summary()))
    # In a thread, since the storage may hang: the pod then ends without it.
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


class OutOfMemoryCounter:
    """The control group's counter of processes that the kernel killed for memory; `root` is its mount point."""

    def __init__(self, root: str = "/sys/fs/cgroup") -> None:
        self._paths = (
            os.path.join(root, "memory.events"),
            os.path.join(root, "memory", "memory.oom_control"),
        )
        self._before = self._count()

    def mark(self, ends: Tuple[RankEnd, ...]) -> Tuple[RankEnd, ...]:
        """The ends, with those marked that lack of memory caused; the counter is read only where an end looks so."""
        killed = any(end.signal == 9 or end.exit_code == 137 for end in ends)
        return with_oom(ends, killed and self.has_grown())

    def has_grown(self) -> bool:
        """Whether the counter grew since the last call."""
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
    """The ends, with those by SIGKILL marked where `out_of_memory`."""
    if not out_of_memory:
        return ends
    return tuple(
        replace(end, oom_killed=True) if not end.requested and (end.signal == 9 or end.exit_code == 137) else end
        for end in ends
    )


class EarlyEnd(NamedTuple):
    """Why an end with exit code 0 came too early."""

    why: str = ""
    """"": it did not, or it is not this pod that judges."""
    cause: LauncherCause = ""


def why_early(
    options: Options,
    place: Place,
    steps: StepFilter,
    ask: Callable[[], Optional[Dict[str, Any]]],
    recorded: Callable[[], Optional[int]],
    turn: Callable[[float], None],
) -> EarlyEnd:
    """Whether the role's ranks ended too early. While another pod trains nobody knows: uneven data end one rank first.

    `place` holds the last resumed checkpoint, `ask` fetches the coordinator's `/status` (None: no answer) after this
    pod's end has arrived there, `recorded` the last step on the shared storage, and `turn` runs the launcher's loop for
    so many seconds.
    """
    sees_steps = options.decides and options.framework not in STEPLESS
    goal = Goal(options.steps, place.resume_step, sees_steps, place.pod_index)
    seen = SeenSteps(steps.last_step, None, True, steps.interval)
    deadline = time.monotonic() + GANG_STEP_SECONDS
    folders = os.path.dirname(place.folder(options.role))
    while ended_early(goal, seen) and options.pods > 1:
        status = ask()
        if others_run(folders, options, place, status):
            return EarlyEnd()
        seen = with_gang(seen, status, recorded)
        if time.monotonic() > deadline:
            break
        turn(TURN_SECONDS)
    return EarlyEnd(ended_early(goal, seen), "no-steps" if seen.last is None else "ended-early")


def fingerprint(lines: Iterable[str], exit_code: Optional[int], signal: Optional[int]) -> str:
    """The fingerprint of a rank's end.

    Args:
        lines: the last lines of the rank, oldest first.
        exit_code: None when it ended by a signal.
        signal: number of the signal, None when it exited by itself.

    Returns:
        `type@file:function: message` of the exception that came first, else the program's last line with its end,
        else the end alone; "" for an end without an error.
    """
    if exit_code == 0:
        return ""
    cleaned = [_PREFIX.sub("", line.rstrip()) for line in lines]
    end = f"signal {signal}" if signal is not None else f"exit {exit_code}"
    raised = _first_exception(cleaned)
    # A killed rank did not die of an exception that it printed and survived.
    if raised and signal is None:
        return without_volatile_parts(raised)[:FINGERPRINT_CHARACTERS]
    native = next((line for line in cleaned if _NATIVE.search(line)), "")
    if native:
        return f"{end}: {without_volatile_parts(native)}"[:FINGERPRINT_CHARACTERS]
    if signal is not None:
        return end
    last = next((line for line in reversed(cleaned) if line.strip()), "")
    return f"{end}: {without_volatile_parts(last)}"[:FINGERPRINT_CHARACTERS] if last else end


def without_volatile_parts(text: str) -> str:
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
