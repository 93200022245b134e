"""Our marks on nodes: the taint and verdict of the brake, what tests say (label, annotations, condition).

Each patch is meant for the node as it was seen, and safe to repeat. A node's taints are one list, and the node
controller writes it too: after a change in between the node is read again. Releasing takes back what we set, nothing
else. Tests never set taints; they take away the one with which a node joined. Their condition is a second patch, since
Kubernetes keeps a node's status apart: a process that is killed in between has updated the labels, and the next verdict
brings the condition.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from types import TracebackType

from profiles.errors import Conflict, NotFound, PrimusError, Unavailable
from profiles.vocabulary import VerdictWord
from tasks.cluster import Cluster, Manifest, current
from workflows import labels
from workflows.model.nodes import Node, NodeFinding, joins, taint_manifest, without_startup_taint

TAINT_TRIES = 8
"""Writers of one node's taints are few: the node controller, a cloud's own, people."""
LANES = 8
"""Patches under way at once: no more than the client keeps connections, and what an API server takes without queueing
others behind us."""
TAINT_VALUE_CHARACTERS = 63
EVIDENCE_CHARACTERS = 1024
"""Far below the 4 KiB that the annotation may have."""

STATUS = {VerdictWord.PASS: "True", VerdictWord.FAIL: "False", VerdictWord.UNKNOWN: "Unknown"}
REASON = {VerdictWord.PASS: "TestsPassed", VerdictWord.FAIL: "TestFailed", VerdictWord.UNKNOWN: "NotProven"}


@dataclass(frozen=True)
class Mark:
    """What is to stand on a node; the default: nothing of ours."""

    verdict: VerdictWord | None = None
    taint_value: str = ""
    """Of our quarantine taint; "": the taint is taken away."""
    evidence: str = ""
    """JSON; "": the annotation is taken away."""
    at: str = ""
    why: str = ""
    """For people; it is not written."""

    def patch(self, taints: Sequence[Manifest], version: str) -> Manifest:
        """The merge patch for a node with these taints and this version."""
        kept = [item for item in taints if item["key"] != labels.QUARANTINE_TAINT]
        ours = [{"key": labels.QUARANTINE_TAINT, "value": self.taint_value, "effect": "NoSchedule"}]
        return {
            "metadata": {
                "resourceVersion": version,
                "labels": {labels.VERDICT: None if self.verdict is None else str(self.verdict)},
                "annotations": {labels.VERDICT_EVIDENCE: self.evidence or None, labels.VERDICT_AT: self.at or None},
            },
            "spec": {"taints": [*kept, *(ours if self.taint_value else [])]},
        }


def mark_of(finding: NodeFinding, now: float) -> Mark:
    """The mark for a fault that a node's condition shows."""
    evidence = {"check": finding.condition, "verdict": str(finding.verdict), "class": str(finding.fault_class)}
    text = json.dumps({**evidence, "evidence": finding.why[:EVIDENCE_CHARACTERS]})
    at = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Mark(finding.verdict, str(finding.fault_class)[:TAINT_VALUE_CHARACTERS], text, at, finding.why)


def set_mark(cluster: Cluster, node: str, mark: Mark, seen: Node | None = None) -> bool:
    """Set the mark; False where there is no such node.

    `seen` is the node as it was seen last, which saves reading it first.

    Raises:
        Unavailable: somebody changes the node all the time, or no answer.
        Refused: we may not.
    """
    known = None
    if seen is not None:
        taints = [taint_manifest(item) for item in seen.taints]
        known = {"metadata": {"resourceVersion": seen.version}, "spec": {"taints": taints}}

    def change(found: Manifest) -> Manifest:
        return mark.patch(found.get("spec", {}).get("taints") or [], str(found["metadata"]["resourceVersion"]))

    return change_node(cluster, node, change, known)


def change_node(
    cluster: Cluster, node: str, change: Callable[[Manifest], Manifest | None], known: Manifest | None = None
) -> bool:
    """Patch a node by what it is now; False where there is no such node.

    Args:
        cluster: where.
        node: its name.
        change: from the object to the merge patch, with the version of the object in it: where somebody else was
            quicker it is asked again. None: there is nothing to do.
        known: the object as it was seen last; None: it is read.

    Raises:
        Unavailable: somebody changes the node all the time, or no answer.
        Refused: we may not.
    """
    for _ in range(TAINT_TRIES):
        found = known or cluster.get("Node", node)
        if found is None:
            return False
        patch = change(found)
        if patch is None:
            return True
        try:
            cluster.patch("Node", node, patch)
        except NotFound:
            return False
        except Conflict:
            known = None
            continue
        return True
    raise Unavailable(f"{node} is changed by somebody else all the time; its taints are written once it rests")


@dataclass(frozen=True)
class Order:
    """One mark that is to be set."""

    key: str
    """Of the finding."""
    node: str
    mark: Mark
    seen: Node | None = None


@dataclass(frozen=True)
class Marked:
    """What became of an order."""

    order: Order
    there: bool = True
    """False: the node no longer exists."""
    error: PrimusError | None = None


