"""Who failed first in a gang, and who only suffered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from flows.decisions.diagnosis.clues import KNOWN_ORIGINAL, Clue
from flows.decisions.diagnosis.exceptions import tracebacks
from flows.decisions.diagnosis.exits import Exit
from flows.decisions.diagnosis.lines import clean
from flows.decisions.diagnosis.matching import match_line
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine
from workflows.programs.runtime.last_words import fingerprint
from workflows.wire import RankEnd, Termination


@dataclass(frozen=True)
class Gang:
    """The ends of a gang's ranks."""

    first: RankEnd | None
    """The rank that failed first of its own; None where none is known."""
    node: str
    """Its node."""
    victims: frozenset[int]
    """Ranks that were asked to end, or ended because others did."""

    alone: int | None = None
    """The one rank that failed of its own while others only suffered; None where there is no such one."""
    others: bool = False
    """True where others than `alone` are known to have suffered; a rank above 0 may stand alone in an excerpt."""

    @property
    def fingerprint(self) -> str:
        """Of the first failing rank, of its exception where it was killed while dying; "" where there is none."""
        if self.first is None:
            return ""
        return fingerprint(self.first.last_lines, 1, None) if dying(self.first) else self.first.fingerprint

    @property
    def failed_at(self) -> float | None:
        """When the first rank failed, Unix seconds."""
        return self.first.at if self.first else None


def read_gang(terminations: Sequence[Termination], clues: Sequence[Clue]) -> Gang:
    """The rank that failed first, and the victims.

    A rank with a cause of its own comes before one that shows echoes only, whatever the clocks of their nodes say.
    """
    ends = [(record.node, end) for record in terminations for end in record.ranks]
    asked = [end.requested and not dying(end) for _, end in ends]
    failed = [
        (node, end)
        for (node, end), was_asked in zip(ends, asked, strict=True)
        if not was_asked and (end.exit_code or end.signal is not None)
    ]
    # Roles count their ranks each for itself: a number that failed in one of them tells no victim in another.
    requested = {end.rank for (_, end), was_asked in zip(ends, asked, strict=True) if was_asked}
    requested -= {end.rank for _, end in failed}
    own = {clue.rank for clue in clues if clue.original and clue.rank is not None} - requested
    causes = [item for item in failed if item[1].rank in own]
    node, first = min(causes or failed, key=lambda item: (item[1].at, item[1].rank, item[0]), default=("", None))
    suffered = {end.rank for _, end in failed if end.rank not in own} if causes else set[int]()
    suffered |= {clue.rank for clue in clues if clue.echo and clue.rank is not None and own} - own
    culprits = own or {end.rank for _, end in failed}
    victims = frozenset(requested | suffered)
    others = bool(victims - culprits) or _others_suffered(culprits, clues)
    ended = {end.rank for _, end in failed if end.signal == 15}
    shared = culprits <= ended and any(end.exit_code for _, end in failed if end.rank not in own)
    if shared:
        return Gang(first, node, victims - suffered, None, others)
    return Gang(first, node, victims, _alone(culprits, others), others)


_RANK_SAID = re.compile(
    r"(?i)(?<![\w-])(?P<local>local[ _])?(?:global[ _])?rank[ _]{0,2}[:=\[]? ?(?P<rank>\d{1,6})(?![\d.%])"
)
"""A rank in the words of a line: `from rank 11`, `[Rank 0]`, `rank: 1`, `(RANK 2)`, `local_rank 3`."""


