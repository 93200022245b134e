"""Which nodes the next attempt runs on: healthy and free ones, in place where possible, spares for replacements."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from flows.decisions.text import first_names
from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from workflows.model.fleet import NodeCandidate

NOT_PROVEN = "not proven: "
"""Beginning of the reason why a node is not used of which too little is known."""
NAMES = 8
"""Nodes that a reason names; the attempt's record has all of them."""


@dataclass(frozen=True)
class NodeNeed:
    """What is wanted."""

    count: int
    keep: tuple[str, ...] = ()
    """Nodes of the attempt before, in the order of their ranks; empty: the first attempt."""
    avoid: tuple[str, ...] = ()
    """Not to be used, whatever they look like."""
    level: Literal["none", "rack", "block"] = "none"
    """Keep the gang within one such domain."""
    required: bool = False
    use_spares: bool = True
    """Replacements come from the spares first; without `keep`, spares are left for later."""


@dataclass(frozen=True)
class NodeChoice:
    """What was chosen."""

    nodes: tuple[str, ...]
    """In the order of ranks; empty where `missing` is not 0."""
    missing: int
    """So many nodes are lacking."""
    refused: tuple[tuple[str, str], ...]
    """(node, why it is not used)."""
    why: str


def need_of(resolved: Resolved, keep: tuple[str, ...], avoid: tuple[str, ...] = ()) -> NodeNeed:
    """What the next attempt of a run needs. `keep`: nodes of the attempt before, in the order of their ranks."""
    run = resolved.run
    return NodeNeed(
        count=run.deciding_role.replicas,
        keep=keep,
        avoid=avoid,
        level=run.topology.level,
        required=run.topology.required,
        use_spares=run.recovery.use_spares,
    )


def choose_nodes(candidates: Sequence[NodeCandidate], need: NodeNeed) -> NodeChoice:
    """Nodes for the next attempt. Deterministic: the order of `candidates` does not matter."""
    pool = sorted(candidates, key=lambda node: natural(node.name))
    avoid = frozenset(need.avoid)
    reasons = {node.name: refusal(node, avoid) for node in pool}
    usable = [node for node in pool if not reasons[node.name]]
    refused = tuple((name, why) for name, why in reasons.items() if why)
    domain, inside = _domain(usable, need)
    if len(inside) < need.count:
        return _too_few(inside, refused, need, domain)
    chosen = _in_place(inside, need)
    return NodeChoice(chosen, 0, refused, _why(chosen, inside, need, domain))


def refusal(node: NodeCandidate, avoid: Set[str] = frozenset()) -> str:
    """Why a node cannot be used now; "" where it can. An unknown verdict is left to the attempt's own gate.

    `avoid`: names of nodes that must not be used, whatever they look like.
    """
    if node.name in avoid:
        return "excluded by the last decision"
    return next((why(node) for applies, why in REFUSALS if applies(node)), "")


REFUSALS: tuple[tuple[Callable[[NodeCandidate], bool], Callable[[NodeCandidate], str]], ...] = (
    (lambda node: bool(node.quarantined), lambda node: f"quarantined: {node.quarantined}"),
    (lambda node: node.ready is False, lambda _: "not ready"),
    (lambda node: node.ready is None, lambda _: "silent: the cluster does not know its state"),
    (lambda node: node.cordoned, lambda _: "cordoned"),
    (
        lambda node: node.verdict is VerdictWord.FAIL,
        lambda node: f"failed its test: {node.verdict_why}".rstrip(": "),
    ),
    (lambda node: bool(node.unproven), lambda node: f"{NOT_PROVEN}{node.unproven}"),
    (lambda node: bool(node.taints), lambda node: f"tainted: {', '.join(node.taints)}"),
    (lambda node: bool(node.busy), lambda node: f"used by {node.busy}"),
)
"""The first reason that applies is given."""


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key: `node-2` before `node-10`."""
    return tuple(
        (1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"(\d{1,18})", name) if part
    )


def _domain(usable: list[NodeCandidate], need: NodeNeed) -> tuple[str, list[NodeCandidate]]:
    """The nodes to choose from: one domain where the wish can be met, else all (or the fullest one, where required)."""
    if need.level == "none":
        return "", usable
    groups: dict[str, list[NodeCandidate]] = {}
    for node in usable:
        domain = {"rack": f"{node.block}/{node.rack}", "block": node.block}.get(need.level, "")
        groups.setdefault(domain, []).append(node)
    keep = set(need.keep)

    def merit(name: str) -> tuple[bool, int, int, tuple[tuple[int, int, str], ...]]:
        group = groups[name]
        fits = len(group) >= need.count
        return (not fits, -sum(node.name in keep for node in group), len(group) if fits else -len(group), natural(name))

    best = min(groups, key=merit, default="")
    if not groups or len(groups[best]) >= need.count or need.required:
        return best, groups.get(best, [])
    order = sorted(groups, key=merit)
    return "", [node for name in order for node in groups[name]]


def _in_place(inside: list[NodeCandidate], need: NodeNeed) -> tuple[str, ...]:
    """Kept nodes stay at their index; holes are filled, spares first for replacements and last for a first attempt."""
    names = {node.name for node in inside}
    kept = [name if name in names else "" for name in need.keep[: need.count]]
    kept += [""] * (need.count - len(kept))
    spares_first = bool(need.keep) and need.use_spares
    taken = set(kept)
    rest = [node for node in inside if node.name not in taken]
    fresh = iter(sorted(rest, key=lambda node: node.spare != spares_first))
    return tuple(name or next(fresh).name for name in kept)


def _why(chosen: tuple[str, ...], inside: list[NodeCandidate], need: NodeNeed, domain: str) -> str:
    before = set(need.keep)
    kept = [name for name in chosen if name in before]
    replacements = set(chosen) - before
    spares = [node.name for node in inside if node.spare and node.name in replacements]
    from_spares = set(spares)
    fresh = [name for name in chosen if name in replacements and name not in from_spares]
    parts = [
        f"keeps {first_names(kept, NAMES)}" if kept else "",
        f"takes {first_names(fresh, NAMES)}" if fresh else "",
        f"takes spare {first_names(spares, NAMES)}" if spares else "",
        f"within {need.level} {domain}" if domain else "",
    ]
    if need.level != "none" and not domain:
        parts.append(f"no single {need.level} has room for {need.count}")
    return "; ".join(part for part in parts if part)


def _too_few(
    inside: list[NodeCandidate], refused: tuple[tuple[str, str], ...], need: NodeNeed, domain: str
) -> NodeChoice:
    missing = need.count - len(inside)
    where = f" within {need.level} {domain}" if domain and need.required else ""
    reasons = "; ".join(f"{name}: {why}" for name, why in refused[:NAMES])
    more = f"; and {len(refused) - NAMES} more" if len(refused) > NAMES else ""
    why = f"{len(inside)} of {need.count} nodes are usable{where}"
    return NodeChoice((), missing, refused, f"{why} ({reasons}{more})" if reasons else why)


__all__ = ["NodeCandidate", "NodeChoice", "NodeNeed", "choose_nodes", "natural", "refusal"]
