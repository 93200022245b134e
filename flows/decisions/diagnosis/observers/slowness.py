"""Slow training: steps that became slower and stay so, and stragglers that a detector or timers name.

Steps took a steady time, then a multiple of it, or take longer than those of a twin. Nothing failed and nobody is
named. That is how a slow device, a neighbour on the same machine or a throttled link looks from afar, so the sign
counts little beside any other. Of stragglers, detectors name ranks or the slowest against the fastest, and many ranks
print timers.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.observers.members import COMPUTE, NO_COMPUTE, straggler
from flows.decisions.diagnosis.observers.outliers import SLOW_RATIO, slow
from flows.decisions.diagnosis.places import rank_of
from flows.decisions.diagnosis.prefilter import Cue
from flows.decisions.diagnosis.steps import done
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

SLOWED_WEIGHT = 0.55
"""A steady time that became a multiple of itself and stayed."""
TWIN_WEIGHT = 0.5
"""The same lines of several hosts' files; in one of them all take a multiple of the time."""
SLOWED_RATIO = 1.8
FEWEST_BEFORE, FEWEST_AFTER = 4, 3
FEWEST_OF_TWIN = 4
FOREIGN_LINES = 3
"""So many lines more than ever before are the head of something else."""
MOST_VALUES, MOST_OF_TWIN = 20_000, 24
"""Values of one stream: of one that may have slowed down, of one that is compared with others."""
_VALUE = re.compile(
    r"(?i)(?P<key>elapsed time per iteration|(?:iteration|iter|step|batch|train_step|loop|minibatch|training step)"
    r"(?: \d{1,9})?(?: ?/ ?\d{1,9})?[\s:,_-]{0,3}(?:real )?(?:time|took|takes|duration|finished in|"
    r"completed in)|real time|"
    r"time per (?:step|iteration|batch)|(?:ms|s|sec|seconds)/(?:step|iter|batch|it)|"
    r"(?:tokens|samples|images|imgs?|seqs|steps|iterations?|it)(?: ?/ ?|_per_| per )s(?:ec(?:ond)?)?(?:/gpu)?|"
    r"throughput|tgs|tps)"
    r"\b(?: [a-z]{1,8})?(?: ?\([\w/ ]{1,12}\))?['\"]?\s{0,3}[:=]?\s{0,12}(?P<value>\d{1,9}(?:\.\d{1,9})?)(?!\.?\d)"
)
_AVERAGE = re.compile(r"(?i)\belapsed(?:_time)?['\"]?\s{0,3}[:=].{0,200}(?:it|iter|steps?|samples?)(?:_per_|/)s")
"""A rate beside the time since the start is made of both."""
_COMPLETE = re.compile(
    r"(?i)(?<![\d.])(?P<all>[1-9]\d{0,8}) ?/ ?(?P=all)(?!\d)|(?<![\d.])100(?:\.0{1,4})? ?%|pct['\"]?: 100\b"
)
_SETTING = re.compile(
    r"(?i)\b(?:epoch|(?:global_?|micro_?|mini_?)?[_ ]?batch[_ ]?size|bs|seq(?:uence)?[_ ]?len(?:gth)?|phase|stage|"
    r"resolution|mode|model|world[_ ]?size)['\"]?\s{0,3}[:=\[ ]\s{0,3}['\"]?(?P<of>[\w-]{1,30})"
)
"""What makes steps longer or shorter for a reason."""
_SUMMARY = re.compile(r"(?i)\W{0,8}(?:total|overall|final|average|mean) ")
"""A line that sums up what stood before it."""
_RATE_KEY = re.compile(r"(?i)(?:/|per)[ _]?s(?:ec(?:ond)?)?(?:/gpu)?$|throughput|tgs|tps")
_SAYS = Cue("time", "took", "takes", "duration", "finished in", "completed in", "/step", "/iter", "/batch", "/it", "/s",
            "per_s", "per s", "throughput", "tgs", "tps", of=(_VALUE,))  # fmt: skip
_MEMBER = re.compile(r"(?i)(?:^|[-_./])(?:node|host|gpu|rank|worker|cn|cu|gn|nid|dgx|hgx|srv|server|compute)[-_]?\d")


@dataclass
class _Series:
    """One quantity of one stream, in order."""

    rate: bool
    values: list[float] = field(default_factory=list[float])
    lines: list[LogLine] = field(default_factory=list[LogLine])

    @property
    def times(self) -> list[float]:
        """Rates turned over: a larger number is slower."""
        return [1.0 / max(value, 1e-9) for value in self.values] if self.rate else self.values


