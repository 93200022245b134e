"""Tables of ranks: rows under a heading, columns with names, mappings; one rank far off the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.numbers_in_patterns import Seldom
from flows.decisions.observers.numbers import slow
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

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
_TIMES = frozenset({"ms", "s", "sec", "seconds", "us"})
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
_SAYS_RANK, _SAYS_MEMBER = Cue("rank"), Cue("rank", "gpu", "worker", of=(_ROW, _SCORE))
_SAYS_MAPPING = Cue(*(f"{word} time" for word in ("elapsed", "step", "iteration", "compute", "forward", "check")),
                    of=(_MAPPING,))  # fmt: skip
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
            if said := line.text.strip():
                head = said[:120]
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
    return False if unit in _TIMES else rate


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
