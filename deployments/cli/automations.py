"""`primus automations`: Prefect automations as code, who is notified of what and when slow nodes are examined."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import typer
from prefect.events.actions import CallWebhook, RunDeployment, SendNotification
from prefect.events.schemas.automations import AutomationCore, EventTrigger, Posture

from deployments.cli.app import AsJson, ClusterName, app
from deployments.cli.approvals import note_act
from deployments.exit_codes import GOOD, out, out_json
from deployments.screen.tables import table
from profiles.loading.load import load_cluster
from tasks.prefect.automations import Standing, block_of, deployment_of, make_so, standing, told_through
from tasks.prefect.events import console_server, speaking_to_server_of
from tasks.settings import Settings

Json = dict[str, Any]

TAG = "primus"
EXAMINE_SECONDS = 600
"""Between two looks at the nodes of one run that became slower."""
WEBHOOK = "webhook"
"""Kind of block that is called with a text of ours; every other one is asked to notify."""
NOTIFIED_EVENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("incidents", "What happened to a run, who is to blame, what is done and why", ("primus.incident.decided",)),
    ("failed runs", "A run failed", ("primus.run.failed",)),
    ("questions", "Something waits for a person", ("primus.approval.asked",)),
    ("findings", "The monitor found what is not as it should be", ("primus.finding.opened",)),
)
"""Name, description and events that people are notified of."""
TELLING = tuple(f"primus: tell of {topic}" for topic, _, _ in NOTIFIED_EVENTS)
_AS_TEXT = "replace('<', '\u2039') | replace('>', '\u203a')"
"""A chat would take `<...>` for a link, a call of everybody or a tag, and others' words stand in messages."""
SUBJECT = f"{{{{ event.payload.message | {_AS_TEXT} }}}}"
BODY = f"""{SUBJECT}
{{% for line in event.payload.evidence %}}  {{{{ line | {_AS_TEXT} }}}}
{{% endfor %}}
{{{{ event.payload.command }}}}
{{{{ event.payload.link }}}}"""
PAYLOAD = '{"subject": {{ event.payload.message | tojson }}, "event": {{ event.payload | tojson }}}'


@app.command()
def automations(
    apply: Annotated[bool, typer.Option("--apply", help="Make the server's automations what is wanted.")] = False,
    block: Annotated[
        str, typer.Option("--block", help="Tell people through this block of the server, e.g. slack-webhook/ops.")
    ] = "",
    cluster: ClusterName = "",
    as_json: AsJson = False,
) -> int:
    """Who is notified of what, and what is examined automatically; without --apply nothing is changed.

    People are notified of incidents, failed runs, questions and findings: through --block, or through what tells them
    already. Where steps become slower, the monitor sweeps the run's nodes. An automation that you switched off on the
    server's page stays off.

    Example: primus automations --apply --block slack-webhook/ops
    """
    return show_automations(cluster, block, apply=apply, as_json=as_json)


@dataclass(frozen=True)
class Row:
    """One automation as `primus automations` shows it."""

    name: str
    state: str
    """`missing`, `differs`, `same`; after --apply `created`, `changed`, `same`; `skipped` with why."""
    does: str


def notification(block: UUID, kind: str) -> Iterator[AutomationCore]:
    """Automations that notify people through a block; its secret stays on the server."""
    for name, description, events in NOTIFIED_EVENTS:
        action = (
            CallWebhook(block_document_id=block, payload=PAYLOAD)
            if kind == WEBHOOK
            else SendNotification(block_document_id=block, subject=SUBJECT, body=BODY)
        )
        yield AutomationCore(
            name=f"primus: tell of {name}",
            description=description,
            tags=[TAG],
            trigger=EventTrigger(
                expect=set(events),
                match={"prefect.resource.id": "primus.*"},  # pyright: ignore[reportArgumentType]
                # Each event is sent: a late one of a busy night, too.
                for_each={"primus.event"},
                posture=Posture.Reactive,
                threshold=1,
                within=timedelta(0),
            ),
            actions=[action],
        )


