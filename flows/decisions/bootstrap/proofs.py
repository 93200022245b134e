"""Whether the steps of the engine `kubeadm` hold now: from facts of hosts and from what control planes see. Pure.

What could not be seen is unknown, never held. A fault that was seen is told although other things are unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network

from flows.decisions.bootstrap.configuration import (
    Settings,
    cluster_configuration_proof,
    host_configuration_proof,
    settings_of,
)
from flows.decisions.bootstrap.services import reaching, silent_services, tried_services, unreached
from profiles.bootstrap.release import ReleaseProfile
from profiles.cluster import ClusterProfile
from profiles.vocabulary import VerdictWord
from workflows.bootstrap import fallback, kubeadm_documents, leaving, pod_network
from workflows.bootstrap.control_sight import ControlSight, PlaneSight
from workflows.bootstrap.host_file import PENDING
from workflows.bootstrap.host_state import HostState, host_state, inventory_of, sections
from workflows.bootstrap.pod_network import node_ranges
from workflows.labels import STARTUP_TAINT
from workflows.model.bootstrap import CLUSTER, Stage, Step, StepProof
from workflows.model.host_facts import HostFacts, Unread
from workflows.model.manifest import Json, items, part
from workflows.programs.hosts.options import Options

STATIC_PODS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""What kubeadm runs on each control plane, as pods called `<name>-<node>`."""
KUBERNETES = ("kubeadm", "kubectl", "kubelet")
"""Programs that only an upgrade changes on a node."""
SHOWN = 4
UNITS = ("kubelet.service", pod_network.TIMER)
"""Beside those of a host's own state."""
UNREACHED = "its host was not looked at"
_NOTHING: Json = {}


def kubeadm_proofs(
    steps: Iterable[Step],
    cluster: ClusterProfile,
    release: ReleaseProfile,
    facts: Mapping[str, HostFacts | Unread],
    sight: ControlSight,
    authority: str = "",
) -> dict[str, StepProof]:
    """The proof of each step of the stages hosts, control-plane, workers, configuration and network, by its id.

    Args:
        steps: of a plan; those of other stages are left out.
        cluster: with its section `bootstrap`.
        release: which files and images.
        facts: of each host that was looked at, asked for what `questions` names.
        sight: what its control planes see.
        authority: content of the mirror's `ca_file`, PEM; "": none.
    """
    found: dict[str, StepProof] = {}
    images = {image.name.rpartition("/")[2].partition(":")[0]: image.name for image in release.images}
    bare, settings = sections(cluster)[1].network == "none", settings_of(cluster)
    for step in steps:
        own = facts.get(step.subject, Unread(UNREACHED))
        match step.stage:
            case Stage.HOSTS:
                found[step.id] = host_proof(host_state(cluster, release, step.subject, authority), own, release)
            case Stage.CONTROL_PLANE:
                found[step.id] = control_plane_proof(cluster, release.version, step.subject, sight, images)
            case Stage.WORKERS:
                found[step.id] = node_proof(cluster, release.version, step.subject, sight, without_network=bare)
            case Stage.CONFIGURATION if step.subject == CLUSTER:
                found[step.id] = cluster_configuration_proof(settings, sight)
            case Stage.CONFIGURATION:
                found[step.id] = settings_proof(settings, step.subject, own, sight, release.version, images)
            case Stage.NETWORK:
                found[step.id] = network_proof(cluster, step.subject, own, sight)
            case _:
                continue
    return found


def questions(cluster: ClusterProfile, release: ReleaseProfile, names: Iterable[str]) -> Options:
    """What these hosts must be asked for these proofs: all of them what any of them needs."""
    states = [host_state(cluster, release, name) for name in names]
    files = (PENDING, leaving.MARK, fallback.BEGUN, pod_network.CONFLIST, pod_network.ROUTES)
    return Options(
        files=tuple(dict.fromkeys((*(path for state in states for path in state.digests), *files))),
        sysctls=tuple(dict.fromkeys(key.lstrip("-") for state in states for key in state.sysctls)),
        units=tuple(dict.fromkeys((*(unit for state in states for unit in state.units), *UNITS))),
        images=True,
        running=True,
        variables=tuple(kubeadm_documents.API_SERVER_VARIABLES),
        services=tried_services(cluster),
    )


