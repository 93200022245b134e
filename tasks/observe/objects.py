"""From the cluster's objects to facts: pure readings of JSON, tolerant of everything that may be missing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, cast

from profiles.resolve import Resolved
from profiles.vocabulary import VerdictWord
from tasks.observe.gang_status import gang_news
from workflows import labels
from workflows.model.attempt import CoordinatorFacts
from workflows.model.fleet import NodeCandidate
from workflows.model.gang_status import PROGRAM_MARKS
from workflows.model.manifest import Json
from workflows.model.nodes import node_of
from workflows.model.records import MarkRecord

Names = Mapping[str, str]


def coordinator_facts(body: bytes, now: float) -> CoordinatorFacts | None:
    """The coordinator's `/status`; None where it is unreadable."""
    try:
        said = json.loads(body)
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    status = cast("dict[str, Any]", said)
    first: Json = status.get("first_step") or {}
    members: list[Json] = status.get("members") or []
    return CoordinatorFacts(
        at=now,
        told_at=_number(status.get("now")),
        incarnation=int(status.get("incarnation") or 0),
        step=status.get("step"),
        loss=_number(status.get("loss")),
        first_step=first.get("step"),
        first_step_at=first.get("at"),
        first_nan_step=status.get("first_nan_step"),
        last_checkpoint_step=status.get("last_checkpoint_step"),
        steps_per_second=_number(status.get("steps_per_second")),
        phase=str(status.get("phase") or ""),
        heard=tuple(
            (str(item.get("pod", "")), str(item.get("node", "")), float(item.get("last_heard_at") or 0.0))
            for item in members
        ),
        ranks=tuple((str(item.get("pod", "")), tuple(item.get("ranks") or ())) for item in members),
        launched_at=_number(status.get("launched_at")),
        failed_ranks=tuple(sorted(int(end["rank"]) for end in status.get("ended") or () if _badly(end))),
        news=gang_news(status),
    )


def moments(run: str, attempt: int, told: object) -> list[MarkRecord]:
    """When the ranks loaded and saved checkpoints, from `[[kind, at, detail], ...]` as programs tell it.

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


def _number(value: object) -> float | None:
    try:
        return None if value is None else float(str(value))
    except ValueError:
        return None


def _badly(end: object) -> bool:
    """Whether a rank's end as the coordinator tells it is a failure that nobody had asked for."""
    if not isinstance(end, dict):
        return False
    told = cast("dict[str, object]", end)
    return isinstance(told.get("rank"), int) and not told.get("requested") and told.get("exit_code") != 0


def pool_selector(resolved: Resolved) -> Mapping[str, str]:
    """Labels of the nodes of the run's pool."""
    return resolved.pool.labels if resolved.cluster.engine == "kubernetes" else {labels.POOL: resolved.pool.name}


def node_candidate(node: Json, resolved: Resolved, busy: Names, out: Names, run: str = "") -> NodeCandidate:
    """A Node object as decisions see it, with who uses which (`busy`) and why we took which out (`out`).

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
