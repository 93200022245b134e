"""Collectives: whose sequence number lagged when the watchdog fired."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

_ENQUEUED = re.compile(
    r"\[(?P<group>PG[^\]]{0,120}?)? ?Rank (?P<rank>\d{1,7})\].{0,200}last enqueued (?:NCCL )?work: (?P<work>-?\d{1,12})"
)
LAGGING_WEIGHT = 0.8
"""A minority that enqueued fewer collectives than the rest: compute was late there, the others only waited."""


def lagging(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Ranks that had enqueued fewer collectives than most of their group when the watchdog fired."""
    groups: dict[str, dict[int, tuple[int, LogLine]]] = {}
    for line in lines:
        hit = _ENQUEUED.search(line.text)
        if hit is not None:
            groups.setdefault(hit["group"] or "", {})[int(hit["rank"])] = (int(hit["work"]), line)
    for _, members in sorted(groups.items()):
        yield from _behind(members)


def _behind(members: dict[int, tuple[int, LogLine]]) -> list[Clue]:
    front = max(work for work, _ in members.values())
    late = {rank: item for rank, item in members.items() if item[0] < front}
    if len(members) < 3 or not late or len(late) * 2 >= len(members):
        return []
    return [
        Clue(
            FaultClass.COLLECTIVE_TIMEOUT,
            LAGGING_WEIGHT,
            f"rank {rank} had enqueued collective {work}, the others {front}",
            "collective-lagging",
            "rank",
            line.node,
            rank,
        )
        for rank, (work, line) in sorted(late.items())
    ]
