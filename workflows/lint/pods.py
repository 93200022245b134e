"""Lint rules about containers, about the object as a whole, and about the gang in it.

They hold for training pods and pipeline pods alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from workflows import labels
from workflows.attempt.kubeflow import TRAINJOB_CONTAINER
from workflows.attempt.placeholders import folder_variable
from workflows.attempt.training import GATE
from workflows.lint.subject import Part, PodPart, Subject, at, part, parts

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

SIZE_BYTES = 1024 * 1024
"""etcd takes 1.5 MiB a request; a third of it is left for the status."""
NAME_CHARACTERS = 63
DNS_LABEL = re.compile(r"^[a-z]([-a-z0-9]*[a-z0-9])?$")
"""RFC 1035: what services and JobSets must be called; begins with a letter."""
LABEL_VALUE = re.compile(r"^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$")
POD_SUFFIX = "-abcde"
"""Job controllers append five characters of their own to a pod's name."""
NODE_HASH = "-1234567890"
"""Argo appends a number of up to ten digits to the name of a step's pod."""
OURS = (labels.RUN, labels.ATTEMPT, labels.PIPELINE)
OF_NO_RUN = ("sweep", "preflight", "links", "bootstrap")
"""Pipelines about nodes, whatever trains there."""


def commands(subject: Subject) -> Wrong:
    """Every container names its image and its command; that of the ranks in a TrainingRuntime gets the TrainJob's."""
    for pod in subject.pod_parts():
        for path, container in pod.containers:
            by_trainjob = subject.kind == "TrainingRuntime" and container.get("name") == TRAINJOB_CONTAINER
            for key in ("image", "command"):
                if not container.get(key) and not by_trainjob:
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


def size(subject: Subject) -> Wrong:
    """The object stays below 1 MiB."""
    actual = len(json.dumps(subject.manifest, separators=(",", ":")).encode())
    if actual >= SIZE_BYTES:
        yield ".", f"{actual} bytes; must be below {SIZE_BYTES}"


def names(subject: Subject) -> Wrong:
    """The object's name and those made from it are legal and at most 63 characters."""
    for path, name in _names(subject):
        if len(name) > NAME_CHARACTERS:
            yield path, f"{name!r} has {len(name)} characters; at most {NAME_CHARACTERS} are allowed"
        elif not DNS_LABEL.match(name):
            yield path, f"{name!r} must start with a letter and hold only lower-case letters, digits and hyphens"


def _names(subject: Subject) -> Iterator[tuple[str, str]]:
    yield "metadata.name", subject.name
    pods = list(subject.pod_parts())
    if subject.kind == "Workflow":
        yield from ((f"{pod.path}.name", f"{subject.name}-{pod.name}{NODE_HASH}") for pod in pods)
    elif subject.kind == "PyTorchJob":
        yield from ((pod.path, f"{subject.name}-worker-{pod.pods - 1}") for pod in pods)
    elif subject.kind == "Job":
        yield "metadata.name", f"{subject.name}{POD_SUFFIX}"
    where, spec = subject.jobset
    for (path, job), pod in zip(at(where, "replicatedJobs", parts(spec, "replicatedJobs")), pods, strict=False):
        job_name = f"{subject.name}-{pod.name}-{job.get('replicas', 1) - 1}"
        yield f"{path}.name", f"{job_name}-{pod.pods - 1}{POD_SUFFIX}"


def marks(subject: Subject) -> Wrong:
    """The object and its pods carry our labels, the object the fencing number and its ledger; all values are legal."""
    metadata = part(subject.manifest, "metadata")
    annotations = part(metadata, "annotations")
    if labels.FENCING not in annotations:
        yield "metadata.annotations", f"{labels.FENCING} is missing"
    if subject.plan is not None and annotations.get(labels.LEDGER, "") != subject.plan.ledger:
        yield "metadata.annotations", f"{labels.LEDGER} must be {subject.plan.ledger!r}"
    for path, carried, wanted in _labelled(subject):
        missing = [key for key in wanted if not carried.get(key)]
        if missing:
            yield path, f"{', '.join(missing)} missing"
        for key, value in carried.items():
            if not LABEL_VALUE.match(value):
                yield path, f"{key}: {value!r} is not a legal label value"


