"""One round of tests between nodes: a short pod on each node of each group or pair, all side by side.

The members of a group wait for each other, so all pods of a round run at the same time: a round of many nodes is
several workflows, and a group may be spread over them. Which groups meet is decided outside. Checks of pairs with the
same call share one execution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hera.workflows import Container, Parameter, Step, Steps, Workflow, models

from profiles.checks.check import Check
from profiles.cluster import ClusterProfile, Pool
from profiles.hardware import HardwareProfile
from workflows import labels
from workflows.attempt import commands, pods
from workflows.attempt.commands import whole_seconds
from workflows.attempt.placeholders import folder_variable, storage_volume
from workflows.attempt.pods import Part
from workflows.attempt.templates import DEADLINE_MARGIN_SECONDS, MAIN
from workflows.node_tests.pods import command, pod_fields, sees_gpus, with_gpus, workflow_fields
from workflows.node_tests.preflight import calls_of
from workflows.programs.fabric import meeting, pair_member
from workflows.programs.fabric.pair_member import PairCall, to_json
from workflows.programs.probes.call import Call

MOST_MEET_SECONDS = 60.0
"""For the two of a pair: their tests together may take half an hour, and nobody waits so long for one."""

LINKS = "links"
MEMBER = "member-"
"""Beginning of the templates' names; the number of the pool follows."""
MOST = 96
"""Nodes of one workflow, as of a preflight."""
START_SECONDS = 60
"""For a pod to start, beside the measurement's own time."""
MEET_SHARE = 0.5
"""Of a measurement's time: whoever has not come by then does not come."""
OUT_DIR = f"$({folder_variable(commands.OUTPUTS_VOLUME)})"
GPU_RESOURCES: Part = {"requests": {"cpu": "4", "memory": "16Gi"}, "limits": {"cpu": "16", "memory": "64Gi"}}
"""Of pods that load a collective library for each GPU, or keep a fast NIC busy: our own choice, half a core and 2 GiB
a GPU at least."""


@dataclass(frozen=True)
class PairDemand:
    """What the two of every pair measure."""

    calls: str
    """JSON of the calls (`workflows.programs.fabric.pair_member.to_json`)."""
    deadline_seconds: float
    """For one pair: to meet, and for all calls in both directions."""
    meet_seconds: float
    """Of it, for the partner to come."""
    nics: bool = False
    """The pods have the fabric's NICs, where a device plug-in counts them, and may lock memory for them."""
    gpus: bool = False
    """The pods have the GPUs of the nodes."""
    pings: bool = False
    """The pods may send ICMP echoes."""


@dataclass(frozen=True)
class PairCalls:
    """The calls of some checks of pairs."""

    calls: tuple[PairCall, ...]
    number_of: Mapping[str, int]
    """Name of a check -> number of the call that answers it."""

    @property
    def demand(self) -> PairDemand:
        """All of them, one after the other."""
        seconds = sum(call.deadline_seconds for call in self.calls)
        meet = min(MOST_MEET_SECONDS, seconds)
        needs = {need for call in self.calls for need in call.needs}
        pings = any(call.title == "ping" for call in self.calls)
        return PairDemand(to_json(self.calls), meet + seconds, meet, "nics" in needs, "gpus" in needs, pings)


def pair_calls_of(checks: Sequence[Check]) -> PairCalls:
    """The calls that answer these checks of pairs; those with another command on the other node are other calls."""
    made: list[PairCall] = []
    number_of: dict[str, int] = {}
    for peer_command in dict.fromkeys(check.peer_command for check in checks):
        own = [check for check in checks if check.peer_command == peer_command]
        found = calls_of(own)
        for call in found.calls:
            asked = [check for check in own if found.number_of[check.name] == call.number]
            number_of |= {check.name: len(made) for check in asked}
            wanted = tuple(sorted({check.quantity for check in asked}))
            plain: dict[str, Any] = {field.name: getattr(call, field.name) for field in fields(Call)}
            plain |= {"number": len(made), "peer_command": peer_command, "quantities": wanted}
            made.append(PairCall(**plain))
    return PairCalls(tuple(made), number_of)


@dataclass(frozen=True)
class Demand:
    """What every group measures."""

    all_reduce_bytes: int = 4 << 20
    all_to_all_bytes: int = 0
    """0: not made."""
    iterations: int = 3
    deadline_seconds: float = 30.0
    """For one group."""
    gpus: bool = False
    """Between the GPUs of the nodes, where the pods can have them."""


@dataclass(frozen=True)
class Seat:
    """One node's place in a round."""

    node: str
    pool: str
    group: int
    """Number of its group in the round."""
    rank: int
    ranks: int
    """Members of its group."""


