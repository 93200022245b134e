"""The JobSet of one attempt: one replicated job a role and one for the coordinator."""

from __future__ import annotations

from typing import Any

from profiles.errors import ProfileError
from profiles.run import Role
from workflows import commands, labels, placeholders, pods
from workflows.commands import PROGRAMS_VOLUME, whole_seconds
from workflows.plan import AttemptPlan
from workflows.pods import Part

API_VERSION = "jobset.x-k8s.io/v1alpha2"
PIPELINE = "train"
KEEP_SECONDS = 7 * 24 * 3600
"""An ended JobSet is deleted by the flow. Should no driver come for a week, the cluster cleans up."""
ENDLESS = 1_000_000
"""Restarts that never run out: the end of such a pod must not end the attempt. Kubernetes slows them down itself."""
SAVE_MARGIN_SECONDS = 10
"""Time between the ranks' SIGKILL by the launcher and the pod's own, for the termination record."""
TOKEN_KEY = "token"  # noqa: S105 - the key's name, not a token
PORT_NAME = "primus"
TOPOLOGY_LABELS = {"rack": labels.RACK, "block": labels.BLOCK}
RESUME_FROM = "PRIMUS_RESUME_FROM"
RESUME_STEP = "PRIMUS_RESUME_STEP"


def jobset(plan: AttemptPlan, resume_from: str = "", resume_step: str = "") -> dict[str, Any]:
    """The JobSet's manifest.

    Args:
        plan: the attempt.
        resume_from: value of PRIMUS_RESUME_FROM: a path as pods see it, a tag that the workflow fills, or empty.
        resume_step: value of PRIMUS_RESUME_STEP, likewise.

    Raises:
        ProfileError: the profile asks for something that cannot be written down.
    """
    _check(plan)
    roles = [_replicated_job(plan, role, resume_from, resume_step) for role in plan.resolved.run.roles]
    return {
        "apiVersion": API_VERSION,
        "kind": "JobSet",
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "labels": labels.labels(plan.run, plan.attempt, PIPELINE) | _queue_labels(plan),
            "annotations": {labels.FENCING: str(plan.fencing)},
        },
        "spec": {
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [plan.role.name]},
            "failurePolicy": {"maxRestarts": 0},
            "ttlSecondsAfterFinished": KEEP_SECONDS,
            "replicatedJobs": [_coordinator_job(plan), *roles],
        },
    }


def coordinator_host(plan: AttemptPlan) -> str:
    """Name under which pods of the attempt reach the coordinator (JobSet's headless service is called like itself)."""
    return f"{plan.name}-{labels.COORDINATOR_ROLE}-0-0.{plan.name}"


def _check(plan: AttemptPlan) -> None:
    if not plan.run[:1].isalpha():
        raise ProfileError("name", f"{plan.run!r} must start with a letter: it becomes part of DNS names")
    if plan.nodes and len(plan.nodes) != plan.role.replicas:
        raise ProfileError("nodes", f"{len(plan.nodes)} nodes chosen for {plan.role.replicas} pods")
    if plan.role.on_failure != "fail_attempt":
        index = plan.resolved.run.roles.index(plan.role)
        raise ProfileError(f"roles[{index}].on_failure", "must be fail_attempt for the role that decides")


def _queue_labels(plan: AttemptPlan) -> dict[str, str]:
    run = plan.resolved.run
    queue = run.queue or plan.resolved.cluster.queue
    if not queue:
        return {}
    priority = {"kueue.x-k8s.io/priority-class": run.priority} if run.priority else {}
    return {"kueue.x-k8s.io/queue-name": queue, **priority}


def _replicated_job(plan: AttemptPlan, role: Role, resume_from: str, resume_step: str) -> Part:
    policy = _OUTCOMES[role.on_failure]
    spec = {
        "restartPolicy": policy["restartPolicy"],
        "terminationGracePeriodSeconds": whole_seconds(plan.resolved.run.save_grace_seconds) + SAVE_MARGIN_SECONDS,
        **_placed(plan, role),
        **_pod_basics(plan),
        **_optional("securityContext", pods.rank_security(plan.resolved.cluster)),
        "volumes": _volumes(plan, role),
        "initContainers": [_bring_programs(plan)],
        "containers": [_rank_container(plan, role, resume_from, resume_step)],
    }
    annotations = _topology(plan, role)
    job = {"backoffLimit": policy["backoffLimit"]}
    if "podFailurePolicy" in policy:
        job["podFailurePolicy"] = {"rules": policy["podFailurePolicy"]}
    return _job(plan, role.name, role.replicas, job, annotations, spec)


