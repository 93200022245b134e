"""Stragglers: ranks that a detector names, the slowest against the fastest, and timers that many ranks print."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.observers.numbers import SLOW_RATIO, slow
from flows.decisions.observers.tables import COMPUTE, NO_COMPUTE, straggler
from flows.decisions.places import rank_of
from workflows.evidence import LogLine

NAMED_WEIGHT = 0.85
"""A detector names the ranks."""
EXTREMES_WEIGHT = 0.8
"""The slowest and the fastest rank alone, far apart."""
TIMERS_WEIGHT = 0.8
"""Timers that several ranks printed, one of them far off."""
MOST_ROWS = 100_000
"""Timers that are kept; a log may have millions of lines."""

_STRAGGLER_ID = re.compile(r"StragglerId\(rank=(?P<rank>\d{1,6})(?:, node='(?P<node>[^']{1,100})')?")
_DETECTED = re.compile(
    r"(?i)(?:\bstragglers?(?: (?:ranks?|nodes?|gpus?|workers?))?(?: (?:detected|found|identified))?"
    r"(?: (?:is|are|on|at))?[:=]? ?|affected ranks: |\bslow ranks?(?: detected)?[:=] ?)(?:rank |ranks )?[\[{(]?"
    r"(?P<ranks>\d{1,6}(?:, ?\d{1,6}){0,200})\b(?![.%x\d])"
)
_DETECTED_LATER = re.compile(r"(?i)\b[a-z0-9_]{0,20}straggler\b\W.{0,60}?\brank r?(?P<ranks>\d{1,6})\b")
_HEAD = re.compile(r"(?i)^\W*(?:detected|found)? ?stragglers?(?: detected| found)?:?(?: ?\[[\d, ]{1,400}\])?\s*$")
_HEAD_ROW = re.compile(r"^\W*[Rr]ank (?P<rank>\d{1,6}) \((?P<node>[A-Za-z][\w.-]{1,100})\)\s*$")
_NOBODY = re.compile(
    r"(?i)\bno stragglers?\b|\bstragglers?(?: detected| found)?[:=] ?(?:\[\]|none|0\b|\{\})|threshold|interval|enable"
)
_EXTREMES = (
    re.compile(r"\bMnRtt/Rnk: (?P<low>[\d.]{1,12})ms/\d{1,6} \| MxRtt/Rnk: (?P<high>[\d.]{1,12})ms/(?P<rank>\d{1,6})"),
    re.compile(r"\bMnEtpt/Rnk: (?P<low>[\d.]{1,12})TF/(?P<rank>\d{1,6}) \| MxEtpt/Rnk: (?P<high>[\d.]{1,12})TF/"),
)
"""Megatron-LM: round trip times, of which the largest is slow, and throughputs, of which the smallest is."""
_EXTREME = re.compile(
    r"\b(?P<end>Min|Max)(?P<what>RoundTripTime|Throughput|StepTime|ForwardTime)/Rank: (?P<value>[\d.]{1,12})"
    r"[A-Za-z/]{0,6}/(?P<rank>\d{1,6})"
)
"""Composer: each end on a line of its own."""
_PAIR = re.compile(r"(?P<name>[A-Za-z][\w./-]{1,60})['\"]?\s?(?::|=|\()\s?(?P<value>\d{1,12}(?:\.\d{1,9})?)")
_TIMER_LINE = re.compile(
    r"(?i)\btime \(ms\)|(?:step|iter(?:ation)?|forward|fwd|compute|backward|bwd)[_ -]?(?:time|ms)\b"
)
_SAYS_STRAGGLER = Cue("straggler", "slow rank", of=(_STRAGGLER_ID, _DETECTED_LATER, _HEAD))
_SAYS_EXTREMES = Cue("mnrtt/rnk", "mnetpt/rnk", "time/rank:", "throughput/rank:", of=(*_EXTREMES, _EXTREME))
_TIMED = ("step", "iter", "iteration", "forward", "fwd", "compute", "backward", "bwd")
_SAYS_TIMES = Cue("time (ms)", *(a + b + c for a in _TIMED for b in ("", "_", "-") for c in ("time", "ms")),
                  of=(_TIMER_LINE,))  # fmt: skip


def named(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Ranks that a detector names, on its line or on rows below it."""
    inside = False
    for line in lines:
        if not inside and not _SAYS_STRAGGLER.holds(line.text):
            continue
        row = _HEAD_ROW.match(line.text) if inside else None
        if row is not None:
            yield straggler(int(row["rank"]), row["node"], line, line.text.strip(), "straggler-named", NAMED_WEIGHT)
            continue
        lower = line.text.lower()
        inside = "straggler" in lower and _HEAD.match(line.text) is not None
        if "straggler" not in lower and "slow rank" not in lower:
            continue
        for rank, node in _names(line.text)[:64]:
            yield straggler(rank, node, line, line.text.strip(), "straggler-named", NAMED_WEIGHT)


