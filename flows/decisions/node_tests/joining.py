"""Which nodes lose the start-up taint with which they joined: those that passed all that admission asks for. Pure.

What counts are the tests of one preflight, by the cluster's own suite: a pass of another day may be of another state of
the machine, or of another machine of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flows.decisions.node_tests.grading.model import Depth
from flows.decisions.node_tests.grading.standing import NodeStanding
from profiles.admission import Admission
from profiles.checks.catalogue import DEPTHS
from profiles.checks.catalogue import Depth as DepthName
from profiles.hardware import HardwareProfile
from profiles.vocabulary import VerdictWord
from workflows.model.manifest import Json, part, seconds
from workflows.model.nodes import fit, identity_of

SMOKE: DepthName = "smoke"


def depths_to_join(admission: Admission) -> tuple[DepthName, ...]:
    """What a node that joins must pass, the shallowest first: smoke, and what the profile wants of such a node."""
    wanted = {SMOKE, *admission.depths.join}
    found: list[DepthName] = [depth for depth in DEPTHS if depth in wanted]
    return tuple(found)


@dataclass(frozen=True)
class Joiner:
    """A node that carried the start-up taint when its tests began, and what they found."""

    identity: str
    """Of its object when they began: a node that was made anew since is another one."""
    hardware: HardwareProfile
    wanted: tuple[Depth, ...]
    """Depths that it must pass."""
    words: Mapping[Depth, VerdictWord] = field(default_factory=dict[Depth, VerdictWord])
    """What the tests of this preflight said; a depth that is missing was not tested."""
    standing: NodeStanding | None = None
    """What the ledger says at those depths; None: nothing."""


def why_it_stays(joiner: Joiner, node: Json) -> str:
    """Why the taint stays on the node, as its object is now; "" where it goes."""
    if identity_of(node) != joiner.identity:
        return "the node was made anew while it was tested"
    for depth in joiner.wanted:
        word = joiner.words.get(depth)
        if word is not VerdictWord.PASS:
            said = joiner.standing.why if word is not None and joiner.standing is not None else "it was not tested"
            return f"{depth}: {word or VerdictWord.UNKNOWN}: {said}"
    return _unproven(joiner, seconds(part(node, "metadata").get("creationTimestamp"))) or _unfit(joiner, node)


def _unproven(joiner: Joiner, created_at: float | None) -> str:
    """What the ledger says against it: a failure of any depth, or a pass of the time before the node was made."""
    standing = joiner.standing
    if standing is None or standing.word is not VerdictWord.PASS:
        return "nothing of it stands in the ledger" if standing is None else standing.why
    for depth in joiner.wanted:
        proof = standing.proofs.get(depth)
        if proof is None or proof.at is None or created_at is None or proof.at < created_at:
            return f"{depth}: its pass is older than the node, or nobody tells how old the node is"
    return ""


def _unfit(joiner: Joiner, node: Json) -> str:
    word, why = fit(node, joiner.hardware)
    return "" if word is VerdictWord.PASS else why