def _coordinator_job(plan: AttemptPlan) -> Part:
    name = labels.COORDINATOR_ROLE
    cluster = plan.resolved.cluster
    mounts = pods.volume_mounts(cluster, {})
    container = {
        "name": name,
        "image": cluster.programs_image,
        "command": commands.coordinate(plan),
        "env": [
            *pods.own_environment(plan, mounts),
            pods.variable("PRIMUS_ROLE", name),
            pods.field_variable("PRIMUS_POD_IP", "status.podIP"),
            pods.variable("PRIMUS_RUN_DIR", placeholders.run_dir(plan)),
            pods.secret_variable("PRIMUS_TOKEN", labels.secret_name(plan.run, plan.attempt), TOKEN_KEY),
        ],
        "ports": [{"name": PORT_NAME, "containerPort": labels.COORDINATOR_PORT}],
        "resources": pods.OWN_RESOURCES,
        "securityContext": pods.container_security(),
        "volumeMounts": mounts,
    }
    spec = {
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": SAVE_MARGIN_SECONDS,
        **_optional("affinity", pods.node_affinity(plan, _listed_nodes(plan))),
        **_pod_basics(plan),
        "securityContext": pods.pod_security(cluster),
        "volumes": pods.storage_volumes(cluster),
        "containers": [container],
    }
    return _job(plan, name, 1, {"backoffLimit": ENDLESS}, {}, spec)


def _job(plan: AttemptPlan, role: str, pods_count: int, job: Part, annotations: dict[str, str], spec: Part) -> Part:
    marks = labels.labels(plan.run, plan.attempt, PIPELINE, role)
    return {
        "name": role,
        "replicas": 1,
        "template": {
            "metadata": {"labels": marks},
            "spec": {
                "parallelism": pods_count,
                "completions": pods_count,
                "completionMode": "Indexed",
                **job,
                "template": {
                    "metadata": {"labels": marks, **_optional("annotations", annotations)},
                    "spec": spec,
                },
            },
        },
    }


def _pod_basics(plan: AttemptPlan) -> Part:
    cluster, run = plan.resolved.cluster, plan.resolved.run
    secrets = [{"name": name} for name in cluster.image_pull_secrets]
    return {
        **_optional("priorityClassName", run.priority),
        **_optional("nodeSelector", pods.node_selector(plan)),
        **_optional("tolerations", pods.tolerations(plan)),
        **_optional("imagePullSecrets", secrets),
        "automountServiceAccountToken": False,
        # Thousands of services in a namespace would become thousands of variables in every rank.
        "enableServiceLinks": False,
    }


def _placed(plan: AttemptPlan, role: Role) -> Part:
    only = _listed_nodes(plan) if role.name == plan.role.name else ()
    affinity = {**pods.node_affinity(plan, only), **_apart(plan, role)}
    return _optional("affinity", affinity)


def _listed_nodes(plan: AttemptPlan) -> tuple[str, ...]:
    return plan.nodes if len(plan.nodes) <= pods.NODE_LIST_LIMIT else ()


def _apart(plan: AttemptPlan, role: Role) -> Part:
    """One pod of a role a node. Whole-node GPU requests already say so, and large gangs need it said cheaply."""
    whole_node = plan.resolved.hardware.gpus_per_node
    if role.replicas > pods.NODE_LIST_LIMIT and whole_node and plan.gpus(role) == whole_node:
        return {}
    marks = {labels.RUN: plan.run, labels.ATTEMPT: str(plan.attempt), labels.ROLE: role.name}
    term = {"labelSelector": {"matchLabels": marks}, "topologyKey": labels.HOSTNAME}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _topology(plan: AttemptPlan, role: Role) -> dict[str, str]:
    wish = plan.resolved.run.topology
    if wish.level == "none" or role.name != plan.role.name:
        return {}
    how = "required" if wish.required else "preferred"
    return {f"kueue.x-k8s.io/podset-{how}-topology": TOPOLOGY_LABELS[wish.level]}


