"""Rules about containers, for training pods and pipeline pods alike."""

from __future__ import annotations

import re
from collections.abc import Iterator

from workflows import labels
from workflows.findings import Part, PodPart, Subject, part, parts
from workflows.placeholders import folder_variable
from workflows.trainjob import CONTAINER

Wrong = Iterator[tuple[str, str]]

DEVICE = re.compile(r"^[a-z0-9.-]+/[a-z0-9._-]+$", re.IGNORECASE)
"""An extended resource, e.g. `amd.com/gpu`."""
SECRET_NAME = re.compile(
    r"(^|_)(PASSWORD|PASSWD|PASSPHRASE|SECRET|CREDENTIALS?|APIKEY|(API|ACCESS|SECRET|PRIVATE|AUTH)_KEY"
    r"|(ACCESS|API|AUTH|BEARER|HF|HUB|REFRESH|SESSION|WANDB|PRIMUS)_TOKEN)$|^TOKEN$"
)
"""Names of variables that hold secrets. `MAX_TOKENS`, `TOKENIZERS_PARALLELISM`, `EOS_TOKEN` do not."""
SECRET_VALUE = re.compile(
    r"AKIA[0-9A-Z]{16}|\bgh[pousr]_[A-Za-z0-9]{36}|\bhf_[A-Za-z0-9]{30,}|\bsk-[A-Za-z0-9_-]{20,}"
    r"|\bxox[abp]-[A-Za-z0-9-]{10,}|-----BEGIN [A-Z ]*PRIVATE KEY|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."
    r"|://[^/\s:@$]+:[^/\s:@$]+@"
)
"""Values that are secrets whatever they are called: keys of clouds and services, private keys, tokens, passwords in
addresses."""


def commands(subject: Subject) -> Wrong:
    """Every container names its image and its command; that of the ranks in a TrainingRuntime gets the TrainJob's."""
    for pod in subject.pod_parts():
        for path, container in pod.containers:
            told = subject.kind == "TrainingRuntime" and container.get("name") == CONTAINER
            for key in ("image", "command"):
                if not container.get(key) and not told:
                    yield f"{path}.{key}", "must be set"


def limits(subject: Subject) -> Wrong:
    """Our own containers have limits; devices are limited to what is requested."""
    for pod in subject.pod_parts():
        for path, container in pod.containers:
            asked = part(container, "resources")
            requests, upper = part(asked, "requests"), part(asked, "limits")
            if _is_ours(subject, pod, path):
                for key in ("cpu", "memory"):
                    if key not in upper or key not in requests:
                        yield f"{path}.resources", f"must request and limit {key}"
            for name in sorted(name for name in requests | upper if DEVICE.match(name)):
                if requests.get(name) != upper.get(name):
                    yield f"{path}.resources", f"{name}: request and limit must be equal"


def _is_ours(subject: Subject, pod: PodPart, path: str) -> bool:
    """True for containers that run our programs; what a rank needs is the profile's business."""
    return subject.kind == "Workflow" or ".initContainers[" in path or pod.name == labels.COORDINATOR_ROLE


def mounts(subject: Subject) -> Wrong:
    """Every mount has its volume, and a variable that says where the folder is; every volume is mounted."""
    used: set[str] = set()
    known: list[tuple[str, str]] = []
    for pod in subject.pod_parts():
        known += [(pod.path, name) for name in pod.volumes]
        for path, container in pod.containers:
            told = {item["name"] for item in parts(container, "env")}
            for mount in parts(container, "volumeMounts"):
                name = mount["name"]
                used.add(name)
                if name not in pod.volumes:
                    yield f"{path}.volumeMounts", f"{name}: there is no such volume"
                if folder_variable(name) not in told:
                    yield f"{path}.env", f"{folder_variable(name)} is missing: the mount {name} needs it"
    for path, name in known:
        if name not in used:
            yield f"{path}.volumes", f"{name}: no container mounts it"


def secrets(subject: Subject) -> Wrong:
    """No secret stands in clear in a variable or a command."""
    for pod in subject.pod_parts():
        for path, container in pod.containers:
            for item in parts(container, "env"):
                if "value" in item and _secret(item):
                    yield f"{path}.env", f"{item['name']} looks like a secret in clear: read it from a Secret"
            for key in ("command", "args"):
                words: list[str] = container.get(key) or []
                if any(SECRET_VALUE.search(word) for word in words):
                    yield f"{path}.{key}", "holds what looks like a secret in clear: pass it by a Secret"


def _secret(item: Part) -> bool:
    value = item["value"]
    return bool(value and SECRET_NAME.search(item["name"].upper())) or bool(SECRET_VALUE.search(value))
