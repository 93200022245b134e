"""What keeps pods from finding a node, and placed pods from running. Pure.

Placed pods: container states, the kubelet's events, their node. Unplaced pods: the message of kube-scheduler, taken
apart, and the pool's nodes as they are. The wording is that of kube-scheduler 1.36 (`FitError.Error` in
`pkg/scheduler/framework`, and the plugins' reasons). Older releases and the embedded cluster name the taint; 1.36 only
counts the nodes that carry one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flows.decisions.explain.reasons import Hold, Reason, Witness, of_condition, of_event
from flows.decisions.recovery.nodes import refusal
from flows.decisions.text import first_names
from workflows import labels
from workflows.model.cluster import Container, Event, Pod
from workflows.model.fleet import NodeCandidate
from workflows.model.manifest import Condition
from workflows.model.why import ClusterSight

IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"})
CONFIG = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
        "StartError",
        "PreCreateHookError",
        "PreStartHookError",
        "PostStartHookError",
    }
)
CRASH = "CrashLoopBackOff"
MOUNTS = frozenset({"FailedMount", "FailedAttachVolume", "FailedMapVolume"})
SANDBOXES = frozenset({"FailedCreatePodSandBox"})
_ADVICE = {
    Hold.IMAGE: "correct `roles[].image` (or `programs_image`), give the pull secret (`image_pull_secrets`), or push "
    "the image; on the embedded cluster add it under `images` of the cluster profile",
    Hold.CONTAINER_CONFIG: "create the Secret or ConfigMap, or correct the role's command, secrets or folders",
    Hold.CRASH_LOOP: "read its last lines: primus logs, or kubectl logs --previous",
    Hold.MOUNT: "look whether the storage answers on that node; correct `storage` of the cluster profile where it "
    "names a wrong claim or folder",
    Hold.SANDBOX: "the node cannot start pods: repair its network plug-in or container runtime",
    Hold.NODE_SILENT: "wait for the node or let the flow take another one: the driver does so by itself",
    Hold.STARTING: "wait; a first pull of a large image takes minutes",
}
_NOT_FOUND = re.compile(r"(?:secret|configmap) \"[^\"]+\" not found|references non-existent (?:secret|configmap) key")
_HELD_BACK = "waits for its token, which it gets when no pod of the attempt before lives any more"
_PULL_TEXT = re.compile(r"^Back-off pulling image \"[^\"]*\"(?:: )?")


def pod_reasons(cluster: ClusterSight, pods: Sequence[Pod]) -> tuple[Reason, ...]:
    """Why placed pods do not run; one reason for all pods held by the same thing."""
    found: dict[tuple[Hold, str], list[tuple[Pod, Witness]]] = {}
    for pod in pods:
        held = _held(pod, cluster)
        if held is not None:
            hold, sentence, witness = held
            found.setdefault((hold, sentence), []).append((pod, witness))
    return tuple(_reason(hold, sentence, members) for (hold, sentence), members in found.items())


def _reason(hold: Hold, sentence: str, members: list[tuple[Pod, Witness]]) -> Reason:
    names = [pod.name for pod, _ in members]
    where = f"{len(names)} pods" if len(names) > 1 else f"pod {names[0]}"
    nodes = sorted({pod.node for pod, _ in members if pod.node})
    on = f" on {', '.join(nodes[:4])}{' …' if len(nodes) > 4 else ''}" if nodes else ""
    return Reason(hold, f"{where}{on}: {sentence}", _ADVICE[hold], tuple(witness for _, witness in members[:8]))


def _held(pod: Pod, cluster: ClusterSight) -> tuple[Hold, str, Witness] | None:
    """What holds the pod, in words without its own name, and the object that says so."""
    for container in pod.containers:
        hold = _container_hold(container)
        if hold is Hold.CONTAINER_CONFIG and _waits_for_token(pod, container.message):
            return Hold.STARTING, _HELD_BACK, _witness(pod, container)
        if hold is not None:
            return hold, _container_sentence(hold, container), _witness(pod, container)
    if pod.phase != "Pending":
        return None
    events = ((hold, _newest(cluster, pod, names)) for hold, names in ((Hold.MOUNT, MOUNTS), (Hold.SANDBOX, SANDBOXES)))
    for hold, event in events:
        if event is not None:
            return *_event_hold(pod, hold, event), of_event(event)
    silent = cluster.unready_nodes.get(pod.node)
    if silent is not None:
        witness = Witness("Node", silent.name, "Ready", silent.reason)
        return Hold.NODE_SILENT, f"its node {silent.name} is not ready", witness
    return Hold.STARTING, *_starting(pod, cluster)


def _event_hold(pod: Pod, hold: Hold, event: Event) -> tuple[Hold, str]:
    if _waits_for_token(pod, event.message):
        return Hold.STARTING, _HELD_BACK
    # A volume of a Secret is not the storage's fault.
    lacks = hold is Hold.MOUNT and _NOT_FOUND.search(event.message)
    return Hold.CONTAINER_CONFIG if lacks else hold, _short(event.message)


def _waits_for_token(pod: Pod, message: str) -> bool:
    """Whether the driver has not handed out the pod's token: it does once the pods of the attempt before are gone."""
    return bool(pod.attempt) and f'secret "{labels.secret_name(pod.run, pod.attempt)}" not found' in message


