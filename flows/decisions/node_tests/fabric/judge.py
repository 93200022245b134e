"""What the measurements say: findings with their evidence, and the nodes of which they say nothing, and why."""

from __future__ import annotations

from collections.abc import Iterable

from flows.decisions.node_tests.fabric.causes import Causes
from flows.decisions.node_tests.fabric.knowledge import Knowledge, Observation, bits
from flows.decisions.node_tests.fabric.model import Answer, FabricFault, FabricFinding, Measurement, UnknownNode

EVIDENCE_SHOWN = 8
"""Measurements with a finding at most."""


def answer(known: Knowledge, found: Causes) -> Answer:
    """Everything that can be said now; what is open is unknown, never proven."""
    findings = (*_everywhere(known), *_switches(found), *_nodes(found), *_links(found))
    behind = _behind(found)
    blamed = {name for finding in findings if finding.kind is FabricFault.NODE for name in finding.members}
    open_groups = _smallest(seen for seen, _ in found.unexplained)
    unknown = tuple(
        UnknownNode(node.name, why)
        for number, node in enumerate(known.fabric.nodes)
        if node.name not in blamed and (why := _why_unknown(found, number, behind, open_groups))
    )
    silent = {one.node for one in unknown} | blamed
    return Answer(
        findings=findings,
        proven=tuple(node.name for node in known.fabric.nodes if node.name not in silent),
        unknown=unknown,
        unexplained=tuple(seen.source for seen, _ in found.unexplained),
        rounds=known.rounds,
        spent=known.rounds >= known.fabric.rounds,
    )


def _why_unknown(found: Causes, node: int, behind: int, open_groups: list[Observation]) -> str:
    known = found.known
    if behind >> node & 1:
        return "only its switch is known to be bad"
    held = next((seen for seen in open_groups if seen.mask >> node & 1), None)
    if not known.proven >> node & 1:
        answered = any(
            seen.mask >> node & 1 and seen.source.gigabytes_per_second is not None for seen in known.observations
        )
        tested = any(seen.mask >> node & 1 for seen in known.observations)
        if not tested:
            return "no group with it was measured"
        return "never reached its limit, too few proven partners" if answered else "no group with it ever answered"
    if node in found.flaps.doubted:
        return "missed its limit in {} of {} pairs: more than chance, too few to say that it flaps".format(
            *found.flaps.doubted[node]
        )
    if held is not None:
        return f"in a group of {len(held.members)} that misses its limit, and the reason was not found"
    return ""


def _behind(found: Causes) -> int:
    mask = 0
    for name in found.switches:
        mask |= found.known.beneath[name]
    return mask


def _everywhere(known: Knowledge) -> Iterable[FabricFinding]:
    """Rails that were written off: single ones, or all of them."""
    off = ((1 << known.fabric.rails) - 1) & ~known.live
    if not off:
        return
    names = tuple(node.name for node in known.fabric.nodes)
    misses = [seen for seen in known.observations if seen.bad & off]
    rounds = len({seen.at for seen in misses})
    if not known.live:
        why = f"nothing reached its limit on any rail, in {len(misses)} groups of {rounds} rounds"
        yield FabricFinding(FabricFault.FABRIC, names, tuple(bits(off)), 0.95, why, _smallest_misses(misses))
        return
    for rail in bits(off):
        why = f"no group reached its limit on it, {len(misses)} in {rounds} rounds; on other rails they did"
        yield FabricFinding(FabricFault.RAIL, names, (rail,), 0.95, why, _smallest_misses(misses))


def _switches(found: Causes) -> Iterable[FabricFinding]:
    known = found.known
    for name, rails in sorted(found.switches.items()):
        under = known.beneath[name]
        names = tuple(known.fabric.nodes[node].name for node in bits(under))
        misses = [seen for seen in known.observations if seen.bad & rails and seen.mask & under and seen.mask & ~under]
        inside = any(seen.good & rails and not seen.mask & ~under for seen in known.observations)
        among = "they reach it among themselves" if inside else "neither do they among themselves"
        why = f"no node under it reaches its limit outside ({len(misses)} groups); {among}"
        confidence = 0.9 if len(names) > 2 or inside else 0.6
        yield FabricFinding(
            FabricFault.SWITCH, names, tuple(bits(rails)), confidence, why, _smallest_misses(misses), name
        )


def _nodes(found: Causes) -> Iterable[FabricFinding]:
    known = found.known
    for node, rails in sorted(found.nodes.items()):
        switches = known.fabric.nodes[node].switches
        behind = {rail for rail, name in enumerate(switches) if found.switches.get(name, 0) >> rail & 1}
        own = tuple(rail for rail in bits(rails) if rail not in behind)
        if not own:
            continue
        partners: dict[int, list[Observation]] = {
            other: misses
            for other, meetings in known.meetings[node].items()
            if (misses := [seen for seen in meetings if any(seen.bad >> rail & 1 for rail in own)])
        }
        misses = [seen for each in partners.values() for seen in each]
        good = any(seen.good >> own[0] & 1 for each in known.meetings[node].values() for seen in each)
        silent = all(seen.source.gigabytes_per_second is None for seen in misses)
        did = "gave no answer" if silent else "missed its limit"
        why = f"{did} with {len(partners)} partners, each of which reaches its own with others"
        why += "; not always" if good else ""
        name = known.fabric.nodes[node].name
        yield FabricFinding(FabricFault.NODE, (name,), own, _sure(len(partners), good), why, _smallest_misses(misses))


def _links(found: Causes) -> Iterable[FabricFinding]:
    known = found.known
    for (left, right), rails in sorted(found.links.items()):
        meetings = known.meetings[left][right]
        misses = [seen for seen in meetings if seen.bad & rails]
        others = [
            seen
            for end, other in ((left, right), (right, left))
            for partner, each in known.meetings[end].items()
            if partner != other
            for seen in each
            if seen.good & rails
        ]
        good = any(seen.good & rails for seen in meetings)
        why = f"missed its limit {len(misses)} of {len(meetings)} times; both ends reach it with others"
        names = (known.fabric.nodes[left].name, known.fabric.nodes[right].name)
        evidence = _smallest_misses([*misses[: EVIDENCE_SHOWN // 2], *others])
        yield FabricFinding(FabricFault.LINK, names, tuple(bits(rails)), 0.7 if good else 0.9, why, evidence)


def _sure(partners: int, sometimes_good: bool) -> float:
    """Steps, not a formula: 2 partners only in fabrics of three or four nodes; not always bad is weaker."""
    if sometimes_good:
        return 0.7
    return {0: 0.0, 1: 0.0, 2: 0.8}.get(partners, 0.95)


def _smallest_misses(misses: list[Observation]) -> tuple[Measurement, ...]:
    ordered = sorted(misses, key=lambda seen: (len(seen.members), seen.at))[:EVIDENCE_SHOWN]
    return tuple(seen.source for seen in sorted(ordered, key=lambda seen: seen.at))


def _smallest(groups: Iterable[Observation]) -> list[Observation]:
    """Those that hold none of the others."""
    ordered = sorted(groups, key=lambda seen: len(seen.members))
    return [
        seen
        for number, seen in enumerate(ordered)
        if not any(not other.mask & ~seen.mask for other in ordered[:number])
    ]
