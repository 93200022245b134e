"""Log files of any origin as lines with source, rank, node and time, as far as names and prefixes say.

Progress is read even where no step is named: `#12 | acc 0.31 | obj 2.9` names neither step nor loss. But programs that
go on print one form of line again and again, with a count that rises and something measured beside it; hardly any that
ends does so (`grew_until`).
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from flows.decisions.diagnosis.lines import Clock, stamp, uncoloured
from flows.decisions.diagnosis.steps import REPORTED
from workflows.model.attempt import LogLine

MAX_LINE_CHARACTERS = 8000
"""What is kept of a line: hostile ones may have megabytes."""

_RANK_IN_NAME = (
    re.compile(r"(?:^|[^a-z0-9])(?:global[-_]?)?rank[-_.]?(\d{1,6})(?:[^0-9]|$)", re.IGNORECASE),
    re.compile(r"(?:^|/)attempt_\d{1,4}/(\d{1,6})/std(?:out|err)(?:\.log)?$"),
    re.compile(r"(?:^|/)(?:stdout|stderr|std_?err|std_?out)[-_.](\d{1,6})(?:\.(?:log|txt))?$"),
)
"""Ours and most people's, torchrun's `--log-dir`, accelerate's and mpirun's."""
_KERNEL = r"(?:dmesg|kernel|kern|kmsg|(?:net)?console|vmcore)"
_TOOL = (
    rf"(?:{_KERNEL}|journal(?:ctl)?|syslog|messages|nvidia-smi|rocm-smi|amd-smi|dcgmi?|hma|npd|nhc|gpud|ps|lspci|"
    r"ibstat|ibv_devinfo|mlxlink|ethtool|ipmi(?:tool)?|sel|bmc|kubelet|containerd|slurmd|sysinfo)"
)
_END = r"(?:\.(?:log|txt|out|err|json|gz))?$"
_MODEL = r"(?:[hav]100|[hb][23]00|gb[23]00|mi\d{3}x?)"
_STEM = rf"(?:node|cn|host|compute|dgx|hgx|srv|server|nid|worker|gpu[-_]?[a-z]|gpu-?\d(?=\d)|{_MODEL}|ip-\d)"
_NODE_IN_NAME = (
    re.compile(rf"(?:^|/){_TOOL}(?:[-_.]{_TOOL})?[-_.]([A-Za-z][\w.-]{{0,80}}?){_END}"),
    re.compile(rf"(?:^|/)([A-Za-z][\w.-]{{0,80}}?)[-_.]{_TOOL}{_END}"),
    re.compile(rf"(?:^|/)({_STEM}[-_\w]{{0,60}}\d[\w-]{{0,20}})\.(?:log|txt|out|err)$"),
    re.compile(rf"(?:^|/)({_STEM}[-_\w]{{0,60}}\d[\w-]{{0,20}})/[^/]{{1,80}}$"),
)
"""A tool's output of a node, whichever of the two stands first; a file or folder that is named as nodes are."""
_NO_NODE = re.compile(
    r"(?i)^(?:rank.*|log|txt|out|err|json|gz|old|all|full|tail|head|boot|buffer|messages?|errors?|before|after|pre|post|"
    r"train(?:ing)?|run|job|slurm|vmcore|kdump|host|node|pod|system|server|linux|crash|output|my|the|gpu)$"
)
"""Words beside a tool's name that are no names of nodes."""
_PACKED = re.compile(r"(?:(?<=\.log|\.out|\.err|\.txt)\.\d{1,3})?(?:\.(?:gz|bz2|xz))?$")
"""What rotation and packing put behind a name."""
_SOURCES = (
    (re.compile(rf"(?:^|/)(?:[\w.-]{{1,80}}[-_.])?{_KERNEL}\b", re.IGNORECASE), "kernel"),
    (re.compile(r"(?:^|/)(?:events?|describe)\b", re.IGNORECASE), "event"),
)
_SYSLOG = re.compile(
    r"^(?:<\d{1,3}>)?(?:[^\W\d_]{3,5}\.? {1,2}\d{1,2} \d\d:\d\d:\d\d|"
    r"\[(?:[A-Z][a-z]{2} ){2}[ \d]\d \d\d:\d\d:\d\d \d{4}\](?= [\w.-]{1,100} kernel: )|"
    r"\d{4}-\d\d-\d\dT[\d:.,]{8,18}(?:Z|[+-]\d\d:?\d\d)) "
    r"(?P<node>[\w.-]{1,100}) (?P<program>[\w./()-]{1,60}?)(?:\[\d{1,8}\])?: "
)
_TALOS = re.compile(r"^(?P<node>[\w.-]{2,100}): (?P<facility>kern|user|daemon): {1,4}\w{3,8}: \[[\dT:.Z+-]{19,40}\]: ")
"""What talosctl puts before the lines of a machine's kernel."""
_STEPD = re.compile(r"^slurmstepd-(?P<node>[A-Za-z][\w.-]{0,80}?): (?=error|task|info|\*)")
"""Some sites' step daemons carry the node in their name."""
_DAEMON = re.compile(
    r"(?:.*/)?(?:slurm\w{1,6}|mmfs\w{0,3}|munged|systemd-oomd|earlyoom|opensm|beegfs[\w-]{0,12}|weka\w{0,8})$"
)
"""Programs whose names are part of what they say."""
_KERNEL_STAMP = re.compile(
    r"^(?:kernel: )?(?:<\d{1,3}>)?\[ {0,6}\+?\d{1,9}\.\d{3,6}\] ?(?:\[ *T?\d+\] ?)?|"
    r"^\[(?:[A-Z][a-z]{2} ){2}[ \d]\d \d\d:\d\d:\d\d \d{4}\] "
)
_PDSH = re.compile(r"^(?!rank\d)(?P<node>[a-z][a-z0-9-]{0,40}\d[\w.-]{0,40}): ")
"""pdsh and clush put the node before each line; a name without a digit would be anything."""
_PDSH_KERNEL = re.compile(
    rf"{_PDSH.pattern}(?:kernel: )?(?=\[ {{0,6}}\d{{1,9}}\.\d{{3,6}}\] |NVRM: |"
    r"amdgpu \d|mlx5_core \d|pcieport \d|nvidia-nvswitch|nvme\d|nvme nvme|EDAC |mce: |LustreError: |"
    r"Out of memory: |Memory cgroup out |\w[\w.-]{0,40} invoked oom-killer)"
)
"""The same before what only kernels print: there one line is enough."""
_NUMBERS = re.compile(r"\d{1,40}")
LINES_OF_A_HOST = 3
"""Lines of one file that must begin with the same `name: ` before it counts as a node."""