def host_proof(state: HostState, facts: HostFacts | Unread, release: ReleaseProfile) -> StepProof:
    """Whether a host is what it is to be: files by their digests and in force, units, kernel parameters, images."""
    if isinstance(facts, Unread):
        return StepProof(VerdictWord.UNKNOWN, facts.why)
    unread: list[str] = []
    differ = [
        path for path, digest in state.digests.items() if _differs(facts.files.get(path, Unread()), digest, unread)
    ]
    programs = [item.name for item in state.downloads if item.target in differ]
    running = facts.versions.get("kubelet", Unread())
    older = isinstance(running, str) and running not in ("", release.version)
    if programs and set(programs) <= set(KUBERNETES) and older:
        why = f"it runs Kubernetes {running}, the release is {release.version}: upgrade it"
        return StepProof(VerdictWord.FAIL, why)
    wrong = [f"{_named(differ)} differ{'s'[: len(differ) == 1]} from what is wanted"] if differ else []
    if _differs(facts.files.get(PENDING, Unread()), "", unread):
        wrong.append(f"units were not begun anew for what {PENDING} names")
    wrong += _units(state.units, facts, unread)
    wrong += _runtime(facts, unread)
    for key, value in state.sysctls.items():
        name = key.lstrip("-")
        told = facts.sysctls.get(name, Unread())
        if isinstance(told, Unread):
            unread += [] if key.startswith("-") else [f"{name}: {told.why}"]
        elif told.split() != value.split():
            wrong.append(f"{name} is {told}, wanted is {value}")
    wrong += _images(state, facts, unread)
    return _judged(wrong, unread, f"{len(state.digests)} files, {len(state.units)} units as wanted")


def control_plane_proof(
    cluster: ClusterProfile, version: str, name: str, sight: ControlSight, images: Mapping[str, str] | None = None
) -> StepProof:
    """Whether an API server and a healthy member of etcd live there, of the right version, behind the endpoint.

    `images`: of static pods by their program; None: any of the version, from wherever.
    """
    if name in sight.unseen or name not in sight.planes:
        return StepProof(VerdictWord.UNKNOWN, sight.unseen.get(name, UNREACHED))
    plane = sight.planes[name]
    if not plane.there:
        return StepProof(VerdictWord.FAIL, "there is no control plane on it")
    wrong = [f"its API server: {plane.own}"] if plane.own else []
    wrong += (
        [f"the API through {kubeadm_documents.server_of(inventory_of(cluster))}: {plane.endpoint}"]
        if plane.endpoint
        else []
    )
    unread: list[str] = []
    if not plane.own:
        wrong += _member(name, plane, unread)
        wrong += _static_pods(version, images, name, plane, unread)
        of_node = _node(cluster, version, name, plane, unread)
        if not of_node and plane.nodes is not None:
            of_node = _ready(plane.by_name.get(name, _NOTHING), without_network=True)
        wrong += of_node + _dns(plane, unread)
    return _judged(wrong, unread, f"API and etcd serve, {len(plane.members or ())} members")


def node_proof(
    cluster: ClusterProfile, version: str, name: str, sight: ControlSight, *, without_network: bool = False
) -> StepProof:
    """Whether it is a ready node of the right version, with its labels and taints.

    `without_network`: a component brings the network of pods, so that it is not there yet is no reason.
    """
    best, unread = sight.best, list[str]()
    if best is None:
        return StepProof(VerdictWord.UNKNOWN, _nobody(sight))
    wrong = _node(cluster, version, name, best, unread)
    if not wrong and not unread and best.nodes is not None:
        wrong += _ready(best.by_name.get(name, _NOTHING), without_network)
    return _judged(wrong, unread, f"ready, Kubernetes {version}")


def settings_proof(
    settings: Settings,
    name: str,
    facts: HostFacts | Unread,
    sight: ControlSight,
    version: str,
    images: Mapping[str, str],
) -> StepProof:
    """Whether a node runs with the settings that are wanted and bears them.

    That it holds as a node is another step's, which mends it: here it is only not known yet whether it bears them.
    """
    proof, cluster = host_configuration_proof(settings, name, facts, sight), settings.cluster
    if proof.word is not VerdictWord.PASS:
        return proof
    if sections(cluster)[0].hosts[name].controls:
        node = control_plane_proof(cluster, version, name, sight, images)
    else:
        node = node_proof(cluster, version, name, sight, without_network=sections(cluster)[1].network == "none")
    node = reaching(node, cluster, facts)
    if node.word is VerdictWord.PASS:
        return proof
    return StepProof(VerdictWord.UNKNOWN, f"{proof.why}, and whether it bears them is not seen: {node.why}")


