"""Whether each step of a plan holds, from what was seen: the stages' own judges, and those of leaving and upgrading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flows.decisions.bootstrap.admission import admission_proof, adopted_proof
from flows.decisions.bootstrap.adopted import cluster_proof, untold
from flows.decisions.bootstrap.components import component_proofs
from flows.decisions.bootstrap.kubespray import acceptance, kubespray_proofs
from flows.decisions.bootstrap.prechecks.judge import Prechecks, prechecks
from flows.decisions.bootstrap.proofs import kubeadm_proofs
from flows.decisions.bootstrap.services import reaching
from profiles.bootstrap.engines import Engine, Kubespray
from profiles.bootstrap.release import ReleaseProfile
from profiles.bootstrap.request import Verb
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.run import RunProfile
from profiles.vocabulary import FINISHED, RunState, VerdictWord
from workflows import labels
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.bootstrap import CLUSTER, Stage, Step, StepProof, StepProofs
from workflows.model.components import ChosenComponent
from workflows.model.host_facts import Unread
from workflows.model.manifest import items, part
from workflows.model.nodes import node_of

NOT_LOOKED_AT = Unread("it was not looked at")
UNSEEN = StepProof(VerdictWord.UNKNOWN, NOT_LOOKED_AT.why)


@dataclass(frozen=True)
class Wanted:
    """What a cluster is to be."""

    cluster: ClusterProfile
    release: ReleaseProfile | None
    """None: the engine puts no release of ours on hosts."""
    hardware: Mapping[str, HardwareProfile]
    """By name, of the pools."""
    chosen: tuple[ChosenComponent, ...] = ()
    since: float = 0.0
    """Unix seconds: what components showed before is too old."""
    forced: Mapping[str, str] = field(default_factory=dict[str, str])
    """Pre-check -> why it may fail."""
    begun: frozenset[str] = frozenset()
    """Hosts on which the ledger knows steps of this cluster."""
    authority: str = ""
    """PEM of the mirror's certificate authority."""
    version: str = ""
    """Of an upgrade."""
    dead: bool = False
    """Hosts that leave are not asked."""
    with_data: bool = False
    """Components that go take their data along."""
    run: RunProfile | None = None
    """What is trained at the end; None: nothing."""
    verb: Verb = "build"
    """What is asked for."""
    fit: Mapping[str, float] = field(default_factory=dict[str, float])
    """Hosts that a command which was cut off has found fit, with seconds since; they are not measured again."""

    @property
    def engine(self) -> Engine | None:
        """Who makes the cluster; None: the profile has no section `bootstrap`."""
        return self.cluster.bootstrap.engine if self.cluster.bootstrap is not None else None

    @property
    def kubernetes(self) -> str:
        """Version that nodes are to run; "": of an adopted cluster somebody else says it."""
        if isinstance(self.engine, Kubespray):
            return self.engine.version
        return self.release.version if self.release is not None else ""


def judged(wanted: Wanted, plan: Sequence[Step], seen: BuildingSight) -> StepProofs:
    """The proof of each step of the plan, by its id."""
    stages = {step.stage for step in plan}
    found = {**_checks(wanted, plan, seen), **_nodes(wanted, plan, seen)}
    if Stage.COMPONENTS in stages:
        found |= _components(wanted, seen)
    found |= _admissions(wanted, plan, seen)
    for step in plan:
        if (proof := _of_cluster(wanted, step, seen)) is not None:
            found[step.id] = proof
    return {step.id: found.get(step.id, UNSEEN) for step in plan}


def _of_cluster(wanted: Wanted, step: Step, seen: BuildingSight) -> StepProof | None:
    """The proof of a step that every engine's cluster is asked about alike; None: of another one."""
    match step.stage:
        case Stage.PROOF:
            return run_proof(seen)
        case Stage.UPGRADE:
            proof = upgrade_proof(step.subject, wanted.version, seen)
            return reaching(proof, wanted.cluster, seen.facts.get(step.subject, NOT_LOOKED_AT))
        case Stage.LEAVE:
            return leave_proof(step.subject, seen, dead=wanted.dead)
        case Stage.REMOVAL:
            return removal_proof(step.subject, seen)
        case _:
            return None


