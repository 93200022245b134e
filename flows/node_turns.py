"""The node watch's loop, one turn at a time: what changed, what is due, and everything again now and then."""

from __future__ import annotations

from dataclasses import dataclass, field

from flows.decisions.node_conditions import held
from flows.node_sentinel import BATCH, Line, Sentinel
from profiles.errors import Transient
from profiles.vocabulary import VerdictWord
from tasks.node_marks import Marked
from tasks.node_watch import NodeWatch
from tasks.world import world
from workflows.node_sight import NodeFinding, NodeSeen

RECONCILE_SECONDS = 30.0
"""Everything is looked at again so often: the second path to each reaction."""
AGAIN = 64
"""Nodes that are looked at again in one turn: what changes meanwhile waits for no more than those."""
FINISH_SECONDS = 0.25
"""What was carried out is written down together after so long: a bad node does not wait for the book-keeping of others.
Whoever is killed in between does the same patches once more."""


@dataclass
class Turns:
    """The loop's state between two turns."""

    sentinel: Sentinel
    watch: NodeWatch
    due: dict[str, float] = field(default_factory=dict[str, float])
    """Nodes whose bad condition has not stood long enough, and when it will have."""
    again: list[str] = field(default_factory=list[str])
    """Names of the nodes of the present reconciliation that are still to be looked at."""
    reconciled_at: float | None = None
    ended: list[Marked] = field(default_factory=list[Marked])
    """Orders that came to an end, and are not written down yet."""
    finish_at: float = 0.0
    """When they will be."""
    trouble: str = ""
    """Who did not answer, as it was told last."""
    swept: list[NodeFinding] = field(default_factory=list[NodeFinding])
    """What sweeps found and was not settled yet."""

    def take(self) -> float:
        """One turn; for how many seconds there is nothing to do unless the bell rings.

        Raises:
            Fenced: another monitor has taken over.
        """
        nodes: list[NodeSeen] = []
        try:
            self._reconcile()
            nodes = self._next()
            self._look_at(nodes)
            self._settle_swept()
            self._finish(FINISH_SECONDS)
        except Transient as error:
            self.watch.look_again([node.name for node in nodes])
            self._troubled(str(error))
            return error.retry_after_seconds
        away = self.watch.away
        self._troubled(away[1] if away else "")
        return self._rest()

    def end(self) -> None:
        """Wait for what is under way, and write it down.

        Raises:
            Fenced, Unavailable.
        """
        self.ended += self.sentinel.marker.wait()
        self._finish(0.0)

    def _finish(self, within_seconds: float) -> None:
        now, fresh = world().now(), self.sentinel.marker.finished()
        if fresh and not self.ended:
            self.finish_at = now + within_seconds
        self.ended += fresh
        if self.ended and (now >= self.finish_at or not within_seconds):
            self.sentinel.told(self.ended)
            self.ended = []

    def _reconcile(self) -> None:
        now = world().now()
        if self.reconciled_at is not None and now < self.reconciled_at + RECONCILE_SECONDS:
            return
        self._finish(0.0)  # what is done is not left over
        self.sentinel.left_overs()
        self.again, self.reconciled_at = self.watch.names(), now

    def _next(self) -> list[NodeSeen]:
        """What changed, what is due, and some of those that are looked at again; each node once."""
        found = {node.name: node for node in self.watch.changed(BATCH)}
        now = world().now()
        for name in [name for name, at in self.due.items() if at <= now][:BATCH]:
            del self.due[name]
            if (node := self.watch.node(name)) is not None:
                found[name] = node
        some, self.again = self.again[:AGAIN], self.again[AGAIN:]
        for name in some:
            if name not in found and (node := self.watch.node(name)) is not None:
                found[name] = node
        return list(found.values())

    def _look_at(self, nodes: list[NodeSeen]) -> None:
        faults: list[NodeFinding] = []
        for node in nodes:
            finding = self.sentinel.found(node, self.watch)
            self.due.pop(node.name, None)
            if finding is None:
                continue
            if finding.verdict is VerdictWord.FAIL:
                faults.append(finding)
            elif finding.due_at is not None:
                self.due[node.name] = finding.due_at
        self.sentinel.settle(faults, self.watch.node)

    def _settle_swept(self) -> None:
        """What sweeps found, but for nodes that somebody holds already."""
        seen = [(finding, self.watch.node(finding.node)) for finding in self.swept]
        self.sentinel.settle([finding for finding, node in seen if node and not held(node)], self.watch.node)
        self.swept = []

    def _rest(self) -> float:
        """Seconds until the next thing is due: none while nodes are left to be looked at."""
        if self.again or self.watch.has_changed:
            return 0.0
        now = world().now()
        next_pass = (self.reconciled_at or now) + RECONCILE_SECONDS
        finish = [self.finish_at] if self.ended else []
        return max(0.0, min([next_pass, *finish, *self.due.values()]) - now)

    def _troubled(self, why: str) -> None:
        """Tell once that somebody does not answer, and once that everybody does again."""
        if why and not self.trouble:
            self.sentinel.tell(Line(world().now(), "away", "", f"{why}; nothing is done meanwhile"))
        elif self.trouble and not why:
            self.sentinel.tell(Line(world().now(), "back", "", "everything answers again"))
        self.trouble = why
