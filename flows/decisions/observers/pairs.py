"""Pairs: rates between two peers in rows, one with which every pair is slow; reports that list the slow ones below."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.observers.laggard import laggard
from flows.decisions.observers.peers import HOSTLY, MODEL, NO_MEMBER
from workflows.evidence import LogLine

PAIRS_WEIGHT = 0.75
"""Every pair with one peer is slow, pairs without it are not."""
LISTED_WEIGHT = 0.7
"""A report names the slow ones below its heading."""
FEWEST_PAIRS = 4
FEWEST_OF_ONE = 2
"""With one slow pair alone nobody knows which of the two it is."""
SLOW_SHARE = 0.75
"""Share of a usual rate, that of the fastest quarter, below which a pair is slow."""
MOST_PAIRS = 20_000
_NAME = r"(?:(?:rank|gpu|node|host)[ _]?\d{1,5}|(?=[\w.-]{0,60}\d)[A-Za-z][\w-]{1,60}|(?:\d{1,3}\.){3}\d{1,3})"
_PAIR = re.compile(
    rf"^[\s|\[('\"]{{0,8}}(?i:pair:? |between )?(?P<one>{_NAME})['\"]?\s?(?:,|<?-{{1,2}}>|<->|<=>|=>|\s(?:to|and|vs)\s|"
    rf"/|\||\s)"
    rf"\s{{0,12}}['\"]?(?P<two>{_NAME})['\"\])]{{0,2}}\s{{0,12}}[:|"
    rf",=]?\s{{0,12}}(?P<words>[A-Za-z_ ()/]{{0,24}}[:=]? ?)"
    r"(?P<value>\d{1,9}(?:\.\d{1,9})?)\s{0,4}\|?(?P<unit> ?[A-Za-z/]{0,12})?(?:\s|$)"
)
_LATENCY = re.compile(r"(?i)(?<![/\w])(?:us|ms|usec|latency|time|ping|rtt|sec|s)\b")
_POOR = re.compile(
    r"(?i)\b(?:nodes?|hosts?|gpus?|ranks?|machines?|workers?)\b.{0,60}\b(?:poor perf\w{0,12}|under-?perform\w{0,4}|"
    r"slow(?:er|est)?|lagging|stragglers?|below (?:the )?(?:average|median|expected|expectation|threshold|"
    r"baseline))\b.{0,60}|"
    r"\b(?:slow(?:est)?|straggling|straggler|under-?performing|outlier|lagging) (?:nodes?|hosts?|gpus?|ranks?|"
    r"machines?|workers?)\b"
    r".{0,40}:\s*$"
)
_LIST = re.compile(rf"^[\s*\-•]{{0,8}}(?P<names>{_NAME}(?:(?:, ?| ){_NAME}){{0,40}})(?:\s{{0,4}}[(:=].{{0,80}})?\s*$")
_ONE = re.compile(_NAME)
_SAYS_POOR = Cue("slow", "poor perf", "underperform", "under-perform", "straggl", "lagging", "below", "outlier",
                 of=(_POOR,))  # fmt: skip
BELOW = 3
"""Lines below the heading in which the names stand."""


def pairs(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Hosts, devices or ranks with which every pair is slow."""
    files: dict[str, list[tuple[str, str, float, LogLine]]] = {}
    late: set[str] = set()
    kept = 0
    for line in lines:
        hit = _PAIR.match(line.text[:200]) if kept < MOST_PAIRS else None
        if hit is None or hit["one"] == hit["two"] or not _alike(hit["one"], hit["two"]):
            continue
        kept += 1
        if _LATENCY.search(f"{hit['words']} {hit['unit'] or ''}"):
            late.add(line.file)
        files.setdefault(line.file, []).append((hit["one"], hit["two"], float(hit["value"]), line))
    for file, rows in files.items():
        if len(rows) >= FEWEST_PAIRS:
            yield from _slow(rows, low_is_slow=file not in late)


def _alike(one: str, two: str) -> bool:
    """Are two names those of hosts or ranks of one gang? A model beside a batch size is no pair."""
    if NO_MEMBER.match(one) or NO_MEMBER.match(two) or MODEL.match(one) or MODEL.match(two):
        return False
    stems = {re.sub(r"\d+.*$", "", name.lower()) for name in (one, two)}
    return len(stems) == 1 or all(HOSTLY.search(name) for name in (one, two))


def _slow(rows: Sequence[tuple[str, str, float, LogLine]], *, low_is_slow: bool) -> Iterator[Clue]:
    speeds = [value if low_is_slow else 1.0 / max(value, 1e-9) for *_, value, _ in rows]
    usual = statistics.median(sorted(speeds)[-max(2, len(speeds) // 2) :])
    slow = [speed < SLOW_SHARE * usual for speed in speeds]
    names = {name for one, two, *_ in rows for name in (one, two)}
    found: list[str] = []
    for name in sorted(names):
        own = [number for number, row in enumerate(rows) if name in row[:2]]
        if len(own) >= FEWEST_OF_ONE and all(slow[number] for number in own):
            found.append(name)
    if not found or len(found) * 3 > len(names):
        return
    for name in found:
        line = next(row[3] for row in rows if name in row[:2])
        text = f"every pair with {name} is slow: {line.text.strip()[:200]}"
        yield laggard(re.sub(r"(?i)^(rank|gpu)[ _]?(?=\d)", r"\1 ", name), line, text, "straggler-pairs", PAIRS_WEIGHT)


def listed(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """`Nodes with poor performance:` and the names below it."""
    below = 0
    head = ""
    for line in lines:
        if _SAYS_POOR.holds(line.text) and len(line.text) < 160 and _POOR.search(line.text):
            below, head = BELOW, line.text.strip()
            continue
        if below == 0:
            continue
        below -= 1
        row = _LIST.match(line.text[:600])
        if row is not None:
            below = BELOW if row["names"] == line.text.strip(" *-•") and "," not in row["names"] else 0
            for name in _ONE.findall(row["names"]):
                if NO_MEMBER.match(name):
                    continue
                yield laggard(re.sub(r"(?i)^(rank|gpu)[ _]?(?=\d)", r"\1 ", name), line,
                              f"{head} {line.text.strip()}", "straggler-listed", LISTED_WEIGHT)  # fmt: skip