@dataclass
class Marker:
    """Sets marks in the background, several at once. Use it in a `with` block, which waits for what is under way.

    Up to `lanes` at once; `wake` is called whenever one has come to an end.
    """

    cluster: Cluster
    lanes: int = LANES
    wake: Callable[[], None] = lambda: None
    _under_way: dict[str, Future[None]] = field(default_factory=dict[str, "Future[None]"])
    _done: SimpleQueue[Marked] = field(default_factory=SimpleQueue["Marked"])

    def __enter__(self) -> Marker:
        self._pool = ThreadPoolExecutor(self.lanes, thread_name_prefix="mark")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=True, cancel_futures=error is not None)

    def submit(self, order: Order) -> None:
        """Set it soon; an order for the same finding that is under way already is not given twice."""
        if order.key not in self._under_way:
            self._under_way[order.key] = self._pool.submit(self._set, order)

    def finished(self) -> list[Marked]:
        """What has come to an end since the last call."""
        found: list[Marked] = []
        while True:
            try:
                found.append(self._done.get_nowait())
            except Empty:
                break
        for item in found:
            self._under_way.pop(item.order.key, None)
        return found

    def wait(self) -> list[Marked]:
        """Everything that was submitted, once it has come to an end."""
        for future in list(self._under_way.values()):
            future.result()
        return self.finished()

    def is_under_way(self, key: str) -> bool:
        """Whether the mark for this finding is being set."""
        return key in self._under_way

    @property
    def under_way(self) -> int:
        """How many are."""
        return len(self._under_way)

    def _set(self, order: Order) -> None:
        try:
            self._done.put(Marked(order, set_mark(self.cluster, order.node, order.mark, order.seen)))
        except PrimusError as error:
            self._done.put(Marked(order, error=error))
        self.wake()


@dataclass(frozen=True)
class VerdictMark:
    """What is to be written on one node."""

    node: str
    word: VerdictWord
    depth: str
    why: str
    """One sentence."""
    at: float
    """Unix seconds."""
    check: str = ""
    """The check that decides; "": all of them do."""

    @property
    def evidence(self) -> str:
        """The annotation's JSON, under 4 KiB."""
        said = {"verdict": str(self.word), "depth": self.depth, "check": self.check}
        return json.dumps({**said, "evidence": self.why[:EVIDENCE_CHARACTERS]})


def tell_nodes(told: Sequence[VerdictMark], failed: Callable[[str, str], None]) -> None:
    """Write them, several at once; a node that is gone is left out.

    `failed` gets a node and why it could not be written; the ledger has it, and the next test writes it again.
    """
    cluster = current()  # before threads: the current one is this context's

    def one(item: VerdictMark) -> None:
        try:
            tell_node(cluster, item)
        except PrimusError as error:
            failed(item.node, str(error) or type(error).__name__)

    with ThreadPoolExecutor(LANES, thread_name_prefix="verdict") as lanes:
        list(lanes.map(one, told))


def tell_node(cluster: Cluster, told: VerdictMark) -> bool:
    """Write one; False where there is no such node.

    Raises:
        Unavailable, Refused.
    """

    def mark(found: Manifest) -> Manifest:
        notes = {labels.VERDICT_EVIDENCE: told.evidence, labels.VERDICT_AT: _time(told.at)}
        return {"metadata": {"labels": {labels.VERDICT: str(told.word)}, "annotations": notes}}

    def condition(found: Manifest) -> Manifest | None:
        return _with_condition(found, told)

    return change_node(cluster, told.node, mark) and change_node(cluster, told.node, condition)


def admit_nodes(nodes: Mapping[str, Callable[[Manifest], str]]) -> dict[str, str]:
    """Take the start-up taint from nodes, several at once; those that keep it, and why.

    `nodes`: name -> why a node, as its object is now, keeps it; "" where it loses it. It is asked again where somebody
    else was quicker to change the node. Taints of others stay, and a node without ours is left alone.
    """
    cluster = current()  # before threads: the current one is this context's

    def one(node: str) -> str:
        try:
            return _admit(cluster, node, nodes[node])
        except PrimusError as error:
            return str(error) or type(error).__name__

    with ThreadPoolExecutor(LANES, thread_name_prefix="admit") as lanes:
        said = dict(zip(nodes, lanes.map(one, nodes), strict=True))
    return {node: why for node, why in said.items() if why}


def _admit(cluster: Cluster, node: str, why_it_stays: Callable[[Manifest], str]) -> str:
    """Why the node keeps the taint; "" where it has lost it, or never had it."""
    said = [""]

    def change(found: Manifest) -> Manifest | None:
        taints: list[Manifest] = found.get("spec", {}).get("taints") or []
        said[0] = why_it_stays(found) if joins(found) else ""
        if said[0] or not joins(found):
            return None
        version = str(found["metadata"]["resourceVersion"])
        return {"metadata": {"resourceVersion": version}, "spec": {"taints": without_startup_taint(taints)}}

    return said[0] if change_node(cluster, node, change) else "the node no longer exists"


def forget_verdict(cluster: Cluster, node: str) -> bool:
    """Take our condition away again; False where there is no such node.

    Raises:
        Unavailable, Refused.
    """
    return change_node(cluster, node, lambda found: _with_condition(found, None))


def _with_condition(found: Manifest, told: VerdictMark | None) -> Manifest | None:
    """The patch that sets our condition among the others, or takes it away; None: it is away already."""
    listed: list[Manifest] = found.get("status", {}).get("conditions") or []
    others = [item for item in listed if item.get("type") != labels.VERDICT_CONDITION]
    before = next((item for item in listed if item.get("type") == labels.VERDICT_CONDITION), None)
    if told is None and before is None:
        return None
    ours = [_condition(told, before)] if told is not None else []
    version = str(found["metadata"]["resourceVersion"])
    return {"metadata": {"resourceVersion": version}, "status": {"conditions": [*others, *ours]}}


def _condition(told: VerdictMark, before: Manifest | None) -> Manifest:
    at = _time(told.at)
    same = before is not None and before.get("status") == STATUS[told.word]
    return {
        "type": labels.VERDICT_CONDITION,
        "status": STATUS[told.word],
        "reason": REASON[told.word],
        "message": f"{told.depth}: {told.why}"[:EVIDENCE_CHARACTERS],
        "lastHeartbeatTime": at,
        "lastTransitionTime": str(before.get("lastTransitionTime", at)) if before is not None and same else at,
    }


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
