"""Collectives: who had not come to the one that all others waited in.

Two ways: what every rank's watchdog says of its own sequence numbers, and what PyTorch's own tools say of all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.places import rank_of
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

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
_SAYS_ENQUEUED = Cue("last enqueued", of=(_ENQUEUED,))
_SAYS_TIMED_OUT = Cue("watchdog caught coll", of=(_TIMED_OUT,))
_SAYS_NAMED = Cue("missing rank", "culprit rank", "lagging ranks that", "waiting for rank", "waiting on rank",
                  "absent rank", of=[pattern for _, pattern in _NAMED])  # fmt: skip
_SAYS_DESYNC = Cue("joined but didn't fin", "but didn't join", "] started", "] finished", of=(_DID_NOT_JOIN, _SNAPSHOT))


def lagging(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Ranks that had enqueued fewer collectives than most of their group when the watchdog fired."""
    groups: dict[str, dict[int, tuple[int, LogLine]]] = {}
    for line in _SAYS_ENQUEUED.among(lines):
        hit = _ENQUEUED.search(line.text)
        if hit is not None:
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
    told = behind.get("joined") if len(behind) == 2 else behind.get("absent", behind.get("joined"))
    if told is None:
        return
    ranks, line = told
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
