"""Faulty hardware that several lines show together: devices, links, file servers, DCGM's tables.

A device is slow where each was measured and one rate lies far below the others, or busy without drawing power. A link
counts that stays down, or comes and goes; one that came up once is how machines boot. A file server counts that did not
answer again. The rows of a wrapped cell of DCGM's tables are read as one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.diagnosis.clues import Clue
from flows.decisions.diagnosis.lines import by_stream
from flows.decisions.diagnosis.matching import match_line
from flows.decisions.diagnosis.observers.members import straggler
from flows.decisions.diagnosis.observers.outliers import slow
from flows.decisions.diagnosis.prefilter import Cue
from profiles.vocabulary import FaultClass
from workflows.model.attempt import LogLine

MEASURED_WEIGHT = 0.8
"""Rates of at least `FEWEST` devices under the same load, one of them far below."""
FEWEST = 4
"""With fewer devices nobody knows which of them is the usual one."""
_MEASURED = re.compile(
    r"(?i)^(?P<before>.{0,80}?\b(?:adapter|gpu|gcd|device|rank|card|worker|node)[ #:_=\[(]{0,3})(?P<index>\d{1,4})\b"
    r"(?P<between>[^|]{1,80}?)\b(?P<value>\d{1,12}(?:\.\d{1,12})?) ?(?P<unit>[KMGT]?flop/?s|tflops?|gflops?|GB/s|GiB/s|"
    r"tok(?:ens)?/s(?:ec)?|samples/s(?:ec)?|images/s(?:ec)?|img/s|it/s)\b"
)
_SAYS_RATE = Cue(of=(_MEASURED,))
SPINNING_WEIGHT = 0.55
"""All devices of a table are fully used and draw little: their kernels wait for each other."""
LITTLE = 0.3
"""Share of the power limit that a kernel draws which only waits."""
FULLY = 95
"""Percent of the time in which a kernel ran."""
_USED = re.compile(
    r"^\|.{1,40}?\b(?P<power>\d{1,4})W / {1,3}(?P<limit>\d{1,4})W \|.{1,40}\| {1,8}(?P<used>\d{1,3})% {1,6}\w"
)
_SAYS_USED = Cue(of=(_USED,))
_DIGITS = re.compile(r"\d")


def measured(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Rates of devices that were printed in the same words; of several of one device the last counts."""
    groups: dict[tuple[str, str, str, str], dict[int, tuple[float, LogLine]]] = {}
    for line, hit in _SAYS_RATE.hits(lines, 400):
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
    for line, hit in _SAYS_USED.hits(lines, 200):
        if int(hit["limit"]):
            found = (int(hit["power"]) / int(hit["limit"]), int(hit["used"]), line)
            tables.setdefault(line.file, []).append(found)
    for rows in tables.values():
        if len(rows) > 1 and all(share < LITTLE and used >= FULLY for share, used, _ in rows):
            line = rows[0][2]
            yield Clue(FaultClass.HANG, SPINNING_WEIGHT, line.text.strip()[:400], "busy-without-power", file=line.file,
                       line=line.line)  # fmt: skip


def _words(text: str) -> str:
    return _DIGITS.sub("0", text).strip()


DOWN_WEIGHT = 0.65
"""The last word of a link is that it is down."""
FLAPS_WEIGHT = 0.5
"""It went down so often that it hurts, though it is up."""
FLAPS = 3
"""Times that a link must have gone down, until it counts although it came back."""
_DRIVER = (
    r"\b(?:mlx5_core|mlx4_core|mlx4_en|bnxt_en|ionic|ice|i40e|ixgbe|igb|irdma|ena|efa|gve|qede|hns3|cxgb4|tg3|hfi1|"
    r"mlx5_ib|infiniband|cxi_core|cxi\d{1,2}|igc|e1000e|be2net|bnx2x|enic|sfc|qedr)\b"
)
_BOND = r"bond\w{1,12}: \(?(?:slave )?(?P<slave>\S{1,24}?)\)?:? "
_LINK = re.compile(
    rf"(?:{_DRIVER} (?P<device>\S{{1,40}}):? (?:(?P<port>\S{{1,24}}?):? )?|{_BOND})"
    r".{0,40}?\b(?:(?P<down>(?i:link(?: is)? down)|Link DOWN|Lost carrier|link status definitely down|"
    r"logical state changed to PORT_DOWN)|"
    r"(?P<up>(?i:link(?: is)? up)|Link (?:ACTIVE|UP)|link status definitely up|logical state changed to PORT_ACTIVE))"
)
_SAYS_LINK = Cue(of=(_LINK,))