def _container_hold(container: Container) -> Hold | None:
    if container.state != "waiting":
        return None
    if container.reason in IMAGE:
        return Hold.IMAGE
    if container.reason in CONFIG:
        return Hold.CONTAINER_CONFIG
    return Hold.CRASH_LOOP if container.reason == CRASH else None


def _container_sentence(hold: Hold, container: Container) -> str:
    if hold is Hold.IMAGE:
        why = _PULL_TEXT.sub("", container.message) or container.reason
        return f"image {container.image} cannot be pulled: {_short(why)}"
    if hold is Hold.CRASH_LOOP:
        last = f", last time: {container.last_exit}" if container.last_exit else ""
        return f"container {container.name} keeps ending ({container.restarts} restarts{last})"
    return f"container {container.name} cannot be created: {_short(container.message or container.reason)}"


def _starting(pod: Pod, cluster: ClusterSight) -> tuple[str, Witness]:
    pulling = _newest(cluster, pod, frozenset({"Pulling", "Pulled", "Created", "Started"}))
    if pulling is not None and pulling.reason == "Pulling":
        return _short(pulling.message).replace("Pulling", "is pulling", 1), of_event(pulling)
    waiting = next((item for item in pod.containers if item.state == "waiting" and item.reason), None)
    if waiting is None:
        return "is being started", Witness("Pod", pod.name, f"phase {pod.phase}", at=pod.created_at)
    message = f": {_short(waiting.message)}" if waiting.message else ""
    return f"is being started ({waiting.reason}{message})", _witness(pod, waiting)


def _witness(pod: Pod, container: Container) -> Witness:
    return Witness("Pod", pod.name, f"container {container.name}", container.reason, container.message)


def _newest(cluster: ClusterSight, pod: Pod, reasons: frozenset[str]) -> Event | None:
    found = [item for item in cluster.events_about.get(pod.name, ()) if item.reason in reasons]
    return found[-1] if found else None


def _short(text: str, limit: int = 240) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


_HEAD = re.compile(r"\b0/(\d+) nodes are available: ?")
_TAIL = re.compile(r"\.? ?(?:no new claims to deallocate, )?preemption: .*$", re.DOTALL)
_ENTRY = re.compile(r"(?:^|, )(\d+) (.+?)(?=, \d+ |$)", re.DOTALL)
_LACKING = re.compile(r"Insufficient (\S+)$")
_TAINT = re.compile(r"node\(s\) had (?:untolerated taint|taint) \{([^:}]+):? ?([^}]*)\}")
_ANY_TAINT = re.compile(r"untolerated taint\(s\)|taints that the pod didn't tolerate")
_NEIGHBOURS = re.compile(r"pod (?:anti-)?affinity rules|existing pods anti-affinity|topology spread|pod group")
_VOLUMES = re.compile(
    r"persistent ?volumes?|PersistentVolume|volume (?:count|zone|node affinity)|free storage|available disk|pvc", re.I
)
_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


