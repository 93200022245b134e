"""The sweep: a short read-only pod on each of some nodes, rack by rack, to find what nobody complained about yet.

No GPUs and next to nothing else are asked for, so it runs beside training, on nodes under quarantine too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hera.workflows import Container, Parameter, RetryStrategy, Step, Steps, Workflow, models

from profiles.cluster import ClusterProfile, Pool
from profiles.hardware import HardwareProfile
from workflows import commands, labels, pods
from workflows.commands import whole_seconds
from workflows.placeholders import folder_variable, storage_volume
from workflows.programs import sweep as sweep_program
from workflows.reports import GateReport, to_json
from workflows.templates import DEADLINE_MARGIN_SECONDS, LOST_POD_RETRIES, MAIN

SWEEP = "sweep"
LOOK = "look-"
"""Beginning of the templates' names; the number of the pool follows."""
POD_SECONDS = 60
"""A pod's own limit; its checks take at most 15 s."""
AT_ONCE = 32
"""Pods at the same time: no more than an API server and a registry notice."""
MOST = 128
"""Nodes of one workflow: its status holds up to 5 KB of each, and 1 MiB together."""
KEEP_SECONDS = 3600
"""What was found is in the ledger by then."""
EVERYTHING = models.Toleration(operator="Exists")
"""A node that others keep away from is looked at all the same."""


@dataclass(frozen=True)
class Rack:
    """Nodes that are looked at side by side."""

    pool: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class SweepPlan:
    """One sweep, decided."""

    cluster: ClusterProfile
    hardware: dict[str, HardwareProfile]
    """By pool."""
    number: int
    """Of the sweep: a counter, or for one that a person asked for the second in which he did."""
    racks: tuple[Rack, ...]
    asked_at: float
    """Unix seconds, by the clock of whoever asks."""
    since: float = 0.0
    """Unix seconds: what the nodes' kernels said before is left out."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All of them, in the order of the racks."""
        return tuple(node for rack in self.racks for node in rack.nodes)


