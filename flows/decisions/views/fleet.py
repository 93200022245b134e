"""What each node of a fleet is good for now, and a map of all of them for a terminal. Pure.

The cluster says whether a pod may go to a node; the ledger says what tests found and what was done. Where the cluster
does not answer, only the ledger speaks, and a node that it has no record of is unknown. On the map each symbol means
the same without colour; where it does not fit, groups in which every node is good are given as a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from flows.decisions.node_tests.grading.standing import NodeProof, NodeStanding
from flows.decisions.recovery.nodes import natural
from profiles.vocabulary import VerdictWord
from workflows.model.nodes import Node
from workflows.model.records import NodeRecord, VerdictRecord

GROUPS: Mapping[str, Callable[[FleetNode], str]] = {
    "rack": lambda node: node.rack or node.pool or "no pool known",
    "pool": lambda node: node.pool or "no pool known",
    "verdict": lambda node: str(node.word),
    "state": lambda node: str(node.state),
}
"""What `--by` may name."""
FILTERS: Mapping[str, Callable[[FleetNode], str]] = {**GROUPS, "node": lambda node: node.name}
"""What `--only` may name."""

GOOD, UNTESTED, FAILED = ".", "-", "x"

MEANINGS: Mapping[str, str] = {
    GOOD: "schedulable, passed",
    UNTESTED: "schedulable, verdict unknown",
    FAILED: "schedulable, failed its test",
    "Q": "quarantined",
    "T": "under test",
    "C": "cordoned",
    "t": "tainted",
    "!": "not ready",
    "?": "unknown",
}
LABEL_GAP = 2


class Schedulability(StrEnum):
    """Whether pods may go to a node, and if not, what keeps them away."""

    SCHEDULABLE = "schedulable"
    TESTING = "testing"
    QUARANTINED = "quarantined"
    CORDONED = "cordoned"
    TAINTED = "tainted"
    NOT_READY = "not-ready"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class FleetNode:
    """One node."""

    name: str
    pool: str = ""
    rack: str = ""
    gpus: int | None = None
    state: Schedulability = Schedulability.UNKNOWN
    why: tuple[str, ...] = ()
    """Everything that keeps pods away, the reason for `state` first; empty where nothing does."""
    since: float | None = None
    """When we put it in this state (Unix seconds); None: it was not us."""
    verdict: VerdictRecord | None = None
    """The one that decides: a failure that stands, else the newest; None: it was never tested, which is unknown."""
    proven: NodeStanding | None = None
    """What is to be believed of it now."""
    spare: bool = False

    @property
    def word(self) -> VerdictWord:
        """What holds now: unknown where it was never tested, its pass has run out, or it was taken out after it."""
        if self.proven is None:
            return VerdictWord.UNKNOWN
        out_since = self.since if self.state is Schedulability.QUARANTINED else None
        before = out_since is not None and (self.verdict is None or self.verdict.at <= out_since)
        return VerdictWord.UNKNOWN if before and self.proven.word is VerdictWord.PASS else self.proven.word


@dataclass(frozen=True)
class Remembered:
    """What the ledger knows of a cluster's nodes."""

    states: Mapping[str, NodeRecord] = field(default_factory=dict[str, NodeRecord])
    proofs: Mapping[str, NodeProof] = field(default_factory=dict[str, NodeProof])


@dataclass(frozen=True)
class Pools:
    """What the profile says of its pools, by their names."""

    gpus: Mapping[str, int | None]
    """Of a node; None: neither the cluster nor the hardware profile says."""
    tolerated: Mapping[str, Sequence[str]]
    """Taints as `key=value:Effect` that the pool's pods tolerate."""


