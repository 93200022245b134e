"""What keeps placed pods from running: container states, kubelet's events, the node they were placed on. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flows.decisions.hold import Hold, Reason, Witness, of_event
from workflows.sight import ClusterSight, ContainerFacts, EventSight, PodSight

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
    Hold.CRASH_LOOP: "read its last words: primus logs, or kubectl logs --previous",
    Hold.MOUNT: "look whether the storage answers on that node; correct `storage` of the cluster profile where it "
    "names a wrong claim or folder",
    Hold.SANDBOX: "the node cannot make pods: its network plug-in or container runtime is at fault",
    Hold.NODE_SILENT: "wait for the node or let the flow take another one: the driver does so by itself",
    Hold.STARTING: "wait; a first pull of a large image takes minutes",
}
_PULL_TEXT = re.compile(r"^Back-off pulling image \"[^\"]*\"(?:: )?")


def pod_reasons(sight: ClusterSight, pods: Sequence[PodSight]) -> tuple[Reason, ...]:
    """Why placed pods do not run; one reason for all pods held by the same thing."""
    found: dict[tuple[Hold, str], list[tuple[PodSight, Witness]]] = {}
    for pod in pods:
        held = _held(pod, sight)
        if held is not None:
            hold, told, witness = held
            found.setdefault((hold, told), []).append((pod, witness))
    return tuple(_reason(hold, told, members) for (hold, told), members in found.items())


def _reason(hold: Hold, told: str, members: list[tuple[PodSight, Witness]]) -> Reason:
    names = [pod.name for pod, _ in members]
    where = f"{len(names)} pods" if len(names) > 1 else f"pod {names[0]}"
    nodes = sorted({pod.node for pod, _ in members if pod.node})
    on = f" on {', '.join(nodes[:4])}{' …' if len(nodes) > 4 else ''}" if nodes else ""
    return Reason(hold, f"{where}{on}: {told}", _ADVICE[hold], tuple(witness for _, witness in members[:8]))


def _held(pod: PodSight, sight: ClusterSight) -> tuple[Hold, str, Witness] | None:
    """What holds the pod, in words without its own name, and who says so."""
    for container in pod.containers:
        hold = _container_hold(container)
        if hold is not None:
            return hold, _told(hold, container), _witness(pod, container)
    if pod.phase != "Pending":
        return None
    for hold, reasons in ((Hold.MOUNT, MOUNTS), (Hold.SANDBOX, SANDBOXES)):
        event = _newest(sight, pod, reasons)
        if event is not None:
            return hold, _short(event.message), of_event(event)
    silent = next((node for node in sight.nodes if node.name == pod.node and node.ready is not True), None)
    if silent is not None:
        witness = Witness("Node", silent.name, "Ready", silent.reason)
        return Hold.NODE_SILENT, f"its node {silent.name} is not ready", witness
    return Hold.STARTING, *_starting(pod, sight)


def _container_hold(container: ContainerFacts) -> Hold | None:
    if container.state != "waiting":
        return None
    if container.reason in IMAGE:
        return Hold.IMAGE
    if container.reason in CONFIG:
        return Hold.CONTAINER_CONFIG
    return Hold.CRASH_LOOP if container.reason == CRASH else None


def _told(hold: Hold, container: ContainerFacts) -> str:
    if hold is Hold.IMAGE:
        why = _PULL_TEXT.sub("", container.message) or container.reason
        return f"image {container.image} cannot be had: {_short(why)}"
    if hold is Hold.CRASH_LOOP:
        last = f", last time: {container.last_exit}" if container.last_exit else ""
        return f"container {container.name} ends again and again ({container.restarts} restarts{last})"
    return f"container {container.name} cannot be made: {_short(container.message or container.reason)}"


def _starting(pod: PodSight, sight: ClusterSight) -> tuple[str, Witness]:
    pulling = _newest(sight, pod, frozenset({"Pulling", "Pulled", "Created", "Started"}))
    if pulling is not None and pulling.reason == "Pulling":
        return _short(pulling.message).replace("Pulling", "is pulling", 1), of_event(pulling)
    waiting = next((item for item in pod.containers if item.state == "waiting" and item.reason), None)
    if waiting is None:
        return "is being started", Witness("Pod", pod.name, f"phase {pod.phase}", at=pod.created_at)
    said = f": {_short(waiting.message)}" if waiting.message else ""
    return f"is being started ({waiting.reason}{said})", _witness(pod, waiting)


def _witness(pod: PodSight, container: ContainerFacts) -> Witness:
    return Witness("Pod", pod.name, f"container {container.name}", container.reason, container.message)


def _newest(sight: ClusterSight, pod: PodSight, reasons: frozenset[str]) -> EventSight | None:
    found = [item for item in sight.events if item.name == pod.name and item.reason in reasons]
    return found[-1] if found else None


def _short(text: str, limit: int = 240) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