@dataclass(frozen=True)
class Unfit:
    """Why no node takes a pod; nodes counted by the first filter that refused each (one may lack several resources)."""

    nodes: int = 0
    """Nodes that there are."""
    lacking: dict[str, int] = field(default_factory=dict[str, int])
    """Resource -> nodes that have too little of it free, and are right otherwise."""
    taints: dict[str, int] = field(default_factory=dict[str, int])
    """Taint as `key` or `key=value` -> nodes; "" where the scheduler does not name it."""
    not_ready: int = 0
    cordoned: int = 0
    selector: int = 0
    """Nodes of other kinds: selector or affinity does not match."""
    neighbours: int = 0
    volumes: int = 0
    other: dict[str, int] = field(default_factory=dict[str, int])
    problem: str = ""
    """What is wrong with the pod itself, before any node was looked at."""

    @property
    def right(self) -> int:
        """Nodes that lack nothing but room."""
        return max(self.lacking.values(), default=0)


def read_unfit(message: str) -> Unfit | None:
    """The message of condition PodScheduled=False or event FailedScheduling; None where it is no such message."""
    head = _HEAD.search(message)
    if head is None:
        return None
    rest = _TAIL.sub("", message[head.end() :]).strip()
    nodes = int(head.group(1))
    entries = [(int(count), text.strip()) for count, text in _ENTRY.findall(rest.rstrip("."))]
    if not entries:
        return Unfit(nodes, problem=rest.rstrip("."))
    tally = _Tally()
    for count, text in entries:
        tally.add(count, text)
    return tally.unfit(nodes)


