"""What a pod's status says, from the states of its containers. Pure; small enough for a supervisor."""

from __future__ import annotations

from tasks.embedded.objects import entries

TYPE_CHECKING = False


if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Object = dict[str, Any]

SIGNAL_EXIT = 128
START_ERROR_EXIT = 128
MESSAGE_BYTES = 4096
"""Kubernetes cuts a termination message here."""


class ContainerState:
    """One container as its status will say."""

    def __init__(self, name: str, image: str) -> None:
        self.name = name
        self.image = image
        self.state: Object = {"waiting": {"reason": "PodInitializing"}}
        self.last_state: Object = {}
        self.restart_count = 0

    @property
    def running(self) -> bool:
        """Whether its first process lives."""
        return "running" in self.state

    @property
    def terminated(self) -> Object | None:
        """The end, None where it has not ended."""
        return self.state.get("terminated")

    @property
    def succeeded(self) -> bool:
        """Whether it ended with exit code 0."""
        return self.terminated is not None and self.terminated["exitCode"] == 0

    def status(self) -> Object:
        """The entry of `containerStatuses`."""
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "ready": self.running,
            "started": self.running,
            "restartCount": self.restart_count,
            "state": dict(self.state),
            "lastState": dict(self.last_state),
        }


def has_ended(status: int, started_at: str, finished_at: str, message: str, *, out_of_memory: bool = False) -> Object:
    """`state` of a container whose first process ended with this wait status."""
    number = status & 0x7F
    code = SIGNAL_EXIT + number if number else (status >> 8) & 0xFF
    reason = "OOMKilled" if out_of_memory else "Completed" if code == 0 else "Error"
    terminated: Object = {"exitCode": code, "reason": reason, "startedAt": started_at, "finishedAt": finished_at}
    if number:
        terminated["signal"] = number
    if message:
        terminated["message"] = cut(message)
    return {"terminated": terminated}


def is_not_started(reason: str, message: str, at: str) -> Object:
    """`state` of a container whose program could not be started."""
    return {
        "terminated": {
            "exitCode": START_ERROR_EXIT,
            "reason": reason,
            "message": cut(message),
            "startedAt": "1970-01-01T00:00:00Z",
            "finishedAt": at,
        }
    }


def waiting(reason: str, message: str = "") -> Object:
    """`state` of a container that waits."""
    return {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}


def cut(message: str) -> str:
    """The first 4,096 bytes, on a character's edge."""
    return message.encode()[:MESSAGE_BYTES].decode(errors="ignore")


def restarts(policy: str, container: ContainerState, *, initial: bool) -> bool:
    """Whether an ended container is started again."""
    if initial:
        return policy != "Never" and not container.succeeded
    return policy == "Always" or (policy == "OnFailure" and not container.succeeded)


def restart_delay(restart_count: int, initial_seconds: float, max_seconds: float) -> float:
    """Seconds before a restart: the first at once, then doubling, as the kubelet's crash loop back-off."""
    return 0.0 if restart_count == 0 else min(max_seconds, initial_seconds * 2 ** min(restart_count - 1, 30))


def final_phase(containers: Sequence[ContainerState]) -> str:
    """Phase of a pod none of whose containers will run again."""
    return "Succeeded" if containers and all(container.succeeded for container in containers) else "Failed"


def conditions(phase: str, initialized: bool, ready: bool, at: str, before: Sequence[Object]) -> list[Object]:
    """The pod's conditions; one that did not change keeps its transition time."""
    values = {"PodScheduled": True, "Initialized": initialized, "ContainersReady": ready, "Ready": ready}
    old = {condition["type"]: condition for condition in before}
    result: list[Object] = []
    for kind, value in values.items():
        status = "True" if value else "False"
        previous = old.pop(kind, None)
        if previous is not None and previous["status"] == status:
            result.append(previous)
            continue
        condition: Object = {"type": kind, "status": status, "lastTransitionTime": at}
        if not value and phase == "Succeeded":
            condition["reason"] = "PodCompleted"
        result.append(condition)
    return [*result, *old.values()]


def pod_status(
    before: Object, phase: str, initials: Sequence[ContainerState], mains: Sequence[ContainerState], at: str
) -> Object:
    """The pod's status as its supervisor sees it; fields that others wrote are kept."""
    initialized = all(container.succeeded for container in initials)
    ready = phase == "Running" and all(container.running for container in mains)
    status: Object = {
        **before,
        "phase": phase,
        "startTime": before.get("startTime", at),
        "conditions": conditions(phase, initialized, ready, at, entries(before, "conditions")),
        "containerStatuses": [container.status() for container in mains],
    }
    if initials:
        status["initContainerStatuses"] = [container.status() for container in initials]
    return status


def failed_status(status: Object, reason: str, message: str, at: str) -> Object:
    """Status of a pod that another process than its supervisor declares failed; what still ran is marked as lost."""
    result: Object = {**status, "phase": "Failed", "reason": reason, "message": message}
    for group in ("initContainerStatuses", "containerStatuses"):
        if group in status:
            result[group] = [_is_lost(entry, reason, at) for entry in status[group]]
    result["conditions"] = conditions("Failed", True, False, at, entries(status, "conditions"))
    return result


def _is_lost(entry: Object, reason: str, at: str) -> Object:
    running = entry["state"].get("running")
    if running is None:
        return {**entry, "ready": False, "started": False}
    # As the kubelet writes a container that it cannot find any more: an exit code that nobody saw is 137.
    state = {"exitCode": 137, "reason": "ContainerStatusUnknown", "startedAt": running["startedAt"], "finishedAt": at}
    state["message"] = f"the container could not be located when the pod was terminated ({reason})"
    return {**entry, "state": {"terminated": state}, "ready": False, "started": False}
