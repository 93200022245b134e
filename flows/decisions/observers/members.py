"""Members of a run beside each other: lines alike but for a name and a number, lists in the order of ranks."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.numbers_in_patterns import Seldom
from flows.decisions.observers.laggard import settings
from flows.decisions.observers.numbers import slow
from flows.decisions.observers.tables import NO_COMPUTE, straggler
from flows.decisions.places import rank_of
from workflows.evidence import LogLine

ALIKE_WEIGHT = 0.72
"""Equal lines of several members, one of them far off: what is measured is told by their words only."""
LISTED_WEIGHT = 0.78
"""A list or a row that says it holds one value a rank."""
FEWEST = 4
"""Members below which lines that happen to be alike mean nothing."""
MOST_LINES = 50_000
"""Lines that are compared; a log may have millions."""
_TIME_UNIT = r"(?:ms|s|sec|seconds|us)"
_RATE_UNIT = r"(?:[TG]?FLOPS?(?:/s)?|[TGtg]flops?(?:/s)?|tokens/s(?:ec)?|tok/s|samples/s(?:ec)?|img/s|it/s|GB/s|Gb/s)"
_VALUE = Seldom(
    rf"(?P<value>\d[\d,]{{0,12}}(?:\.\d{{1,6}})?) ?(?:(?P<time>{_TIME_UNIT})|(?P<rate>{_RATE_UNIT}))(?![\w/])"
)
_NAMED_VALUE = re.compile(
    r"\b(?P<name>tps|wps|tflops|throughput|step_time|iter_time)[\"']?\s?[:=] {0,8}"
    r"(?P<value>\d[\d,]{0,12}(?:\.\d{1,6})?)(?![\w/])"
)
_TIMED = re.compile(
    r"(?i)\b(?:steps?|iter(?:ation)?s?|batch|gemm|matmul|compute|forward|fwd)\b.{0,16}\b(?:time|took|duration|latency)\b|"
    r"\b(?:forward|fwd|gemm|matmul|step_time|iter_time)\b"
)
"""Times of what each member does by itself or at every step; times of loading and saving differ between members."""
_RATED = re.compile(
    r"(?i)\b(?:gemm|matmul|[tg]?flops?|burn|bus ?bw|bus bandwidth|algbw|memcpy|hbm|throughput|tps|tokens|samples|"
    r"step|iter)\b|/s"
)
_STORED = re.compile(r"(?i)\b(?:load|read|writ|sav|checkpoint|download|upload|copy|transfer|disk|nfs|s3)")
_MEMBER = re.compile(
    r"(?:\[|\b)(?:(?:global[_ ])?[Rr]ank[ =_:]{0,2}(?P<rank>\d{1,6})|"
    r"(?:host|node|server)[ =_:]{1,2}(?P<node>[A-Za-z][\w.-]{0,60}\d))(?:\]|\b)"
)
_HOST_FIRST = re.compile(r"^(?P<node>[a-z][a-z0-9.-]{0,60}\d)(?::| {2,}|\t)")
_LIST = re.compile(
    r"(?i)\b(?:per[-_ ]?rank|(?:of|for) (?:all|each) ranks?|by rank)\b(?P<head>[^\[\]]{0,60})"
    r"\[(?P<items>\d[\d., ]{6,4000})\]"
)
_HOSTS = re.compile(
    r"(?P<head>(?i:\b(?:step|iteration|compute|forward|iter)[ _]?times?\b[^{]{0,60}))\{(?P<items>['\"][^{}]{10,8000})\}"
)
_PAIR = re.compile(r"['\"](?P<name>[\w.-]{1,80})['\"]: ?(?P<value>\d{1,9}(?:\.\d{1,9})?)")
_INLINE = re.compile(r"\brank ?(?P<rank>\d{1,5})[:=] ?(?P<value>\d{1,9}(?:\.\d{1,6})?) ?(?:ms|s)\b")
_NAMES = ("tps", "wps", "tflops", "throughput", "_time")
_BURN = re.compile(r"\((?P<value>\d{1,7}) Gflop/s\)")
_TIMES = ("step", "iteration", "compute", "forward", "iter")
_SAYS_LIST = Cue("gflop/s", "rank:", "rank=", "per-rank", "per_rank", "per rank", "all rank", "each rank", "by rank",
                 *(word + gap + "time" for word in _TIMES for gap in (" ", "_")),
                 of=(_LIST, _HOSTS, _INLINE, _BURN))  # fmt: skip
_SAYS_VALUE = Cue("time", "took", "duration", "latency", "forward", "fwd", "gemm", "matmul", "flop", "/s", "tps", "wps",
                  "throughput", of=(_TIMED,))  # fmt: skip


def alike(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Lines of several members that differ in a name and a number: medians of each, compared."""
    groups: dict[tuple[str, bool], dict[str, list[float]]] = {}
    last: dict[str, LogLine] = {}
    kept = 0
    for line in lines:
        told = _measure(line) if kept < MOST_LINES and _SAYS_VALUE.holds(line.text) else None
        if told is None:
            continue
        kept += 1
        shape, member, value, rate = told
        groups.setdefault((f"{shape} {settings(line.text[:300])}", rate), {}).setdefault(member, []).append(value)
        last[member] = line
    worst: dict[str, tuple[float, str]] = {}
    for (shape, rate), members in sorted(groups.items()):
        if len(members) < FEWEST:
            continue
        found = _slow({name: statistics.median(values) for name, values in members.items()}, rate=rate)
        for name, ratio in found.items():
            worst[name] = max(worst.get(name, (0.0, "")), (ratio, shape))
    for name, (ratio, shape) in sorted(worst.items()):
        yield _clue(name, last[name], f"{shape.strip()[:120]}: {ratio:.1f} times slower than its peers", ALIKE_WEIGHT)


