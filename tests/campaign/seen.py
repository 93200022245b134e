"""What became of a run of a campaign: what was broken, what the ledger tells of it, and what was left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.campaign.cards import Fault
from tests.campaign.plan import RunPlan
from workflows.model.records import IncidentRecord, StepRow, Story


@dataclass(frozen=True)
class Hit:
    """A fault that fired."""

    strike: int
    """Place of its strike in the plan."""
    fault: Fault
    began_at: float
    """Before it was caused, Unix seconds."""
    at: float
    """When it was caused."""
    nodes: tuple[str, ...] = ()
    """Nodes it struck; none: it struck no node."""


@dataclass(frozen=True)
class Seen:
    """All that is judged."""

    plan: RunPlan
    story: Story
    steps: Mapping[int, Sequence[StepRow]] = field(default_factory=lambda: {})
    """Completed steps of each attempt."""
    hits: tuple[Hit, ...] = ()
    gpus: int = 1
    kept: Mapping[str, float] | None = None
    """The summary that the driver left: seconds by state; None: there is none."""
    tainted: tuple[str, ...] = ()
    """Nodes that carry our quarantine."""
    orphans: tuple[str, ...] = ()
    """Processes that live on: pid and command."""
    weights: str = ""
    """Digest of the last weights; "": none were printed."""
    error: str = ""
    """Why the plan was not played to its end; "": it was."""

    def incidents_of(self, strike: int) -> list[IncidentRecord]:
        """Those noticed after this strike began and before the next one did, without what was only told."""
        begins = self.begins
        begin, after = begins.get(strike), [at for place, at in begins.items() if place > strike]
        if begin is None:
            return []
        until = min(after, default=float("inf"))
        return [item for item in self.story.troubles if begin <= item.detected_at < until]

    def strike_of(self, item: IncidentRecord) -> int | None:
        """The newest strike that had begun when it was noticed; None: nothing was broken yet."""
        before = [(at, place) for place, at in self.begins.items() if at <= item.detected_at]
        return max(before)[1] if before else None

    def struck(self, strike: int | None = None) -> frozenset[str]:
        """Nodes on which something was broken, by one strike or by all."""
        return frozenset(node for hit in self.hits if strike in (None, hit.strike) for node in hit.nodes)

    @property
    def begins(self) -> dict[int, float]:
        """When each strike began."""
        found: dict[int, float] = {}
        for hit in self.hits:
            found[hit.strike] = min(hit.began_at, found.get(hit.strike, hit.began_at))
        return found
