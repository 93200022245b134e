"""How ranks ended, by logs: what other launchers say of it, and our own where its record is missing.

Other launchers (torchrun, srun, mpirun, DeepSpeed, Python's own spawn) are read only where our own left no record. Ours
logs each end at once and leaves its record when it ends itself. In between it may be killed, its node lost, or its
coordinator away, and saved logs have no records at all. A notice is passed on through the coordinator; where that is
away or on the node that is emptied, ranks of the other pods seem to end by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from flows.decisions.diagnosis.lines import Clock, stamp
from flows.decisions.diagnosis.prefilter import Cue
from workflows.model.attempt import Evidence, LogLine
from workflows.programs.launcher.lifecycle import is_failure
from workflows.programs.launcher.termination import EXIT_TERMINATED
from workflows.wire import LINE_PREFIX, RankEnd, Termination, from_line

NUMBERS = {
    "SIGHUP": 1, "SIGINT": 2, "SIGILL": 4, "SIGABRT": 6, "SIGBUS": 7, "SIGFPE": 8, "SIGKILL": 9, "SIGSEGV": 11,
    "SIGPIPE": 13, "SIGTERM": 15,
}  # fmt: skip
SRUN = {
    "Killed": 9, "Terminated": 15, "Segmentation fault": 11, "Bus error": 7, "Aborted": 6, "Illegal instruction": 4,
    "Out Of Memory": 9,
}  # fmt: skip
"""What srun prints of a task, and the signal that it means."""


_FIELD = re.compile(r"^\s*(?P<name>time|host|rank|exitcode|traceback)\s{0,10}: (?P<value>.{0,400})$")
_ROOT = "Root Cause (first observed failure)"
_FAILED = re.compile(r"failed \(exitcode: (?P<code>-?\d{1,4})\)(?: .{0,80}?)? local_rank: (?P<rank>\d{1,6})")
_SRUN = re.compile(
    r"srun: error: (?P<node>[\w.\[\],-]{1,200}): tasks? (?P<tasks>[\d,-]{1,400}): (?P<what>Exited with exit code "
    r"(?P<code>\d{1,3})|Killed|Terminated|Segmentation fault|Bus error|Aborted|Out Of Memory|Illegal instruction)"
)
_MPIRUN = re.compile(
    r"process rank (?P<rank>\d{1,6}) with PID \d{1,9} on node (?P<node>[\w.-]{1,100}) "
    r"exited on signal (?P<signal>\d{1,3})"
)
_RANK_ENDED = re.compile(
    r"\b[Rr]ank (?P<rank>\d{1,6})(?: \(PID \d{1,9}\))? (?:has )?(?:crashed|exited|failed|died|ended|terminated) with "
    r"(?:an? )?(?:non-?zero )?(?:exit |return |status )?(?:code|status)[:=]? ?(?P<code>-?\d{1,4})\b|"
    r"\bContainer rank (?P<container>\d{1,6}) status failed cmd .{1,6000}\] code (?P<ended>-?\d{1,4}) log "
)
"""Composer and others; Paddle."""
_RANKS_ABORTED = re.compile(r"\btrainer process with rank=\[(?P<tasks>\d[\d, ]{0,400})\] was aborted")
_MPI_ABORT = re.compile(r"MPI_ABORT was invoked on rank (?P<rank>\d{1,6}) in communicator")
_SPAWN = re.compile(
    r"[Pp]rocess (?P<rank>\d{1,5}) terminated with "
    r"(?:signal (?P<signal>SIG[A-Z]{2,6})|exit code (?P<code>\d+)|the following error:)"
)
_CHILD = re.compile(r"Child process with PID \d{1,9} terminated with code (?P<code>-?\d{1,4})")
_SUBPROCESS = re.compile(r"--local[_-]rank[= ](?P<rank>\d{1,4})\b.{0,4000}exits with return code = (?P<code>-?\d{1,4})")
_HOROVOD_NAME = re.compile(r"^Process name: (?P<rank>\d{1,6})\s*$")
_HOROVOD_CODE = re.compile(r"^Exit code: (?P<code>-?\d{1,4})\s*$")
_PER_NODE = re.compile(r"nproc[_-]per[_-]node['\"]?\s{0,8}[:= ]\s{0,8}(?P<count>\d{1,3})\b")
_EVENT = re.compile(r'"torchelastic\.worker\.status\.FAILED".{0,300}"global_rank": (?P<rank>\d{1,6})')
_STEP_KILLED = re.compile(
    r"\bsrun: (?:launch/slurm: _step_signal: )?(?:Terminating (?:job step|StepId)|Job step aborted)|"
    r"\bslurmstepd: error: \*\*\* (?:STEP|JOB) \S{1,60} ON \S{1,120} CANCELLED"
)
"""What Slurm prints when it ends what is left of a step: whoever is killed afterwards did not begin it."""
_ORDERED = re.compile(r"CANCELLED AT \S{1,32} (?i:due to signal) ")  # Sent to the whole step: no task began it.
_RETURNED = re.compile(
    r"exits with return code = (?P<code>-?\d{1,4})|returned non-zero exit status (?P<status>-?\d{1,3})|"
    r"died with <Signals\.(?P<signal>SIG[A-Z]{2,6})"
)
_SAYS_FIELD = Cue("time:", "host:", "rank:", "exitcode:", "traceback:", _ROOT, "]:", "process name:",
                  of=(_FIELD, _HOROVOD_NAME, _HOROVOD_CODE))  # fmt: skip
_SAYS_EXIT = Cue(
    of=(
        _FAILED,
        _SRUN,
        _MPIRUN,
        _MPI_ABORT,
        _SPAWN,
        _CHILD,
        _SUBPROCESS,
        _EVENT,
        _RETURNED,
        _RANK_ENDED,
        _RANKS_ABORTED,
    )
)
_SAYS_STEP_KILLED = Cue(of=(_STEP_KILLED, _ORDERED))


@dataclass(frozen=True)
class Exit:
    """One end that a launcher reported."""

    rank: int | None
    node: str
    code: int | None
    """None: ended by a signal, or not said."""
    signal: int | None
    at: float | None
    root: bool
    """The launcher names it as the first one."""
    local: bool
    """`rank` is local to its node."""
    line: LogLine
    killed_with_step: bool = False
    """Killed with what was left of a step, after another task had failed."""


def exits(lines: Sequence[LogLine]) -> tuple[Exit, ...]:
    """Every end that a launcher reports in the lines, in order; a rank that is reported twice comes once."""
    found: list[Exit] = []
    report = _Report()
    for line in lines:
        if _SAYS_FIELD.holds(line.text):
            found += report.read(line)
        if _SAYS_EXIT.holds(line.text):
            hits = ((read, pattern.search(line.text)) for pattern, read in _REPORTS)
            found += next((read(hit, line) for read, hit in hits if hit is not None), list[Exit]())
    return _without_repeats(_with_global_ranks(_with_step_kills(found, lines), lines))


@dataclass
class _Report:
    """A report over several lines: what its fields said so far."""

    block: dict[str, str] = field(default_factory=dict[str, str])
    root: bool = False
    """The launcher's report of who failed first was reached."""

    def read(self, line: LogLine) -> list[Exit]:
        """The end that the line completes."""
        text, block = line.text, self.block
        self.root = self.root or _ROOT in text
        if (named := _FIELD.match(text)) is not None:
            block[named["name"]] = named["value"]
            if named["name"] == "exitcode" and "rank" in block:
                return _torchrun(block, self.root, line)
        elif "[" in text and text.strip().endswith("]:"):
            self.block = {}
        elif hit := _HOROVOD_NAME.match(text):
            self.block = {"horovod": hit["rank"]}
        elif (hit := _HOROVOD_CODE.match(text)) and "horovod" in block:
            return [_ended(int(block["horovod"]), line.node, int(hit["code"]), line, root=True)]
        return []


