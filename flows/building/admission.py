"""The act of the join gate: nodes that carry the start-up taint are tested as `primus preflight` would test them.

It is that very flow's function: verdicts, quarantine and the taint are dealt with there. Whoever was killed amid it
takes the same test up again, since the ledger knows it by the nodes that are tested.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from flows.decisions.bootstrap.admission import hardware_of, node_proof
from flows.decisions.node_tests.joining import depths_to_join
from flows.decisions.text import first_names
from flows.testing.proofs import suite_of
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.loading.load import load_hardware
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.site import Tell
from tasks.cluster import Manifest, using
from tasks.clusters import open_cluster
from tasks.context import world
from tasks.observe.nodes import joining_nodes
from workflows.model.manifest import part
from workflows.model.nodes import fit, pool_of

SHOWN = 6


def admit_joining(profile: ClusterProfile, names: Collection[str] | None, tell: Tell) -> dict[str, str]:
    """Test those of these nodes that carry the start-up taint (None: all of the profile's pools).

    A node that is not Ready, or whose GPUs are not all offered, is not tested: no test could change that.

    Returns:
        Nodes that were tested and keep the taint, with the reason as it stands on them.

    Raises:
        ProfileError: the cluster's suite cannot be read or does not fit.
        Conflict, Unavailable, Refused: as `flows.testing.prove.prove` says.
    """
    # Judging stands on numpy: a quarter of a second that only a bootstrap with nodes to test has to wait for.
    from flows.testing.joining import with_partners  # noqa: PLC0415
    from flows.testing.prove import Manner, prove  # noqa: PLC0415

    kinds = {pool.hardware: load_hardware(pool.hardware) for pool in profile.pools}
    with using(open_cluster(profile, world().settings.home)):
        tested = _ready(profile, kinds, names, tell)
        if not tested:
            return {}
        suite, depths = suite_of(profile), depths_to_join(profile.admission)
        pools = with_partners(profile, suite, depths, tested, tell)
        prove(profile, suite, depths, pools, tell, Manner(strict=True))
        after = joining_nodes()
    return {name: _why(profile, kinds, after[name]) for name in tested if name in after}


def _ready(
    profile: ClusterProfile, kinds: Mapping[str, HardwareProfile], names: Collection[str] | None, tell: Tell
) -> dict[str, str]:
    """The nodes that can be tested now, in their order, with their pool; the others are told."""
    found: dict[str, str] = {}
    unfit: list[str] = []
    for name, node in joining_nodes().items():
        pool = pool_of(part(node, "metadata", "labels"), profile)
        if pool is None or (names is not None and name not in names):
            continue
        word, why = fit(node, kinds[pool.hardware])
        if word is VerdictWord.PASS:
            found[name] = pool.name
        else:
            unfit.append(f"{name}: {why}")
    if unfit:
        tell(f"not tested yet: {'; '.join(unfit[:SHOWN])}" + (f" and {len(unfit) - SHOWN} more" * (len(unfit) > SHOWN)))
    if found:
        tell(f"a preflight tests {first_names(list(found), SHOWN)}")
    return found


def _why(profile: ClusterProfile, kinds: Mapping[str, HardwareProfile], node: Manifest) -> str:
    hardware = hardware_of(profile, kinds, node)
    return "it belongs to no pool of the profile" if hardware is None else node_proof(node, hardware).why