class _Tally:
    """Counts of nodes by what refused them."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._lacking: dict[str, int] = {}
        self._taints: dict[str, int] = {}
        self._other: dict[str, int] = {}

    def add(self, count: int, text: str) -> None:
        """One entry of the message."""
        found, taint = _LACKING.search(text), _TAINT.search(text)
        if found or text == "Too many pods":
            self._lacking[found.group(1) if found else "pods"] = count
        elif taint and taint.group(1) not in _NOT_READY:
            key = "=".join(part.strip() for part in taint.groups() if part.strip())
            self._taints[key] = self._taints.get(key, 0) + count
        elif word := _plain(text):
            self._counts[word] = self._counts.get(word, 0) + count
        else:
            self._other[text] = count

    def unfit(self, nodes: int) -> Unfit:
        """What was counted."""
        if unnamed := self._counts.pop("taint", 0):
            self._taints[""] = unnamed
        count = self._counts.get
        return Unfit(
            nodes=nodes,
            lacking=self._lacking,
            taints=self._taints,
            not_ready=count("not_ready", 0),
            cordoned=count("cordoned", 0),
            selector=count("selector", 0),
            neighbours=count("neighbours", 0),
            volumes=count("volumes", 0),
            other=self._other,
        )


def _plain(text: str) -> str:
    """Field of `Unfit` (or `taint`) that counts a reason; "" for none of them."""
    return next((word for word, applies in _PLAIN if applies(text)), "")


_PLAIN: tuple[tuple[str, Callable[[str], bool]], ...] = (
    ("not_ready", lambda text: any(taint in text for taint in _NOT_READY)),
    ("taint", lambda text: bool(_ANY_TAINT.search(text))),
    ("cordoned", lambda text: "were unschedulable" in text),
    ("selector", lambda text: "node affinity/selector" in text or "the requested node name" in text),
    ("neighbours", lambda text: bool(_NEIGHBOURS.search(text))),
    ("volumes", lambda text: bool(_VOLUMES.search(text))),
)


_NODES_TOLD = 12
"""So many nodes of the pool are told one by one."""
_OTHERS_TOLD = 3


def node_reasons(cluster: ClusterSight, pods: Sequence[Pod], avoid: tuple[str, ...] = ()) -> tuple[Reason, ...]:
    """Why pods have no node yet; one reason for all of them that the same thing keeps out.

    `pods` have no node and are not being deleted; `avoid`: nodes that the attempt must not use.
    """
    by_hold: dict[Hold, list[Pod]] = {}
    for pod in pods:
        by_hold.setdefault(_hold(pod, cluster), []).append(pod)
    if len(by_hold) > 1:
        # The scheduler has not come to these yet: they are no other case.
        by_hold.pop(Hold.UNPLACED, None)
    return tuple(_node_reason(cluster, hold, group, avoid) for hold, group in by_hold.items())


def cordoned_notes(cluster: ClusterSight) -> tuple[str, ...]:
    """Nodes that were cordoned while pods of the attempt run there, and why others of the pool are not free for it."""
    used = {pod.node for pod in cluster.pods if pod.node and pod.phase == "Running"}
    nodes = sorted(used & {node.name for node in cluster.nodes if node.cordoned})
    if not nodes:
        return ()
    verb = "is" if len(nodes) == 1 else "are"
    others = [node for node in cluster.candidates if node.name not in used]
    kept = [f"{node.name} ({why})" for node in others if (why := refusal(node))]
    out = f"; not free: {first_names(kept, _OTHERS_TOLD)}" if kept else ""
    return (
        f"{', '.join(nodes)} {verb} cordoned: the run moves away as soon as others are free, unless its profile says "
        f"`recovery.leave_cordoned_nodes: false`{out}",
    )


def _hold(pod: Pod, cluster: ClusterSight) -> Hold:
    condition = _placing(pod, cluster)
    if pod.gates or condition.reason == "SchedulingGated":
        return Hold.SCHEDULING_GATE
    unfit = read_unfit(condition.message)
    if unfit is None:
        return Hold.NO_NODE if condition.message else Hold.UNPLACED
    return _nearest(unfit)[0]


def _placing(pod: Pod, cluster: ClusterSight) -> Condition:
    """Condition PodScheduled=False, or what the newest event of the scheduler says."""
    found = next((item for item in pod.conditions if item.type == "PodScheduled" and item.status == "False"), None)
    if found is not None:
        return found
    event = _newest(cluster, pod, frozenset({"FailedScheduling"}))
    if event is not None:
        return Condition("PodScheduled", "False", "Unschedulable", event.message, event.at)
    return Condition("PodScheduled", "Unknown")


def _node_reason(cluster: ClusterSight, hold: Hold, pods: list[Pod], avoid: tuple[str, ...]) -> Reason:
    # What the hungriest hears is true for the gang: who asks for little only waits for it.
    pods = sorted(pods, key=lambda pod: (-_devices(pod), pod.name))
    condition = _placing(pods[0], cluster)
    witness = of_condition("Pod", pods[0].name, condition)
    if hold is Hold.SCHEDULING_GATE:
        gates = ", ".join(pods[0].gates) or condition.message
        advice = "Kueue opens its own gates as soon as it has placed the pods; others: whoever set them"
        return Reason(hold, f"{_count(pods)} held by scheduling gates: {gates}", advice, (witness,))
    unfit = read_unfit(condition.message)
    if unfit is None:
        message = condition.message or "no message from the scheduler yet"
        return Reason(
            hold, f"{_count(pods)} without a node: {message}", "wait a moment; does a scheduler run?", (witness,)
        )
    nodes = _pool(cluster.candidates, avoid)
    sentence = f"no node for {_count(pods)}: {_words(unfit)}{_requests(pods, unfit)}"
    held = [pod for pod in cluster.pods if pod.role and pod.node and pod.role == pods[0].role]
    if held:
        sentence += f"; {len(held)} of the same role are placed and wait for the others"
    return Reason(
        hold, sentence, _nearest(unfit)[1], (witness, *_claims(cluster, unfit), *nodes, *_events(cluster, pods))
    )


def _devices(pod: Pod) -> int:
    """Extended resources that the pod asks for, all together."""
    return sum(int(value) for name, value in pod.requests.items() if "/" in name and value.isdigit())


def _count(pods: Sequence[Pod]) -> str:
    return f"{len(pods)} pods" if len(pods) > 1 else f"pod {pods[0].name}"


def _requests(pods: Sequence[Pod], unfit: Unfit) -> str:
    """What each pod asks of the resources that are short."""
    each = {key: value for key, value in pods[0].requests.items() if key in unfit.lacking}
    return f" (each asks for {', '.join(f'{value} {key}' for key, value in sorted(each.items()))})" if each else ""


def _nearest(unfit: Unfit) -> tuple[Hold, str]:
    """What blocks, and what to do. Filters run in an order: a node that a later one refuses is nearer to taking it."""
    taints = ", ".join(sorted(taint for taint in unfit.taints if taint)) or "see the nodes below"
    rows: tuple[tuple[bool, Hold, str], ...] = (
        (
            _about_claims(unfit),
            Hold.CLAIM,
            "create or bind the claim that storage of the cluster profile names, or correct its name",
        ),
        (bool(unfit.problem), Hold.NO_NODE, "correct what the scheduler says of the pod"),
        (unfit.neighbours > 0, Hold.NEIGHBOURS, "one pod of a role goes to a node: free a node, or ask for fewer pods"),
        (
            bool(unfit.lacking),
            Hold.RESOURCES,
            "wait until others end, free nodes (`primus queue` shows who runs), ask for fewer pods, or let it wait: "
            "after `recovery.pending_timeout_seconds` the flow decides",
        ),
        (
            bool(unfit.taints),
            Hold.TAINTS,
            f"take the taint off what is well again ({taints}; kubectl taint node NODE KEY-), or let the pool's "
            "profile name it under `taints`",
        ),
        (bool(unfit.cordoned or unfit.not_ready), Hold.CORDONED, "uncordon or repair the nodes below"),
        (
            bool(unfit.selector),
            Hold.SELECTOR,
            "no node has the labels that are asked for: compare `labels` of the pool with the nodes' own",
        ),
    )
    other = (Hold.NO_NODE, "see the scheduler's message")
    return next(((hold, advice) for holds, hold, advice in rows if holds), other)


def _about_claims(unfit: Unfit) -> bool:
    problem = unfit.problem.lower()
    return "persistentvolumeclaim" in problem or (unfit.volumes > 0 and not unfit.lacking)


def _words(unfit: Unfit) -> str:
    """The nodes in the order in which they are nearest."""
    if unfit.problem:
        return unfit.problem
    parts = [f"{count} lack {resource}" for resource, count in sorted(unfit.lacking.items())]
    parts += [f"{unfit.neighbours} are excluded by pod anti-affinity"] if unfit.neighbours else []
    parts += [f"{unfit.volumes} cannot have the volume"] if unfit.volumes else []
    parts += [
        f"{count} carry a taint that is not tolerated{f' ({taint})' if taint else ''}"
        for taint, count in sorted(unfit.taints.items())
    ]
    parts += [f"{unfit.cordoned} are cordoned"] if unfit.cordoned else []
    parts += [f"{unfit.not_ready} are not ready"] if unfit.not_ready else []
    parts += [f"{unfit.selector} do not match the pods' node selector"] if unfit.selector else []
    parts += [f"{count}: {text}" for text, count in sorted(unfit.other.items())]
    return f"of {unfit.nodes} nodes {', '.join(parts)}" if parts else "there are no nodes"


def _pool(candidates: Sequence[NodeCandidate], avoid: tuple[str, ...]) -> tuple[Witness, ...]:
    """The pool's nodes that cannot be used, each with the reason that the scheduler may not have named."""
    avoided = frozenset(avoid)
    refusals = [(node, refusal(node, avoided)) for node in candidates]
    out = [Witness("Node", node.name, "unusable", "", why) for node, why in refusals if why]
    rest = len(out) - _NODES_TOLD
    more = (Witness("Node", f"and {rest} more", "unusable"),) if rest > 0 else ()
    free = len(refusals) - len(out)
    summary = (
        (Witness("Pool", candidates[0].pool, "usable", "", f"{free} of {len(refusals)} nodes"),) if refusals else ()
    )
    return (*summary, *out[:_NODES_TOLD], *more)


def _claims(cluster: ClusterSight, unfit: Unfit) -> tuple[Witness, ...]:
    if not _about_claims(unfit):
        return ()
    return tuple(
        Witness(
            "PersistentVolumeClaim", claim.name, "phase", claim.phase, f"storage class {claim.storage_class or '-'}"
        )
        for claim in cluster.claims
        if claim.phase != "Bound"
    )


def _events(cluster: ClusterSight, pods: Sequence[Pod]) -> tuple[Witness, ...]:
    """What the autoscaler says, if one is there."""
    names = {pod.name for pod in pods}
    wanted = ("NotTriggerScaleUp", "TriggeredScaleUp", "FailedScaleUp")
    return tuple(of_event(item) for item in cluster.events if item.name in names and item.reason in wanted)[-1:]