def _volumes(plan: AttemptPlan, role: Role) -> list[Part]:
    memory = {"medium": "Memory", "sizeLimit": role.resources.shared_memory}
    return [
        *pods.storage_volumes(plan.resolved.cluster),
        pods.empty_volume(PROGRAMS_VOLUME),
        {"name": pods.SHARED_MEMORY_VOLUME, "emptyDir": memory},
    ]


def _bring_programs(plan: AttemptPlan) -> Part:
    mounts: list[Part] = [{"name": PROGRAMS_VOLUME, "mountPath": pods.PROGRAMS_MOUNT}]
    return {
        "name": "programs",
        "image": plan.resolved.cluster.programs_image,
        "command": commands.copy(),
        "env": pods.folder_environment(mounts),
        "resources": pods.OWN_RESOURCES,
        "securityContext": pods.container_security(),
        "volumeMounts": mounts,
    }


def _rank_container(plan: AttemptPlan, role: Role, resume_from: str, resume_step: str) -> Part:
    own = {PROGRAMS_VOLUME: pods.PROGRAMS_MOUNT, pods.SHARED_MEMORY_VOLUME: "/dev/shm"}  # noqa: S108 - a mount path
    mounts = pods.volume_mounts(plan.resolved.cluster, own)
    return {
        "name": role.name,
        "image": role.image,
        "command": commands.launch(plan, role),
        "env": _rank_environment(plan, role, mounts, resume_from, resume_step),
        **_optional("resources", pods.resources(plan, role)),
        "securityContext": pods.container_security(locks_memory=pods.nics(plan, role) > 0),
        "volumeMounts": mounts,
    }


def _rank_environment(
    plan: AttemptPlan, role: Role, mounts: list[Part], resume_from: str, resume_step: str
) -> list[Part]:
    index = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    ours = [
        *pods.own_environment(plan, mounts),
        pods.field_variable("PRIMUS_POD_IP", "status.podIP"),
        pods.field_variable("PRIMUS_POD_INDEX", index),
        pods.variable("PRIMUS_ROLE", role.name),
        pods.variable("PRIMUS_RUN_DIR", placeholders.run_dir(plan)),
        pods.variable("PRIMUS_CHECKPOINT_DIR", placeholders.checkpoint_dir(plan)),
        pods.variable(RESUME_FROM, resume_from),
        pods.variable(RESUME_STEP, resume_step),
        pods.variable("PRIMUS_COORDINATOR_URL", f"http://{coordinator_host(plan)}:{labels.COORDINATOR_PORT}"),
        pods.secret_variable("PRIMUS_TOKEN", labels.secret_name(plan.run, plan.attempt), TOKEN_KEY),
    ]
    return [*ours, *_user_environment(plan, role, {item["name"] for item in ours})]


def _user_environment(plan: AttemptPlan, role: Role, taken: set[str]) -> list[Part]:
    field = f"roles[{plan.resolved.run.roles.index(role)}]"
    plain = role.environment
    secrets = {item.name: item for item in role.secret_environment}
    for name in [*plain, *secrets]:
        if name in taken or (name in plain and name in secrets):
            raise ProfileError(f"{field}.environment.{name}", "is set twice: it is ours or also read from a Secret")
    for name, value in plain.items():
        placeholders.refuse_engine_tags(value, f"{field}.environment.{name}")
    return [
        *(pods.variable(name, value) for name, value in plain.items()),
        *(pods.secret_variable(item.name, item.secret, item.key) for item in secrets.values()),
    ]


def _optional(key: str, value: Any) -> Part:
    return {key: value} if value else {}


def _exit_rule(action: str) -> Part:
    return {"action": action, "onExitCodes": {"operator": "NotIn", "values": [0]}}


_OUTCOMES: dict[str, Part] = {
    # The rules change no outcome (one failed pod ends the attempt anyway); they write into the Job's condition which
    # pod it was and why, and that outlives the pod.
    "fail_attempt": {
        "restartPolicy": "Never",
        "backoffLimit": 0,
        "podFailurePolicy": [
            {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            _exit_rule("FailJob"),
        ],
    },
    "restart": {"restartPolicy": "OnFailure", "backoffLimit": 20},
    "ignore": {"restartPolicy": "Never", "backoffLimit": ENDLESS, "podFailurePolicy": [_exit_rule("Ignore")]},
}
"""What the end of a pod with an error means, by the role's `on_failure`."""
