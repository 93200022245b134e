"""The engine `kubespray`: its steps, whether they hold, which playbooks carry them out, and what nobody here can tell.

One playbook makes all hosts at once, so all nodes that are missing are one group; each has a step and a proof of its
own. What lies on hosts is Kubespray's, so proofs go by what the cluster shows, never by files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from flows.decisions.bootstrap.proofs import control_plane_proof, node_proof
from flows.decisions.text import first_names
from profiles.bootstrap.engines import Kubespray
from profiles.bootstrap.inventory import Bootstrap, NodeTuning
from profiles.cluster import ClusterProfile
from profiles.errors import Refused
from profiles.vocabulary import VerdictWord
from workflows.bootstrap import kubeadm_documents
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.bootstrap.host_state import fingerprint, inventory_of
from workflows.bootstrap.kubespray import KubesprayPlaybook, KubesprayScope, cluster_up, node_in
from workflows.bootstrap.leaving import SNAPSHOTS
from workflows.model.bootstrap import CLUSTER, Stage, Step, StepProof
from workflows.model.host_facts import Unread
from workflows.model.manifest import Json, part

NODES = "nodes"
"""The group of steps that one playbook carries out."""
ACCEPTED = Step(Stage.PRECHECKS, CLUSTER, "", "Kubespray takes inventory and variables, and no other version runs")
SHOWN = 6
NOT_ASKED = StepProof(VerdictWord.UNKNOWN, "Kubespray was not asked what it says of inventory and variables")


def kubespray_steps(cluster: ClusterProfile, version: str) -> tuple[Step, ...]:
    """Every step, each behind those that it comes after: checks, then all nodes as one group.

    Args:
        cluster: with its section `bootstrap`.
        version: of Kubernetes.
    """
    bootstrap = inventory_of(cluster)
    checks = [Step(Stage.PRECHECKS, name, "", "is fit to become a node") for name in bootstrap.hosts]
    nodes = [
        Step(
            Stage.CONTROL_PLANE if bootstrap.hosts[name].controls else Stage.WORKERS,
            name,
            fingerprint(
                [version, kubeadm_documents.node_labels(cluster, name), kubeadm_documents.taints(cluster, name)]
            ),
            f"is made a {'control plane' if bootstrap.hosts[name].controls else 'worker'} with Kubernetes {version}",
            (ACCEPTED.id, f"{Stage.PRECHECKS}/{name}"),
            group=NODES,
        )
        for name in (*bootstrap.control_planes, *bootstrap.workers)
    ]
    return (ACCEPTED, *checks, *nodes)


def behind_validation(steps: Iterable[Step]) -> tuple[Step, ...]:
    """These steps, once Kubespray has taken inventory and variables."""
    return (ACCEPTED, *(replace(step, after=(ACCEPTED.id, *step.after)) for step in steps))


def kubespray_proofs(
    plan: Iterable[Step], cluster: ClusterProfile, engine: Kubespray, sight: ControlSight
) -> dict[str, StepProof]:
    """The proof of each step of the stages control-plane and workers, by its id."""
    found: dict[str, StepProof] = {}
    for step in plan:
        match step.stage:
            case Stage.CONTROL_PLANE:
                found[step.id] = _plane_proof(cluster, engine, step.subject, sight)
            case Stage.WORKERS:
                found[step.id] = _worker_proof(cluster, engine, step.subject, sight)
            case _:
                continue
    return found


def _plane_proof(cluster: ClusterProfile, engine: Kubespray, name: str, sight: ControlSight) -> StepProof:
    """As of every engine; the network of pods comes in the same act, so it must be Ready, and etcd has no strangers."""
    plane = control_plane_proof(cluster, engine.version, name, sight)
    if plane.word is not VerdictWord.PASS:
        return plane
    planes = inventory_of(cluster).control_planes
    strangers = [
        one.name or "one that never began" for one in sight.planes[name].members or () if one.name not in planes
    ]
    if strangers:
        return StepProof(VerdictWord.FAIL, f"etcd has members that the inventory does not name: {', '.join(strangers)}")
    node = node_proof(cluster, engine.version, name, sight)
    return plane if node.word is VerdictWord.PASS else node


def _worker_proof(cluster: ClusterProfile, engine: Kubespray, name: str, sight: ControlSight) -> StepProof:
    """As of every engine; where there is surely no cluster it is no node, and comes with the control planes."""
    if sight.planes and not sight.unseen and not any(plane.there for plane in sight.planes.values()):
        return StepProof(VerdictWord.FAIL, "there is no cluster yet")
    return node_proof(cluster, engine.version, name, sight)


def acceptance(version: str, seen: BuildingSight, *, makes_nodes: bool) -> StepProof:
    """Whether Kubespray takes inventory and variables, and its playbooks would change no version.

    Args:
        version: that the profile names.
        seen: the first look.
        makes_nodes: its playbooks bring nodes; an upgrade is meant to change versions, and who leaves has any.
    """
    others = sorted(running_versions(seen) - {version})
    if makes_nodes and others:
        runs = f"the cluster runs {', '.join(others)}, and all nodes would go to engine.version {version} at once"
        return StepProof(VerdictWord.FAIL, f"{runs}: --upgrade {version}, or name the version that runs")
    return seen.inventory or NOT_ASKED


def running_versions(seen: BuildingSight) -> frozenset[str]:
    """Versions of Kubernetes that run there: of nodes, and where the API does not serve of control planes' kubelets."""
    nodes = seen.cluster.nodes or {}
    found = {str(part(node, "status", "nodeInfo").get("kubeletVersion", "")) for node in nodes.values()}
    found |= {plane.version for plane in seen.cluster.planes.values() if plane.there}
    for name, plane in seen.cluster.planes.items():
        facts = seen.facts.get(name, Unread())
        told = Unread() if isinstance(facts, Unread) else facts.versions.get("kubelet", Unread())
        if plane.there and isinstance(told, str):
            found.add(told)
    return frozenset(version.removeprefix("v") for version in found if version)


