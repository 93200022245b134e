"""From the cluster's objects and a coordinator's `/status` to facts; what is missing or makes no sense is not known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from workflows import labels
from workflows.model.attempt import CoordinatorFacts
from workflows.model.fleet import NodeCandidate
from workflows.model.gang_status import PROGRAM_MARKS, GangNews
from workflows.model.manifest import Json
from workflows.model.nodes import node_of
from workflows.model.records import MarkRecord
from workflows.programs.coordinator.state import FINAL_STATES
from workflows.status import CoordinatorStatus, Jump, RestartInPlace, SavesStatus

Names = Mapping[str, str]


def coordinator_facts(status: CoordinatorStatus, now: float) -> CoordinatorFacts:
    """What a flow takes from the coordinator's `/status`."""
    first = status.first_step
    return CoordinatorFacts(
        at=now,
        told_at=status.now,
        incarnation=status.incarnation,
        step=status.step,
        loss=None if status.loss is None else float(status.loss),
        first_step=None if first is None else first.step,
        first_step_at=None if first is None else first.at,
        first_nan_step=status.first_nan_step,
        last_checkpoint_step=status.last_checkpoint_step,
        steps_per_second=status.steps_per_second,
        phase=status.phase,
        heard=tuple(
            (item.pod, item.node, item.last_heard_at or 0.0)
            for item in status.members
            if item.state not in FINAL_STATES  # its ranks have ended, and it has nothing more to say
        ),
        ranks=tuple((item.pod, tuple(item.ranks)) for item in status.members),
        launched_at=status.launched_at,
        failed_ranks=tuple(sorted(end.rank for end in status.ended if not end.requested and end.exit_code != 0)),
        news=gang_news(status),
    )


def moments(run: str, attempt: int, told: object) -> list[MarkRecord]:
    """When the ranks loaded and saved checkpoints, from the programs' `[[kind, at, detail], ...]`.

    What is unreadable or of another kind is left out: only the driver says what became of an attempt.
    """
    found: list[MarkRecord] = []
    for item in cast("list[Any]", told) if isinstance(told, list) else []:
        try:
            kind, at, detail = item
            if kind in PROGRAM_MARKS and math.isfinite(float(at)):
                found.append(MarkRecord(run, attempt, str(kind), float(at), str(detail)))
        except (ValueError, TypeError):
            continue
    return found


def pool_selector(resolved: Resolved) -> Mapping[str, str]:
    """Labels of the nodes of the run's pool."""
    return resolved.pool.labels if resolved.cluster.engine == "kubernetes" else {labels.POOL: resolved.pool.name}


def node_candidate(node: Json, resolved: Resolved, busy: Names, out: Names, run: str = "") -> NodeCandidate:
    """A Node object as decisions see it, with the users of nodes (`busy`) and why we took nodes out (`out`).

    Taints that the run's pool names are tolerated; holds for tests of nodes for this `run` keep it from nothing.
    """
    seen = node_of(node)
    hold = f"{labels.HOLD_TAINT}={labels.hold_owner(run)}:NoSchedule"
    return NodeCandidate(
        name=seen.name,
        pool=resolved.pool.name,
        ready=seen.ready,
        cordoned=seen.cordoned,
        quarantined=out.get(seen.name, "tainted by us" if seen.quarantined else ""),
        taints=seen.taints_against((*resolved.pool.taints, hold)),
        verdict=VerdictWord(seen.verdict) if seen.verdict in tuple(VerdictWord) else VerdictWord.UNKNOWN,
        busy=busy.get(seen.name, ""),
        spare=seen.spare,
        rack=seen.rack,
        block=seen.block,
    )


def gang_news(status: CoordinatorStatus) -> GangNews:
    """What the status says. Never raises."""
    stop = next((item for item in status.orders if item.get("order") == "stop"), None)
    return GangNews(
        restarts=tuple(_sound(item) for item in status.restarts if item.number >= 1),
        left=status.right.left,
        stopping=stop is not None,
        stop_why=str(stop.get("why") or "") if stop is not None else "",
        stragglers=None if status.stragglers is None else tuple(status.stragglers),
        slower=status.slower,
        hang=status.hang,
        jumps=tuple(item for item in status.numeric if _is_jump(item)),
        unrecognised=status.unrecognised,
        advised_steps=_advised(status.saves),
    )


def _sound(restart: RestartInPlace) -> RestartInPlace:
    """Without what contradicts itself."""
    begun = restart.first_step is not None and restart.first_step_at is not None
    return replace(
        restart,
        first_step=restart.first_step if begun else None,
        first_step_at=restart.first_step_at if begun else None,
        happened_at=None if restart.happened_at is None else min(restart.happened_at, restart.at),
        pods=restart.pods if 0 <= restart.pods[0] < restart.pods[1] else (0, 0),
        share=min(1.0, max(0.0, restart.share)),
    )


def _is_jump(jump: Jump) -> bool:
    """A number that jumped did so from another one."""
    return jump.before is not None or isinstance(jump.value, str)


def _advised(saves: SavesStatus | None) -> int | None:
    advice = None if saves is None else saves.advice
    if saves is None or advice is None or advice.steps < 1 or not advice.measured:
        return None
    return advice.steps if advice.change else saves.steps_between
