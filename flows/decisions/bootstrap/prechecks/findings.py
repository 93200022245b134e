"""What checks say: of single hosts, and put together so that one sentence stands for hosts that are alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from flows.decisions.bootstrap.prechecks.table import PRECHECKS
from flows.decisions.text import first_names
from profiles.vocabulary import VerdictWord

SHOWN = 4
"""Hosts that are named with what was found there."""


@dataclass(frozen=True)
class Judged:
    """What one check says of one host."""

    check: str
    host: str
    word: VerdictWord
    found: str
    limit: str = ""
    size: float = 0.0
    """Orders what was found, where it is an amount."""


@dataclass(frozen=True)
class Finding:
    """What one check says of hosts that fare alike."""

    check: str
    hosts: tuple[str, ...]
    """In the order of the inventory."""
    word: VerdictWord
    found: str
    limit: str
    advice: str
    forced: str = ""
    """Why somebody goes on though it does not hold; "": nobody does."""

    @property
    def stops(self) -> bool:
        """Whether its hosts may not be touched."""
        return self.word is not VerdictWord.PASS and not self.forced


def passed(check: str, host: str, found: str, limit: str = "", size: float = 0.0) -> Judged:
    """It holds."""
    return Judged(check, host, VerdictWord.PASS, found, limit, size)


def failed(check: str, host: str, found: str, limit: str = "", size: float = 0.0) -> Judged:
    """It does not hold."""
    return Judged(check, host, VerdictWord.FAIL, found, limit, size)


def unknown(check: str, host: str, why: str, limit: str = "") -> Judged:
    """Nobody knows."""
    return Judged(check, host, VerdictWord.UNKNOWN, why, limit)


def held(fine: bool) -> VerdictWord:
    """The word of a comparison."""
    return VerdictWord.PASS if fine else VerdictWord.FAIL


def gathered(judged: Iterable[Judged], order: Sequence[str], forced: Mapping[str, str]) -> tuple[Finding, ...]:
    """One finding for each check, word and limit; failures first, then by the table."""
    place = {host: number for number, host in enumerate(order)}
    groups: defaultdict[tuple[str, VerdictWord, str], list[Judged]] = defaultdict(list)
    for one in judged:
        groups[one.check, one.word, one.limit].append(one)
    found = [
        Finding(
            check,
            tuple(one.host for one in same),
            word,
            _said(same, word),
            limit,
            "" if word is VerdictWord.PASS else PRECHECKS[check].advice,
            "" if word is VerdictWord.PASS else forced.get(check, ""),
        )
        for (check, word, limit), unsorted in groups.items()
        for same in [sorted(unsorted, key=lambda one: place[one.host])]
    ]
    words = (VerdictWord.FAIL, VerdictWord.UNKNOWN, VerdictWord.PASS)
    names = list(PRECHECKS)
    return tuple(sorted(found, key=lambda one: (words.index(one.word), names.index(one.check), place[one.hosts[0]])))


def _said(same: Sequence[Judged], word: VerdictWord) -> str:
    """Once where all are alike; from the least to the most where they pass; else by host."""
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for one in same:
        texts[one.found].append(one.host)
    if len(texts) == 1:
        return same[0].found
    if word is VerdictWord.PASS:
        sizes = sorted(same, key=lambda one: (one.size, one.found))
        return f"{sizes[0].found} to {sizes[-1].found}" if sizes[0].size < sizes[-1].size else f"{len(texts)} different"
    rows = sorted(texts.items(), key=lambda pair: -len(pair[1]))
    told = [f"{text} on {hosts_said(hosts)}" for text, hosts in rows[:SHOWN]]
    return "; ".join(told) + (f"; {len(rows) - SHOWN} more" if len(rows) > SHOWN else "")


def hosts_said(hosts: Sequence[str]) -> str:
    """Their names where they are few, their number else."""
    return first_names(hosts, SHOWN) if len(hosts) <= SHOWN else f"{len(hosts)} hosts"
