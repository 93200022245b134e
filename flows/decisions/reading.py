"""Anybody's log files as lines with source, rank, node and time, as far as names and prefixes tell them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from flows.decisions.lines import uncoloured
from flows.decisions.stamps import Clock, stamp
from workflows.evidence import LogLine

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
    """Source, rank and node from a file's name; what it does not tell stays empty."""
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

    Args:
        name: of the file; rank, node and source are taken from it where it tells them.
        texts: its lines, without line ends.
        clock: completes time stamps without a year; None: one of its own.
        first: number of the first line.
    """
    place, clock = place_of(name), clock or Clock()
    at: float | None = None
    for number, raw in enumerate(texts, first):
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
        if (told := _TALOS.match(text) or _STEPD.match(text)) is not None:
            node, source = told["node"], "kernel" if "facility" in told.groupdict() else source
            text = text[told.end() :] if "facility" in told.groupdict() else f"slurmstepd: {text[told.end() :]}"
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