def racks_of(pool: Pool, nodes: Sequence[str]) -> list[Rack]:
    """Nodes of a pool, given in their order, rack by rack; small racks together."""
    size = pool.topology.nodes_per_rack
    step = size * max(1, AT_ONCE // size)
    return [Rack(pool.name, tuple(nodes[begin : begin + step])) for begin in range(0, len(nodes), step)]


def deadline_seconds(plan: SweepPlan) -> int:
    """After so long the whole workflow is ended."""
    rounds = sum(-(-len(rack.nodes) // AT_ONCE) for rack in plan.racks)
    return rounds * POD_SECONDS * (1 + LOST_POD_RETRIES) + DEADLINE_MARGIN_SECONDS


def sweep_workflow(plan: SweepPlan) -> Workflow:
    """One sweep. Every pod reports and ends well: output parameters `report` and `verdict` say what it found.

    Raises:
        ValueError: no nodes, or more than `MOST`.
    """
    if not 0 < len(plan.nodes) <= MOST:
        raise ValueError(f"racks: must hold 1 to {MOST} nodes together, got {len(plan.nodes)}")
    cluster, marks = plan.cluster, {labels.PIPELINE: SWEEP}
    volumes = [*pods.storage_volumes(cluster), pods.empty_volume(commands.OUTPUTS_VOLUME)]
    with Workflow(
        name=labels.sweep_name(cluster.name, plan.number),
        namespace=cluster.namespace,
        labels=marks,
        annotations={labels.FENCING: "0"},
        entrypoint=MAIN,
        service_account_name=cluster.service_account,
        active_deadline_seconds=deadline_seconds(plan),
        parallelism=AT_ONCE,
        pod_gc=models.PodGC(strategy="OnPodCompletion"),
        ttl_strategy=models.TTLStrategy(seconds_after_completion=KEEP_SECONDS),
        pod_metadata=models.Metadata(labels=marks),
        image_pull_secrets=[models.LocalObjectReference(name=secret) for secret in cluster.image_pull_secrets] or None,
        security_context=models.PodSecurityContext.model_validate(pods.pod_security(cluster)),
        tolerations=[EVERYTHING],
        volumes=[models.Volume.model_validate(volume) for volume in volumes],
    ) as workflow:
        for pool in _pools(plan):
            _look(plan, pool)
        with Steps(name=MAIN):
            for number, rack in enumerate(plan.racks):
                Step(
                    name=f"rack-{number}",
                    template=_template(plan, rack.pool),
                    arguments={"node": "{{item}}"},
                    with_items=list(rack.nodes),
                    # A node whose pod is lost keeps nobody else from being looked at.
                    continue_on=models.ContinueOn(error=True, failed=True),
                )
    return workflow


def _pools(plan: SweepPlan) -> list[str]:
    return list(dict.fromkeys(rack.pool for rack in plan.racks))


def _template(plan: SweepPlan, pool: str) -> str:
    """Short: it stands in the names of pods."""
    return f"{LOOK}{_pools(plan).index(pool)}"


def _look(plan: SweepPlan, pool: str) -> Container:
    """The template of the pods on one pool's nodes."""
    cluster = plan.cluster
    mounts = pods.volume_mounts(cluster, {commands.OUTPUTS_VOLUME: pods.OUTPUTS_MOUNT})
    storage = {storage_volume(index) for index in range(len(cluster.storage))}
    looked_at = [{**mount, "readOnly": True} if mount["name"] in storage else mount for mount in mounts]
    environment = [*pods.folder_environment(mounts), pods.field_variable("PRIMUS_NODE", "spec.nodeName")]
    evidence = "the sweep's pod ended without a report"
    unknown = GateReport("", "unknown", [{"check": SWEEP, "verdict": "unknown", "evidence": evidence}])
    defaults = {"report": to_json(unknown), "verdict": "unknown"}
    security = pods.container_security(reads_kernel_log=cluster.read_kernel_log)
    return Container(
        name=_template(plan, pool),
        image=cluster.programs_image,
        command=[commands.PROGRAMS, SWEEP, *_options(plan, pool).argv()],
        inputs=[Parameter(name="node")],
        outputs=[
            Parameter(name=key, value_from=models.ValueFrom(path=f"{pods.OUTPUTS_MOUNT}/{key}", default=default))
            for key, default in defaults.items()
        ],
        env=[models.EnvVar.model_validate(item) for item in environment],
        resources=models.ResourceRequirements.model_validate(pods.OWN_RESOURCES),
        security_context=models.SecurityContext.model_validate(security),
        volume_mounts=[models.VolumeMount.model_validate(mount) for mount in looked_at],
        node_selector={labels.HOSTNAME: "{{inputs.parameters.node}}"},
        active_deadline_seconds=whole_seconds(POD_SECONDS),
        retry_strategy=RetryStrategy(limit=LOST_POD_RETRIES, retry_policy="OnError"),
    )


def _options(plan: SweepPlan, pool: str) -> sweep_program.Options:
    hardware, embedded = plan.hardware[pool], plan.cluster.engine == "embedded"
    folders = [f"$({folder_variable(storage_volume(index))})" for index in range(len(plan.cluster.storage))]
    # Nodes of the embedded cluster have no devices: their GPUs are a number.
    gpus = 0 if embedded else hardware.gpus_per_node
    return sweep_program.Options(
        storage=tuple(folders),
        gpu_vendor=hardware.vendor if gpus else "",
        expected_gpus=gpus,
        kernel_since=plan.since,
        asked_at=plan.asked_at,
        within_seconds=float(deadline_seconds(plan)),
        stand_in=f"{folders[0]}/{commands.KERNEL_LOGS}" if embedded else "",
        out_dir=f"$({folder_variable(commands.OUTPUTS_VOLUME)})",
    )
