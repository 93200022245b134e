"""What a plan changes on hosts that are nodes already: in turns, one control plane or one batch of a rack at a time.

Hosts that are no nodes yet are made side by side: nothing runs there that could be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from flows.decisions.bootstrap.changes import batches
from profiles.bootstrap.engines import Kubeadm
from profiles.bootstrap.inventory import Bootstrap
from workflows.bootstrap import leaving
from workflows.bootstrap.building import BuildingSight
from workflows.model.bootstrap import CLUSTER, Stage, Step
from workflows.model.host_facts import HostFacts, Unread

IN_TURN = (Stage.HOSTS, Stage.CONFIGURATION)
"""Stages that may begin anew what runs on a node."""


def plan_as_seen(plan: Sequence[Step], bootstrap: Bootstrap, seen: BuildingSight) -> tuple[Step, ...]:
    """The plan for hosts as they were found: nobody upgrades what is no node, and what runs is changed in turns."""
    if not isinstance(bootstrap.engine, Kubeadm):
        return tuple(plan)
    nodes = seen.cluster.nodes
    leaves = any(step.stage is Stage.LEAVE for step in plan)
    needs_node = (Stage.UPGRADE, Stage.NETWORK) if leaves else (Stage.UPGRADE,)
    kept = [step for step in plan if step.stage not in needs_node or nodes is None or step.subject in nodes]
    return rolled_out(kept, bootstrap, standing(seen.facts, nodes or {}))


def standing(facts: Mapping[str, HostFacts | Unread], nodes: Collection[str]) -> frozenset[str]:
    """Hosts that kubeadm has made nodes: it says so itself, or nobody can ask the host and the cluster knows it."""
    found: set[str] = set()
    for name, told in facts.items():
        mark = told.files.get(leaving.MARK, Unread()) if isinstance(told, HostFacts) else Unread()
        if (name in nodes) if isinstance(mark, Unread) else mark:
            found.add(name)
    return frozenset(found)


def rolled_out(plan: Sequence[Step], bootstrap: Bootstrap, there: Collection[str]) -> tuple[Step, ...]:
    """The plan, with what changes nodes in turns, and settings before anything joins or is mended.

    A node whose kubelet bears no settings is mended by other ones, so these wait for no proof that it is Ready.

    Args:
        plan: every step, each behind those that it comes after.
        bootstrap: the inventory.
        there: hosts that are nodes.
    """
    if not there:
        return tuple(plan)
    turns = turns_of(bootstrap, there)
    ids = {step.id for step in plan}
    first: list[Step] = []
    settings: list[Step] = []
    rest: list[Step] = []
    for step in plan:
        turn = turns.get(step.subject, 0) if step.stage in IN_TURN else 0
        if step.stage in (Stage.PRECHECKS, Stage.HOSTS):
            first.append(replace(step, turn=turn))
        elif step.stage is Stage.CONFIGURATION and (turn or step.subject == CLUSTER):
            before = () if step.subject == CLUSTER else (f"{step.stage}/{CLUSTER}", f"{Stage.HOSTS}/{step.subject}")
            settings.append(replace(step, turn=turn, after=tuple(name for name in before if name in ids)))
        else:
            rest.append(step)
    return (*first, *settings, *rest)


def turns_of(bootstrap: Bootstrap, there: Collection[str]) -> dict[str, int]:
    """Whose turn comes when: control planes one by one, then workers batch by batch; from 1."""
    planes = [(name,) for name in bootstrap.control_planes if name in there]
    workers = batches(bootstrap, [name for name in bootstrap.workers if name in there])
    return {name: turn for turn, group in enumerate((*planes, *workers), 1) for name in group}