def slowed(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Streams that became slow and stayed so; files of hosts of which one is slow throughout."""
    series: dict[tuple[str, int | None, str, str], _Series] = {}
    read: Counter[tuple[str, int | None]] = Counter()
    begins = 0
    for line in _SAYS.among(lines):
        stream = (line.file, line.rank)
        if read[stream] >= (MOST_VALUES if line.rank in (None, 0) else MOST_OF_TWIN):
            continue
        text = line.text[:600]
        hit = _VALUE.match(text, begins) or _VALUE.search(text)
        if hit is None or _SUMMARY.match(text):
            continue
        begins = hit.start()
        read[stream] += 1
        key = re.sub(r"[\d\s/]+", " ", hit["key"].lower())
        found = series.setdefault((*stream, line.node, key), _Series(bool(_RATE_KEY.search(hit["key"]))))
        found.values.append(float(hit["value"]))
        found.lines.append(line)
    for (_, rank, _, key), one in series.items():
        if rank in (None, 0) and (place := _turn(one.times)) is not None and not _otherwise(one, place, lines):
            line = one.lines[place]
            text = f"{key} was steady and is a multiple of it from here on: {line.text.strip()[:200]}"
            yield _clue(line, SLOWED_WEIGHT, text, "steps-slowed")
            return
    yield from _twins(series)


def _turn(times: Sequence[float]) -> int | None:
    """Where a steady series becomes a slow one for good; None where it does not."""
    if len(times) < FEWEST_BEFORE + FEWEST_AFTER:
        return None
    for place in range(FEWEST_BEFORE, len(times) - FEWEST_AFTER + 1):
        if times[place] < 1.5 * times[place - 1]:
            continue
        before, after = sorted(times[1:place]), sorted(times[place:])
        usual = statistics.median(before)
        steady = usual > 0 and before[int(0.9 * (len(before) - 1))] <= 1.3 * usual
        now = statistics.median(after)
        lasting = after[0] >= 1.3 * usual and now >= SLOWED_RATIO * usual
        if steady and lasting and _is_level(times[place:], now):
            return place
    return None


def _is_level(times: Sequence[float], usual: float) -> bool:
    """Does the slowness stay? An average over all steps so far, or a pause, wears off."""
    return statistics.median(times[len(times) // 2 :]) >= 0.85 * usual and times[-1] >= 0.75 * usual


def _otherwise(one: _Series, place: int, lines: Sequence[LogLine]) -> bool:
    """Is there another reason than a slow part: an average over all steps so far, an epoch's beginning, other work?

    A run that came to its end was not kept from it.
    """
    file, line, before = one.lines[place].file, one.lines[place], one.lines[place - 1]
    if _AVERAGE.search(line.text) or _COMPLETE.search(one.lines[-1].text):
        return True
    if _settings(line) != _settings(before) or _interrupted(one.lines, place):
        return True
    return any(done(later) for later in lines if later.file == file and later.line > line.line)


def _interrupted(lines: Sequence[LogLine], place: int) -> bool:
    """Stand more lines before the slow ones than ever between two before? Then something else begins with them."""
    gaps = [later.line - sooner.line for sooner, later in itertools.pairwise(lines[: place + 1])]
    return gaps[-1] > max(gaps[:-1]) + FOREIGN_LINES


def _settings(line: LogLine) -> list[str]:
    """The epoch, the sizes and the phase that a line names."""
    return [hit["of"] for hit in _SETTING.finditer(line.text[:1000])]


def _twins(series: dict[tuple[str, int | None, str, str], _Series]) -> Iterator[Clue]:
    keys: dict[str, dict[str, _Series]] = {}
    for (file, _, _, key), one in series.items():
        if _MEMBER.search(file) and len(one.values) >= FEWEST_OF_TWIN:
            keys.setdefault(key, {}).setdefault(file, one)
    for key, files in keys.items():
        if len(files) < 2:
            continue
        usual = max(min(statistics.median(one.times) for one in files.values()), 1e-9)
        far = [one for one in files.values() if statistics.median(one.times) >= SLOWED_RATIO * usual]
        near = [one for one in files.values() if one not in far]
        if len(far) == 1 and min(far[0].times) > max(max(one.times) for one in near):
            line = far[0].lines[0]
            yield _clue(
                line, TWIN_WEIGHT, f"{line.file}: {key} is a multiple of that of the others", "slower-than-twin"
            )
            return


def _clue(line: LogLine, weight: float, text: str, rule: str) -> Clue:
    """Whatever else is known explains it better."""
    return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, node=line.node, echo=True, file=line.file,
                line=line.line)  # fmt: skip


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
_SAYS_EXTREMES = Cue(of=(*_EXTREMES, _EXTREME))
_SAYS_TIMES = Cue(of=(_TIMER_LINE,))


def named_ranks(lines: Sequence[LogLine]) -> Iterator[Clue]:
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
