"""Devices that a test measured one by one, one rate far below the others; devices that are busy and draw no power."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from flows.decisions.observers.numbers import slow
from flows.decisions.observers.tables import straggler
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

MEASURED_WEIGHT = 0.8
"""Rates of at least `FEWEST` devices under the same load, one of them far below."""
FEWEST = 4
"""With fewer devices nobody knows which of them is the usual one."""
_MEASURED = re.compile(
    r"(?i)^(?P<before>.{0,80}?\b(?:adapter|gpu|gcd|device|rank|card|worker|node)[ #:_=\[(]{0,3})(?P<index>\d{1,4})\b"
    r"(?P<between>[^|]{1,80}?)\b(?P<value>\d{1,12}(?:\.\d{1,12})?) ?(?P<unit>[KMGT]?flop/?s|tflops?|gflops?|GB/s|GiB/s|"
    r"tok(?:ens)?/s(?:ec)?|samples/s(?:ec)?|images/s(?:ec)?|img/s|it/s)\b"
)
_SAYS_RATE = Cue("flop", "gb/s", "gib/s", "tok/s", "tokens/s", "samples/s", "images/s", "img/s", "it/s",
                 of=(_MEASURED,))  # fmt: skip
SPINNING_WEIGHT = 0.55
"""All devices of a table are fully used and draw little: their kernels wait for each other."""
LITTLE = 0.3
"""Share of the power limit that a kernel draws which only waits."""
FULLY = 95
"""Percent of the time in which a kernel ran."""
_USED = re.compile(
    r"^\|.{1,40}?\b(?P<power>\d{1,4})W / {1,3}(?P<limit>\d{1,4})W \|.{1,40}\| {1,8}(?P<used>\d{1,3})% {1,6}\w"
)
_SAYS_USED = Cue("w /", of=(_USED,))
_DIGITS = re.compile(r"\d")


def measured(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Rates of devices that were printed in the same words; of several of one device the last counts."""
    groups: dict[tuple[str, str, str, str], dict[int, tuple[float, LogLine]]] = {}
    for line in _SAYS_RATE.among(lines):
        hit = _MEASURED.match(line.text[:400])
        if hit is None:
            continue
        words = (line.file, _words(hit["before"]), _words(hit["between"]), hit["unit"].lower())
        groups.setdefault(words, {})[int(hit["index"])] = (float(hit["value"]), line)
    for group in groups.values():
        if len(group) < FEWEST:
            continue
        for index, ratio in slow({index: value for index, (value, _) in group.items()}, low_is_slow=True).items():
            line = group[index][1]
            text = f"{line.text.strip()[:200]}: {ratio:.1f} times slower than the median of {len(group)}"
            yield straggler(index, "", line, text, "straggler-device", MEASURED_WEIGHT)


def spinning(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Tables of nvidia-smi in which every device is used to the full and draws little power."""
    tables: dict[str, list[tuple[float, int, LogLine]]] = {}
    for line in _SAYS_USED.among(lines):
        hit = _USED.match(line.text[:200])
        if hit is not None and int(hit["limit"]):
            found = (int(hit["power"]) / int(hit["limit"]), int(hit["used"]), line)
            tables.setdefault(line.file, []).append(found)
    for rows in tables.values():
        if len(rows) > 1 and all(share < LITTLE and used >= FULLY for share, used, _ in rows):
            line = rows[0][2]
            yield Clue(FaultClass.HANG, SPINNING_WEIGHT, line.text.strip()[:400], "busy-without-power", file=line.file,
                       line=line.line)  # fmt: skip


def _words(text: str) -> str:
    return _DIGITS.sub("0", text).strip()
