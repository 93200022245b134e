"""Nodes on which tests say what a script says: the seam to their objects, and what stands for measuring them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any

from flows.decisions.node_tests.grading.model import NodeGrade
from flows.testing.nodes import Outcome
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, NotFound
from profiles.vocabulary import VerdictWord
from tasks.cluster import Manifest, Seen
from tasks.context import world
from tasks.node_tests.preflight import keep_verdicts
from workflows import labels
from workflows.model.records import VerdictRecord

OURS = {"key": labels.STARTUP_TAINT, "effect": "NoSchedule"}
TEAMS = {"key": "team", "value": "a", "effect": "NoSchedule"}


class MadeNodes:
    """The seam to nodes that are kept here: a patch is refused where somebody else was quicker."""

    def __init__(self, touched: Callable[[], None] = lambda: None) -> None:
        self.nodes: dict[str, Manifest] = {}
        self.touched = touched
        self._numbers = count(1)

    def make(self, name: str, pool: str, *taints: Manifest, at: float, offers: Mapping[str, str] | None = None) -> None:
        """A node that was made at that time, perhaps in place of another one of its name; `offers`: allocatable."""
        created = datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.nodes[name] = {
            "metadata": {
                "name": name,
                "uid": f"u{next(self._numbers)}",
                "resourceVersion": str(next(self._numbers)),
                "creationTimestamp": created,
                "labels": {labels.POOL: pool},
            },
            "spec": {"taints": list(taints)},
            "status": {
                "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
                "allocatable": dict(offers or {}),
            },
        }

    def taint(self, name: str, *taints: Manifest) -> None:
        """The taints of a node, set by somebody else."""
        self.nodes[name]["spec"]["taints"] = list(taints)
        self.nodes[name]["metadata"]["resourceVersion"] = str(next(self._numbers))

    def keys(self, name: str) -> set[str]:
        """Last words of the keys of its taints."""
        return {taint["key"].rpartition("/")[2] for taint in self.nodes[name]["spec"]["taints"]}

    def get(self, kind: str, name: str) -> Manifest | None:
        self.touched()
        return _copy(self.nodes[name]) if kind == "Node" and name in self.nodes else None

    def watch(self, kind: str, labels: Mapping[str, str] | None = None, **rest: Any) -> Iterator[Seen]:
        self.touched()
        for node in list(self.nodes.values()) if kind == "Node" else []:
            yield Seen("ADDED", _copy(node), node["metadata"]["resourceVersion"])

    def patch(self, kind: str, name: str, patch: Manifest) -> Manifest:
        self.touched()
        node = self.nodes.get(name)
        if node is None:
            raise NotFound(f"{kind} {name}")
        version = patch.get("metadata", {}).get("resourceVersion")
        if version not in (None, node["metadata"]["resourceVersion"]):
            raise Conflict(f"{name} was changed")
        _merge(node, {key: value for key, value in patch.items() if key != "metadata"})
        _merge(node["metadata"], {k: v for k, v in patch.get("metadata", {}).items() if k != "resourceVersion"})
        node["metadata"]["resourceVersion"] = str(next(self._numbers))
        return _copy(node)


def _merge(found: Manifest, patch: Manifest) -> None:
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict) and isinstance(found.get(key), dict):
            _merge(found[key], value)
        else:
            found[key] = value


def _copy(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _copy(value) for key, value in found.items()}
    return [_copy(one) for one in found] if isinstance(found, list) else found


class Script:
    """What tests say: (node, depth) -> word; whoever is not named passes. Stands for `try_nodes`."""

    def __init__(self, words: Mapping[tuple[str, str], VerdictWord] | None = None) -> None:
        self.words = dict(words or {})
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.amid: Callable[[str], None] = lambda depth: None
        """Called after nodes were measured and before it is written down."""

    def __call__(
        self,
        profile: ClusterProfile,
        suite: SuiteProfile,
        depth: str,
        pools: Mapping[str, str],
        tell: object,
        launcher: object = None,
        away: Mapping[str, str] | None = None,
    ) -> Outcome:
        self.asked.append((depth, tuple(pools)))
        absent, at = away or {}, world().now()
        told = {node: self.words.get((node, depth), VerdictWord.PASS) for node in pools}
        told |= dict.fromkeys(absent, VerdictWord.UNKNOWN)
        self.amid(depth)
        check = {"check": f"copy-{depth}", "evidence": "as the script says"}
        reasons = {node: ({**check, "verdict": str(word)},) for node, word in told.items()}
        keep_verdicts(
            [VerdictRecord(profile.name, node, word, depth, at, reasons[node]) for node, word in told.items()]
        )
        grades = {node: NodeGrade(node, word, reasons[node]) for node, word in told.items()}
        return Outcome(suite.name, depth, grades, 0.0, 1)