def examination(cluster: str, deployment: UUID) -> AutomationCore:
    """Look at the nodes of a run whose steps became slower, once in a while for each run."""
    nodes = {"__prefect_kind": "jinja", "template": "{{ event.payload.nodes | tojson }}"}
    run = RunDeployment(
        source="selected",
        deployment_id=deployment,
        parameters={"nodes": {"__prefect_kind": "json", "value": nodes}},
        job_variables=None,
    )
    return AutomationCore(
        name=f"primus: examine slower runs on {cluster}",
        description="Steps became slower: the monitor sweeps the run's nodes",
        tags=[TAG],
        trigger=EventTrigger(
            expect={"primus.run.throughput_fell"},
            match={"prefect.resource.id": f"primus.run.{cluster}.*"},  # pyright: ignore[reportArgumentType]
            for_each={"prefect.resource.id"},
            posture=Posture.Reactive,
            threshold=1,
            within=timedelta(seconds=EXAMINE_SECONDS),
        ),
        actions=[run],
    )


def show_automations(cluster: str, block: str, *, apply: bool, as_json: bool) -> int:
    """Compare what is wanted with what stands on the server, and with --apply make it so.

    Raises:
        ProfileError: no such cluster profile, or --block is no slug.
        NotFound: no such block.
        Unavailable: no server answers.
    """
    settings = Settings.from_environment(os.environ)
    name = load_cluster(cluster or settings.cluster).name  # what is wrong by itself is told without a server
    with speaking_to_server_of(settings.home):
        rows = settle(name, block, apply=apply)
    changed = [row.name for row in rows if row.state in ("created", "changed")]
    if changed:
        note_act("", "automations", f"made on the server: {', '.join(changed)}")
    documents = [{"automation": row.name, "state": row.state, "does": row.does} for row in rows]
    if as_json:
        out_json(documents)
    else:
        out(table(documents, ("automation", "state", "does")))
    return GOOD


def settle(cluster: str, block: str, *, apply: bool) -> list[Row]:
    """Each automation that is wanted, and how it stands; see `show_automations`."""
    with console_server() as server:
        client, rows = server.client, list[Row]()
        wanted: list[AutomationCore] = []
        if block:
            wanted += notification(*block_of(client, block))
        else:
            standing_ones, missing = _as_they_stand({name: told_through(client, name) for name in TELLING})
            wanted += standing_ones
            why = "say --block TYPE/NAME: a notification block of the server, such as slack-webhook/ops"
            rows += [Row(name, "skipped", why) for name in missing]
        deployment = deployment_of(client, f"monitor/{cluster}")
        if deployment is not None:
            wanted.append(examination(cluster, deployment))
        else:
            why = f"nobody serves monitor/{cluster}: `primus up` does"
            rows.append(Row(f"primus: examine slower runs on {cluster}", "skipped", why))
        for one in (standing(client, item) for item in wanted):
            if apply:
                make_so(client, one)
            rows.append(Row(one.wanted.name, _word(one, applied=apply), one.wanted.description))
    return rows


def _as_they_stand(told: Mapping[str, tuple[UUID, bool] | None]) -> tuple[list[AutomationCore], list[str]]:
    """Notifications as wanted, each through the block by which the server's own tells; names of those it has not.

    `told` has the block by the name of its automation, and whether it is called as a webhook.
    """
    wanted, missing = list[AutomationCore](), list[str]()
    for number, (name, through) in enumerate(told.items()):
        if through is None:
            missing.append(name)
        else:
            block, calls = through
            wanted.append(list(notification(block, WEBHOOK if calls else ""))[number])
    return wanted, missing


def _word(one: Standing, *, applied: bool) -> str:
    after = {"missing": "created", "differs": "changed", "same": "same"}
    return after[one.state] if applied else one.state
