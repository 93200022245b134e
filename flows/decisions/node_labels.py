"""Which labels select exactly one group of nodes: the smallest set of those that last. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from workflows import labels
from workflows.inventory import NodeStock

MAX_LABELS = 3
"""A larger smallest set is not searched for: one that suffices is made smaller step by step instead."""
MAX_TRIED = 60
"""Labels that are combined; the others select no fewer nodes than one of these."""

_RANKS: tuple[tuple[str, int], ...] = (
    (rf"^{re.escape(labels.POOL)}$", 0),
    (r"^(beta\.)?amd\.com/gpu\.product-name$|^nvidia\.com/gpu\.product$", 1),
    (r"nodepool|node-pool|nodegroup|node-group|agentpool|instance-group|^karpenter\.sh/nodepool$", 3),
    (r"^(beta\.)?amd\.com/gpu\.(device-id|family|vram|cu-count)|^nvidia\.com/gpu\.(memory|count|family)$", 4),
    (r"^node\.kubernetes\.io/instance-type$|^beta\.kubernetes\.io/instance-type$", 5),
    (r"^node-role\.kubernetes\.io/", 6),
    (r"^kubernetes\.io/(arch|os)$|^topology\.kubernetes\.io/(zone|region)$", 9),
)
"""What is liked best, the lowest first. A label of a Kueue flavor ranks 2, any other 7."""
_OTHER, _FLAVOR = 7, 2
_PASSING = re.compile(
    r"hostname$|^feature\.node\.kubernetes\.io/|^beta\.kubernetes\.io/(arch|os)$|^failure-domain\."
    r"|driver|firmware|kernel|version|cuda|timestamp|\.deploy\.|upgrade|mig\.|health|verdict|status|state|unhealthy"
    r"|^autopilot\.ibm\.com/|^metricsexporter\.|^(topology|network\.topology|fabric\.topograph|accelerator\.topograph)"
    r"|^cloud\.provider\.com/topology|gce-topology|^oci\.oraclecloud\.com/|clique"
    rf"|^{re.escape(labels.PREFIX)}/(rack|block|spare|run|attempt|role)$|quarantine|cordon|maintenance|(^|[-_./])(id|uid|ip|serial)$",
    re.IGNORECASE,
)
"""Labels of one node, of a place, or of a state: they change while the node stays what it is. What ranks, lasts."""


@dataclass(frozen=True)
class _Candidate:
    rank: int
    key: str
    value: str
    others: int
    """Nodes outside the group that carry it, one bit each."""


class LabelTable:
    """Who carries which label.

    Args:
        nodes: all nodes of the cluster, those that get into no pool too.
        flavor_keys: labels by which Kueue's flavors tell nodes apart.
    """

    def __init__(self, nodes: Sequence[NodeStock], flavor_keys: frozenset[str] = frozenset()) -> None:
        self._flavor_keys = flavor_keys
        self._bit = {node.name: 1 << index for index, node in enumerate(nodes)}
        self._name = {bit: name for name, bit in self._bit.items()}
        self._carriers: dict[tuple[str, str], int] = {}
        for node in nodes:
            for pair in node.labels.items():
                self._carriers[pair] = self._carriers.get(pair, 0) | self._bit[node.name]

    def selector(self, group: Sequence[NodeStock]) -> dict[str, str] | None:
        """The smallest set of lasting labels that all of `group` and nobody else carry; None where there is none."""
        candidates = self._candidates(group)
        if self._left(candidates):
            return None
        tried = _distinct(candidates)[:MAX_TRIED]
        for size in range(1, MAX_LABELS + 1):
            fitting = [found for found in combinations(tried, size) if not self._left(found)]
            if fitting:
                best = min(fitting, key=lambda found: sorted((item.rank, item.key) for item in found))
                return _pairs(best)
        return _pairs(self._shrunk(candidates))

    def lookalikes(self, group: Sequence[NodeStock]) -> frozenset[str]:
        """Names of nodes outside that carry every lasting label that all of `group` carry."""
        left = self._left(self._candidates(group))
        return frozenset(name for bit, name in self._name.items() if bit & left)

    def _candidates(self, group: Sequence[NodeStock]) -> list[_Candidate]:
        first, *rest = group
        own = sum(self._bit[node.name] for node in group)
        common = [pair for pair in first.labels.items() if all(node.labels.get(pair[0]) == pair[1] for node in rest)]
        found = [
            _Candidate(self._rank(key), key, value, self._carriers[key, value] & ~own)
            for key, value in common
            if self._lasts(key)
        ]
        everybody = _Candidate(99, "", "", sum(self._bit.values()) & ~own)
        return sorted(found, key=lambda item: (item.rank, item.key)) or [everybody]

    def _lasts(self, key: str) -> bool:
        return self._rank(key) != _OTHER or not _PASSING.search(key)

    def _rank(self, key: str) -> int:
        listed = next((rank for pattern, rank in _RANKS if re.search(pattern, key)), _OTHER)
        return min(listed, _FLAVOR) if key in self._flavor_keys else listed

    def _left(self, found: Sequence[_Candidate]) -> int:
        left = -1
        for item in found:
            left &= item.others
        return left

    def _shrunk(self, candidates: Sequence[_Candidate]) -> list[_Candidate]:
        kept = list(candidates)
        for item in reversed(candidates):  # the least liked goes first
            fewer = [other for other in kept if other is not item]
            if fewer and not self._left(fewer):
                kept = fewer
        return kept


def _distinct(candidates: Sequence[_Candidate]) -> list[_Candidate]:
    """One label of each set of others, the best liked, those that select the fewest others first."""
    best: dict[int, _Candidate] = {}
    for item in candidates:
        best.setdefault(item.others, item)
    return sorted(best.values(), key=lambda item: (item.others.bit_count(), item.rank, item.key))


def _pairs(found: Sequence[_Candidate]) -> dict[str, str]:
    return {item.key: item.value for item in sorted(found, key=lambda item: (item.rank, item.key)) if item.key}


def carries(node: NodeStock, selector: Mapping[str, str]) -> bool:
    """Whether a node is selected."""
    return selector.items() <= node.labels.items()
