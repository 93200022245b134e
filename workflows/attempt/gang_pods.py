"""The pods of a gang: the coordinator's and those of each role, the same whatever object holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from profiles.cluster import Pool
from profiles.errors import ProfileError
from profiles.run import Role
from workflows import labels
from workflows.attempt import commands, placeholders, pods
from workflows.attempt.commands import PROGRAMS_VOLUME, whole_seconds
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.pods import Part
from workflows.model import ownership
from workflows.programs.runtime import report_token

PIPELINE = "train"
SAVE_MARGIN_SECONDS = 10
"""Time between the ranks' SIGKILL by the launcher and the pod's own, for the termination record."""
PORT_NAME = "primus"
TOPOLOGY_LABELS = {"rack": labels.RACK, "block": labels.BLOCK}
QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of what Kueue queues."""
RESUME_FROM = "PRIMUS_RESUME_FROM"
RESUME_STEP = "PRIMUS_RESUME_STEP"


@dataclass(frozen=True)
class Holder:
    """What the object that holds them adds to pods of ranks."""

    coordinator_host: str
    """Name under which they reach the coordinator."""
    index_field: str
    """Field of the pod with its number in its role, from 0."""
    container: str = ""
    """What the ranks' container of the deciding role must be called; empty: like its role."""
    resume_from: str = ""
    """Value of PRIMUS_RESUME_FROM: a path as pods see it, a tag that the workflow fills, or empty."""
    resume_step: str = ""
    """Value of PRIMUS_RESUME_STEP, likewise."""


def check(plan: AttemptPlan) -> None:
    """Nothing, or an error where no gang can be made of the plan.

    Raises:
        ProfileError: names the field.
    """
    if not plan.run[:1].isalpha():
        raise ProfileError("name", f"{plan.run!r} must start with a letter: it becomes part of DNS names")
    if plan.nodes and len(plan.nodes) != plan.role.replicas:
        raise ProfileError("nodes", f"{len(plan.nodes)} nodes chosen for {plan.role.replicas} pods")
    if plan.role.on_failure != "fail_attempt":
        index = plan.resolved.run.roles.index(plan.role)
        raise ProfileError(f"roles[{index}].on_failure", "must be fail_attempt for the role that decides")


def metadata(plan: AttemptPlan, name: str = "", role: str = "") -> Part:
    """Name, labels and owner of an object that the attempt creates; `name` empty: called like the attempt."""
    return {
        "name": name or plan.name,
        "namespace": plan.namespace,
        "labels": {**plan.marks, **labels.labels(plan.run, plan.attempt, PIPELINE, role)},
        "annotations": ownership.marks(plan.fencing, plan.ledger),
    }


def queued(plan: AttemptPlan) -> Part:
    """The same for the object that holds the gang: also with the labels by which Kueue queues it."""
    plain = metadata(plan)
    run = plan.resolved.run
    queue = run.queue or plan.resolved.cluster.queue
    if not queue:
        return plain
    place = plan.resolved.cluster.returning_priorities.get(run.priority, "") if plan.returns else ""
    priority = place or run.priority
    ranked = {"kueue.x-k8s.io/priority-class": priority} if priority else {}
    return {**plain, "labels": {**plain["labels"], QUEUE: queue, **ranked}}


def role_pod(plan: AttemptPlan, role: Role, holder: Holder) -> Part:
    """Template of the pods of `role`, without a restart policy: that is its holder's business.

    Raises:
        ProfileError: the profile asks for something that cannot be written down.
    """
    spec = {
        "terminationGracePeriodSeconds": whole_seconds(plan.resolved.run.save_grace_seconds) + SAVE_MARGIN_SECONDS,
        **_placed(plan, role),
        **_basics(plan, plan.resolved.pool),
        **optional("securityContext", pods.rank_security(plan.resolved.cluster)),
        "volumes": _volumes(plan, role),
        "initContainers": [_bring_programs(plan)],
        "containers": [_rank_container(plan, role, holder)],
    }
    return {
        "metadata": {
            "labels": {**plan.marks, **pod_labels(plan, role.name)},
            **optional("annotations", _topology(plan, role)),
        },
        "spec": spec,
    }