def down(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Links whose last word is that they are down, and links that went down again and again."""
    falls: dict[tuple[str, str, str], list[LogLine]] = {}
    up: dict[tuple[str, str, str], bool] = {}
    for line, hit in _SAYS_LINK.hits(lines, 400):
        name = hit["slave"] or f"{hit['device']} {hit['port'] or ''}"
        key = (line.file, line.node, name)
        if hit["down"]:
            falls.setdefault(key, []).append(line)
        up[key] = hit["down"] is None
    for key, fallen in falls.items():
        if up[key] and len(fallen) < FLAPS:
            continue
        last = fallen[-1]
        yield Clue(FaultClass.FABRIC, FLAPS_WEIGHT if up[key] else DOWN_WEIGHT, last.text[:400],
                   "link-flaps" if up[key] else "link-down", "node", last.node, last.rank, last.at,
                   supersedes=("collective_timeout",), file=last.file, line=last.line)  # fmt: skip


UNANSWERED_WEIGHT = 0.72
"""A client that still waits for its server when the log ends. Most such waits end well, but then the log says so."""

_AWAY = re.compile(
    r"nfs: server (?P<nfs>\S{1,120}) not responding, still trying|"
    r"Lustre: (?P<lustre>\S{1,120}): Connection to \S{1,120} .{0,80}was lost|"
    r"ceph: (?P<ceph>mds\d{1,4}) (?:hung|caps stale)|"
    r"CIFS: .{0,60}[Ss]erver (?P<cifs>\S{1,120}) has not responded"
)
_BACK = re.compile(
    r"nfs: server (?P<nfs>\S{1,120}) OK\b|Lustre: (?P<lustre>\S{1,120}): Connection restored|"
    r"ceph: (?P<ceph>mds\d{1,4}) (?:recovery completed|came back|caps renewed)|"
    r"CIFS: .{0,60}\b(?P<cifs>\S{1,120}) reconnected"
)
_WORDS = ("nfs: server", "lustre: ", "ceph: mds", "cifs: ")
_SAYS_SERVER = Cue(*_WORDS, of=(_AWAY, _BACK))


def unanswered(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Servers, or mounts, whose client was still waiting when the node's log ended."""
    waiting: dict[tuple[str, str, str], LogLine] = {}
    for line in _SAYS_SERVER.among(lines):
        if not any(word in line.text[:300].lower() for word in _WORDS):
            continue
        if (hit := _AWAY.search(line.text)) is not None:
            waiting.setdefault((line.node, line.file, _device_text(hit)), line)
        elif (hit := _BACK.search(line.text)) is not None:
            waiting.pop((line.node, line.file, _device_text(hit)), None)
    for line in waiting.values():
        yield Clue(
            FaultClass.STORAGE,
            UNANSWERED_WEIGHT,
            line.text[:400],
            "server-not-answering",
            node=line.node,
            at=line.at,
            file=line.file,
            line=line.line,
        )


def _device_text(hit: re.Match[str]) -> str:
    return next(name for name in hit.groups() if name)


_ROW = re.compile(r"^\|(?P<name>[^|]{1,60})\|(?P<said>[^|]{1,200})\|?$")
_TELLING = ("Warning", "Error", "Info")
"""Names of rows that hold words; the others hold results."""
MAX_ROWS = 40
_SAYS_CELL = Cue(*(f"|{word}" for word in _TELLING))


def wrapped(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """What cells say that are wrapped over several rows, by the rules for lines."""
    if not _SAYS_CELL.anywhere(lines):
        return
    for stream in by_stream(line for line in lines if line.text.startswith("|") or line.text[:1].islower()):
        for cell in _cells(stream):
            yield from _read(cell)


def _cells(stream: Sequence[LogLine]) -> Iterator[list[LogLine]]:
    """The rows of every cell that holds words, in order; a cell's name stands in its first row only."""
    cell: list[LogLine] = []
    for line in stream:
        row = _ROW.match(line.text)
        if row is not None and row["name"].strip().startswith(_TELLING):
            if cell:
                yield cell
            cell = [line]
        elif cell and row is not None and not row["name"].strip() and len(cell) < MAX_ROWS:
            cell.append(line)
        elif row is not None and cell:
            yield cell
            cell = []
    if cell:
        yield cell


def _read(cell: Sequence[LogLine]) -> Iterator[Clue]:
    if len(cell) < 2:
        return
    rows = [_ROW.match(line.text) for line in cell]
    whole = "".join(row["said"][1:-2] if len(row["said"]) > 45 else row["said"].strip() for row in rows if row)
    known = {match.rule.name for line in cell for match in match_line(line.text)}
    for match in match_line(whole.strip()):
        rule = match.rule
        if rule.name not in known and rule.fault_class is not FaultClass.NONE:
            first = cell[0]
            yield Clue(
                rule.fault_class, rule.weight, whole.strip()[:400], rule.name, rule.blames, first.node, first.rank,
                first.at, rule.echo, rule.supersedes, rule.advice, match.peer, first.file, first.line,
            )  # fmt: skip