@dataclass(frozen=True)
class Place:
    """What a file's name says of its lines."""

    source: str = ""
    rank: int | None = None
    node: str = ""


@cache
def place_of(name: str) -> Place:
    """Source, rank and node from a file's name; empty where the name does not say."""
    name = _PACKED.sub("", name)
    rank = next((int(hit[1]) for pattern in _RANK_IN_NAME if (hit := pattern.search(name))), None)
    named = (hit[1] for pattern in _NODE_IN_NAME if (hit := pattern.search(name)))
    node = next((word for word in named if not _NO_NODE.match(word)), "")
    source = next((word for pattern, word in _SOURCES if pattern.search(name)), "")
    if source != "kernel" and not re.search(r"[\d-]", node):
        node = ""  # `ps-aux.txt`, `dcgmi-diag.log`: an option, not a node
    return Place(source or ("rank" if rank is not None else ""), rank, node)


def read_lines(name: str, texts: Iterable[str], clock: Clock | None = None, first: int = 1) -> Iterator[LogLine]:
    """The lines of one file, in order.

    `texts` have no line ends; `clock` completes time stamps without a year (None: one of its own); `first` is the
    number of the first line.
    """
    return read_numbered(name, enumerate(texts, first), clock)


def read_numbered(name: str, numbered: Iterable[tuple[int, str]], clock: Clock | None = None) -> Iterator[LogLine]:
    """The same of lines with their numbers."""
    place, clock = place_of(name), clock or Clock()
    at: float | None = None
    for number, raw in numbered:
        text = uncoloured(raw[:MAX_LINE_CHARACTERS])
        at = stamp(text, clock) or at
        node, source = place.node, place.source
        hit = _SYSLOG.match(text)
        if hit is not None:
            node, text = hit["node"], text[hit.end() :]
            source = "kernel" if hit["program"] == "kernel" else source
            text = f"{hit['program']}: {text}" if _DAEMON.match(hit["program"]) else text
        if hit is None or source == "kernel":
            kernel = _KERNEL_STAMP.match(text)
            if kernel is not None:
                source, text = "kernel", text[kernel.end() :]
        if (wrapped := _TALOS.match(text) or _STEPD.match(text)) is not None:
            node, source = wrapped["node"], "kernel" if "facility" in wrapped.groupdict() else source
            text = (
                text[wrapped.end() :] if "facility" in wrapped.groupdict() else f"slurmstepd: {text[wrapped.end() :]}"
            )
        yield LogLine(text, source, place.rank, node, at, name, number)


