"""The record of a pod's end: was it the planned end, its exit code, ranks killed for memory."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

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
