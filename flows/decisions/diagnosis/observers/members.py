"""Members of a run beside each other, one far off the others: alike lines, lists, and tables of ranks.

Lines are alike but for a name and a number; lists stand in the order of ranks; tables have rows under a heading,
columns with names, or are mappings.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.matching import Seldom
from flows.decisions.diagnosis.observers.outliers import settings, slow
from flows.decisions.diagnosis.places import rank_of
from flows.decisions.diagnosis.prefilter import Cue
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

TABLE_WEIGHT = 0.85
"""A table of all ranks, one of them far off."""
MOST_COLUMNS = 12
"""Columns of a table; a longer line is prose."""
_UNITS = r"ms|s|sec|seconds|us|TFLOPS?|TFLOP/s|GFLOPS?|Gflop/s|TF|GB/s|tok/s|tokens/s|samples/s|it/s|MHz"
_ROW = re.compile(
    r"^(?!.{0,80}\bstage\b)"
    r"(?:[-*•|]? *)(?:Rank|rank|RANK|GPU|Worker|worker)[ =_]{0,3}(?P<rank>\d{1,6})\b(?P<node>[^:]{0,120}?)"
    rf"(?::|=|Score=| +)\s{{0,12}}(?P<value>\d{{1,12}}(?:\.\d{{1,9}})?) ?(?P<unit>{_UNITS})?[\s,|]*$"
)
_BARE = re.compile(r"^\d{1,12}(?:\.\d{1,9})? ?[A-Za-z/]{1,9}\s*$")
"""What is left of a row whose beginning was taken for a launcher's prefix."""
_SCORE = re.compile(r"^ *Rank=(?P<rank>\d{1,6}) Node=(?P<node>\S{1,100}) Score=(?P<value>\d{1,3}(?:\.\d{1,9})?)")
_RATES = frozenset(
    {"TFLOPS", "TFLOP", "TFLOP/s", "GFLOPS", "GFLOP", "Gflop/s", "TF", "GB/s", "tok/s", "tokens/s", "samples/s"}
    | {"it/s", "MHz"}
)
_TIME_UNITS = frozenset({"ms", "s", "sec", "seconds", "us"})
_TIME_HEAD = re.compile(r"(?i)\((?:ms|s|sec(?:onds)?|us)\)|\b(?:time|timings?|latency|duration|elapsed)\b")
_RATE_HEAD = re.compile(
    r"(?i)\b(?:scores?|throughput|performance|bandwidth|tflops|higher ?(?:=|is) ?(?:faster|better))\b"
)
NO_COMPUTE = re.compile(
    r"(?i)all[_-]?reduce|comm\b|barrier|wait|sync|gather|scatter|idle|grads?-?reduce|broadcast|eval|save|check"
)
"""Timers in which a rank waits for the others: there the slow one has the smallest."""
COMPUTE = re.compile(
    r"(?i)(?:fwd|forward|compute|bwd_inner|backward_inner|step_time|iter(?:ation)?_time|step-time|data|batch-generator)"
)
"""Timers of what a rank does by itself."""
WORTH_IT = 0.1
"""Among the slowest, a rank with less than this share of the longest time made nobody wait."""
_SLOWEST_BY = re.compile(r"(?i)\bslowest (?:\w{1,12} )?by (?P<name>\w{2,40})")
"""A head that says that only the slowest are listed, and in which column: nobody left out is slower than the last."""
_NODE = re.compile(r"\((?P<node>[A-Za-z][\w.-]{2,100})\)|Node=(?P<other>\S{1,100})")
_NUMBER = re.compile(r"\d{1,12}(?:\.\d{1,9})?$")
_MAPPING = re.compile(
    r"(?P<head>(?i:\b(?:elapsed|step|iteration|compute|forward|check) times?\b[^{]{0,60}))"
    r"\{(?P<items>\d[\d:., ]{10,60000})\}"
)
_RANK_WORD = Seldom(r"(?i)(?:^|[\s|])rank(?:[\s|]|$)")
_SAYS_RANK, _SAYS_MEMBER = Cue("rank"), Cue(of=(_ROW, _SCORE))
_SAYS_MAPPING = Cue(of=(_MAPPING,))
_END = LogLine(".", "file")
"""Ends the last table."""


