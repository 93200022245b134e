"""Events about runs and nodes, and the page of a run, as they go to the Prefect server. Values only.

Decisions make them, tasks send them; neither knows the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from workflows.model.records import ApprovalRecord, StepRow, Story

Json = dict[str, Any]
SCHEMA_VERSION = 1
"""Of every event's payload; `docs/events.md` has the table. Fields may be added under the same number."""


@dataclass(frozen=True)
class Place:
    """A run or a node as a resource of an event."""

    kind: Literal["run", "node", "cluster"]
    cluster: str
    name: str = ""
    """"" for the cluster itself."""

    @property
    def id(self) -> str:
        """`primus.run.<cluster>.<run>`, `primus.node.<cluster>.<node>` or `primus.cluster.<cluster>`."""
        return ".".join(part for part in ("primus", self.kind, self.cluster, self.name) if part)


@dataclass(frozen=True)
class ConsoleEvent:
    """One thing that happened, as the console gets it."""

    name: str
    """`primus.incident.opened` and so on."""
    at: float
    """When it happened, Unix seconds."""
    place: Place
    payload: Json
    """Everything a message about it needs; the same fields in every event."""
    nodes: tuple[Place, ...] = ()
    """Nodes that it is about as well."""


@dataclass(frozen=True)
class EventGround:
    """What stands around a line of the history."""

    ledger: str
    """Id of the ledger."""
    story: Story | None = None
    """The line's run; None where it belongs to none."""
    approval: ApprovalRecord | None = None
    """The question that the line is about."""
    link: str = ""
    """Page of the run's flow run; "" where it is not known."""


@dataclass(frozen=True)
class PageGround:
    """What the page of a run is made of."""

    story: Story
    steps: dict[int, list[StepRow]]
    """Completed steps of each attempt by its number."""
    now: float
    all_steps: bool = True
    """False: old steps were thinned out, so nothing is summed up over them."""
    links: tuple[tuple[str, str], ...] = ()
    """Title and address each."""
    form: str = ""
    """Address of the form that answers questions; "": there is none."""


@dataclass(frozen=True)
class Sheet:
    """One artifact of a flow run."""

    key: str
    """Lower-case letters, digits and dashes."""
    kind: Literal["markdown", "table", "progress"]
    data: str | list[Json] | float
    description: str = ""
    """Markdown; stands above the artifact."""


@dataclass(frozen=True)
class RunPage:
    """Everything that the Prefect server shows of a run."""

    sheets: tuple[Sheet, ...] = field(default=())


@dataclass(frozen=True)
class Fall:
    """The steps of an attempt became slower and stayed so."""

    step: int
    """First step of the slower time."""
    at: float
    """When that step was completed: Unix seconds; tells one fall of an attempt from another."""
    before_seconds: float
    """Median step time before."""
    after_seconds: float
    """Median step time since."""

    @property
    def ratio(self) -> float:
        """How many times slower."""
        return self.after_seconds / self.before_seconds
