"""Deployments on the Prefect server: made to be what is offered, without touching what people changed there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate
from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterTags
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import CronSchedule
from prefect.exceptions import ObjectNotFound

CLUSTER_TAG = "cluster:"
"""Prefix of the tag that says which cluster a deployment is for."""
TRAIN = "train"
"""Tag of deployments whose flow runs are training runs."""
MOST = 200
"""The server's own limit for one answer."""


@dataclass(frozen=True)
class Timetable:
    """When a deployment's flow runs are due by themselves."""

    slug: str
    cron: str
    timezone: str = "UTC"
    active: bool = True


@dataclass(frozen=True)
class Offer:
    """A deployment as it should stand on the server."""

    flow: str
    """Name of the flow."""
    name: str
    """Name of the deployment."""
    schema: dict[str, Any]
    """JSON schema of the flow's parameters: a request of another shape is refused when it is made."""
    entrypoint: str
    description: str
    version: str = ""
    tags: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Defaults that stand in the form."""
    timetables: tuple[Timetable, ...] = ()
    alone: bool = False
    """One flow run at a time: a scheduled one that would overlap is skipped."""

    @property
    def often(self) -> bool:
        """Whether a timetable starts it several times an hour: what goes well tells nothing."""
        return any(one.cron.startswith("*") for one in self.timetables)

    @property
    def trains(self) -> bool:
        """Whether its flow runs are training runs, which outlive their drivers."""
        return TRAIN in self.tags


def served(client: SyncPrefectClient, offer: Offer) -> UUID:
    """Create the deployment, or make it what is offered; its id.

    What people changed there stays: their own schedules, which of ours they paused or deleted, the form's defaults.
    """
    try:
        found = client.read_deployment_by_name(f"{offer.flow}/{offer.name}")
    except ObjectNotFound:
        return _created(client, offer)
    wanted: dict[str, Any] = {
        "description": offer.description,
        "entrypoint": offer.entrypoint,
        "version": offer.version or None,
        "tags": list(offer.tags),
        "parameter_openapi_schema": offer.schema,
    }
    if any(getattr(found, name) != value for name, value in wanted.items()):
        change = wanted | {"enforce_parameter_schema": True}
        client.update_deployment(found.id, DeploymentUpdate.model_validate(change))
    _mend_schedules(client, found, offer)
    return found.id


def siblings(client: SyncPrefectClient, deployment: UUID) -> list[UUID]:
    """Ids of all deployments that train on the cluster of this one, itself first."""
    tags = client.read_deployment(deployment).tags
    cluster = next((tag for tag in tags if tag.startswith(CLUSTER_TAG)), "")
    if not cluster or TRAIN not in tags:
        return [deployment]
    wanted = DeploymentFilter(tags=DeploymentFilterTags(all_=[TRAIN, cluster]))
    found = client.read_deployments(deployment_filter=wanted, limit=MOST)
    return [deployment, *(item.id for item in found if item.id != deployment)]


def _created(client: SyncPrefectClient, offer: Offer) -> UUID:
    return client.create_deployment(
        client.create_flow_from_name(offer.flow),
        offer.name,
        description=offer.description,
        entrypoint=offer.entrypoint,
        version=offer.version or None,
        tags=list(offer.tags),
        parameters=dict(offer.parameters),
        schedules=[_schedule(item) for item in offer.timetables],
        path=".",
        parameter_openapi_schema=offer.schema,
        enforce_parameter_schema=True,
    )


def _mend_schedules(client: SyncPrefectClient, found: DeploymentResponse, offer: Offer) -> None:
    """Schedules of a new version come with it; of the same one only their times are looked after."""
    present = {item.slug: item for item in found.schedules if item.slug}
    missing: Sequence[Timetable] = ()
    if found.version != (offer.version or None):
        missing = [item for item in offer.timetables if item.slug not in present]
    if missing:
        client.create_deployment_schedules(found.id, [_schedule(item) for item in missing])
    for item in offer.timetables:
        known = present.get(item.slug)
        if known is not None and known.schedule != _cron(item):
            client.update_deployment_schedule(found.id, known.id, schedule=_cron(item))


def _cron(item: Timetable) -> CronSchedule:
    return CronSchedule(cron=item.cron, timezone=item.timezone)


def _schedule(item: Timetable) -> DeploymentScheduleCreate:
    return DeploymentScheduleCreate(schedule=_cron(item), active=item.active, slug=item.slug)
