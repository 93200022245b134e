"""The sweep: a short read-only pod on each of some nodes, rack by rack, to find faults that nothing has reported yet.

No GPUs and next to nothing else are asked for, so it runs beside training, on nodes under quarantine too.
"""

from __future__ import annotations

from dataclasses import dataclass

from hera.workflows import Container, Parameter, RetryStrategy, Workflow, models

from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from workflows import labels
from workflows.attempt import commands, pods
from workflows.attempt.commands import whole_seconds
from workflows.attempt.placeholders import folder_variable, storage_volume
from workflows.attempt.templates import DEADLINE_MARGIN_SECONDS, LOST_POD_RETRIES
from workflows.node_tests.pods import Rack, pod_fields, rack_steps, rounds_of, workflow_fields
from workflows.programs.probes import sweep
from workflows.wire import GateReport, to_json

SWEEP = "sweep"
LOOK = "look-"
"""Beginning of the templates' names; the number of the pool follows."""
POD_SECONDS = 60
"""A pod's own limit; its checks take at most 15 s."""
MOST = 128
"""Nodes of one workflow: its status holds up to 5 KB of each, and 1 MiB together."""


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
    ledger: str = ""
    """Identity of the one that asks; it stands in the name."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """All of them, in the order of the racks."""
        return tuple(node for rack in self.racks for node in rack.nodes)


def deadline_seconds(plan: SweepPlan) -> int:
    """After so long the whole workflow is ended."""
    return rounds_of(plan.racks) * POD_SECONDS * (1 + LOST_POD_RETRIES) + DEADLINE_MARGIN_SECONDS


def sweep_workflow(plan: SweepPlan) -> Workflow:
    """One sweep. Every pod reports and ends well: output parameters `report` and `verdict` say what it found.

    Raises:
        ValueError: no nodes, or more than `MOST`.
    """
    if not 0 < len(plan.nodes) <= MOST:
        raise ValueError(f"racks: must hold 1 to {MOST} nodes together, got {len(plan.nodes)}")
    cluster, marks = plan.cluster, {labels.PIPELINE: SWEEP}
    with Workflow(
        name=labels.sweep_name(cluster.name, plan.number, plan.ledger),
        **workflow_fields(cluster, marks, deadline_seconds(plan)),
    ) as workflow:
        for pool in _pools(plan):
            _look(plan, pool)
        rack_steps(plan.racks, lambda pool: _template(plan, pool))
    return workflow


def _pools(plan: SweepPlan) -> list[str]:
    return list(dict.fromkeys(rack.pool for rack in plan.racks))


def _template(plan: SweepPlan, pool: str) -> str:
    """Short: it stands in the names of pods."""
    return f"{LOOK}{_pools(plan).index(pool)}"


def _look(plan: SweepPlan, pool: str) -> Container:
    """The template of the pods on one pool's nodes."""
    cluster = plan.cluster
    evidence = "the sweep's pod ended without a report"
    unknown = GateReport("", "unknown", [{"check": SWEEP, "verdict": "unknown", "evidence": evidence}])
    defaults = {"report": to_json(unknown), "verdict": "unknown"}
    return Container(
        name=_template(plan, pool),
        command=[commands.PROGRAMS, SWEEP, *_options(plan, pool).argv()],
        inputs=[Parameter(name="node")],
        outputs=[
            Parameter(name=key, value_from=models.ValueFrom(path=f"{pods.OUTPUTS_MOUNT}/{key}", default=default))
            for key, default in defaults.items()
        ],
        active_deadline_seconds=whole_seconds(POD_SECONDS),
        retry_strategy=RetryStrategy(limit=LOST_POD_RETRIES, retry_policy="OnError"),
        **pod_fields(cluster, read_only=True),
    )


def _options(plan: SweepPlan, pool: str) -> sweep.Options:
    hardware, embedded = plan.hardware[pool], plan.cluster.engine == "embedded"
    folders = [f"$({folder_variable(storage_volume(index))})" for index in range(len(plan.cluster.storage))]
    # Nodes of the embedded cluster have no devices: their GPUs are a number.
    gpus = 0 if embedded else hardware.gpus_per_node
    return sweep.Options(
        storage=tuple(folders),
        gpu_vendor=hardware.vendor if gpus else "",
        expected_gpus=gpus,
        kernel_since=plan.since,
        asked_at=plan.asked_at,
        within_seconds=float(deadline_seconds(plan)),
        stand_in=f"{folders[0]}/{commands.KERNEL_LOGS}" if embedded else "",
        out_dir=f"$({folder_variable(commands.OUTPUTS_VOLUME)})",
    )