def without_hosts(lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """Lines of one file whose launcher put the node's name before each: the name is taken off and taken over.

    A name that stands before several lines is a node's, and so is any that differs from such a one in numbers alone.
    """
    kept = list(lines)
    names = [hit["node"] if (hit := _PDSH.match(line.text)) is not None else "" for line in kept]
    known = {name for name, count in Counter(names).items() if name and count >= LINES_OF_A_HOST}
    known |= {name for line, name in zip(kept, names, strict=True) if name and _PDSH_KERNEL.match(line.text)}
    shapes = set(map(_shape, known))
    for line, name in zip(kept, names, strict=True):
        yield _of_host(line, name if name and _shape(name) in shapes else "")


def _shape(name: str) -> str:
    return _NUMBERS.sub("0", name)


def _of_host(line: LogLine, node: str) -> LogLine:
    if not node:
        return line
    text, source = line.text[len(node) + 2 :], line.source
    kernel = _KERNEL_STAMP.match(text)
    if kernel is not None:
        source, text = "kernel", text[kernel.end() :]
    return LogLine(text, source, line.rank, node, line.at, line.file, line.line)


CHAIN = 3
"""So many lines must follow each other in it: two may be any two."""
MEASURES = 5
"""So many different values of one measure, where nothing is counted."""
LOOK_CHARACTERS = 300
FORMS = 200
"""Forms of lines that are followed at most."""
_STAMP = re.compile(
    r"\d{2,4}[-/]\d\d[-/]\d{2,4}[T _]?|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?|\(?pid=\d{1,9}\)?"
)
_MEASURED = re.compile(r"\d\.\d|\d ?%|\de[-+]\d|\d ?m?s\b")
_WHOLE = re.compile(r"(?<![\d.])(?<!\d[eE])(?<!\d[eE][+-])\d{1,12}(?![\d.]*[.eE]\d|\d|\.$)")
_ERROR_MEASURED = re.compile(r"(?i)(?<=[-_ ])m?error(?=[ :=@]{1,3}\d)")
"""A measure, and no complaint."""
_METRIC = re.compile(
    r"(?i)\b(?:\w{1,20}_)?(?:loss|acc(?:uracy)?|reward|return|score|ppl|perplexity|psnr|auc|f1|elbo|mse|mae)\b"
    r"[^\d\n]{0,40}?[:= ]\s{0,4}(?P<value>-?\d{1,9}\.\d{1,18})"
)
_PLAIN = re.compile(r"[\d.eE+-]+")
_LISTED = re.compile(
    r"(?i)error|exception|fail|\bretr(?:y|ies)|attempt|timed? ?out|wait|hang|hung|stall|stuck|no progress|heartbeat|"
    r"abort|kill|signal|refused|crash|\bdead\b|\blost\b|elapsed|nan\b|\binf\b|0x[0-9a-f]|\bframe\b|\bFile \"|"
    r"\b(?:gpu|rank|worker|node|device|port|host|pid|process|thread|task|proc|core|cpu|layer|conv|block|param\w*|frame|"
    r"line|version|chunk|inuse|free|alloc\w*|bytes|shard|replica|pod|container)s?\b|\[\d{1,4}\]:|[MGK]iB\b|"
    r"^\s{0,8}(?:[+] |\d{1,3}: |[-*] )|\bN/A\b|\bO(?:n|ff) {1,20}\||\.weight|\.bias|[\d.]{7,15}:\d|=>"
)
"""Lists, reports and waits: their numbers grow as well, and nothing goes on."""


def grew_until(stream: Sequence[LogLine], since: int = 0) -> int:
    """Number of the last but one line of a form whose count grew `CHAIN` times, 0 where there is none.

    Lines up to number `since` are not read.
    """
    chains: dict[str, list[tuple[int, tuple[int, ...]]]] = {}
    measures: dict[str, list[tuple[int, str]]] = {}
    last = 0
    for line in reversed(stream):
        if line.line <= since:
            break
        if line.text.startswith(REPORTED):
            continue
        text = line.text[:LOOK_CHARACTERS]
        last = _measured_again(line.line, text, measures)
        if last:
            break
        read = _read(text)
        if read is None or (read[0] not in chains and len(chains) >= FORMS):
            continue
        chain = chains.setdefault(read[0], [])
        if chain and not any(map(int.__lt__, read[1], chain[-1][1])):
            chain.clear()
        chain.append((line.line, read[1]))
        if len(chain) >= CHAIN and _grows([numbers for _, numbers in chain[-CHAIN:]]):
            last = chain[-CHAIN + 1][0]
            break
    return last


def _measured_again(number: int, text: str, measures: dict[str, list[tuple[int, str]]]) -> int:
    """Number of the last but one line of a form that measures the training anew each time; 0: too few."""
    hit = _METRIC.search(text)
    if hit is None or _LISTED.search(_ERROR_MEASURED.sub("", text)) or len(measures) >= FORMS:
        return 0
    repeats = measures.setdefault("".join(filter(str.isalpha, text.lower()))[:80], [])
    if all(value != hit["value"] for _, value in repeats):
        repeats.append((number, hit["value"]))
    return repeats[1][0] if len(repeats) >= MEASURES else 0


def _read(text: str) -> tuple[str, tuple[int, ...]] | None:
    """The form of a line, and its whole numbers; None for lines that prove nothing."""
    text = _ERROR_MEASURED.sub("", text)
    if not any(map(str.isdigit, text)) or _LISTED.search(text):
        return None
    text = _STAMP.sub("", text)
    numbers = tuple(int(hit) for hit in _WHOLE.findall(text)[:6])
    form = "".join(filter(str.isalpha, text.lower())) or _PLAIN.sub("", text)
    if not numbers or not form or _MEASURED.search(text) is None:
        return None
    return f"{len(numbers)}{form[:80]}", numbers


def _grows(latest_first: Sequence[tuple[int, ...]]) -> bool:
    """Does one of the numbers rise from line to line?"""
    return any(
        all(later > earlier for later, earlier in itertools.pairwise(column))
        for column in zip(*latest_first, strict=True)
    )
