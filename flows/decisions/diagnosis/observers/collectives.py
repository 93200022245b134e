"""Collectives: which ranks did not come to the one that all others waited in, and jobs that Slurm saw killed.

Three kinds of reports tell it: what every rank's watchdog says of its own sequence numbers; what PyTorch's own tools
say of all ranks; and reports over several lines (Horovod's stall inspector, JAX's barriers, NCCL's RAS). Slurm's
controller names the node of a job that ended by a signal, where it ran on one node only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.observers.outliers import Lived
from flows.decisions.diagnosis.places import rank_of
from flows.decisions.diagnosis.prefilter import Cue
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

LAGGING_WEIGHT = 0.8
"""A minority that enqueued fewer collectives than the rest: compute was late there, the others only waited."""
SILENT_WEIGHT = 0.6
"""A rank whose watchdog said nothing while all others' fired: it was not in the collective, or it had no watchdog."""
REPORT_WEIGHT = 0.85
"""A tool compared the ranks and says which ones were missing."""
UNNAMED_WEIGHT = 0.75
"""A tool compared the ranks, and they disagree, but it is not clear who is wrong."""
FEWEST_WAITING = 3
"""Ranks that must have timed out before the silence of another one means anything."""
MOST_RANKS = 256
"""Ranks of one report that are blamed at most."""

_ENQUEUED = re.compile(
    r"\[(?P<group>PG[^\]]{0,120}?)? ?Rank (?P<rank>\d{1,7})\].{0,200}"
    r"[Ll]ast enqueued (?:NCCL )?work: (?P<work>-?\d{1,12})"
)
_TIMED_OUT = re.compile(
    r"\[Rank (?P<rank>\d{1,7})\].{0,60}Watchdog caught collective operation timeout: "
    r"WorkNCCL\((?:SeqNum=(?P<work>\d{1,12}), )?OpType=(?P<op>\w{1,40})"
)
_RANKS = r"(?P<ranks>\d[\d, ]{0,4000})"
_NAMED = (
    ("recorder-missing-ranks", re.compile(r"^\s*missing ranks: [\[{(]" + _RANKS + r"[\]})]")),
    ("recorder-culprit", re.compile(r"\bCulprit ranks?[: ]{1,2}[\[{]?" + _RANKS + r"\b")),
    ("desync-never-joined", re.compile(r"ranks \[" + _RANKS + r"\] are the lagging ranks that caused this")),
    ("nccl-ras-missing", re.compile(r"^\s*The missing ranks?: " + _RANKS + r"\s*$")),
    (
        "collective-absent",
        re.compile(
            r"(?i)\b(?:waiting (?:for|on)|missing|absent) ranks?:? [\[{(]?" + _RANKS + r"[\]})]? ?"
            r"(?:in|at|to join|to enter|for) .{0,40}(?:barrier|collective|all_?reduce|all_?gather|broadcast)"
        ),
    ),
)
"""Reports that name the ranks on one line: the flight recorder's analysis, PyTorch, NCCL's RAS, and common wording."""
_DID_NOT_JOIN = re.compile(
    r"\[" + _RANKS + r"\] (?P<what>joined but didn't finish|finished collective #\d{1,12}, but didn't join) coll"
)
_SNAPSHOT = re.compile(r"^\s*\[" + _RANKS + r"\] (?:started|finished) [A-Z_]{4,40}\s*$")
_SAYS_ENQUEUED = Cue(of=(_ENQUEUED,))
_SAYS_TIMED_OUT = Cue(of=(_TIMED_OUT,))
_SAYS_NAMED = Cue(of=[pattern for _, pattern in _NAMED])
_SAYS_DESYNC = Cue(of=(_DID_NOT_JOIN, _SNAPSHOT))


