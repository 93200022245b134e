"""What keeps pods from finding a node: the scheduler's words, and the pool's nodes as they are. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from flows.decisions.hold import Hold, Reason, Witness, of_condition, of_event
from flows.decisions.nodes import NodeNeed, refusal
from flows.decisions.unfit import Unfit, read_unfit
from workflows.fleet import NodeCandidate
from workflows.sight import ClusterSight, ConditionFacts, PodSight

_NODES_TOLD = 12
"""So many nodes of the pool are told one by one."""


def node_reasons(sight: ClusterSight, pods: Sequence[PodSight], avoid: tuple[str, ...] = ()) -> tuple[Reason, ...]:
    """Why pods have no node yet; one reason for all of them that the same thing keeps out.

    Args:
        sight: what the cluster has.
        pods: pods without a node that are not being deleted.
        avoid: nodes that the attempt must not use.
    """
    told: dict[Hold, list[PodSight]] = {}
    for pod in pods:
        told.setdefault(_hold(pod, sight), []).append(pod)
    if len(told) > 1:
        # The scheduler has not come to these yet: they are no other case.
        told.pop(Hold.UNPLACED, None)
    return tuple(_reason(sight, hold, group, avoid) for hold, group in told.items())


def cordoned_notes(sight: ClusterSight) -> tuple[str, ...]:
    """Nodes that somebody wants empty while pods of the attempt run there."""
    used = {pod.node for pod in sight.pods if pod.node and pod.phase == "Running"}
    nodes = sorted(used & {node.name for node in sight.nodes if node.unschedulable})
    if not nodes:
        return ()
    verb = "is" if len(nodes) == 1 else "are"
    return (
        f"{', '.join(nodes)} {verb} cordoned: the run moves away as soon as others are free, unless its profile says "
        "`recovery.leave_cordoned_nodes: false`",
    )


def _hold(pod: PodSight, sight: ClusterSight) -> Hold:
    condition = _placing(pod, sight)
    if pod.gates or condition.reason == "SchedulingGated":
        return Hold.SCHEDULING_GATE
    unfit = read_unfit(condition.message)
    if unfit is None:
        return Hold.NO_NODE if condition.message else Hold.UNPLACED
    return _nearest(unfit)[0]


def _placing(pod: PodSight, sight: ClusterSight) -> ConditionFacts:
    """Condition PodScheduled=False, or what the newest event of the scheduler says."""
    found = next((item for item in pod.conditions if item.type == "PodScheduled" and item.status == "False"), None)
    if found is not None:
        return found
    events = [item for item in sight.events if item.name == pod.name and item.reason == "FailedScheduling"]
    if events:
        return ConditionFacts("PodScheduled", "False", "Unschedulable", events[-1].message, events[-1].at)
    return ConditionFacts("PodScheduled", "Unknown")


def _reason(sight: ClusterSight, hold: Hold, pods: list[PodSight], avoid: tuple[str, ...]) -> Reason:
    # What the hungriest hears is true for the gang: who asks for little only waits for it.
    pods = sorted(pods, key=lambda pod: (-_devices(pod), pod.name))
    condition = _placing(pods[0], sight)
    witness = of_condition("Pod", pods[0].name, condition)
    if hold is Hold.SCHEDULING_GATE:
        gates = ", ".join(pods[0].gates) or condition.message
        advice = "Kueue opens its own gates as soon as it has placed the pods; others: whoever set them"
        return Reason(hold, f"{_count(pods)} held by scheduling gates: {gates}", advice, (witness,))
    unfit = read_unfit(condition.message)
    if unfit is None:
        said = condition.message or "the scheduler has said nothing yet"
        return Reason(
            hold, f"{_count(pods)} without a node: {said}", "wait a moment; does a scheduler run?", (witness,)
        )
    nodes = _pool(sight.candidates, avoid)
    sentence = f"no node for {_count(pods)}: {_words(unfit)}{_asked(pods, unfit)}"
    held = [pod for pod in sight.pods if pod.role and pod.node and pod.role == pods[0].role]
    if held:
        sentence += f"; {len(held)} of the same role are placed and wait for the others"
    return Reason(hold, sentence, _nearest(unfit)[1], (witness, *_claims(sight, unfit), *nodes, *_events(sight, pods)))


def _devices(pod: PodSight) -> int:
    """Extended resources that the pod asks for, all together."""
    return sum(int(value) for name, value in pod.requests.items() if "/" in name and value.isdigit())


def _count(pods: Sequence[PodSight]) -> str:
    return f"{len(pods)} pods" if len(pods) > 1 else f"pod {pods[0].name}"


def _asked(pods: Sequence[PodSight], unfit: Unfit) -> str:
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
    return next(((hold, advice) for holds, hold, advice in rows if holds), (Hold.NO_NODE, "see the scheduler's words"))


def _about_claims(unfit: Unfit) -> bool:
    told = unfit.problem.lower()
    return "persistentvolumeclaim" in told or (unfit.volumes > 0 and not unfit.lacking)


def _words(unfit: Unfit) -> str:
    """The nodes in the order in which they are nearest."""
    if unfit.problem:
        return unfit.problem
    parts = [f"{count} lack {resource}" for resource, count in sorted(unfit.lacking.items())]
    parts += [f"{unfit.neighbours} hold a pod that wants no other beside it"] if unfit.neighbours else []
    parts += [f"{unfit.volumes} cannot have the volume"] if unfit.volumes else []
    parts += [
        f"{count} carry a taint that is not tolerated{f' ({taint})' if taint else ''}"
        for taint, count in sorted(unfit.taints.items())
    ]
    parts += [f"{unfit.cordoned} are cordoned"] if unfit.cordoned else []
    parts += [f"{unfit.not_ready} are not ready"] if unfit.not_ready else []
    parts += [f"{unfit.selector} are of another kind"] if unfit.selector else []
    parts += [f"{count}: {text}" for text, count in sorted(unfit.other.items())]
    return f"of {unfit.nodes} nodes {', '.join(parts)}" if parts else "there are no nodes"


def _pool(candidates: Sequence[NodeCandidate], avoid: tuple[str, ...]) -> tuple[Witness, ...]:
    """The pool's nodes that cannot be used, each with the reason that the scheduler may not have named."""
    told = [(node, refusal(node, NodeNeed(1, avoid=avoid))) for node in candidates]
    out = [Witness("Node", node.name, "unusable", "", why) for node, why in told if why]
    rest = len(out) - _NODES_TOLD
    more = (Witness("Node", f"and {rest} more", "unusable"),) if rest > 0 else ()
    free = len(told) - len(out)
    summary = (Witness("Pool", candidates[0].pool, "usable", "", f"{free} of {len(told)} nodes"),) if told else ()
    return (*summary, *out[:_NODES_TOLD], *more)


def _claims(sight: ClusterSight, unfit: Unfit) -> tuple[Witness, ...]:
    if not _about_claims(unfit):
        return ()
    return tuple(
        Witness(
            "PersistentVolumeClaim", claim.name, "phase", claim.phase, f"storage class {claim.storage_class or '-'}"
        )
        for claim in sight.claims
        if claim.phase != "Bound"
    )


def _events(sight: ClusterSight, pods: Sequence[PodSight]) -> tuple[Witness, ...]:
    """What the autoscaler says, if one is there."""
    names = {pod.name for pod in pods}
    wanted = ("NotTriggerScaleUp", "TriggeredScaleUp", "FailedScaleUp")
    return tuple(of_event(item) for item in sight.events if item.name in names and item.reason in wanted)[-1:]