def _nodes(wanted: Wanted, plan: Sequence[Step], seen: BuildingSight) -> dict[str, StepProof]:
    """Of steps that make nodes, as the engine makes them."""
    if isinstance(wanted.engine, Kubespray):
        found = kubespray_proofs(plan, wanted.cluster, wanted.engine, seen.cluster)
        hosts = {f"{step.stage}/{step.subject}": seen.facts.get(step.subject, NOT_LOOKED_AT) for step in plan}
        return {name: reaching(proof, wanted.cluster, hosts[name]) for name, proof in found.items()}
    if wanted.release is not None:
        return kubeadm_proofs(plan, wanted.cluster, wanted.release, seen.facts, seen.cluster, wanted.authority)
    return {}


def _checks(wanted: Wanted, plan: Sequence[Step], seen: BuildingSight) -> dict[str, StepProof]:
    """Of hosts, of the cluster where it was there before us, and of what the engine itself says of its inventory."""
    concerned = [step.subject for step in plan if step.stage is Stage.PRECHECKS]
    hosts = [name for name in concerned if name != CLUSTER]
    if wanted.fit:
        found = {f"{Stage.PRECHECKS}/{name}": _fit_before(wanted.fit[name], seen, name) for name in hosts}
    else:
        found = precheck_proofs(checks_of(wanted, seen)) if hosts else {}
    if CLUSTER in concerned and isinstance(wanted.engine, Kubespray):
        makes_nodes = wanted.verb in ("build", "check", "join")
        found[f"{Stage.PRECHECKS}/{CLUSTER}"] = acceptance(wanted.kubernetes, seen, makes_nodes=makes_nodes)
    elif CLUSTER in concerned:
        found[f"{Stage.PRECHECKS}/{CLUSTER}"] = cluster_proof(seen.cluster, hosts)
    return found


def _fit_before(age_seconds: float, seen: BuildingSight, host: str) -> StepProof:
    """Of a host that was measured before; that it answers is seen again."""
    facts = seen.facts.get(host, NOT_LOOKED_AT)
    if isinstance(facts, Unread):
        return StepProof(VerdictWord.UNKNOWN, facts.why)
    return StepProof(VerdictWord.PASS, f"every check passed {age_seconds:.0f} s before, and it answers")


def checks_of(wanted: Wanted, seen: BuildingSight) -> Prechecks:
    """What all pre-checks say."""
    return prechecks(wanted.cluster, wanted.hardware, seen.hosts, forced=wanted.forced, begun=wanted.begun)


def precheck_proofs(checks: Prechecks) -> dict[str, StepProof]:
    """One proof a host: everything that keeps it from being touched, the worst word first."""
    found: dict[str, StepProof] = {}
    fit = set(checks.fit)
    for host in checks.hosts:
        stopping = checks.of(host)
        failing = [one for one in stopping if one.word is VerdictWord.FAIL]
        why = "; ".join(f"{one.check}: {one.found}" + (f" ({one.advice})" if one.advice else "") for one in stopping)
        word = VerdictWord.PASS if host in fit else VerdictWord.FAIL if failing else VerdictWord.UNKNOWN
        found[f"{Stage.PRECHECKS}/{host}"] = StepProof(word, why or "every check passes")
    return found


def _components(wanted: Wanted, seen: BuildingSight) -> dict[str, StepProof]:
    if isinstance(seen.components, Unread):
        why = StepProof(VerdictWord.UNKNOWN, seen.components.why)
        return {f"{Stage.COMPONENTS}/{one.name}": why for one in wanted.chosen}
    return component_proofs(wanted.chosen, seen.components, wanted.since)


def _admissions(wanted: Wanted, plan: Sequence[Step], seen: BuildingSight) -> dict[str, StepProof]:
    """Of all hosts that are admitted: their nodes are laid out by name once."""
    steps = [step for step in plan if step.stage is Stage.ADMISSION]
    if not steps:
        return {}
    cluster, hardware, nodes, why = wanted.cluster, wanted.hardware, seen.cluster.nodes, untold(seen.cluster)
    return {
        step.id: adopted_proof(cluster, hardware, nodes, why)
        if step.subject == CLUSTER
        else admission_proof(cluster, hardware, step.subject, nodes, why)
        for step in steps
    }


def run_proof(seen: BuildingSight) -> StepProof:
    """Whether the run that proves the cluster has succeeded."""
    run = seen.proof
    if run is None:
        return StepProof(VerdictWord.FAIL, "no run has trained on the cluster as it is wanted")
    if run.state is RunState.SUCCEEDED:
        return StepProof(VerdictWord.PASS, f"run {run.name} succeeded")
    if run.state in FINISHED:
        return StepProof(VerdictWord.FAIL, f"run {run.name} {run.state}: {run.why}")
    return StepProof(VerdictWord.FAIL, f"run {run.name} is {run.state}: {run.why}")


