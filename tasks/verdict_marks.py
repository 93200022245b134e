"""What tests say of a node, written on the node: label, annotations and condition. Taints are the brake's.

The condition is a second patch, since Kubernetes keeps a node's status apart: whoever is killed in between has told it
to those who read labels, and the next verdict tells the rest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

from profiles.errors import PrimusError
from profiles.vocabulary import VerdictWord
from tasks.cluster import Cluster, Manifest, current
from tasks.node_marks import EVIDENCE_CHARACTERS, LANES, change_node
from workflows import labels

STATUS = {VerdictWord.PASS: "True", VerdictWord.FAIL: "False", VerdictWord.UNKNOWN: "Unknown"}
REASON = {VerdictWord.PASS: "TestsPassed", VerdictWord.FAIL: "TestFailed", VerdictWord.UNKNOWN: "NotProven"}


@dataclass(frozen=True)
class Told:
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


def tell_nodes(told: Sequence[Told], failed: Callable[[str, str], None]) -> None:
    """Write them, several at once; a node that is gone is left out.

    Args:
        told: one a node.
        failed: gets a node and why it could not be written; the ledger has it, and the next test writes it again.
    """
    cluster = current()  # before threads: the current one is this context's

    def one(item: Told) -> None:
        try:
            tell_node(cluster, item)
        except PrimusError as error:
            failed(item.node, str(error) or type(error).__name__)

    with ThreadPoolExecutor(LANES, thread_name_prefix="verdict") as lanes:
        list(lanes.map(one, told))


def tell_node(cluster: Cluster, told: Told) -> bool:
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


def forget_verdict(cluster: Cluster, node: str) -> bool:
    """Take our condition away again; False where there is no such node.

    Raises:
        Unavailable, Refused.
    """
    return change_node(cluster, node, lambda found: _with_condition(found, None))


def _with_condition(found: Manifest, told: Told | None) -> Manifest | None:
    """The patch that sets our condition among the others, or takes it away; None: it is away already."""
    listed: list[Manifest] = found.get("status", {}).get("conditions") or []
    others = [item for item in listed if item.get("type") != labels.VERDICT_CONDITION]
    before = next((item for item in listed if item.get("type") == labels.VERDICT_CONDITION), None)
    if told is None and before is None:
        return None
    ours = [_condition(told, before)] if told is not None else []
    version = str(found["metadata"]["resourceVersion"])
    return {"metadata": {"resourceVersion": version}, "status": {"conditions": [*others, *ours]}}


def _condition(told: Told, before: Manifest | None) -> Manifest:
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