def nodes_of_cluster(nodes: Iterable[Node], remembered: Remembered, pools: Pools) -> list[FleetNode]:
    """The nodes that the cluster lists, and those we hold out of service that it no longer has."""
    fleet = [_fleet_node(node, remembered, pools) for node in nodes]
    there = {node.name for node in fleet}
    for name, record in remembered.states.items():
        if name not in there and record.state in ("quarantined", "testing"):
            why = (f"{record.state} by us, and the cluster has no such node", record.told)
            fleet.append(FleetNode(name, record.pool, "", None, Schedulability.UNKNOWN, why, record.since))
    return sorted(fleet, key=lambda node: natural(node.name))


def nodes_of_ledger(remembered: Remembered, pools: Pools) -> list[FleetNode]:
    """The nodes that the ledger knows, while the cluster is away: schedulable is what we last made them."""
    names = sorted({*remembered.states, *remembered.proofs}, key=natural)
    return [_remembered(name, remembered, pools.gpus) for name in names]


def _fleet_node(node: Node, remembered: Remembered, pools: Pools) -> FleetNode:
    record, proof = remembered.states.get(node.name), remembered.proofs.get(node.name)
    reasons = _reasons(node, record, node.taints_against(pools.tolerated.get(node.pool, ())))
    state = reasons[0][0] if reasons else Schedulability.SCHEDULABLE
    ours = record is not None and record.state == state
    return FleetNode(
        name=node.name,
        pool=node.pool,
        rack=node.rack,
        gpus=pools.gpus.get(node.pool),
        state=state,
        why=tuple(why for _, why in reasons),
        since=record.since if ours and record is not None else None,
        verdict=proof.deciding if proof else None,
        proven=proof.standing if proof else None,
        spare=node.spare,
    )


def _reasons(node: Node, record: NodeRecord | None, taints: Sequence[str]) -> list[tuple[Schedulability, str]]:
    """What keeps pods away, the weightiest first."""
    held = record.state if record is not None else ""
    why = record.told if record is not None else ""
    table: tuple[tuple[bool, Schedulability, str], ...] = (
        (held == "quarantined", Schedulability.QUARANTINED, why),
        (held == "testing", Schedulability.TESTING, why),
        (
            node.quarantined and held not in ("quarantined", "testing"),
            Schedulability.QUARANTINED,
            "it carries our taint, but the ledger has no reason for it",
        ),
        (node.ready is False, Schedulability.NOT_READY, "the cluster says that it is not ready"),
        (node.ready is None, Schedulability.UNKNOWN, "silent: the cluster does not know its state"),
        (node.leaving, Schedulability.CORDONED, "it is being deleted"),
        (node.cordoned, Schedulability.CORDONED, "cordoned"),
        (bool(taints), Schedulability.TAINTED, f"tainted: {', '.join(taints)}"),
        (held == "unknown", Schedulability.UNKNOWN, why),
    )
    return [(state, reason) for applies, state, reason in table if applies]


def _remembered(name: str, remembered: Remembered, gpus: Mapping[str, int | None]) -> FleetNode:
    record, proof = remembered.states.get(name), remembered.proofs.get(name)
    verdict, proven = (proof.deciding, proof.standing) if proof else (None, None)
    if record is None:
        why = ("we never took it out of service, and the cluster does not answer",)
        return FleetNode(name, why=why, verdict=verdict, proven=proven)
    state = Schedulability(record.state)
    why = () if state is Schedulability.SCHEDULABLE else (record.told,)
    return FleetNode(name, record.pool, "", gpus.get(record.pool), state, why, record.since, verdict, proven)


def grouped(fleet: Iterable[FleetNode], by: str) -> dict[str, list[FleetNode]]:
    """The nodes by rack, pool, verdict or state; the groups in the order of their names."""
    groups: dict[str, list[FleetNode]] = {}
    for node in fleet:
        groups.setdefault(GROUPS[by](node), []).append(node)
    return {name: groups[name] for name in sorted(groups, key=natural)}