@dataclass(frozen=True)
class LinksPlan:
    """One workflow of a round, decided."""

    cluster: ClusterProfile
    hardware: Mapping[str, HardwareProfile]
    """By pool."""
    suite: str
    demand: Demand | PairDemand
    round_name: str
    """Of the folder in which the groups of the round meet, in all its workflows (`round_name`)."""
    name: str
    """Of the workflow (`links_name`)."""
    seats: tuple[Seat, ...] = field(default=())

    @property
    def pools(self) -> tuple[str, ...]:
        """Pools of the nodes, each once."""
        return tuple(dict.fromkeys(seat.pool for seat in self.seats))


def round_name(cluster: str, number: int, ledger: str = "") -> str:
    """Name of a round; see `labels.numbered_name`."""
    return labels.numbered_name("primus-links", cluster, number, ledger)


def links_name(round_: str, part: int) -> str:
    """Name of the workflow number `part` of a round, from 0, e.g. `primus-links-local-7-0`."""
    return f"{round_}-{part}"


def group_seats(groups: Sequence[Sequence[str]], pools: Mapping[str, str]) -> tuple[Seat, ...]:
    """The places of a round's nodes.

    Each node is in one group at most; `pools` has the pool of each node.

    Raises:
        ValueError: a group of fewer than two, or a node in two groups.
    """
    found = [
        Seat(node, pools[node], number, rank, len(group))
        for number, group in enumerate(groups)
        for rank, node in enumerate(group)
    ]
    small = next((group for group in groups if len(group) < 2), None)
    if small is not None:
        raise ValueError(f"groups: each must hold two nodes or more, got {list(small)}")
    if len({seat.node for seat in found}) != len(found):
        raise ValueError("groups: a node must be in one of them only")
    return tuple(found)


def waves(groups: Sequence[Sequence[str]], pools: Mapping[str, str], most: Mapping[str, int]) -> list[list[int]]:
    """Numbers of the groups that are measured at the same time, wave by wave, in the groups' order.

    `pools` has the pool of each node; of a pool at most `most` nodes are measured at once (missing: any number), and a
    group that has more of them by itself.
    """
    found: list[list[int]] = []
    used: dict[str, int] = {}
    for number, group in enumerate(groups):
        needs: dict[str, int] = {}
        for node in group:
            needs[pools[node]] = needs.get(pools[node], 0) + 1
        fits = all(used.get(pool, 0) + count <= most.get(pool, len(pools)) for pool, count in needs.items())
        if not found or not fits:
            found.append([])
            used = {}
        found[-1].append(number)
        used |= {pool: used.get(pool, 0) + count for pool, count in needs.items()}
    return found


def parted(seats: Sequence[Seat]) -> list[tuple[Seat, ...]]:
    """The places by workflow, at most `MOST` each."""
    return [tuple(seats[begin : begin + MOST]) for begin in range(0, len(seats), MOST)]


def pod_seconds(plan: LinksPlan) -> int:
    """A pod's own limit."""
    return whole_seconds(plan.demand.deadline_seconds) + START_SECONDS


def links_workflow(plan: LinksPlan) -> Workflow:
    """One workflow of a round. A pod that ends has put out `report`; one without it has no answer.

    Raises:
        ValueError: no nodes, or more than `MOST`.
    """
    if not 0 < len(plan.seats) <= MOST:
        raise ValueError(f"seats: must be 1 to {MOST}, got {len(plan.seats)}")
    marks = {labels.PIPELINE: LINKS, labels.SUITE: plan.suite}
    limit = pod_seconds(plan) + DEADLINE_MARGIN_SECONDS
    # All at once: who waits for a place would let its group wait.
    fields = workflow_fields(plan.cluster, marks, limit)
    fields["parallelism"] = MOST
    if isinstance(plan.demand, PairDemand) and plan.demand.pings:
        sysctls = [models.Sysctl.model_validate(pods.PING_GROUPS)]
        fields["security_context"] = fields["security_context"].model_copy(update={"sysctls": sysctls})
    with Workflow(name=plan.name, **fields) as workflow:
        for pool in plan.pools:
            _member(plan, pool)
        with Steps(name=MAIN) as steps, steps.parallel():
            for number, pool in enumerate(plan.pools):
                Step(
                    name=f"pool-{number}",
                    template=f"{MEMBER}{number}",
                    arguments={word: f"{{{{item.{word}}}}}" for word in ("node", "group", "rank", "ranks")},
                    with_items=[_item(seat) for seat in plan.seats if seat.pool == pool],
                    continue_on=models.ContinueOn(error=True, failed=True),
                )
    return workflow


