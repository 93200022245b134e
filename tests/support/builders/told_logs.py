"""Small foreign logs for tests of what is made of them: files as text, and lines that many of them hold."""

from __future__ import annotations

from collections.abc import Mapping

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.diagnose import Diagnosis, diagnose
from flows.decisions.diagnosis.lines import gather
from flows.decisions.diagnosis.observers.registry import Observer
from flows.decisions.diagnosis.selection import evidence_of
from workflows.model.attempt import LogLine

STEPS = "\n".join(f"step {number}00 loss 2.3{number} lr 1e-4 3.2 it/s" for number in range(1, 5))
"""A training that goes on."""


def watchdog(rank: int, work: int = 881) -> str:
    """A rank whose collective timed out."""
    return (
        f"[rank{rank}]:[E212 03:11:02.1{rank}5298746 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={work}, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
        "Timeout(ms)=600000) ran for 600041 milliseconds before timing out."
    )


def enqueued(rank: int, work: int) -> str:
    """How far a rank had come when the watchdog fired."""
    return (
        f"[rank{rank}]:[E212 03:11:02.2{rank}5298746 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank "
        f"{rank}]  failure detected by watchdog at work sequence id: 881 PG status: last enqueued work: {work}, "
        "last completed work: 880"
    )


def raised(rank: int, words: str) -> str:
    """A traceback of one rank."""
    head = "Traceback (most recent call last):"
    return f'[rank{rank}]: {head}\n[rank{rank}]:   File "/work/train.py", line 120, in main\n[rank{rank}]: {words}'


def told(files: Mapping[str, str]) -> Diagnosis:
    """The diagnosis of files."""
    return diagnose(evidence_of([(name, text.split("\n")) for name, text in files.items()]))


def lines_of(files: Mapping[str, str]) -> tuple[LogLine, ...]:
    """The cleaned lines of files."""
    return gather(evidence_of([(name, text.split("\n")) for name, text in files.items()]))


def seen(observer: Observer, files: Mapping[str, str]) -> list[Clue]:
    """What an observer sees in files."""
    return list(observer(lines_of(files)))


def ranks(clues: list[Clue]) -> set[int]:
    """The ranks that clues blame."""
    return {clue.rank for clue in clues if clue.blames == "rank" and clue.rank is not None}
