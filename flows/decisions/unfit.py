"""What kube-scheduler says when no node fits: its message taken apart. Pure.

Wording of kube-scheduler 1.36 (`FitError.Error` in `pkg/scheduler/framework`, and the plugins' reasons). Older releases
and the embedded cluster name the taint; 1.36 only counts the nodes that carry one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

_HEAD = re.compile(r"\b0/(\d+) nodes are available: ?")
_TAIL = re.compile(r"\.? ?(?:no new claims to deallocate, )?preemption: .*$", re.DOTALL)
_ENTRY = re.compile(r"(?:^|, )(\d+) (.+?)(?=, \d+ |$)", re.DOTALL)
_LACKING = re.compile(r"Insufficient (\S+)$")
_TAINT = re.compile(r"node\(s\) had (?:untolerated taint|taint) \{([^:}]+):? ?([^}]*)\}")
_ANY_TAINT = re.compile(r"untolerated taint\(s\)|taints that the pod didn't tolerate")
_NEIGHBOURS = re.compile(r"pod (?:anti-)?affinity rules|existing pods anti-affinity|topology spread|pod group")
_VOLUMES = re.compile(
    r"persistent ?volumes?|PersistentVolume|volume (?:count|zone|node affinity)|free storage|available disk|pvc", re.I
)
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True)
class Unfit:
    """Why no node takes a pod; nodes counted by the first filter that refused each (one may lack several resources)."""

    nodes: int = 0
    """Nodes that there are."""
    lacking: dict[str, int] = field(default_factory=dict[str, int])
    """Resource -> nodes that have too little of it free, and are right otherwise."""
    taints: dict[str, int] = field(default_factory=dict[str, int])
    """Taint as `key` or `key=value` -> nodes; "" where the scheduler does not name it."""
    not_ready: int = 0
    cordoned: int = 0
    selector: int = 0
    """Nodes of other kinds: selector or affinity does not match."""
    neighbours: int = 0
    volumes: int = 0
    other: dict[str, int] = field(default_factory=dict[str, int])
    problem: str = ""
    """What is wrong with the pod itself, before any node was looked at."""

    @property
    def right(self) -> int:
        """Nodes that lack nothing but room."""
        return max(self.lacking.values(), default=0)


def read_unfit(message: str) -> Unfit | None:
    """The message of condition PodScheduled=False or event FailedScheduling; None where it is no such message."""
    head = _HEAD.search(message)
    if head is None:
        return None
    rest = _TAIL.sub("", message[head.end() :]).strip()
    nodes = int(head.group(1))
    entries = [(int(count), text.strip()) for count, text in _ENTRY.findall(rest.rstrip("."))]
    if not entries:
        return Unfit(nodes, problem=rest.rstrip("."))
    tally = _Tally()
    for count, text in entries:
        tally.add(count, text)
    return tally.unfit(nodes)


class _Tally:
    """Counts of nodes by what refused them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lacking: dict[str, int] = {}
        self._taints: dict[str, int] = {}
        self._other: dict[str, int] = {}

    def add(self, count: int, text: str) -> None:
        """One entry of the message."""
        found, taint = _LACKING.search(text), _TAINT.search(text)
        if found or text == "Too many pods":
            self._lacking[found.group(1) if found else "pods"] = count
        elif taint and taint.group(1) not in _NOT_READY:
            key = "=".join(part.strip() for part in taint.groups() if part.strip())
            self._taints[key] = self._taints.get(key, 0) + count
        elif word := _plain(text):
            self._counts[word] = self._counts.get(word, 0) + count
        else:
            self._other[text] = count

    def unfit(self, nodes: int) -> Unfit:
        """What was counted."""
        if unnamed := self._counts.pop("taint", 0):
            self._taints[""] = unnamed
        count = self._counts.get
        return Unfit(
            nodes=nodes,
            lacking=self._lacking,
            taints=self._taints,
            not_ready=count("not_ready", 0),
            cordoned=count("cordoned", 0),
            selector=count("selector", 0),
            neighbours=count("neighbours", 0),
            volumes=count("volumes", 0),
            other=self._other,
        )


def _plain(text: str) -> str:
    """Field of `Unfit` (or `taint`) that counts a reason; "" for none of them."""
    return next((word for word, applies in _PLAIN if applies(text)), "")


_PLAIN: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("not_ready", lambda text: any(taint in text for taint in _NOT_READY)),
    ("taint", lambda text: bool(_ANY_TAINT.search(text))),
    ("cordoned", lambda text: "were unschedulable" in text),
    ("selector", lambda text: "node affinity/selector" in text or "the requested node name" in text),
    ("neighbours", lambda text: bool(_NEIGHBOURS.search(text))),
    ("volumes", lambda text: bool(_VOLUMES.search(text))),
)