@dataclass
class _Table:
    """Values of ranks under one heading."""

    head: str
    low_is_slow: bool
    values: dict[int, float] = field(default_factory=dict[int, float])
    lines: dict[int, LogLine] = field(default_factory=dict[int, LogLine])


def rows(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Rows of ranks under a heading: times, rates or scores."""
    table: _Table | None = None
    head, rate = "", None
    heads: list[str] = []
    for line in [*lines, _END]:
        row = _row(line) if line.text[:1].isdigit() or _SAYS_MEMBER.holds(line.text) else None
        if row is None:
            if table is not None:
                yield from _outliers(table)
            table = None
            if text := line.text.strip():
                head = text[:120]
                heads = [*heads, head] if head.endswith(":") else [head]
            continue
        rate = _announced(heads, rate)
        heads = []
        low = _low_is_slow(row, rate)
        if table is None and low is not None:
            table = _Table(head, low)
        if table is not None:
            table.values[int(row["rank"])] = float(row["value"])
            table.lines[int(row["rank"])] = line


def _row(line: LogLine) -> re.Match[str] | None:
    row = _SCORE.match(line.text.lstrip()) or _ROW.match(line.text.strip())
    if row is None and line.rank is not None and _BARE.match(line.text):
        row = _ROW.match(f"rank {line.rank}: {line.text.strip()}")
    return row


def _is_rate(head: str, before: bool | None) -> bool | None:
    """Does a heading announce rates or scores (True) or times (False)? As before where it does not say."""
    if _RATE_HEAD.search(head):
        return True
    return False if _TIME_HEAD.search(head) else before


def _announced(heads: Sequence[str], rate: bool | None) -> bool | None:
    """What several headings in a row announce, of which only the first may not end with a colon."""
    for head in heads:
        rate = _is_rate(head, rate if head.endswith(":") else None)
    return rate


def _low_is_slow(row: re.Match[str], rate: bool | None) -> bool | None:
    """None: neither the unit nor a heading says what the numbers are; memory and losses differ between ranks, too."""
    unit = row.groupdict().get("unit")
    if unit in _RATES or row.re is _SCORE:
        return True
    return False if unit in _TIME_UNITS else rate


def _outliers(table: _Table) -> Iterator[Clue]:
    if NO_COMPUTE.search(table.head) and not table.low_is_slow:
        return
    for rank, ratio in slow(table.values, low_is_slow=table.low_is_slow).items():
        line = table.lines[rank]
        node = _NODE.search(line.text)
        what = f"{ratio:.1f} times slower than the median of {len(table.values)} ranks"
        name = (node["node"] or node["other"]) if node else ""
        yield straggler(rank, name, line, f"{table.head} {line.text.strip()}: {what}", "straggler-table", TABLE_WEIGHT)


def columns(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Tables whose head names the columns, one of them `rank`."""
    names: list[str] = []
    by = ""
    table: dict[int, tuple[list[float], LogLine]] = {}
    for line in [*lines, _END]:
        if not names and not (_SAYS_RANK.holds(line.text) and (_RANK_WORD.search(line.text) or "slowest" in line.text)):
            continue
        words = line.text.replace("|", " ").split(None, MOST_COLUMNS)
        if names and len(words) == len(names) and all(_NUMBER.match(word) for word in words):
            numbers = [float(word) for word in words]
            table[int(numbers[names.index("rank")])] = (numbers, line)
            continue
        if names and not set(line.text) <= set("-+|=: "):
            yield from _columns(names, table, by)
            names, table, by = [], {}, ""
        if hit := _SLOWEST_BY.search(line.text):
            by = hit["name"].lower()
        if not 2 <= len(words) <= MOST_COLUMNS:
            continue
        lower = [word.lower() for word in words]
        if "rank" in lower and not any(_NUMBER.match(word) for word in words):
            names = lower


def _columns(names: Sequence[str], table: Mapping[int, tuple[list[float], LogLine]], by: str) -> Iterator[Clue]:
    for number, name in enumerate(names):
        rate = _RATE_HEAD.search(name) is not None
        if name == "rank" or NO_COMPUTE.search(name) or not (rate or COMPUTE.search(name)):
            continue
        values = {rank: row[number] for rank, (row, _) in table.items()}
        if by in names:
            if name != by:
                continue
            values |= {-1 - other: min(values.values(), default=0.0) for other in range(len(values))}
        found = slow(values, low_is_slow=rate)
        if by == name:
            found = {rank: ratio for rank, ratio in found.items() if values[rank] >= WORTH_IT * max(values.values())}
        for rank, ratio in found.items():
            text = f"rank {rank}: {name} is {ratio:.1f} times off the median of {len(table)} ranks"
            yield straggler(rank, "", table[rank][1], text, "straggler-columns", TABLE_WEIGHT)
        if found:
            return  # In the columns after it the others may stand out: they waited for these.


def mappings(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """`{0: 19.9, 1: 143.1}` of ranks or nodes after a word of time; of equal reports the last one counts."""
    last: dict[str, tuple[dict[int, float], LogLine]] = {}
    for line in _SAYS_MAPPING.among(lines):
        hit = _MAPPING.search(line.text) if "{" in line.text else None
        if hit is not None:
            last[hit["head"]] = (_pairs(hit["items"]), line)
    for head, (values, line) in last.items():
        for rank, ratio in slow(values).items():
            text = f"{head.strip()}: {rank} is {ratio:.1f} times the median of {len(values)}"
            clue = straggler(rank, "", line, text, "straggler-mapping", TABLE_WEIGHT)
            yield replace(clue, blames="nobody") if "node" in head.lower() else clue


def _pairs(items: str) -> dict[int, float]:
    return {int(first): float(second) for first, second in re.findall(r"(\d{1,6}): (\d{1,12}(?:\.\d{1,12})?)\b", items)}


def straggler(rank: int, node: str, line: LogLine, text: str, rule: str, weight: float) -> Clue:
    """A clue that a rank is slow."""
    return Clue(FaultClass.STRAGGLER, weight, text[:400], rule, "rank", node or line.node, rank,
                file=line.file, line=line.line)  # fmt: skip


ALIKE_WEIGHT = 0.72
"""Equal lines of several members, one of them far off: their words alone say what is measured."""
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
        measure = _measure(line) if kept < MOST_LINES and _SAYS_VALUE.holds(line.text) else None
        if measure is None:
            continue
        kept += 1
        shape, member, value, rate = measure
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
    groups_of_name = named.groupdict() if named is not None else {}
    rank = rank_of(line) if rank_of(line) is not None else groups_of_name.get("rank")
    member = f"rank {int(rank)}" if rank is not None else (groups_of_name.get("node") or line.node)
    if not member:
        return None
    shape = text[: hit.start()] + (hit["name"] if groups.get("name") else "")
    shape = shape.replace(named[0], "@") if named is not None else shape
    return re.sub(r"\d+(?:\.\d+)?", "#", shape), member, float(hit["value"].replace(",", "")), rate


def listed(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """One value a rank on a single line: a list, a mapping of hosts, `rank 0: 3 ms | rank 1: 3 ms`, gpu-burn's row."""
    last: dict[str, tuple[dict[str, float], LogLine, bool]] = {}
    for line in _SAYS_LIST.among(lines):
        members = _list_of(line.text[:8000])
        if members is not None:
            values, what, rate = members
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