def terminations(found: Iterable[Exit], failing: Collection[int] = ()) -> tuple[Termination, ...]:
    """The ends with a rank as termination records, one a node; those that the launcher asked to end are marked so.

    `failing`: ranks that had failed by themselves before they were asked to end.
    """
    ends = list(found)
    caused = any(item.signal != 15 for item in ends)
    killed = _ranks_killed_with_step(ends, failing)
    nodes: dict[str, list[RankEnd]] = {}
    first = min((item.at for item in ends if item.at is not None), default=0.0)
    for item in ends:
        if item.rank is None:
            continue
        at = (item.at if item.at is not None else first) - (0.001 if item.root else 0.0)
        by_launcher = caused and item.signal == 15 and item.rank not in failing
        requested = by_launcher or item.killed_with_step or item.rank in killed
        end = RankEnd(item.rank, item.rank, at, item.code, item.signal, requested=requested)
        nodes.setdefault(item.node, []).append(end)
    return tuple(
        Termination("", 0, "", node, "", "rank-failed", ranks, detail="") for node, ranks in sorted(nodes.items())
    )


def _ranks_killed_with_step(ends: Sequence[Exit], failing: Collection[int]) -> frozenset[int]:
    """Ranks that a launcher killed after another one had failed with an exit code and a cause of its own.

    One killed rank alone may be what broke the others: nothing is said of it.
    """
    killed = frozenset(item.rank for item in ends if item.signal == 9 and item.rank is not None)
    fallen = any(item.code and item.rank in failing for item in ends)
    return killed if fallen and len(killed) > 1 and not killed & set(failing) else frozenset()


