"""What the readers of an attempt's watch have seen so far."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from tasks.cluster import Manifest
from workflows.evidence import CoordinatorFacts
from workflows.records import MarkRecord, StepRow


@dataclass
class Known:
    """What the readers have seen so far. Guarded by `lock`."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    changed: threading.Event = field(default_factory=threading.Event)
    objects: dict[str, dict[str, Manifest]] = field(default_factory=lambda: {})
    gone: dict[str, Manifest] = field(default_factory=lambda: {})
    """Pods that were deleted while we watched."""
    coordinator: CoordinatorFacts | None = None
    unheard_since: float | None = None
    """Since when the coordinator has not answered although the cluster did."""
    checkpoints: tuple[dict[str, Any], ...] = ()
    steps: list[StepRow] = field(default_factory=lambda: [])
    moments: list[MarkRecord] = field(default_factory=lambda: [])
    pending_since: float | None = None
    away: dict[str, tuple[float, str]] = field(default_factory=lambda: {})
    """Since when a reader has got no answer, and why, by kind."""
    why_gone: str = "deleted by somebody"
    """What became of the attempt's own objects, where they are gone."""
    listed: set[str] = field(default_factory=set[str])
    """Kinds of which everything that exists was told."""
    unreached: tuple[str, ...] = ()
    """Nodes that are not ready and whose kubelets the cluster does not reach."""
