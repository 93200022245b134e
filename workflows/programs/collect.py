"""After an attempt: what its pods left in the run's folder, in one JSON document that fits an output parameter.

How every pod ended, which rank failed first by time with its last lines, and how large the logs are. The step's output
parameter is `collected`; the exit code is 0 whatever was found, 3 where the answer itself could not be written.

    python3 programs.pyz collect --run-dir=/data/runs/x --attempt=2 --out-dir=/tmp/out
"""

from __future__ import annotations

import glob
import json
import os
from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Optional, Tuple

from workflows.programs.checkpoints import proofs
from workflows.programs.coordinator import journal
from workflows.programs.coordinator.progress import Moment, Progress, apply_report
from workflows.programs.coordinator.state import ReportsReceived
from workflows.programs.launcher.lifecycle import is_failure
from workflows.programs.launcher.output import printable_text
from workflows.programs.runtime import flags
from workflows.programs.runtime.files import write_outputs
from workflows.wire import PhaseSeen, Proof, RankEnd, StepSeen, Termination, from_json, to_json

LAST_LINES = 100
MOST_CHECKPOINTS = 100
LINE_CHARACTERS = 2000
TAIL_BYTES = 262144
LAST_STEPS = 300
LAST_MOMENTS = 60


@dataclass(frozen=True)
class Options(flags.Flags):
    """Which attempt, and where to answer."""

    run_dir: str
    attempt: int
    out_dir: str = ""
    """Folder for the output parameter `collected`; empty: standard output only."""
    limit_bytes: int = 204800
    """Longest answer: an object in Kubernetes holds at most 1.5 MiB, and this is one of its parameters."""
    ledger: str = ""
    """Identity of the ledger that the run stands in; of a folder that belongs to another one nothing is collected."""


def parse(argv: List[str]) -> Options:
    """The options in `argv`.

    Raises:
        UsageError: an unknown flag or a value out of range.
    """
    options = flags.from_argv(Options, argv)
    if options.limit_bytes < 4096:
        raise flags.UsageError(f"--limit-bytes: must be at least 4096, got {options.limit_bytes}")
    return options


@dataclass(frozen=True)
class LogSize:
    """One log file."""

    path: str
    """Relative to the run's folder."""
    bytes: int


@dataclass(frozen=True)
class Collected:
    """What an attempt left."""

    attempt: int
    pods: List[Termination]
    """How each pod ended, those with a failure first, earliest first; last lines are left out here."""
    first_failing: Optional[RankEnd] = None
    """The first rank of all pods that ended wrongly without having been asked to, with its last lines."""
    first_failing_pod: str = ""
    first_failing_node: str = ""
    without_record: List[str] = field(default_factory=lambda: [])
    """Pods (folders) that left no readable termination record: killed outright, or lost with their node."""
    logs: List[LogSize] = field(default_factory=lambda: [])
    """Largest first."""
    left_out: int = 0
    """Pods and logs that did not fit."""
    steps: List[List[Any]] = field(default_factory=lambda: [])
    """`[step, at, seconds, loss]` of the last steps: those that ended after somebody last asked the coordinator."""
    moments: List[List[Any]] = field(default_factory=lambda: [])
    """`[kind, at, detail]` of the last beginnings and ends of loading and saving checkpoints, as with the steps."""
    checkpoints: List[List[Any]] = field(default_factory=lambda: [])
    """`[step, path, at, verdict, why, bytes, format]` of every proof in the run's folder, newest first."""


def first_failing(pods: List[Termination]) -> Tuple[Optional[RankEnd], Optional[Termination]]:
    """The earliest wrong end over all pods, and its pod."""
    ends = [(end.at, end.rank, end, pod) for pod in pods for end in pod.ranks if is_failure(end)]
    if not ends:
        return None, None
    _, _, end, pod = min(ends, key=lambda one: one[:2])
    return end, pod