def only(fleet: Iterable[FleetNode], filters: Sequence[tuple[str, tuple[str, ...]]]) -> list[FleetNode]:
    """The nodes for which every filter holds: a field, and patterns of which one must match it."""
    return [
        node
        for node in fleet
        if all(any(fnmatchcase(FILTERS[key](node), one) for one in patterns) for key, patterns in filters)
    ]


def counts(fleet: Iterable[FleetNode]) -> dict[str, dict[str, int]]:
    """How many nodes there are by state and by verdict; every word is there, also where it counts none."""
    states, verdicts = dict.fromkeys(map(str, Schedulability), 0), dict.fromkeys(map(str, VerdictWord), 0)
    for node in fleet:
        states[str(node.state)] += 1
        verdicts[str(node.word)] += 1
    return {"state": states, "verdict": verdicts}


SYMBOLS: Mapping[Schedulability, str] = {
    Schedulability.QUARANTINED: "Q",
    Schedulability.TESTING: "T",
    Schedulability.CORDONED: "C",
    Schedulability.TAINTED: "t",
    Schedulability.NOT_READY: "!",
    Schedulability.UNKNOWN: "?",
}
"""Of nodes that pods do not go to; the others by their verdict."""


@dataclass(frozen=True)
class MapLine:
    """One line: parts of text, of which cells are symbols of nodes and the others words."""

    parts: tuple[tuple[str, bool], ...]
    """Text, and whether it is cells."""

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(text for text, _ in self.parts).rstrip()


@dataclass(frozen=True)
class FleetMap:
    """The map and what it left out."""

    lines: tuple[MapLine, ...]
    folded_groups: int = 0
    folded_nodes: int = 0


def symbol(node: FleetNode) -> str:
    """The cell of a node."""
    if node.state is not Schedulability.SCHEDULABLE:
        return SYMBOLS[node.state]
    return {VerdictWord.PASS: GOOD, VerdictWord.FAIL: FAILED, VerdictWord.UNKNOWN: UNTESTED}[node.word]


def fleet_map(groups: Mapping[str, Sequence[FleetNode]], width: int, height: int) -> FleetMap:
    """The map of `groups` in lines of at most `width` characters.

    `height`: lines that there are for the map; 0: as many as it takes. Where it takes more, groups of which every node
    is good are left out.
    """
    cells = {name: "".join(map(symbol, nodes)) for name, nodes in groups.items()}
    lines = _lines(cells, width)
    if not height or len(lines) <= height:
        return FleetMap(lines)
    drawn = {name: text for name, text in cells.items() if text.strip(GOOD)}
    folded = [text for name, text in cells.items() if name not in drawn]
    return FleetMap(_lines(drawn, width), len(folded), sum(map(len, folded)))


def _lines(cells: Mapping[str, str], width: int) -> tuple[MapLine, ...]:
    """Groups side by side in columns of one width; one that is wider than the screen goes on in the next line."""
    if not cells:
        return ()
    label = max(map(len, cells)) + 1
    widest = max(map(len, cells.values()))
    column = label + min(widest, max(1, width - label))
    across = max(1, (width + LABEL_GAP) // (column + LABEL_GAP))
    blocks = [_block(name, text, label, column - label) for name, text in cells.items()]
    lines: list[MapLine] = []
    for start in range(0, len(blocks), across):
        row = blocks[start : start + across]
        for level in range(max(map(len, row))):
            parts: list[tuple[str, bool]] = []
            for block in row:
                name, text = block[level] if level < len(block) else ("", "")
                gap = " " * (column - label - len(text) + LABEL_GAP)
                parts += [(name.ljust(label), False), (text, True), (gap, False)]
            lines.append(MapLine(tuple(parts)))
    return tuple(lines)


def _block(name: str, text: str, label: int, room: int) -> list[tuple[str, str]]:
    pieces = [text[start : start + room] for start in range(0, len(text), room)]
    return [(name if not index else " " * label, piece) for index, piece in enumerate(pieces)]