def _measure(line: LogLine) -> tuple[str, str, float, bool] | None:
    """(what is measured, member, value, whether it is a rate); None where the line holds no such thing."""
    text = line.text[:300]
    hit = _VALUE.search(text) or (_NAMED_VALUE.search(text) if any(cue in text for cue in _NAMES) else None)
    if hit is None:
        return None
    groups = hit.groupdict()
    rate = bool(groups.get("rate")) or (groups.get("name") or "") in ("tps", "wps", "tflops", "throughput")
    head = text[: hit.end()]
    telling = _RATED if rate else _TIMED
    if _STORED.search(text) or NO_COMPUTE.search(head) or not telling.search(head):
        return None
    named = _MEMBER.search(head) or _HOST_FIRST.match(head)
    said = named.groupdict() if named is not None else {}
    rank = rank_of(line) if rank_of(line) is not None else said.get("rank")
    member = f"rank {int(rank)}" if rank is not None else (said.get("node") or line.node)
    if not member:
        return None
    shape = text[: hit.start()] + (hit["name"] if groups.get("name") else "")
    shape = shape.replace(named[0], "@") if named is not None else shape
    return re.sub(r"\d+(?:\.\d+)?", "#", shape), member, float(hit["value"].replace(",", "")), rate


def listed(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """One value a rank on a single line: a list, a mapping of hosts, `rank 0: 3 ms | rank 1: 3 ms`, gpu-burn's row."""
    last: dict[str, tuple[dict[str, float], LogLine, bool]] = {}
    for line in _SAYS_LIST.among(lines):
        told = _list_of(line.text[:8000])
        if told is not None:
            values, what, rate = told
            last[re.sub(r"[\d.]+", "#", what)] = (values, line, rate)
    for what, (values, line, rate) in last.items():
        for name, ratio in _slow(values, rate=rate).items():
            text = f"{what.strip()[:80]}: {name} is {ratio:.1f} times slower than its peers"
            yield _clue(name, line, text, LISTED_WEIGHT)


def _list_of(text: str) -> tuple[dict[str, float], str, bool] | None:
    """(values of members, what they are, whether they are rates)."""
    burn = [float(hit["value"]) for hit in _BURN.finditer(text)] if "Gflop/s" in text else []
    if len(burn) > 1:
        return {f"rank {number}": value for number, value in enumerate(burn)}, "gpu-burn", True
    inline = (
        {} if "ank" not in text else {f"rank {int(hit['rank'])}": float(hit["value"]) for hit in _INLINE.finditer(text)}
    )
    if len(inline) > 2 and not NO_COMPUTE.search(text):
        return inline, "ranks", False
    if "{" in text and "ime" in text and (hit := _HOSTS.search(text)) and not NO_COMPUTE.search(hit["head"]):
        return {pair["name"]: float(pair["value"]) for pair in _PAIR.finditer(hit["items"])}, hit["head"], False
    hit = _LIST.search(text) if "[" in text and "ank" in text.lower() else None
    if (
        hit is None
        or NO_COMPUTE.search(hit["head"])
        or not re.search(r"(?i)time|tps|tflops|throughput|\(m?s\)", hit["head"])
    ):
        return None
    numbers = [float(word) for word in re.findall(r"\d{1,9}(?:\.\d{1,9})?", hit["items"])]
    rate = re.search(r"(?i)tps|tflops|throughput", hit["head"]) is not None
    return {f"rank {number}": value for number, value in enumerate(numbers)}, hit["head"], rate


def _slow(values: Mapping[str, float], *, rate: bool) -> dict[str, float]:
    names = sorted(values)
    found = slow({number: values[name] for number, name in enumerate(names)}, low_is_slow=rate)
    return {names[number]: ratio for number, ratio in found.items()}


def _clue(name: str, line: LogLine, text: str, weight: float) -> Clue:
    """A clue against a rank, or against a node where that is the member's name."""
    if name.startswith("rank "):
        return straggler(int(name[5:]), "", line, f"{name}: {text}", "straggler-members", weight)
    return replace(straggler(0, name, line, f"{name}: {text}", "straggler-members", weight), blames="node", rank=None)