def _labelled(subject: Subject) -> Iterator[tuple[str, Part, tuple[str, ...]]]:
    carried = part(part(subject.manifest, "metadata"), "labels")
    ours = (labels.PIPELINE,) if carried.get(labels.PIPELINE) in OF_NO_RUN else OURS
    yield "metadata.labels", carried, ours
    if subject.kind == "Workflow":
        yield "spec.podMetadata.labels", part(part(subject.spec, "podMetadata"), "labels"), ours
    if subject.kind == "Service":
        yield "spec.selector", part(subject.spec, "selector"), (*OURS, labels.ROLE)
    if subject.kind == "TrainingRuntime":
        yield "spec.template.metadata.labels", part(part(part(subject.spec, "template"), "metadata"), "labels"), OURS
    where, spec = subject.jobset
    for path, job in at(where, "replicatedJobs", parts(spec, "replicatedJobs")):
        own = part(part(part(job, "template"), "metadata"), "labels")
        yield f"{path}.template.metadata.labels", own, (*OURS, labels.ROLE)
    for pod in subject.pod_parts():
        if pod.marked:
            yield (*pod.marked, (*OURS, labels.ROLE))


def shape(subject: Subject) -> Wrong:
    """All pods of a role at once, no restarts behind the flow's back, one role decides."""
    where, spec = subject.jobset
    if part(spec, "failurePolicy").get("maxRestarts", 0) != 0:
        yield f"{where}.failurePolicy.maxRestarts", "must be 0: every attempt is a new JobSet"
    jobs = parts(spec, "replicatedJobs")
    targets: list[str] = part(spec, "successPolicy").get("targetReplicatedJobs") or []
    if len(targets) != 1 or targets[0] not in [job["name"] for job in jobs]:
        yield f"{where}.successPolicy.targetReplicatedJobs", "must name the one role that decides"
    for path, job in at(where, "replicatedJobs", jobs):
        inner = part(part(job, "template"), "spec")
        deciding = job["name"] in targets
        yield from ((f"{path}.template.spec", message) for message in _job_shape(inner, deciding=deciding))


def _job_shape(job: Part, *, deciding: bool) -> Iterator[str]:
    restarts = part(part(job, "template"), "spec").get("restartPolicy")
    if job.get("completionMode") != "Indexed":
        yield "completionMode must be Indexed"
    if job.get("parallelism") != job.get("completions"):
        yield "parallelism and completions must be equal"
    if restarts not in ("Never", "OnFailure"):
        yield "restartPolicy must be Never or OnFailure"
    if "podFailurePolicy" in job and restarts != "Never":
        yield "podFailurePolicy needs restartPolicy Never"
    if deciding and (restarts != "Never" or job.get("backoffLimit") != 0):
        yield "the deciding role must have restartPolicy Never and backoffLimit 0"


def gpus(subject: Subject) -> Wrong:
    """Every pod requests the GPUs that the plan gives it."""
    plan = subject.plan
    if plan is None:
        return
    resource = plan.resolved.hardware.resource_name
    roles = {role.name: plan.gpus(role) for role in plan.resolved.run.roles}
    wanted = {GATE: plan.resolved.gpus_per_pod} if subject.kind == "Workflow" else roles
    for pod in subject.pod_parts():
        found = sum(_requested(container, resource) for path, container in pod.containers if ".initC" not in path)
        expected = wanted.get(pod.name, 0)
        if found != expected:
            yield pod.path, f"requests {found} GPUs a pod, the plan says {expected}"


def _requested(container: Part, resource: str) -> int:
    upper = part(part(container, "resources"), "limits")
    return sum(int(count) for name, count in upper.items() if name == resource or name.endswith("/gpu"))