def _names(text: str) -> list[tuple[int, str]]:
    """(rank, node) that a detector's line names."""
    ids = [(int(hit["rank"]), hit["node"] or "") for hit in _STRAGGLER_ID.finditer(text)]
    if not ids and not _NOBODY.search(text) and (hit := _DETECTED.search(text) or _DETECTED_LATER.search(text)):
        ids = [(int(word), "") for word in re.findall(r"\d+", hit["ranks"])]
    return ids


def extremes(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Reports of the slowest and the fastest rank alone: far apart, and the same one in the end."""
    seen: dict[int, tuple[float, LogLine]] = {}
    last: int | None = None
    ends: dict[tuple[str, str], tuple[float, int]] = {}
    for line in _SAYS_EXTREMES.among(lines):
        for rank, ratio in _extremes(line.text, ends):
            if ratio >= SLOW_RATIO:
                seen[rank] = (max(ratio, seen.get(rank, (0.0, line))[0]), line)
                last = rank
            elif last is not None and rank != last:
                seen.clear()  # It recovered.
    for rank, (ratio, line) in seen.items():
        if rank == last:
            text = f"rank {rank} is {ratio:.1f} times slower than the fastest: {line.text.strip()[:200]}"
            yield straggler(rank, "", line, text, "straggler-extremes", EXTREMES_WEIGHT)


def _extremes(text: str, ends: dict[tuple[str, str], tuple[float, int]]) -> Iterator[tuple[int, float]]:
    """(slowest rank, how many times slower than the fastest)."""
    for pattern in _EXTREMES:
        hit = pattern.search(text)
        if hit is not None:
            yield int(hit["rank"]), float(hit["high"]) / max(float(hit["low"]), 1e-9)
    hit = _EXTREME.search(text)
    if hit is None:
        return
    ends[(hit["what"], hit["end"])] = (float(hit["value"]), int(hit["rank"]))
    low, high = ends.get((hit["what"], "Min")), ends.get((hit["what"], "Max"))
    if hit["end"] == "Max" and low is not None and high is not None and low[0] > 0:
        yield (low if hit["what"] == "Throughput" else high)[1], high[0] / low[0]


def timers(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Timers that several ranks printed (DeepSpeed and others): medians of each, compared across the ranks."""
    values: dict[str, dict[int, list[float]]] = {}
    where: dict[int, LogLine] = {}
    kept = 0
    for line in _SAYS_TIMES.among(lines):
        rank = rank_of(line) if "ime" in line.text or "_ms" in line.text else None
        if rank is None or kept >= MOST_ROWS or not _TIMER_LINE.search(line.text):
            continue
        kept += 1
        where[rank] = line
        for hit in _PAIR.finditer(line.text[:2000]):
            if COMPUTE.search(hit["name"]) and not NO_COMPUTE.search(hit["name"]):
                values.setdefault(hit["name"], {}).setdefault(rank, []).append(float(hit["value"]))
    for rank, (ratio, name) in sorted(_worst(values).items()):
        text = f"rank {rank}: {name} is {ratio:.1f} times the median of the ranks"
        yield straggler(rank, "", where[rank], text, "straggler-timers", TIMERS_WEIGHT)


def _worst(values: Mapping[str, Mapping[int, Sequence[float]]]) -> dict[int, tuple[float, str]]:
    """The timer in which each slow rank is slowest."""
    worst: dict[int, tuple[float, str]] = {}
    for name, ranks in sorted(values.items()):
        medians = {rank: statistics.median(found) for rank, found in ranks.items()}
        for rank, ratio in slow(medians).items():
            worst[rank] = max(worst.get(rank, (0.0, "")), (ratio, name))
    return worst