def coordinator_pod(plan: AttemptPlan) -> Part:
    """Template of the coordinator's pod, likewise."""
    name = labels.COORDINATOR_ROLE
    cluster, pool = plan.resolved.cluster, plan.coordinator_pool
    mounts = pods.volume_mounts(cluster, {pods.TOKEN_VOLUME: pods.TOKEN_MOUNT})
    container = {
        "name": name,
        "image": cluster.programs_image,
        "command": commands.coordinate(plan),
        "env": [
            *pods.own_environment(plan, mounts),
            pods.variable("PRIMUS_ROLE", name),
            pods.field_variable("PRIMUS_POD_IP", "status.podIP"),
            pods.variable("PRIMUS_RUN_DIR", placeholders.run_dir(plan)),
            pods.token_variable(),
        ],
        "ports": [{"name": PORT_NAME, "containerPort": labels.COORDINATOR_PORT}],
        "resources": pods.OWN_RESOURCES,
        "securityContext": pods.container_security(),
        "volumeMounts": mounts,
    }
    spec = {
        "terminationGracePeriodSeconds": SAVE_MARGIN_SECONDS,
        **optional("affinity", pods.node_affinity(plan, _listed_nodes(plan) if pool == plan.resolved.pool else ())),
        **_basics(plan, pool),
        "securityContext": pods.pod_security(cluster),
        "volumes": [*pods.storage_volumes(cluster), _token(plan)],
        "containers": [container],
    }
    return {"metadata": {"labels": {**plan.marks, **pod_labels(plan, name)}}, "spec": spec}


def pod_labels(plan: AttemptPlan, role: str) -> dict[str, str]:
    """Labels of the pods of a role, and of whatever stands for all of them."""
    return labels.labels(plan.run, plan.attempt, PIPELINE, role)


def deadline(plan: AttemptPlan) -> Part:
    """`activeDeadlineSeconds` for objects that have it: the wall time of the run's budget; nothing without one."""
    seconds = plan.resolved.run.budget.wall_seconds
    return optional("activeDeadlineSeconds", whole_seconds(seconds) if seconds else 0)


def optional(key: str, value: Any) -> Part:
    """`key` with `value`, or nothing where the value is empty."""
    return {key: value} if value else {}


def _basics(plan: AttemptPlan, pool: Pool) -> Part:
    cluster, run = plan.resolved.cluster, plan.resolved.run
    secrets = [{"name": name} for name in cluster.image_pull_secrets]
    return {
        **optional("priorityClassName", run.priority),
        **optional("nodeSelector", pods.node_selector(cluster, pool)),
        **optional("tolerations", pods.tolerations(pool)),
        **optional("imagePullSecrets", secrets),
        "automountServiceAccountToken": False,
        # Thousands of services in a namespace would become thousands of variables in every rank.
        "enableServiceLinks": False,
    }


def _placed(plan: AttemptPlan, role: Role) -> Part:
    only = _listed_nodes(plan) if role.name == plan.role.name else ()
    affinity = {**pods.node_affinity(plan, only), **_apart(plan, role)}
    return optional("affinity", affinity)


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
        _token(plan),
    ]


def _token(plan: AttemptPlan) -> Part:
    return pods.token_volume(labels.secret_name(plan.run, plan.attempt))


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


def _rank_container(plan: AttemptPlan, role: Role, holder: Holder) -> Part:
    shared_memory = {pods.SHARED_MEMORY_VOLUME: "/dev/shm"}  # noqa: S108 - a mount path
    own = {PROGRAMS_VOLUME: pods.PROGRAMS_MOUNT, **shared_memory, pods.TOKEN_VOLUME: pods.TOKEN_MOUNT}
    mounts = pods.volume_mounts(plan.resolved.cluster, own)
    return {
        "name": (holder.container if role.name == plan.role.name else "") or role.name,
        "image": role.image,
        "command": commands.launch(plan, role),
        "env": _rank_environment(plan, role, mounts, holder),
        **optional("resources", pods.resources(plan, role)),
        "securityContext": pods.container_security(locks_memory=pods.nics(plan, role) > 0),
        "volumeMounts": mounts,
    }


def _rank_environment(plan: AttemptPlan, role: Role, mounts: list[Part], holder: Holder) -> list[Part]:
    ours = [
        *pods.own_environment(plan, mounts),
        pods.field_variable("PRIMUS_POD_IP", "status.podIP"),
        pods.field_variable("PRIMUS_POD_INDEX", holder.index_field),
        pods.variable("PRIMUS_ROLE", role.name),
        pods.variable("PRIMUS_RUN_DIR", placeholders.run_dir(plan)),
        pods.variable("PRIMUS_CHECKPOINT_DIR", placeholders.checkpoint_dir(plan)),
        pods.variable(RESUME_FROM, holder.resume_from),
        pods.variable(RESUME_STEP, holder.resume_step),
        pods.variable("PRIMUS_COORDINATOR_URL", f"http://{holder.coordinator_host}:{labels.COORDINATOR_PORT}"),
        pods.token_variable(),
    ]
    return [*ours, *_user_environment(plan, role, {*report_token.SECRETS, *(item["name"] for item in ours)})]


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