def scope_of(
    bootstrap: Bootstrap, concerned: Collection[str], left_out: Collection[str], nodes: Mapping[str, Json] | None
) -> KubesprayScope:
    """Which hosts playbooks know: those of the request and those that are nodes, but none that is left out.

    A host that the cluster does not know and nobody asks for stays out: a playbook over all hosts would make it a node.
    """
    there = nodes or {}
    named = [name for name in bootstrap.hosts if name not in left_out and (name in concerned or name in there)]
    return KubesprayScope(tuple(named), {name: there[name] for name in named if name in there})


def making(
    scope: KubesprayScope, bootstrap: Bootstrap, sight: ControlSight, names: Sequence[str]
) -> tuple[KubesprayPlaybook, ...]:
    """The playbooks that make these hosts nodes: none reaches a host that is not among them, or a control plane.

    Raises:
        Refused: Kubespray, which begins a cluster on the first control plane that it knows, might begin a second one.
    """
    planes = scope.planes(bootstrap)
    if not planes:
        raise Refused("bootstrap.hosts", "no control plane is asked for, and no API says which there are")
    first = sight.planes.get(planes[0])
    if first is None or not first.there:
        holders = [name for name, plane in sight.planes.items() if plane.there]
        if holders:
            where = f"{planes[0]} stands first and holds no cluster, and {first_names(holders, SHOWN)} does"
            need = "Kubespray would begin a second one: name a control plane that serves first in bootstrap.hosts"
            raise Refused(f"bootstrap.hosts.{planes[0]}", f"{where}: {need}")
        if sight.unseen:
            who = ", ".join(f"{name} ({why})" for name, why in sight.unseen.items())
            raise Refused(f"bootstrap.hosts.{planes[0]}", f"a second cluster might be begun: not reached were {who}")
    whole = not sight.serving and set(names) == set(scope.names(bootstrap))
    return cluster_up() if whole else node_in(planes, names)


# What is said to people.


def kubespray_notes(bootstrap: Bootstrap, verb: str, version: str) -> tuple[str, ...]:
    """What this engine cannot do, or cannot tell, of a request; each in one line, before anything is begun."""
    tuned = _untuned(bootstrap.tuning)
    unset = f"tuning.{', tuning.'.join(tuned)}: not set by Kubespray: set it on hosts yourself; --drift compares it"
    match verb:
        case "drift":
            what = "files, units, images and settings that Kubespray put on hosts"
            return (f"engine kubespray: {what} are not compared, nor variables that changed since its playbooks ran",)
        case "build" | "check" | "join":
            return (unset,) if tuned else ()
        case "upgrade":
            back = f"Kubernetes does not go back from {version}: the way back is a snapshot of etcd, restored by hand"
            taken = f"Kubespray takes none of etcd that kubeadm keeps, so one is taken first ({SNAPSHOTS})"
            return (f"{back}; {taken}; what Kubespray upgrades beside Kubernetes is not rolled back either",)
        case _:
            return ()


def _untuned(tuning: NodeTuning) -> list[str]:
    return [name for name in ("transparent_hugepages", "numa_balancing", "cpu_governor") if getattr(tuning, name)]
