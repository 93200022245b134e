"""The join gate of a bootstrap: which nodes a preflight must pass, and whether they take work now. Pure.

A host becomes a node with the start-up taint and keeps it until a preflight has passed it (`flows.testing.joining`
takes it away). The preflight runs on the cluster itself, by Argo: so the first components stand before this stage, and
all that may only come to tested nodes behind it. Of a cluster that was there already, nodes with the taint are meant,
which the site's own provisioning has put there; its other nodes are left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

from flows.decisions.node_tests.joining import depths_to_join
from flows.decisions.text import first_names
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.hardware import HardwareProfile
from profiles.vocabulary import VerdictWord
from workflows.bootstrap.kubeadm_documents import inventory_of, pool_of
from workflows.model import nodes as node_objects
from workflows.model.bootstrap import CLUSTER, Stage, Step, StepProof, StepRecord
from workflows.model.manifest import Json, part

SHOWN = 4
KERNEL_LOG = "kernel-log"
"""The probe for which pods need a right of their own."""
ARGO = "argo-workflows"
"""The component by which preflights run."""
WAITS = "still tainted, no preflight has passed it"


def admission_steps(cluster: ClusterProfile, hosts: Collection[str], after: Sequence[str]) -> tuple[Step, ...]:
    """One step for each of these hosts whose node works, behind `after` (ids of steps)."""
    known = inventory_of(cluster).hosts
    return tuple(
        Step(Stage.ADMISSION, name, _print(pool_of(cluster, known[name]).hardware), "passes a preflight", tuple(after))
        for name in hosts
        if name in known and known[name].works
    )


def adopted_admission(after: Sequence[str]) -> tuple[Step, ...]:
    """One step for all nodes: which of them carry the taint is only known when it is looked at."""
    return (Step(Stage.ADMISSION, CLUSTER, "", "its nodes that join pass a preflight", tuple(after)),)


def _print(hardware: str) -> str:
    return hashlib.sha256(hardware.encode()).hexdigest()[:16]


def refuse_untellable(cluster: ClusterProfile, suite: SuiteProfile, kinds: Collection[HardwareProfile]) -> None:
    """Nothing where the tests of nodes that join can tell what they are asked.

    Raises:
        ProfileError: some read what kernels said, and pods of the cluster may not: no node would ever be admitted.
    """
    if cluster.read_kernel_log:
        return
    checks = [
        one for depth in depths_to_join(cluster.admission) for kind in kinds for one in suite.checks_of(depth, kind)
    ]
    blind = list(dict.fromkeys(one.name for one in checks if one.probe is not None and one.probe.name == KERNEL_LOG))
    if blind:
        reason = (
            f"must be true where a preflight admits nodes: {', '.join(blind)} of suite {suite.name} would be unknown"
        )
        raise ProfileError("read_kernel_log", f"{reason}; namespace {cluster.namespace} needs Pod Security privileged")


def can_be_tested(records: Mapping[str, StepRecord]) -> bool:
    """Whether Argo was proven to serve here and has not been taken away since."""
    there, gone = records.get(f"{Stage.COMPONENTS}/{ARGO}"), records.get(f"{Stage.REMOVAL}/{ARGO}")
    if there is None or there.state != "proven":
        return False
    return gone is None or (there.ended_at or 0.0) > gone.began_at


def admission_proof(
    cluster: ClusterProfile,
    hardware: Mapping[str, HardwareProfile],
    name: str,
    nodes: Mapping[str, Json] | None,
    untold: str,
) -> StepProof:
    """Whether the node of a host takes work: there, Ready, without the taint, all GPUs of its hardware offered.

    `untold`: why nobody tells which nodes there are, where nobody does.
    """
    if nodes is None:
        return StepProof(VerdictWord.UNKNOWN, untold)
    if name not in nodes:
        return StepProof(VerdictWord.FAIL, "the cluster knows no such node")
    kind = hardware[pool_of(cluster, inventory_of(cluster).hosts[name]).hardware]
    return node_proof(nodes[name], kind)


def node_proof(node: Json, hardware: HardwareProfile) -> StepProof:
    """Whether a node takes work. A fault that was seen is told although other things are unknown."""
    word, why = node_objects.fit(node, hardware)
    if not node_objects.joins(node):
        return StepProof(word, f"{why}, admitted" if word is VerdictWord.PASS else why)
    said = node_objects.last_test(node)
    waits = f"{WAITS} ({said})" if said else WAITS
    return StepProof(VerdictWord.FAIL, waits if word is VerdictWord.PASS else f"{waits}; {why}")


def adopted_proof(
    cluster: ClusterProfile,
    hardware: Mapping[str, HardwareProfile],
    nodes: Mapping[str, Json] | None,
    untold: str,
) -> StepProof:
    """Whether no node of the profile's pools carries the taint any more."""
    if nodes is None:
        return StepProof(VerdictWord.UNKNOWN, untold)
    tainted = joining_nodes(nodes)
    kinds = {name: hardware_of(cluster, hardware, nodes[name]) for name in tainted}
    wrong = [f"{name}: {node_proof(nodes[name], kind).why}" for name, kind in kinds.items() if kind is not None]
    if wrong:
        more = f"; and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        return StepProof(VerdictWord.FAIL, "; ".join(wrong[:SHOWN]) + more)
    others = [name for name, kind in kinds.items() if kind is None]
    beside = f"; {first_names(others, SHOWN)}: of no pool of the profile, left alone" if others else ""
    return StepProof(VerdictWord.PASS, f"no node waits to be admitted{beside}")


def joining_nodes(nodes: Mapping[str, Json]) -> tuple[str, ...]:
    """Names of nodes with the taint."""
    return tuple(name for name, node in nodes.items() if node_objects.joins(node))


def hardware_of(cluster: ClusterProfile, hardware: Mapping[str, HardwareProfile], node: Json) -> HardwareProfile | None:
    """The hardware that a node has by its labels; None: it belongs to no pool of the profile."""
    pool = node_objects.pool_of(part(node, "metadata", "labels"), cluster)
    return None if pool is None else hardware[pool.hardware]


def waiting_note(cluster: str, plan: Sequence[Step], nodes: Mapping[str, Json] | None) -> tuple[str, ...]:
    """That nodes keep the taint where the plan tests none, in one line; nothing where none carries it.

    `cluster`: as the person named it.
    """
    tainted = joining_nodes(nodes or {})
    if not tainted or any(step.stage is Stage.ADMISSION for step in plan):
        return ()
    names = first_names(tainted, SHOWN)
    return (f"no work comes to {names} until a preflight has passed: primus preflight --cluster {cluster}",)