def network_proof(cluster: ClusterProfile, name: str, facts: HostFacts | Unread, sight: ControlSight) -> StepProof:
    """Whether the node has its range and routes to all others, kept, reaches services, and is ready after a reboot too.

    Where a cluster brings its own network there is no such step: that a kubelet is begun at boot is then seen by a look
    for drift alone.
    """
    if isinstance(facts, Unread):
        return StepProof(VerdictWord.UNKNOWN, facts.why)
    nodes = sight.nodes
    if nodes is None:
        return StepProof(VerdictWord.UNKNOWN, _nobody(sight))
    ranges = node_ranges(nodes.values())
    files = pod_network.node_files(sections(cluster)[0].networks, ranges, name)
    if not files:
        return StepProof(
            VerdictWord.FAIL,
            "the control plane has given it no range of pods" if name in nodes else "it has not joined",
        )
    unread: list[str] = []
    wrong = [
        f"{file.path} is not what {len(ranges)} nodes make of it"
        for file in files
        if _differs(facts.files.get(file.path, Unread()), file.sha256, unread)
    ]
    wrong += _units(["kubelet.service", pod_network.TIMER], facts, unread)
    if isinstance(facts.routes, Unread):
        unread.append(f"routes: {facts.routes.why}")
    else:
        there = {(route.network, route.gateway) for route in facts.routes if route.gateway}
        others = {(one.range, one.address): one.node for one in ranges if one.node != name and one.range}
        lacking = [node for way, node in others.items() if way not in there]
        wrong += [f"no route to the pods of {_named(lacking)}"] if lacking else []
        pods = ip_network(sections(cluster)[0].networks.pods)
        stale = [f"{net} via {gateway}" for net, gateway in sorted(there - set(others)) if _lies_in(net, pods)]
        wrong += [f"a route to pods of no node: {_named(stale)}"] if stale else []
    wrong += _ready(nodes[name], False)
    silent = silent_services(cluster, facts, unread)
    wrong += [unreached(silent)] if silent else []
    return _judged(wrong, unread, f"routes to {len(ranges) - 1} other nodes")


def _lies_in(network: str, pods: IPv4Network | IPv6Network) -> bool:
    try:
        found = ip_network(network)
    except ValueError:
        return False
    return isinstance(found, IPv4Network) and isinstance(pods, IPv4Network) and found.subnet_of(pods)


def _judged(wrong: list[str], unread: list[str], well: str) -> StepProof:
    if wrong:
        return StepProof(VerdictWord.FAIL, _named(wrong, "; "))
    return StepProof(VerdictWord.UNKNOWN, _named(unread, "; ")) if unread else StepProof(VerdictWord.PASS, well)


def _differs(told: str | Unread, wanted: str, unread: list[str]) -> bool:
    if isinstance(told, Unread):
        unread.append(told.why)
        return False
    return told != wanted


def _units(names: Iterable[str], facts: HostFacts, unread: list[str]) -> list[str]:
    wrong: list[str] = []
    for name in names:
        told = facts.units.get(name, Unread())
        if isinstance(told, Unread):
            unread.append(f"{name}: {told.why}")
        elif told.active != "active":
            wrong.append(f"{name} is {told.active if told.loaded == 'loaded' else told.loaded}")
        elif told.enabled != "enabled":
            wrong.append(f"{name} is not begun at boot: {told.enabled or 'no file'}")
    return wrong


def _runtime(facts: HostFacts, unread: list[str]) -> list[str]:
    told = facts.container_runtime
    if isinstance(told, Unread):
        unread.append(f"containerd: {told.why}")
        return []
    return [] if told == "ok" else [f"containerd: {told}"]


def _images(state: HostState, facts: HostFacts, unread: list[str]) -> list[str]:
    if isinstance(facts.images, Unread):
        unread.append(f"images: {facts.images.why}")
        return []
    there = {image.name: image.digest for image in facts.images}
    lacking = [name for name, digest in state.images.items() if name not in there or digest not in ("", there[name])]
    return [f"without the image {_named(lacking)}"] if lacking else []


