"""The preflight: the calls of a suite's checks on each of some nodes, rack by rack, before they may train.

One depth a workflow; checks with the same call share one execution. Pods measure and report; limits, peers and the past
are judged outside, where all nodes are known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from hera.workflows import Container, Parameter, RetryStrategy, Workflow, models

from profiles.checks.catalogue import Depth, Launcher
from profiles.checks.check import Check
from profiles.checks.suite import SuiteProfile
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.loading.load import load_hardware
from workflows import labels
from workflows.attempt import commands, pods
from workflows.attempt.commands import whole_seconds
from workflows.attempt.placeholders import folder_variable, storage_volume
from workflows.attempt.templates import DEADLINE_MARGIN_SECONDS, LOST_POD_RETRIES
from workflows.node_tests.pods import (
    Rack,
    command,
    pod_fields,
    rack_steps,
    racks_by_pool,
    rounds_of,
    sees_gpus,
    variables_of,
    with_gpus,
    workflow_fields,
)
from workflows.node_tests.volumes import VOLUME, volume_pod, volume_seconds
from workflows.programs.probes import run
from workflows.programs.probes.call import Call, to_json

BY_API = "kubernetes-node"
IN_VOLUME_POD = "volume"
FABRIC_VARIABLES = "fabric-environment"
"""Probes of which the flow knows more than the suite."""

PREFLIGHT = "preflight"
PROBE = "probe-"
"""Beginning of the templates' names; the number of the pool follows."""
MOST = 96
"""Nodes of one workflow: its status holds up to 8 KB of each (packed), and 1 MiB together."""
START_SECONDS = 60
"""For a pod to start, beside the checks' own time."""


@dataclass(frozen=True)
class Calls:
    """The calls of some checks."""

    calls: tuple[Call, ...]
    """By number."""
    number_of: dict[str, int]
    """Name of a check -> number of the call that answers it."""

    @property
    def in_pod(self) -> tuple[Call, ...]:
        """Those that a pod answers."""
        return tuple(call for call in self.calls if call.probe not in (BY_API, IN_VOLUME_POD))

    @property
    def in_volume_pod(self) -> tuple[Call, ...]:
        """Those that a pod with a volume of its own answers: where none is bound it never starts."""
        return tuple(call for call in self.calls if call.probe == IN_VOLUME_POD)

    @property
    def by_api(self) -> tuple[int, ...]:
        """Numbers of those that the flow answers by the Node object, which no pod may read."""
        return tuple(call.number for call in self.calls if call.probe == BY_API)


def node_checks(
    suite: SuiteProfile, depth: Depth, hardware: HardwareProfile, launcher: Launcher = "kubernetes"
) -> tuple[Check, ...]:
    """Checks of single nodes that are made on this hardware, in the suite's order.

    Checks that make no sense where `launcher` starts the tests are not made.
    """
    own = suite.checks_of(depth, hardware)
    return tuple(one for one in own if one.spans == "node" and (not one.launchers or launcher in one.launchers))


def left_out(suite: SuiteProfile, depth: Depth, hardware: HardwareProfile) -> dict[str, str]:
    """Checks of that depth that are not made, and why."""
    own = [one for one in suite.checks if one.depth == depth and (not one.vendors or hardware.vendor in one.vendors)]
    return {one.name: one.left_out for one in own if one.left_out}


def calls_of(checks: Sequence[Check], variables: Mapping[str, str] | None = None) -> Calls:
    """The calls that answer these checks, in the order in which they are first asked for.

    A call that several checks share is made as often, and may take as long, as the most demanding of them says.

    `variables` are those that the fabric wants in every program's environment.
    """
    found: dict[tuple[object, ...], Call] = {}
    number_of: dict[str, int] = {}
    for check in checks:
        wanted = _call(check, len(found), variables or {})
        key = (wanted.probe, tuple(sorted(wanted.arguments.items())), wanted.command, wanted.parser)
        known = found.get(key, wanted)
        found[key] = replace(
            known,
            attempts=max(known.attempts, wanted.attempts),
            deadline_seconds=max(known.deadline_seconds, wanted.deadline_seconds),
            needs=tuple(sorted({*known.needs, *wanted.needs})),
        )
        number_of[check.name] = known.number
    return Calls(tuple(found.values()), number_of)


def _call(check: Check, number: int, variables: Mapping[str, str]) -> Call:
    probe, arguments = (check.probe.name, dict(check.probe.arguments)) if check.probe else ("", {})
    if probe == FABRIC_VARIABLES:
        arguments = {"wanted": json.dumps(variables, sort_keys=True), **arguments}
    return Call(
        number=number,
        probe=probe,
        arguments=arguments,
        command=tuple(check.command),
        parser=check.parser or "",
        attempts=check.attempts.count,
        deadline_seconds=float(check.deadline_seconds),
        needs=tuple(check.needs),
    )


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
    ledger: str = "",
) -> PreflightPlan:
    """A test of these nodes (name -> pool), in their order, under this number of this ledger."""
    return PreflightPlan(
        cluster=cluster,
        hardware={pool.name: load_hardware(pool.hardware) for pool in cluster.pools},
        suite=suite,
        depth=depth,
        name=labels.preflight_name(cluster.name, number, ledger),
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


def probe_options(plan: PreflightPlan, pool: str, *, path: str, out_dir: str) -> run.Options:
    """What the probe is asked on a node of the pool, the same by every launcher but for its folders.

    `path` is the folder on the storage that is tested ("": none, `{path}` is a folder of the node's own); the report
    goes to `out_dir`.
    """
    return run.Options(
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


def _options(plan: PreflightPlan, pool: str) -> run.Options:
    storage = f"$({folder_variable(storage_volume(0))})/{PREFLIGHT}" if plan.cluster.storage else ""
    return probe_options(plan, pool, path=storage, out_dir=f"$({folder_variable(commands.OUTPUTS_VOLUME)})")
