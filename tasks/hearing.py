"""What a coordinator tells, and what its silence may mean: nothing, as long as nobody could have heard it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from profiles.errors import PrimusError
from tasks.cluster import Cluster
from workflows.evidence import CoordinatorFacts
from workflows.records import StepRow


@dataclass(frozen=True)
class News:
    """What is new since the last question."""

    steps: list[StepRow]
    next_step: int
    next_moment: int
    moments: object
    """As programs tell them; see `tasks.facts.moments`."""
    checkpoints: tuple[dict[str, Any], ...]


def news_of(status: bytes, steps: bytes) -> News | None:
    """The two answers of a coordinator; None where they are unreadable."""
    try:
        news: dict[str, Any] = json.loads(steps)
        rows = [StepRow(int(row[0]), float(row[1]), _float(row[2]), _float(row[3])) for row in news["steps"]]
        told: dict[str, Any] = json.loads(status)
        checkpoints = tuple(told.get("checkpoints") or ())
        return News(rows, int(news["next"]), int(news.get("next_moment", 0)), news.get("moments"), checkpoints)
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def failed_since(said: CoordinatorFacts, before: CoordinatorFacts | None) -> float | None:
    """Since when a rank has failed, or ranks that were restarted in place are not all up; by the clock of who listens.

    Args:
        said: what the coordinator says now.
        before: what it said before; None: nothing.
    """
    restarting = bool(said.news.restarts) and said.launched_at is None
    if not (said.failed_ranks or restarting):
        return None
    known = before is not None and before.incarnation == said.incarnation
    return (before.failed_since if before is not None and known else None) or said.at


def cluster_answers(cluster: Cluster, pod: str) -> bool:
    """Whether the cluster itself answers now: only then is a coordinator that did not answer silent itself."""
    try:
        cluster.get("Pod", pod)
    except PrimusError:
        return False
    return True
