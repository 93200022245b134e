"""Automations of the Prefect server, made as wanted; and answers that people give on its pages. Decides nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.events.actions import CallWebhook, SendNotification
from prefect.events.schemas.automations import Automation, AutomationCore
from prefect.exceptions import ObjectNotFound
from prefect.settings import get_current_settings

from profiles.errors import Conflict, NotFound, ProfileError
from profiles.vocabulary import KnownBy
from tasks.context import touch, world
from tasks.prefect.flow_runs import patiently, reached
from workflows.model.records import Actor, ApprovalRecord

OWN = ("id", "enabled", "owner_resource", "created", "updated")
"""Fields that the server sets, or people: an automation that somebody switched off stays off."""

UNKNOWN_PERSON = "prefect"
"""Who asks through the server: it knows nobody, only its password."""
SCHEDULE = "SCHEDULE"
"""Type of who made a flow run that the server's timetable asked for; no request can set it."""


@dataclass(frozen=True)
class Standing:
    """One automation on the server beside the one that is wanted."""

    wanted: AutomationCore
    state: Literal["missing", "differs", "same"]
    known: Automation | None = None


@patiently
def standing(client: SyncPrefectClient, wanted: AutomationCore) -> Standing:
    """How the automation of this name stands.

    Raises:
        Unavailable: the server does not answer.
    """
    with reached():
        found = client.read_automations_by_name(wanted.name)
    if not found:
        return Standing(wanted, "missing")
    same = _shape(found[0].model_dump(mode="json")) == _shape(wanted.model_dump(mode="json"))
    return Standing(wanted, "same" if same else "differs", found[0])


@patiently
def make_so(client: SyncPrefectClient, one: Standing) -> None:
    """Create or change the automation; one that is as wanted is left alone. Safe to repeat.

    Raises:
        Unavailable: the server does not answer.
    """
    with reached():
        if one.known is None:
            client.create_automation(one.wanted)
        elif one.state == "differs":
            kept = one.wanted.model_copy(update={"enabled": one.known.enabled})
            client.update_automation(one.known.id, kept)


@patiently
def block_of(client: SyncPrefectClient, slug: str) -> tuple[UUID, str]:
    """Id and kind of a block by its slug, `<type>/<name>` such as `slack-webhook/ops`; its secrets are not read.

    Raises:
        ProfileError: the slug has no slash.
        NotFound: the server has no such block.
        Unavailable: it does not answer.
    """
    kind, _, name = slug.partition("/")
    if not name:
        raise ProfileError("--block", f"must be TYPE/NAME such as slack-webhook/ops, got {slug!r}")
    try:
        with reached():
            found = client.read_block_document_by_name(name, kind, include_secrets=False)
    except (NotFound, ObjectNotFound) as error:
        raise NotFound(f"--block: the server has no block {slug}; make it on the page Blocks") from error
    return found.id, kind


@patiently
def told_through(client: SyncPrefectClient, name: str) -> tuple[UUID, bool] | None:
    """The block by which the automation of this name tells people, and whether it is called as a webhook.

    None where there is no such automation, or it does something else.

    Raises:
        Unavailable: the server does not answer.
    """
    with reached():
        found = client.read_automations_by_name(name)
    for action in found[0].actions if found else ():
        if isinstance(action, CallWebhook | SendNotification):
            return action.block_document_id, isinstance(action, CallWebhook)
    return None


@patiently
def deployment_of(client: SyncPrefectClient, name: str) -> UUID | None:
    """Id of a deployment by `<flow>/<name>`; None where nobody serves it.

    Raises:
        Unavailable: the server does not answer.
    """
    try:
        with reached():
            return client.read_deployment_by_name(name).id
    except NotFound:
        return None


def _shape(value: Any) -> Any:
    """What two automations are compared by: without what only one side knows, sets in order."""
    if isinstance(value, dict):
        items = cast(dict[str, Any], value).items()
        return {key: _shape(item) for key, item in items if key not in OWN and item not in (None, {}, [])}
    if isinstance(value, list):
        parts = [_shape(item) for item in cast(list[Any], value)]
        return sorted(parts) if all(isinstance(item, str) for item in parts) else parts
    return value


def server_caller(flow_run: FlowRun | None = None) -> Actor:
    """Who asked the server for something, a flow run or its end: nobody knows beyond that he holds its password.

    What the request calls itself is a claim: the server believes two headers about an automation, which every caller
    may send; parameters, tags and labels are the caller's as well. Where we need no password, he needed none.
    """
    made_by = flow_run.created_by if flow_run is not None else None
    known_by = KnownBy.SERVER_PASSWORD if get_current_settings().api.auth_string else KnownBy.UNVERIFIED
    return Actor(UNKNOWN_PERSON, known_by, (made_by.display_value if made_by is not None else None) or "")


def asked_by() -> Actor | None:
    """Who asked for the flow run that goes on here; None: the server's timetable did, or a program of ours itself."""
    context = FlowRunContext.get()
    asked = context.flow_run if context is not None else None
    if asked is None or asked.deployment_id is None:
        return None
    made_by = asked.created_by
    return None if made_by is not None and made_by.type == SCHEDULE else server_caller(asked)


def present_caller() -> Actor:
    """Who fills in the form of the flow run that goes on here."""
    context = FlowRunContext.get()
    return server_caller(context.flow_run if context is not None else None)


@touch("answers {approval}")
def answer(approval: str, *, approved: bool, why: str, by: Actor) -> ApprovalRecord:
    """Write an answer into the ledger; the very same one again changes nothing.

    Raises:
        NotFound: no such question.
        Conflict: it was answered before, or its time was up.
    """
    here = world()
    before = here.ledger.approval(approval)
    given = here.ledger.answer(approval, approved, by, why, here.now())
    if before is not None and before.state != "waiting" and (given.by, given.why) != (by, why):
        raise Conflict(f"approval {approval} is {given.state} by {given.answerer} already: {given.why}")
    return given