def _member(name: str, plane: PlaneSight, unread: list[str]) -> list[str]:
    if plane.members is None:
        unread.append("etcd does not say who its members are")
        return []
    own = next((member for member in plane.members if member.name == name), None)
    if own is None:
        return ["it is no member of etcd"]
    if own.learner:
        return ["its member of etcd still learns"]
    return [f"its member of etcd: {own.why}"] if own.why else []


def _static_pods(
    version: str, images: Mapping[str, str] | None, name: str, plane: PlaneSight, unread: list[str]
) -> list[str]:
    if plane.pods is None:
        unread.append("its API server does not say which pods there are")
        return []
    pods = {str(part(pod, "metadata").get("name")): pod for pod in plane.pods}
    wrong: list[str] = []
    for program in STATIC_PODS:
        pod = pods.get(f"{program}-{name}")
        running = str(next(iter(items(pod, "spec", "containers")), _NOTHING).get("image", "")) if pod else ""
        if not running:
            wrong.append(f"{program} does not run there")
        elif images is None and program.startswith("kube-") and not running.partition("@")[0].endswith(f":v{version}"):
            wrong.append(f"{program} runs {running}, wanted is v{version}: upgrade it")
        elif images and program in images and running.partition("@")[0] != images[program]:
            wrong.append(f"{program} runs {running}, the release has {images[program]}: upgrade it")
        elif why := _why_not_ready(pod or _NOTHING, "nothing is told of it"):
            wrong.append(f"{program} is not ready: {why}")
    return wrong


def _dns(plane: PlaneSight, unread: list[str]) -> list[str]:
    """Nodes that are not proven yet need names, too: nothing else could prove them."""
    if plane.dns is None:
        unread.append("its API server does not say what the cluster's DNS tolerates")
        return []
    return [] if {STARTUP_TAINT, ""} & set(plane.dns) else [f"DNS does not tolerate the taint {STARTUP_TAINT}"]


def _node(cluster: ClusterProfile, wanted_version: str, name: str, plane: PlaneSight, unread: list[str]) -> list[str]:
    """What is wrong with the object of a node, but whether it is ready."""
    if plane.nodes is None:
        unread.append("the API does not say which nodes there are")
        return []
    node = plane.by_name.get(name)
    if not node:
        return ["it has not joined: there is no node of its name"]
    version = str(part(node, "status", "nodeInfo").get("kubeletVersion", ""))
    if version != f"v{wanted_version}":
        return [f"its kubelet is {version or 'of no version'}, wanted is v{wanted_version}: upgrade it"]
    marks = part(node, "metadata", "labels")
    wanted = kubeadm_documents.node_labels(cluster, name)
    lacking = [f"{key}={value}" for key, value in wanted.items() if marks.get(key) != value]
    there = [(one.get("key"), one.get("value") or "", one.get("effect")) for one in items(node, "spec", "taints")]
    entries = {text: kubeadm_documents.taint_entry(text) for text in kubeadm_documents.taints(cluster, name)}
    bare = [text for text, one in entries.items() if (one["key"], one.get("value", ""), one["effect"]) not in there]
    wrong = [f"it lacks the label {_named(lacking)}"] if lacking else []
    return wrong + ([f"it lacks the taint {_named(bare)}"] if bare else [])


def _ready(node: Json, without_network: bool) -> list[str]:
    """Why a node is not ready; `without_network`: that pods have no network yet is no reason."""
    message = _why_not_ready(node, "its kubelet tells nothing")
    if not message or (without_network and "cni plugin not initialized" in message):
        return []
    return [f"it is not ready: {message}"]


def _why_not_ready(seen: Json, silent: str) -> str:
    """Why a node or a pod is not ready; "" where it is, `silent` where nothing is said."""
    found = next((one for one in items(seen, "status", "conditions") if one.get("type") == "Ready"), _NOTHING)
    return "" if found.get("status") == "True" else str(found.get("message") or found.get("reason") or silent)


def _nobody(sight: ControlSight) -> str:
    told = [f"{name}: {why}" for name, why in sight.unseen.items()]
    told += [f"{name}: {plane.own}" for name, plane in sight.planes.items() if plane.there and plane.own]
    return "; ".join(["no control plane can be asked", *told[:SHOWN]])


def _named(words: list[str], between: str = ", ") -> str:
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return between.join(words[:SHOWN]) + more