def upgrade_proof(host: str, version: str, seen: BuildingSight) -> StepProof:
    """Whether a node runs the version, and takes pods again unless somebody else has cordoned it."""
    proof = version_proof(host, version, seen.cluster)
    if proof.word is not VerdictWord.PASS:
        return proof
    node = (seen.cluster.nodes or {})[host]
    if not node_of(node).cordoned:
        return proof
    if labels.BOOTSTRAP_CORDON in part(node, "metadata", "labels"):
        return StepProof(VerdictWord.FAIL, f"{version} and Ready, and still cordoned")
    return StepProof(VerdictWord.PASS, f"{proof.why}, cordoned by somebody")


def version_proof(host: str, version: str, sight: ControlSight) -> StepProof:
    """Whether a node runs the version: its kubelet, it is Ready, and where it is a control plane its API server."""
    nodes = sight.nodes
    if nodes is None:
        return StepProof(VerdictWord.UNKNOWN, "no control plane tells")
    node = nodes.get(host)
    if node is None:
        return StepProof(VerdictWord.FAIL, "the cluster knows no such node")
    found = str(part(node, "status", "nodeInfo").get("kubeletVersion", "")).lstrip("v")
    if found != version:
        return StepProof(VerdictWord.FAIL, f"its kubelet is {found or 'of an unknown version'}")
    told = node_of(node)
    if not told.ready:
        word = VerdictWord.UNKNOWN if told.ready is None else VerdictWord.FAIL
        return StepProof(word, f"{version}, and it is not Ready")
    old = [image for image in _plane_images(sight, host) if not image.endswith(f":v{version}")]
    if old:
        return StepProof(VerdictWord.FAIL, f"it still runs {', '.join(old[:4])}")
    return StepProof(VerdictWord.PASS, f"{version}, Ready")


def leave_proof(host: str, seen: BuildingSight, *, dead: bool) -> StepProof:
    """Whether the cluster knows a host no more, and nothing of the cluster is on it (`dead`: that is not asked)."""
    nodes, best = seen.cluster.nodes, seen.cluster.best
    if nodes is None or best is None or best.members is None:
        return StepProof(VerdictWord.UNKNOWN, "no control plane tells")
    if host in nodes:
        return StepProof(VerdictWord.FAIL, "the cluster has its node")
    if any(member.name == host for member in best.members):
        return StepProof(VerdictWord.FAIL, "it is a member of etcd")
    if dead:
        return StepProof(VerdictWord.PASS, "the cluster knows it no more; it was not asked itself")
    facts = seen.facts.get(host, NOT_LOOKED_AT)
    if isinstance(facts, Unread):
        return StepProof(VerdictWord.UNKNOWN, f"the cluster knows it no more; itself: {facts.why}")
    left = facts.leftovers
    if isinstance(left, Unread):
        return StepProof(VerdictWord.UNKNOWN, f"the cluster knows it no more; what is left on it: {left.why}")
    what = [*left.files, *left.processes, *left.interfaces, *left.mounts]
    if what:
        return StepProof(VerdictWord.FAIL, f"left on it: {', '.join(what[:4])}")
    return StepProof(VerdictWord.PASS, "the cluster knows it no more, and nothing is left on it")


def removal_proof(component: str, seen: BuildingSight) -> StepProof:
    """Whether a component is gone, and its note with it."""
    if isinstance(seen.components, Unread):
        return StepProof(VerdictWord.UNKNOWN, seen.components.why)
    if component in seen.components:
        return StepProof(VerdictWord.FAIL, f"{seen.components[component].version} is there")
    return StepProof(VerdictWord.PASS, "nothing of it is there")


def _plane_images(sight: ControlSight, host: str) -> list[str]:
    """Images of Kubernetes' own static pods on a control plane; etcd has versions of its own."""
    best = sight.best
    own = [f"kube-{name}-{host}" for name in ("apiserver", "controller-manager", "scheduler")]
    pods = [pod for pod in (best.pods or () if best else ()) if part(pod, "metadata").get("name") in own]
    return [str(one.get("image", "")) for pod in pods for one in items(pod, "spec", "containers")]