def _with_step_kills(found: list[Exit], lines: Sequence[LogLine]) -> list[Exit]:
    """The ends, those marked that came when Slurm ended a step in which a task had failed by itself."""
    candidates = _SAYS_STEP_KILLED.among(lines)
    ordered = {line.file for line in candidates if _ORDERED.search(line.text)}
    began = {line.file: line.line for line in reversed(candidates) if _STEP_KILLED.search(line.text)}
    late = [_late(item, began.get(item.line.file)) for item in found]
    fallen = {
        item.line.file for item, after in zip(found, late, strict=True) if not after and item.signal != 15
    } | ordered
    return [
        replace(item, killed_with_step=after and item.line.file in fallen)
        for item, after in zip(found, late, strict=True)
    ]


def _late(item: Exit, began: int | None) -> bool:
    killed = item.signal in (9, 15) and "Out Of Memory" not in item.line.text
    return killed and began is not None and item.line.line > began


def _torchrun(block: dict[str, str], root: bool, line: LogLine) -> list[Exit]:
    rank, code = re.match(r"\d{1,6}", block["rank"]), re.match(r"-?\d{1,4}", block["exitcode"])
    if rank is None or code is None:
        return []
    return [_ended(int(rank[0]), block.get("host", ""), int(code[0]), line, root=root)]


def _failed(hit: re.Match[str], line: LogLine) -> list[Exit]:
    return [_ended(int(hit["rank"]), line.node, int(hit["code"]), line, local=True)] if int(hit["code"]) else []


def _srun(hit: re.Match[str], line: LogLine) -> list[Exit]:
    code = int(hit["code"]) if hit["code"] else -SRUN[hit["what"]]
    return [_ended(rank, hit["node"], code, line) for rank in _tasks(hit["tasks"])]


def _mpirun(hit: re.Match[str], line: LogLine) -> list[Exit]:
    return [_ended(int(hit["rank"]), hit["node"], -int(hit["signal"]), line, root=True)]


def _aborted(hit: re.Match[str], line: LogLine) -> list[Exit]:
    return [_ended(int(hit["rank"]), line.node, 1, line, root=True)]


def _spawned(hit: re.Match[str], line: LogLine) -> list[Exit]:
    code = -NUMBERS.get(hit["signal"], 9) if hit["signal"] else int(hit["code"] or 1)
    return [_ended(int(hit["rank"]), line.node, code, line, local=True)]


def _rank_ended(hit: re.Match[str], line: LogLine) -> list[Exit]:
    code = int(hit["code"] or hit["ended"])
    return [_ended(int(hit["rank"] or hit["container"]), line.node, code, line)] if code else []


def _ranks_aborted(hit: re.Match[str], line: LogLine) -> list[Exit]:
    return [_ended(rank, line.node, 1, line) for rank in _tasks(hit["tasks"].replace(" ", ""))]


def _child(hit: re.Match[str], line: LogLine) -> list[Exit]:
    return [_ended(line.rank, line.node, int(hit["code"]), line)]


def _event(hit: re.Match[str], line: LogLine) -> list[Exit]:
    return [_ended(int(hit["rank"]), line.node, 1, line)]


def _returned(hit: re.Match[str], line: LogLine) -> list[Exit]:
    code = -NUMBERS.get(hit["signal"], 9) if hit["signal"] else int(hit["code"] or hit["status"])
    return [_ended(None, line.node, code, line)] if code else []


_REPORTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], LogLine], list[Exit]]], ...] = (
    (_FAILED, _failed),
    (_SRUN, _srun),
    (_MPIRUN, _mpirun),
    (_MPI_ABORT, _aborted),
    (_SPAWN, _spawned),
    (_RANK_ENDED, _rank_ended),
    (_RANKS_ABORTED, _ranks_aborted),
    (_CHILD, _child),
    (_SUBPROCESS, _failed),
    (_EVENT, _event),
    (_RETURNED, _returned),
)
"""Reports on one line, and how each is read."""


def _with_global_ranks(found: list[Exit], lines: Sequence[LogLine]) -> list[Exit]:
    """Local ranks as global ones, where other lines of the same file show which global ranks run there."""
    if not any(item.local for item in found):
        return found
    counts = [int(hit["count"]) for line in lines if (hit := _PER_NODE.search(line.text[:1000]))]
    count = max(counts, default=8)
    named: dict[str, set[int]] = {}
    for line in lines:
        if line.rank is not None:
            named.setdefault(line.file, set()).add(line.rank)
    return [_at_home(item, named.get(item.line.file, {0}), max(1, count)) for item in found]


def _at_home(item: Exit, ranks: set[int], per_node: int) -> Exit:
    """The end of a local rank, with its global one: that of a file's only rank, else counted from its lowest."""
    if item.local and item.rank == 0 and len(ranks) == 1 and min(ranks) % per_node:
        return replace(item, rank=min(ranks), local=False)
    return _moved(item, min(ranks) // per_node * per_node)


def _moved(item: Exit, first: int) -> Exit:
    if not item.local or item.rank is None or not first:
        return item
    return replace(item, rank=item.rank + first, local=False)


def _ended(rank: int | None, node: str, code: int, line: LogLine, *, root: bool = False, local: bool = False) -> Exit:
    signal = -code if code < 0 else (code - 128 if 128 < code < 160 else None)
    return Exit(rank, node, None if signal is not None else code, signal, line.at, root, local, line)


def _tasks(text: str) -> list[int]:
    """`0-3,7` as numbers; at most 4,096 of them."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (last.isdigit() or not last):
            found += range(int(first), min(int(last or first), int(first) + 4096) + 1)
    return found[:4096]


def _without_repeats(found: list[Exit]) -> tuple[Exit, ...]:
    globally = [item for item in found if not item.local]
    named = any(item.rank is not None for item in globally)
    kept: dict[int | None, Exit] = {}
    for item in globally if named else found:
        known = kept.get(item.rank)
        if known is None:
            kept[item.rank] = item
        elif item.root and not known.root:
            kept[item.rank] = replace(item, at=known.at if item.at is None else item.at)
    return tuple(item for rank, item in kept.items() if rank is not None or len(kept) == 1)


MARK = f'{LINE_PREFIX}{{"report":"RankEnd",'
MOST_BEFORE = 120
"""Characters that log collectors may put before a line."""
_LINES = ',"last_lines":'
_SAVING = "launcher: saving: "
_NOTICE = re.compile(r"SIG[A-Z0-9]{1,10} reached the launcher")
"""How a launcher says that its pod was given notice of its end."""

ANSWERS = (0, EXIT_TERMINATED)
"""How a program may end that heeds a notice. One that ends with 0 before its last step has failed otherwise."""
CLOCKS_SECONDS = 0.5
"""Clocks of two nodes differ by less."""


@dataclass
class _LauncherLog:
    """What one log holds: the ends of the newest incarnation."""

    node: str
    incarnation: int = 0
    ends: dict[int, RankEnd] = field(default_factory=dict[int, RankEnd])
    noticed: str = ""
    """The launcher's own words; "" where it was given no notice."""
    noticed_at: float = 0.0
    """Unix seconds."""

    def add(self, end: RankEnd) -> None:
        """One more end; of a rank that is reported twice the first one counts."""
        if end.incarnation > self.incarnation:
            self.incarnation, self.ends = end.incarnation, {}
        if end.incarnation == self.incarnation:
            self.ends.setdefault(end.rank, end)


def with_logged_ends(evidence: Evidence) -> Evidence:
    """The evidence with a record of every pod (a log of its own) that left none, made from its launcher's log."""
    recorded = {record.pod for record in evidence.terminations}
    ends = logged_ends(line for line in evidence.lines if not line.file or line.file not in recorded)
    return replace(evidence, terminations=(*evidence.terminations, *ends)) if ends else evidence


def logged_ends(lines: Iterable[LogLine]) -> tuple[Termination, ...]:
    """Records made from lines, one for each log with an end or a notice, in the order of the logs."""
    logs: dict[str, _LauncherLog] = {}
    for line in lines:
        end = end_of(line.text)
        if end is not None:
            logs.setdefault(line.file, _LauncherLog(line.node)).add(end)
        elif (noticed := notice_of(line)) is not None:
            log = logs.setdefault(line.file, _LauncherLog(line.node))
            log.noticed, log.noticed_at = noticed
    return tuple(_record(name, log) for name, log in logs.items())


def end_of(text: str) -> RankEnd | None:
    """The end that a line reports; None for every other line. Of a line that was cut the last words are missing."""
    at = text.find(MARK, 0, MOST_BEFORE + len(MARK))
    if at < 0:
        return None
    found = from_line(text[at:])
    if found is None and (cut := text.find(_LINES, at)) >= 0:
        found = from_line(text[at:cut] + "}")
    return found if isinstance(found, RankEnd) else None


def notice_of(line: LogLine) -> tuple[str, float] | None:
    """What the line of a launcher says of a notice, and when (Unix seconds); None for every other line."""
    head, saving, rest = line.text.partition(_SAVING)
    notice = _NOTICE.match(rest) if saving and line.source != "rank" else None
    if notice is None:
        return None
    at = stamp(head, Clock()) if line.at is None else line.at
    return None if at is None else (notice[0], at)


def first_failed(ends: Iterable[RankEnd]) -> RankEnd | None:
    """Of the ranks that ended wrongly by themselves the first one; None where none did."""
    return min(filter(is_failure, ends), key=lambda end: (end.at, end.rank), default=None)


def _record(name: str, log: _LauncherLog) -> Termination:
    ends = [log.ends[rank] for rank in sorted(log.ends)]
    first = first_failed(ends)
    reason = _reason(first, log)
    steps = [end.last_step for end in ends if end.last_step is not None]
    return Termination(
        run="",
        attempt=0,
        role="",
        node=log.node,
        pod=name,
        reason=reason,
        ranks=ends,
        first_failing_rank=first.rank if first else None,
        last_step=max(steps, default=None),
        at=max((end.at for end in ends), default=log.noticed_at),
        detail=log.noticed if reason == "signalled" else "",
    )


def _reason(first: RankEnd | None, log: _LauncherLog) -> str:
    if first is not None:
        return "rank-failed"
    if log.noticed:
        return "signalled"
    return "told-to-stop" if any(end.requested for end in log.ends.values()) else "completed"


def with_passed_notices(evidence: Evidence) -> Evidence:
    """The evidence in which ranks that ended by another pod's notice count as asked to end, which they were."""
    began = _noticed_at(evidence)
    if began is None:
        return evidence
    return replace(evidence, terminations=tuple(_passed(record, began) for record in evidence.terminations))


def _noticed_at(evidence: Evidence) -> float | None:
    """Since when a part of the gang had notice to end (Unix seconds; 0: not known when); None where none had."""
    if any(node.cordoned and _is_emptied(node.name, evidence) for node in evidence.nodes):
        return 0.0
    notices = [noticed[1] for line in evidence.lines if (noticed := notice_of(line)) is not None]
    # Whoever is stopped by the gang's end is killed; only a notice lets a rank end as it wants to.
    ended = [
        end.at
        for record in evidence.terminations
        for end in record.ranks
        if end.requested and end.exit_code == EXIT_TERMINATED
    ]
    return min([*notices, *ended], default=None)


def _is_emptied(node: str, evidence: Evidence) -> bool:
    """Whether all of the gang that was on the node leaves it, or has left: an evicted pod that has ended is gone."""
    return all(pod.deleted or pod.disrupted for pod in evidence.pods if pod.node == node)


def _passed(record: Termination, began: float) -> Termination:
    if record.reason != "rank-failed" or not any(_by_notice(end, began) for end in record.ranks):
        return record
    ranks = [replace(end, requested=True) if _by_notice(end, began) else end for end in record.ranks]
    first = first_failed(ranks)
    if first is None:
        return replace(record, ranks=ranks, reason="told-to-stop", first_failing_rank=None)
    return replace(record, ranks=ranks, first_failing_rank=first.rank)


def _by_notice(end: RankEnd, began: float) -> bool:
    return not end.requested and end.exit_code in ANSWERS and end.at >= began - CLOCKS_SECONDS
