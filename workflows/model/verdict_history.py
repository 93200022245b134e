"""The past of nodes in figures alone: how each check ended and what it measured, many tests packed in columns.

A verdict holds words, limits and evidence, some kilobytes a node. What a node is later compared with needs nine bytes
a check: tasks keep them when they write the verdict, and decisions read a month of a fleet without the verdicts.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from profiles.vocabulary import VerdictWord
from workflows.model.records import VerdictRecord

GOOD, BAD = 1, -1
"""How a test of a check ended; 0: nothing is known."""
Check = tuple[str, str]
"""Name of a check and the unit of its figure."""
_Look = dict[Check, tuple[int, float]]
_HEAD = struct.Struct("<I")
_LARGEST = sys.float_info.max
_PASS, _FAIL = VerdictWord.PASS.value, VerdictWord.FAIL.value


@dataclass(frozen=True)
class Looks:
    """What tests found, one look a node and time; numbers are little-endian, those of one check lie together."""

    nodes: tuple[str, ...]
    """[looks]"""
    checks: tuple[Check, ...]
    """Each once; a name may stand there with several units."""
    at: bytes | memoryview
    """[looks] float64: Unix seconds."""
    figures: bytes | memoryview
    """[checks, looks] float64 in the check's unit; NaN: it did not pass, or has no figure."""
    ends: bytes | memoryview
    """[checks, looks] int8: 1 passed, -1 failed (also where it was to be repeated), 0 nothing known."""

    @property
    def times(self) -> tuple[float, ...]:
        """[looks] Unix seconds."""
        return struct.unpack(f"<{len(self.nodes)}d", self.at)


def looks_of(records: Iterable[VerdictRecord]) -> list[Looks]:
    """The looks of verdicts in their order, one entry for all that made the same checks.

    Verdicts that tell nothing of any check are left out. Where a node was looked at twice at the same time, all are in
    one entry: only there their order can be told.
    """
    looks = [(record.node, record.at, look) for record in records for look in _looks(record)]
    if len({(node, at) for node, at, _ in looks}) < len(looks):
        return [_columns(looks, tuple(dict.fromkeys(check for _, _, look in looks for check in look)))]
    alike: dict[tuple[Check, ...], list[tuple[str, float, _Look]]] = {}
    for entry in looks:
        alike.setdefault(tuple(entry[2]), []).append(entry)
    return [_columns(entries, checks) for checks, entries in alike.items()]


def end_of(reason: Mapping[str, Any]) -> int:
    """How a test of a check ended: what was measured counts, not what was made of it."""
    word = reason.get("verdict")
    if word == _PASS or reason.get("flaps"):
        return GOOD
    return BAD if word == _FAIL or reason.get("repeat") else 0


def pack(looks: Looks) -> bytes:
    """As the ledger keeps them."""
    head = json.dumps([looks.nodes, looks.checks], separators=(",", ":")).encode()
    return b"".join((_HEAD.pack(len(head)), head, looks.at, looks.figures, looks.ends))


def unpack(packed: bytes) -> Looks:
    """What `pack` was given; the numbers are not copied."""
    (length,) = _HEAD.unpack_from(packed)
    begin = _HEAD.size + length
    nodes, checks = _head(packed[_HEAD.size : begin])
    body, count = memoryview(packed)[begin:], len(nodes)
    figures = 8 * count * (1 + len(checks))
    return Looks(nodes, checks, body[: 8 * count], body[8 * count : figures], body[figures:])


@lru_cache(maxsize=256)
def _head(text: bytes) -> tuple[tuple[str, ...], tuple[Check, ...]]:
    """Nodes and checks; night after night they are the same."""
    nodes, checks = json.loads(text)
    return tuple(nodes), tuple((name, unit) for name, unit in checks)


def _looks(record: VerdictRecord) -> list[_Look]:
    """What a verdict says of checks; a second value of the same check is another look."""
    looks: list[_Look] = []
    times: dict[str, int] = {}
    for reason in record.reasons:
        end = end_of(reason)
        if end:
            name, unit = str(reason.get("check")), str(reason.get("unit", ""))
            time = times[name] = times.get(name, -1) + 1
            if time == len(looks):
                looks.append({})
            looks[time][name, unit] = (end, _figure(reason.get("measured")) if end == GOOD else math.nan)
    return looks


def _columns(looks: Sequence[tuple[str, float, _Look]], checks: tuple[Check, ...]) -> Looks:
    nothing = (0, math.nan)
    cells = [[look.get(check, nothing) for _, _, look in looks] for check in checks]
    return Looks(
        nodes=tuple(node for node, _, _ in looks),
        checks=checks,
        at=struct.pack(f"<{len(looks)}d", *(at for _, at, _ in looks)),
        figures=b"".join(struct.pack(f"<{len(looks)}d", *(figure for _, figure in column)) for column in cells),
        ends=b"".join(struct.pack(f"<{len(looks)}b", *(end for end, _ in column)) for column in cells),
    )


def _figure(measured: object) -> float:
    """What was measured; NaN: no figure, but a word, nothing, or something endless."""
    if isinstance(measured, (int, float)) and -_LARGEST <= measured <= _LARGEST and not isinstance(measured, bool):
        return float(measured)
    return math.nan