def first_to_tell(told: Sequence[Clue], lines: Sequence[LogLine]) -> int | None:
    """The rank whose lines speak first of a failure, of clues to its class; None: nobody's, or that cannot be known.

    Of several ranks the times of the lines decide, or their order where they stand in one file. Where no line of the
    failure is any rank's it is the one that its words name, or of which alone the log speaks at all.
    """
    named = [clue for clue in told if clue.rank is not None]
    named = [clue for clue in named if not clue.echo] or named
    if len({clue.rank for clue in named}) > 1:
        if all(clue.at is not None for clue in named):
            named.sort(key=lambda clue: clue.at or 0.0)
        elif len({clue.file for clue in named}) == 1:
            named.sort(key=lambda clue: clue.line or 0)
        else:
            return None
    if named:
        return named[0].rank
    texts, every = [clue.text for clue in told], [line.text for line in lines]
    known = {line.rank for line in lines if line.rank is not None}
    # The number within a node is the rank's own where no other number is known.
    found = (_said(texts), known or _said(every), _said(texts, "local"), _said(every, "local"), _devices(texts))
    ranks = next((one for one in found if one), set[int]())
    return next(iter(ranks)) if len(ranks) == 1 else None


_DEVICE = re.compile(
    r"\bGPU (?P<index>\d{1,2}) has a total capacity|\b(?:on|from) (?:device|cuda:|GPU ?)(?P<other>\d{1,2})\b"
)
"""The GPU of which a process speaks as its own: launchers give each rank of a node the GPU of its number."""


def _devices(texts: Sequence[str]) -> set[int]:
    return {int(hit["index"] or hit["other"]) for text in texts for hit in _DEVICE.finditer(text)}


def _said(texts: Sequence[str], which: str = "") -> set[int]:
    hits = (hit for text in texts for hit in _RANK_SAID.finditer(text))
    return {int(hit["rank"]) for hit in hits if bool(hit["local"]) == bool(which)}


def _alone(culprits: set[int], others: bool) -> int | None:
    """The one culprit, where others are known to have suffered: by their ends, their words, or the launcher's."""
    rank = next(iter(culprits)) if len(culprits) == 1 else None
    return rank if rank is not None and (rank > 0 or others) else None


_ENDING = ("elastic-sigterm", "launcher-told-to-end")
"""What launchers print that end the other ranks."""


def _others_suffered(culprits: set[int], clues: Sequence[Clue]) -> bool:
    """Whether lines show that others suffered: ranks that print echoes, a launcher that ends the rest."""
    return any(clue.echo and (clue.rank not in (None, *culprits) or clue.rule in _ENDING) for clue in clues)


def failing(clues: Sequence[Clue], ends: Sequence[Exit]) -> frozenset[int]:
    """Ranks with the very cause of one that failed unasked: they would have failed as well."""
    causes: dict[str, set[int]] = {}
    for clue in clues:
        if clue.original and clue.rank is not None and not clue.rule.startswith("signal-"):
            causes.setdefault(clue.rule, set()).add(clue.rank)
    own = {end.rank for end in ends if end.signal != 15 and end.rank is not None}
    if not any(ranks & own for ranks in causes.values()):
        # Whoever ended first said nothing that is left: what the others raised in their own code is what is known.
        raised = {clue.rank for clue in clues if clue.original and clue.rank is not None and clue.blames == "code"}
        return frozenset(raised)
    return frozenset(rank for ranks in causes.values() if ranks & own for rank in ranks)


def dying(end: RankEnd) -> bool:
    """True where a rank was asked to end while it was already going down with a cause of its own.

    The last thing it said is an exception, or a line that names a cause. Between that line and the end of a process
    there are tens of milliseconds. Its peers lose the connection in between, and the gang is asked to end: the rank
    that started it all then looks like a victim.
    """
    if not end.requested or (end.signal != 9 and end.exit_code != 1):
        return False
    lines = [clean(LogLine(text, "rank", end.rank)) for text in end.last_lines if text.strip()]
    if not lines:
        return False
    raised = tracebacks(lines)
    named = [match.rule for match in match_line(lines[-1].text, "rank")]
    if any(rule.echo or rule.fault_class is FaultClass.NONE for rule in named):
        return False
    cause = any(rule.weight >= KNOWN_ORIGINAL for rule in named)
    return cause or bool(raised and raised[-1].line is lines[-1])
