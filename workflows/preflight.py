"""The preflight: the calls of a suite's checks on each of some nodes, rack by rack, before they may train.

One depth a workflow. Pods measure and report; limits, peers and the past are judged outside, where all nodes are known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hera.workflows import Container, Parameter, RetryStrategy, Workflow, models

from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.load import load_hardware
from profiles.suite import SuiteProfile
from profiles.suite_words import Depth, Launcher
from workflows import commands, labels, pods
from workflows.commands import whole_seconds
from workflows.gpu_pods import command, sees_gpus, variables_of, with_gpus
from workflows.node_pods import Rack, pod_fields, rack_steps, racks_by_pool, rounds_of, workflow_fields
from workflows.placeholders import folder_variable, storage_volume
from workflows.preflight_calls import Calls, calls_of, node_checks
from workflows.programs import probe as probe_program
from workflows.programs.probe_call import Call, to_json
from workflows.templates import DEADLINE_MARGIN_SECONDS, LOST_POD_RETRIES
from workflows.volume_pods import VOLUME, volume_pod, volume_seconds

PREFLIGHT = "preflight"
PROBE = "probe-"
"""Beginning of the templates' names; the number of the pool follows."""
MOST = 96
"""Nodes of one workflow: its status holds up to 8 KB of each (packed), and 1 MiB together."""
START_SECONDS = 60
"""For a pod to start, beside the checks' own time."""


@dataclass(frozen=True)
class PreflightPlan:
    """One test of some nodes, decided."""

    cluster: ClusterProfile
    hardware: dict[str, HardwareProfile]
    """By pool."""
    suite: SuiteProfile
    depth: Depth
    name: str
    """Of the workflow (`labels.preflight_name`)."""
    racks: tuple[Rack, ...]
    launcher: Launcher = "kubernetes"
    """Who starts it on the nodes."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All of them, in the order of the racks."""
        return tuple(node for rack in self.racks for node in rack.nodes)

    @property
    def pools(self) -> tuple[str, ...]:
        """Pools of the nodes, each once."""
        return tuple(dict.fromkeys(rack.pool for rack in self.racks))

    @property
    def volume_calls(self) -> dict[str, tuple[Call, ...]]:
        """By pool, those that are answered by a pod with a volume of its own; pools without any are left out."""
        found = {pool: self.calls(pool).in_volume_pod for pool in self.pools}
        return {pool: calls for pool, calls in found.items() if calls}

    def calls(self, pool: str) -> Calls:
        """What is found out about a node of the pool."""
        hardware = self.hardware[pool]
        own = next((item for item in self.cluster.pools if item.name == pool), None)
        wanted = variables_of(own, hardware) if own is not None else {}
        return calls_of(node_checks(self.suite, self.depth, hardware, self.launcher), wanted)


def planned(
    cluster: ClusterProfile,
    suite: SuiteProfile,
    depth: Depth,
    pools: Mapping[str, str],
    number: int,
    launcher: Launcher = "kubernetes",
) -> PreflightPlan:
    """A test of these nodes (name -> pool), in their order, under this number."""
    return PreflightPlan(
        cluster=cluster,
        hardware={pool.name: load_hardware(pool.hardware) for pool in cluster.pools},
        suite=suite,
        depth=depth,
        name=labels.preflight_name(cluster.name, number),
        racks=racks_by_pool(cluster, pools),
        launcher=launcher,
    )


def pod_seconds(plan: PreflightPlan) -> int:
    """A pod's own limit."""
    return whole_seconds(plan.suite.deadline_seconds.of(plan.depth)) + START_SECONDS


def deadline_seconds(plan: PreflightPlan) -> int:
    """After so long the whole workflow is ended."""
    volumes = max((volume_seconds(calls) for calls in plan.volume_calls.values()), default=0)
    each = pod_seconds(plan) * (1 + LOST_POD_RETRIES) + volumes
    return rounds_of(plan.racks) * each + DEADLINE_MARGIN_SECONDS


def preflight_workflow(plan: PreflightPlan) -> Workflow:
    """One test. Every pod that ends has put out `report`; a pod without one has an empty report, which is unknown.

    Raises:
        ValueError: no nodes, or more than `MOST`.
    """
    if not 0 < len(plan.nodes) <= MOST:
        raise ValueError(f"racks: must hold 1 to {MOST} nodes together, got {len(plan.nodes)}")
    cluster = plan.cluster
    marks = {labels.PIPELINE: PREFLIGHT, labels.SUITE: plan.suite.name}
    with Workflow(name=plan.name, **workflow_fields(cluster, marks, deadline_seconds(plan))) as workflow:
        for pool in plan.pools:
            _probe(plan, pool)
        volumes: dict[str, str] = {}
        for pool, calls in plan.volume_calls.items():
            volumes[pool] = f"{VOLUME}{plan.pools.index(pool)}"
            volume_pod(cluster, plan.name, volumes[pool], calls)
        rack_steps(plan.racks, lambda pool: _template(plan, pool), lambda pool: volumes.get(pool, ""))
    return workflow


def probe_options(plan: PreflightPlan, pool: str, *, path: str, out_dir: str) -> probe_program.Options:
    """What the probe is asked on a node of the pool, the same by every launcher but for its folders.

    Args:
        plan: the test.
        pool: of the node.
        path: folder on the storage that is tested; "": none, `{path}` is a folder of the node's own.
        out_dir: where the report goes.
    """
    return probe_program.Options(
        calls=to_json(plan.calls(pool).in_pod),
        gpus=plan.hardware[pool].gpus_per_node,
        path=path,
        deadline_seconds=float(plan.suite.deadline_seconds.of(plan.depth)),
        out_dir=out_dir,
    )


def _template(plan: PreflightPlan, pool: str) -> str:
    return f"{PROBE}{plan.pools.index(pool)}"


def _probe(plan: PreflightPlan, pool: str) -> Container:
    """The template of the pods on one pool's nodes."""
    cluster, hardware = plan.cluster, plan.hardware[pool]
    own = next(item for item in cluster.pools if item.name == pool)
    fields = pod_fields(cluster, read_only=False)
    variables = variables_of(own, hardware)
    fields["env"] = [*fields["env"], *(models.EnvVar(name=name, value=value) for name, value in variables.items())]
    gpus = sees_gpus(cluster, hardware)
    if gpus:
        fields = with_gpus(fields, cluster, own, hardware)
    report = models.ValueFrom(path=f"{pods.OUTPUTS_MOUNT}/report", default="{}")
    return Container(
        name=_template(plan, pool),
        command=command("probe", _options(plan, pool).argv(), own_image=gpus),
        inputs=[Parameter(name="node")],
        outputs=[Parameter(name="report", value_from=report)],
        active_deadline_seconds=pod_seconds(plan),
        retry_strategy=RetryStrategy(limit=LOST_POD_RETRIES, retry_policy="OnError"),
        **fields,
    )


def _options(plan: PreflightPlan, pool: str) -> probe_program.Options:
    storage = f"$({folder_variable(storage_volume(0))})/{PREFLIGHT}" if plan.cluster.storage else ""
    return probe_options(plan, pool, path=storage, out_dir=f"$({folder_variable(commands.OUTPUTS_VOLUME)})")