def lagging(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Ranks that had enqueued fewer collectives than most of their group when the watchdog fired."""
    groups: dict[str, dict[int, tuple[int, LogLine]]] = {}
    for line, hit in _SAYS_ENQUEUED.hits(lines):
        groups.setdefault(hit["group"] or "", {})[int(hit["rank"])] = (int(hit["work"]), line)
    for _, members in sorted(groups.items()):
        yield from _behind(members)


def _behind(members: dict[int, tuple[int, LogLine]]) -> list[Clue]:
    front = max(work for work, _ in members.values())
    late = {rank: item for rank, item in members.items() if item[0] < front}
    if len(members) < FEWEST_WAITING or not late or len(late) * 2 >= len(members):
        return []
    return [
        _late(rank, line, f"rank {rank} had enqueued collective {work}, the others {front}", LAGGING_WEIGHT)
        for rank, (work, line) in sorted(late.items())
    ]


def silent(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """The few ranks that are there and whose watchdogs said nothing, while all others' fired in one collective."""
    if not _SAYS_TIMED_OUT.anywhere(lines):
        return
    waiting: dict[int, tuple[str, str]] = {}
    seen: dict[int, LogLine] = {}
    for line in lines:
        hit = _TIMED_OUT.search(line.text) if _SAYS_TIMED_OUT.holds(line.text) else None
        rank = int(hit["rank"]) if hit is not None else rank_of(line)
        if rank is None:
            continue
        seen[rank] = line
        if hit is not None:
            waiting.setdefault(rank, (hit["work"] or "", hit["op"]))
    quiet = sorted(set(seen) - set(waiting))
    if len(waiting) < FEWEST_WAITING or len(set(waiting.values())) != 1 or len(quiet) * 3 > len(waiting):
        return
    for rank in quiet:
        text = f"rank {rank}: no time-out, while {len(waiting)} others timed out in one collective"
        yield _late(rank, seen[rank], text, SILENT_WEIGHT, "collective-silent")


def _late(rank: int, line: LogLine, text: str, weight: float, rule: str = "collective-lagging") -> Clue:
    """That it was late has a cause: where one is known, this counts little."""
    return Clue(FaultClass.COLLECTIVE_TIMEOUT, weight, text, rule, "rank", line.node, rank, echo=True,
                file=line.file, line=line.line)  # fmt: skip


def reported(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Ranks that a tool's report names as missing, where it names them on one line."""
    for line in _SAYS_NAMED.among(lines):
        hits = ((rule, hit) for rule, pattern in _NAMED if (hit := pattern.search(line.text)))
        rule, hit = next(hits, ("", None))
        if hit is not None:
            yield from missing(hit["ranks"], rule, line)


def desync(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """PyTorch's own report: those that did not finish a collective that others did; else those that did not join."""
    behind: dict[str, tuple[list[int], LogLine]] = {}
    everybody: set[int] = set()
    for line in _SAYS_DESYNC.among(lines):
        if (hit := _DID_NOT_JOIN.search(line.text)) is not None:
            ranks = numbers(hit["ranks"])
            behind.setdefault("joined" if hit["what"].startswith("joined") else "absent", (ranks, line))
            everybody |= set(ranks)
        elif (hit := _SNAPSHOT.search(line.text)) is not None:
            everybody |= set(numbers(hit["ranks"]))
    culprits = behind.get("joined") if len(behind) == 2 else behind.get("absent", behind.get("joined"))
    if culprits is None:
        return
    ranks, line = culprits
    if len(ranks) * 2 < len(everybody) or len(everybody) <= len(ranks) == 1:
        yield from missing(str(ranks), "desync-report", line)
    else:
        yield Clue(FaultClass.HANG, UNNAMED_WEIGHT, line.text, "desync-report", file=line.file, line=line.line)


def missing(ranks: str, rule: str, line: LogLine) -> Iterator[Clue]:
    """Clues that ranks did not come to a collective: a hang, whatever the watchdogs of those who waited say."""
    for rank in numbers(ranks)[:MOST_RANKS]:
        yield Clue(FaultClass.HANG, REPORT_WEIGHT, line.text[:400], rule, "rank", "", rank,
                   supersedes=("nccl-watchdog-timeout", "collective-lagging"), file=line.file,
                   line=line.line)  # fmt: skip


def numbers(text: str) -> list[int]:
    """All numbers in a text."""
    return [int(word) for word in re.findall(r"\d{1,7}", text)]


UNNAMED_ABSENTEE_WEIGHT = 0.65
"""Horovod says that some wait for others; which ones is not in the log."""
MISMATCH_WEIGHT = 0.65
"""NCCL's counters of two moments may differ while all is well; whoever prints them has a reason to."""

_STALLED = "tensors were submitted to be reduced, gathered or broadcasted by subset of ranks"
_STALLED_OP = re.compile(r"\[(?P<which>missing|ready) ranks: ?(?P<ranks>\d[\d, ]{0,4000})[\]\s]")
_STALLED_HEAD = re.compile(r"^(?:Missing|Stalled) ranks:\s*$")
_STALLED_ROW = re.compile(r"^(?:(?P<rank>\d{1,7}): )?\[\S")
_TASKS_HEAD = "timed out task names:"
_CONNECTING = "PjRT_Client_Connect"
"""The barrier at which every task must have come for the first time."""
_TASK_ROW = re.compile(r"^\s*/job:\S{1,60}/task:(?P<rank>\d{1,6})\s*$")
_RAS_HEAD = "ranks have different"
_RAS_GROUP = re.compile(
    r"^\s*(?:(?P<count>\d{1,7}) ranks? (?:has|have)|Rank (?P<rank>\d{1,7}) has) "
    r"(?:launched up to operation|status) \w{1,20}(?: -- GPU .{1,60} on node (?P<node>\S{1,100}))?"
)
_SAYS_STALLED = Cue(_STALLED, "[missing ranks:", "[ready ranks:", of=(_STALLED_OP,))
_SAYS_TASKS, _SAYS_DIFFERENT = Cue(_TASKS_HEAD), Cue(_RAS_HEAD)
_RAS_ROW = re.compile(r"^\s*Rank (?P<rank>\d{1,7}) -- GPU .{1,60} on node (?P<node>\S{1,100})")


def stalled(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Horovod's stall inspector: the ranks that did not submit their tensors, unless training went on afterwards.

    Its head stands once a minute, the rows below it are many: an excerpt may hold the rows alone.
    """
    if not _SAYS_STALLED.anywhere(lines):
        return
    lived = Lived(lines)
    head: LogLine | None = None
    inside = False
    lacking: list[set[int]] = []
    for line in lines:
        if _begins(line, head) and not lived.outlived(line):
            head = line
        if head is None:
            continue
        if _STALLED_HEAD.match(line.text):
            inside = True
            continue
        row = _STALLED_ROW.match(line.text) if inside else None
        inside = row is not None
        if ranks := _lacking(line, row):
            lacking.append(ranks)
    if head is not None:
        yield from _stalled(head, lacking)


def _begins(line: LogLine, head: LogLine | None) -> bool:
    """A report's head, or its first row where the log has lost the head."""
    return _STALLED in line.text or (head is None and _STALLED_OP.search(line.text) is not None)


def _lacking(line: LogLine, row: re.Match[str] | None) -> set[int]:
    """Ranks that a row of the stall inspector's report lacks."""
    if row is not None:
        # `3: [tensor, …]` looks as srun labels lines: then the number was taken for the rank that printed it.
        rank = int(row["rank"]) if row["rank"] else line.rank
        return {rank} if rank is not None else set()
    op = _STALLED_OP.search(line.text)
    if op is None:
        return set()
    ranks = set(numbers(op["ranks"]))
    return ranks if op["which"] == "missing" else set(range(max(ranks))) - ranks


def _stalled(head: LogLine, lacking: Sequence[set[int]]) -> Iterator[Clue]:
    """Those that every tensor lacks; else all that any one lacks."""
    ranks: set[int] = set()
    if lacking:
        ranks = set[int].intersection(*lacking) or set[int].union(*lacking)
    if ranks:
        yield from missing(str(sorted(ranks)), "horovod-missing-ranks", head)
    else:
        yield Clue(
            FaultClass.HANG, UNNAMED_ABSENTEE_WEIGHT, head.text[:400], "horovod-stall", file=head.file, line=head.line
        )


def tasks(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """JAX's coordination service lists the tasks that did not come to a barrier, one a line."""
    inside = False
    kind = FaultClass.COLLECTIVE_TIMEOUT
    for line in lines if _SAYS_TASKS.anywhere(lines) else ():
        if _TASKS_HEAD in line.text.lower():
            inside = True
            kind = FaultClass.RENDEZVOUS if _CONNECTING in line.text else FaultClass.COLLECTIVE_TIMEOUT
        elif inside and (hit := _TASK_ROW.match(line.text)):
            yield Clue(kind, LAGGING_WEIGHT, line.text.strip()[:400], "jax-missing-task",
                       "rank", "", int(hit["rank"]), echo=True, file=line.file, line=line.line)  # fmt: skip
        else:
            inside = False


def mismatched(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """NCCL's RAS: the ranks that launched fewer collectives than most, or have another status."""
    inside, few, most = False, False, 0
    for line in lines if _SAYS_DIFFERENT.anywhere(lines) else ():
        if _RAS_HEAD in line.text:
            inside, few, most = True, False, 0
            continue
        group = _RAS_GROUP.match(line.text) if inside else None
        row = group or (_RAS_ROW.match(line.text) if inside and few else None)
        if group is not None:
            count = int(group["count"] or 1)
            few, most = most > 0 and count * 2 < most, max(most, count)
        elif line.text.strip().startswith("#"):
            inside = False
        if row is not None and few and row["rank"]:
            yield _rank_behind(int(row["rank"]), row["node"] or "", line)


def _rank_behind(rank: int, node: str, line: LogLine) -> Clue:
    text = f"rank {rank} launched fewer collectives than most: {line.text.strip()}"
    return Clue(FaultClass.HANG, MISMATCH_WEIGHT, text[:400], "nccl-ras-mismatch", "rank", node, rank,
                file=line.file, line=line.line)  # fmt: skip


_ALLOCATED = re.compile(r"\bJobId=(?P<job>\d{1,12})\S{0,12} NodeList=(?P<node>[\w.-]{1,100})(?=[\s,]|$)")
_KILLED = re.compile(r"\bJobId=(?P<job>\d{1,12})\S{0,12} WTERMSIG (?P<signal>9|11|7)\b")
_SAYS_JOB = Cue(of=(_ALLOCATED, _KILLED))
KILLED_WEIGHT = 0.7
"""Nothing says why; the node is where to look."""


def killed(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Jobs that a signal ended, blamed on their node where they had one only."""
    nodes: dict[str, str] = {}
    for line in _SAYS_JOB.among(lines):
        allocated = _ALLOCATED.search(line.text) if "NodeList=" in line.text else None
        if allocated is not None:
            nodes[allocated["job"]] = allocated["node"]
        ended = _KILLED.search(line.text) if "WTERMSIG" in line.text else None
        if ended is not None and ended["job"] in nodes:
            node = nodes[ended["job"]]
            text = f"job {ended['job']} on {node}: ended by signal {ended['signal']}"
            kind = FaultClass.USER_CODE if ended["signal"] == "11" else FaultClass.PROCESS_KILLED
            yield Clue(
                kind, KILLED_WEIGHT, text, "slurm-job-killed", "node", node, None, line.at,
                file=line.file, line=line.line, supersedes=("killed-signal", "crashed-signal"),
            )  # fmt: skip