def fit(collected: Collected, limit_bytes: int) -> Collected:
    """The same, cut until it fits: ranks that ended well go first, then logs, then pods, then lines."""
    small = collected
    while len(to_json(small).encode()) > limit_bytes:
        if any(not is_failure(end) for pod in small.pods for end in pod.ranks):
            small = replace(small, pods=[replace(p, ranks=[e for e in p.ranks if is_failure(e)]) for p in small.pods])
        elif len(small.logs) > 10:
            small = _halve_logs(small)
        elif max(len(small.steps), len(small.moments), len(small.checkpoints)) > 10:
            small = _halve_rows(small)
        elif len(small.pods) > 1:
            kept = small.pods[: len(small.pods) // 2]
            small = replace(small, pods=kept, left_out=small.left_out + len(small.pods) - len(kept))
        elif small.without_record[10:]:
            lost = len(small.without_record) - 10
            small = replace(small, without_record=small.without_record[:10], left_out=small.left_out + lost)
        elif small.first_failing is not None and small.first_failing.last_lines:
            lines = small.first_failing.last_lines
            small = replace(
                small, first_failing=replace(small.first_failing, last_lines=lines[(len(lines) + 1) // 2 :])
            )
        else:
            return replace(small, pods=[], logs=[], left_out=small.left_out + len(small.pods) + len(small.logs))
    return small


def gather(options: Options) -> Collected:
    """Read what the attempt left.

    Raises:
        OSError: the storage cannot be read.
    """
    if proofs.other_owner(options.run_dir, options.ledger):
        return Collected(options.attempt, [])
    pods: List[Termination] = []
    lost: List[str] = []
    folders = sorted(glob.glob(os.path.join(glob.escape(options.run_dir), f"a{options.attempt}", "*-[0-9]*")))
    for folder in folders:
        record = _record(os.path.join(folder, "termination.json"))
        if record is None:
            lost.append(os.path.basename(folder))
        else:
            pods.append(record)
    end, pod = first_failing(pods)
    if end is not None and pod is not None:
        end = replace(end, last_lines=end.last_lines[-LAST_LINES:] or _tail(options, pod, end.rank))
    bare = [replace(one, ranks=[replace(e, last_lines=[]) for e in one.ranks]) for one in pods]
    return Collected(
        attempt=options.attempt,
        pods=sorted(bare, key=_failure_time),
        first_failing=end,
        first_failing_pod=pod.pod if pod is not None else "",
        first_failing_node=pod.node if pod is not None else "",
        without_record=lost,
        logs=_logs(options),
        steps=_steps(options),
        moments=_moments(options),
        checkpoints=_checkpoints(options),
    )


def _checkpoints(options: Options) -> List[List[Any]]:
    found = sorted(proofs.read_proofs(options.run_dir), key=lambda one: one.at, reverse=True)[:MOST_CHECKPOINTS]
    return [[one.step, one.path, one.at, one.verdict, one.why, _size(one), one.format] for one in found]


def _size(proof: Proof) -> int:
    return sum(record.bytes for record in proofs.records_of(proof, kept=False))


def _failure_time(pod: Termination) -> Tuple[float, str]:
    return min((end.at for end in pod.ranks if is_failure(end)), default=float("inf")), pod.pod


def _halve_rows(collected: Collected) -> Collected:
    steps, moments, found = collected.steps, collected.moments, collected.checkpoints
    return replace(
        collected,
        steps=steps[len(steps) // 2 :],
        moments=moments[len(moments) // 2 :],
        checkpoints=found[: max(1, len(found) // 2)],
    )


def _halve_logs(collected: Collected) -> Collected:
    kept = collected.logs[: len(collected.logs) // 2]
    return replace(collected, logs=kept, left_out=collected.left_out + len(collected.logs) - len(kept))


def _record(path: str) -> Optional[Termination]:
    try:
        with open(path, "rb") as file:
            return from_json(Termination, file.read())
    except (FileNotFoundError, ValueError, RecursionError):
        return None


def _steps(options: Options) -> List[List[Any]]:
    """Of one rank: where several say the same step, the lowest one counts, as it does for the coordinator."""
    rows: Dict[int, List[List[Any]]] = {}
    for path in glob.glob(os.path.join(glob.escape(options.run_dir), f"a{options.attempt}", "*", "steps.jsonl")):
        for line in _last_lines(path):
            try:
                seen = json.loads(line)
                row = [int(seen["step"]), float(seen["at"]), seen.get("seconds"), seen.get("loss")]
                rows.setdefault(int(seen.get("rank", 0)), []).append(row)
            except (ValueError, KeyError, TypeError):
                continue  # cut off at the beginning of the tail, or by the end of the node
    return sorted(rows[min(rows)], key=lambda row: row[1])[-LAST_STEPS:] if rows else []


def _moments(options: Options) -> List[List[Any]]:
    """What the coordinator made of its last reports, thought through once more from its memory."""
    path = os.path.join(options.run_dir, f"a{options.attempt}", "coordinator", "journal.jsonl")
    lines = _last_lines(path) if os.path.exists(path) else []
    events = [event for event in journal.read_events(lines) if isinstance(event, ReportsReceived)]
    role = next((event.key[0] for event in events if any(isinstance(one, StepSeen) for one in event.reports)), "")
    found: List[Moment] = []
    progress = Progress()
    for event in events:
        for report in event.reports if role in ("", event.key[0]) else ():
            if isinstance(report, (StepSeen, PhaseSeen)):
                learned = apply_report(progress, report)
                progress = learned.progress
                found += learned.moments
    return [list(moment) for moment in found[-LAST_MOMENTS:]]


def _last_lines(path: str) -> List[str]:
    with open(path, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
        return file.read().decode("utf-8", "replace").split("\n")


def _logs(options: Options) -> List[LogSize]:
    found: List[LogSize] = []
    pattern = os.path.join(glob.escape(options.run_dir), f"a{options.attempt}", "*", "*.log*")
    for path in glob.glob(pattern):
        found.append(LogSize(os.path.relpath(path, options.run_dir), os.stat(path).st_size))
    return sorted(found, key=lambda one: (-one.bytes, one.path))


def _tail(options: Options, pod: Termination, rank: int) -> List[str]:
    """Last lines of a rank's own log, where its record holds none."""
    pattern = f"a{options.attempt}", f"{glob.escape(pod.role)}-[0-9]*", f"rank-{rank}.log"
    for path in glob.glob(os.path.join(glob.escape(options.run_dir), *pattern)):
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().rstrip(b"\n").split(b"\n")
        return [printable_text(raw)[:LINE_CHARACTERS] for raw in lines[-LAST_LINES:]]
    return []


@flags.program("collect")
def main(argv: List[str]) -> int:
    """Collect and answer; the exit code."""
    options = parse(argv)
    options = replace(options, ledger=options.ledger or os.environ.get(proofs.VARIABLE, ""))
    try:
        text = to_json(fit(gather(options), options.limit_bytes))
    except OSError as error:
        text = json.dumps({"attempt": options.attempt, "pods": [], "error": str(error)})
    print(text, flush=True)
    return write_outputs("collect", options.out_dir, {"collected": text})