def _item(seat: Seat) -> dict[str, str]:
    return {"node": seat.node, "group": str(seat.group), "rank": str(seat.rank), "ranks": str(seat.ranks)}


def _member(plan: LinksPlan, pool: str) -> Container:
    """The template of the members on one pool's nodes; a pod that is lost is not started again: its group is over."""
    fields = pod_fields(plan.cluster, read_only=False)
    environment = [*fields["env"], models.EnvVar.model_validate(pods.field_variable("PRIMUS_POD_IP", "status.podIP"))]
    if _takes_nics(plan, pool):
        variables = {**plan.hardware[pool].fabric_environment, **_pool(plan, pool).fabric_environment}
        environment += [models.EnvVar(name=name, value=value) for name, value in variables.items()]
        security = pods.container_security(locks_memory=True)
        fields["security_context"] = models.SecurityContext.model_validate(security)
        fields["resources"] = models.ResourceRequirements.model_validate(_resources(plan, pool))
    fields["env"] = environment
    own_image = _takes_nics(plan, pool) and sees_gpus(plan.cluster, plan.hardware[pool])
    if own_image:
        security = fields["security_context"]
        fields = with_gpus(fields, plan.cluster, _pool(plan, pool), plan.hardware[pool])
        fields["security_context"] = security
    program, *words = _words(plan, pool)
    report = models.ValueFrom(path=f"{pods.OUTPUTS_MOUNT}/report", default="{}")
    return Container(
        name=f"{MEMBER}{plan.pools.index(pool)}",
        command=command(program, words, own_image=own_image),
        inputs=[Parameter(name=name) for name in ("node", "group", "rank", "ranks")],
        outputs=[Parameter(name="report", value_from=report)],
        active_deadline_seconds=pod_seconds(plan),
        **fields,
    )


def _words(plan: LinksPlan, pool: str) -> list[str]:
    """The program and its flags; what differs from member to member is filled in by the engine."""
    if isinstance(plan.demand, PairDemand):
        program, words = "probe-pair", _pair_options(plan, plan.demand, pool).argv()
    else:
        program, words = "probe-gang", _gang_options(plan, plan.demand, pool).argv()
    own = ("--group=", "--rank=", "--ranks=")
    return [
        program,
        *(word for word in words if not word.startswith(own)),
        *(f"{flag}{{{{inputs.parameters.{flag[2:-1]}}}}}" for flag in own),
    ]


def _gang_options(plan: LinksPlan, demand: Demand, pool: str) -> meeting.Options:
    return meeting.Options(
        folder=_folder(plan),
        group=0,
        rank=0,
        ranks=2,
        meet_seconds=MEET_SHARE * demand.deadline_seconds,
        deadline_seconds=demand.deadline_seconds,
        all_reduce_bytes=demand.all_reduce_bytes,
        all_to_all_bytes=demand.all_to_all_bytes,
        iterations=demand.iterations,
        gpus=_gpus(plan, pool),
        out_dir=OUT_DIR,
    )


def _pair_options(plan: LinksPlan, demand: PairDemand, pool: str) -> pair_member.Options:
    return pair_member.Options(
        folder=_folder(plan),
        calls=demand.calls,
        group=0,
        rank=0,
        meet_seconds=demand.meet_seconds,
        deadline_seconds=demand.deadline_seconds,
        gpus=plan.hardware[pool].gpus_per_node,
        out_dir=OUT_DIR,
    )


def _folder(plan: LinksPlan) -> str:
    return f"$({folder_variable(storage_volume(0))})/preflight/{LINKS}/{plan.round_name}"


def _gpus(plan: LinksPlan, pool: str) -> int:
    return plan.hardware[pool].gpus_per_node if plan.demand.gpus else 0


def _pool(plan: LinksPlan, name: str) -> Pool:
    return next(pool for pool in plan.cluster.pools if pool.name == name)


def _takes_nics(plan: LinksPlan, pool: str) -> bool:
    return _gpus(plan, pool) > 0 or (isinstance(plan.demand, PairDemand) and plan.demand.nics)


def _resources(plan: LinksPlan, pool: str) -> Part:
    """All GPUs of a node where they are measured, and its fabric NICs where a device plug-in counts them."""
    hardware, own, gpus = plan.hardware[pool], _pool(plan, pool), _gpus(plan, pool)
    devices = {hardware.resource_name: str(gpus)} if gpus else {}
    nics = own.nic_resource_name or hardware.nic_resource_name
    if nics and hardware.nics_per_node:
        devices[nics] = str(hardware.nics_per_node)
    basic = GPU_RESOURCES if hardware.gpus_per_node else pods.OWN_RESOURCES
    return {kind: {**basic[kind], **devices} for kind in ("requests", "limits")}
