"""The bootstrap flow: from hosts with nothing but sshd to a cluster that has proven that it trains, and its upkeep.

Inventory, pre-checks, plan, a person's approval where the mode asks, hosts, control plane, workers, network,
components, proof: each step is judged by what is seen, written down before it is carried out, and proven afterwards.
The same request again goes on where the last one ended, at whatever line it was killed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from prefect import State, flow, task
from prefect.cache_policies import NO_CACHE
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.building.ground import Ground, acts, ground_of
from flows.building.work import BootstrapOutcome, Builder, Result, Shown, directly
from flows.decisions.bootstrap.admission import waiting_note
from flows.decisions.bootstrap.changes import way_back, why_not_leave, why_not_upgrade
from flows.decisions.bootstrap.configuration import unchangeable
from flows.decisions.bootstrap.drift import drift_of
from flows.decisions.bootstrap.judge import Wanted, checks_of, judged
from flows.decisions.bootstrap.kubespray import kubespray_notes
from flows.decisions.bootstrap.plans import removal_steps, section
from flows.decisions.bootstrap.rollout import plan_as_seen
from flows.decisions.bootstrap.summary import said_once
from flows.decisions.text import first_names
from flows.pages.bootstrap import bootstrap_page, plan_sheet, table_sheet
from profiles.bootstrap.engines import Kubespray
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.errors import Refused
from profiles.loading.load import load_cluster
from profiles.vocabulary import Mode, VerdictWord
from tasks.bootstrap.site import Hear, Tell, as_lines
from tasks.context import session, world
from tasks.lease import driving
from tasks.prefect.automations import asked_by
from tasks.prefect.run_page import own_log, put_artifact, write_page
from tasks.settings import Settings, localised
from workflows.bootstrap.building import BuildingSight
from workflows.bootstrap.control_sight import ControlSight
from workflows.model.bootstrap import CLUSTER, Stage, Step, builder_of
from workflows.model.host_facts import Unread
from workflows.model.manifest import part
from workflows.model.records import Actor, one_line

SHOWN = 6
CHANGES_HOSTS = ("build", "check", "join", "leave", "upgrade")
"""Verbs that stand on what the cluster was made with."""
GATED = ("build", "check", "join", "components")
"""Verbs after which somebody waits for nodes that take work."""


@flow(name="bootstrap", flow_run_name="bootstrap {request.verb}", validate_parameters=True)
async def bootstrap(request: BootstrapRequest) -> State[Any]:
    """Make a cluster of the profile's hosts, join and leave, upgrade, compare; every step resumable and proven.

    Args:
        request: which cluster, and what is to be done.

    Returns:
        A state whose message says how it ended. Failed: something does not hold, or nobody can tell.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(request.cluster or settings.cluster), settings.home)
    with session(settings):
        log = own_log()
        outcome = carry_through(profile, request, log, by_task, asked_by(), as_lines(log, details=False))
        publish(outcome)
    return (Completed if outcome.word == "done" else Failed)(message=outcome.why)


def by_task(name: str, work: Callable[[], Result], /) -> Result:
    """Do the work as a task of the flow run, under this name; it has failed where it says which steps did."""
    results: list[Result] = []
    raised: list[Exception] = []

    def carried() -> State[Any]:
        try:
            results.append(result := work())
        except Exception as error:
            raised.append(error)  # it goes on to whoever asked, as it is
            raise
        failed = cast("Mapping[str, str]", result if isinstance(result, Mapping) else {})
        said = [f"{step}: {why}" for step, why in failed.items()]
        return Failed(message=first_names(said, SHOWN)) if said else Completed()

    made: Any = task(name=name, task_run_name=name, cache_policy=NO_CACHE, persist_result=False)(carried)
    made(return_state=True)
    for error in raised:
        raise error
    return results[0]


def carry_through(
    profile: ClusterProfile,
    request: BootstrapRequest,
    tell: Tell,
    shown: Shown = directly,
    by: Actor | None = None,
    hear: Hear | None = None,
) -> BootstrapOutcome:
    """Carry the request through; ledger and settings come from `tasks.context`.

    `hear` shows what hosts do while they do it; None: `tell` gets it, line by line.

    Raises:
        ProfileError: profile, release or request are wrong; nothing was touched.
        Conflict: another process builds this cluster.
        Refused: the change would cost the cluster its quorum, or leaves versions out.
        Unavailable: the ledger does not answer.
    """
    heard = hear or as_lines(tell)
    ground = ground_of(profile, request, heard)
    with driving(builder_of(profile.name)):
        if by is not None:
            what = f"{request.verb} {', '.join(request.hosts) or profile.name}"
            world().ledger.act(builder_of(profile.name), "bootstrap", one_line(what), by)
        builder: Builder[BuildingSight] = Builder(
            profile, request, ground.site, partial(judged, ground.wanted), tell, shown, BuildingSight.joined, hear=heard
        )
        if request.verb == "drift":
            found = compared(builder, ground)
            publish_first(found)
            return found
        return changed(builder, ground)


def changed(builder: Builder[BuildingSight], ground: Ground) -> BootstrapOutcome:
    """What the first look says; where hosts are fit and the request acts, how carrying it out ended.

    Raises:
        Refused, Unavailable: see `carry_through`.
    """
    request = ground.request
    take_up(builder, ground, acts=acts(request))
    if fit := ground.wanted.fit:
        builder.tell(f"hosts were found fit {max(fit.values()):.0f} s ago by a command that was cut off: going on")
    deep = checks_hosts(ground.plan) and not fit
    seen = builder.begin(ground.hosts, deep=deep)
    if acts(request):
        seen = builder.sure(ground.plan, seen, ground.hosts, deep=deep)
    refuse_change(ground, seen)
    plan = planned(ground, seen)
    notes = notes_of(ground, seen)
    first = replace(builder.first(plan, seen), notes=(*notes, *untested(ground, plan)))
    publish_first(first)
    if not acts(request) or first.word != "done":
        return first
    for note in said_before(ground, seen):
        builder.tell(note)
    if request.mode is Mode.ASK and (why := not_approved(builder, ground, first, said_before(ground, seen))):
        return builder.denied(plan, seen, why)
    ended = builder.carry_through(plan, seen)
    return replace(ended, notes=(*notes, *untested(ground, plan)))


def planned(ground: Ground, seen: BuildingSight) -> tuple[Step, ...]:
    """The steps of the request; what there is to be removed, and whom it would disturb, only a look tells."""
    if ground.request.verb != "uninstall":
        return plan_as_seen(ground.plan, section(ground.wanted), seen)
    return removal_steps({} if isinstance(seen.components, Unread) else seen.components)


def take_up(builder: Builder[BuildingSight], ground: Ground, *, acts: bool) -> None:
    """Go on with what a command that died left running, before anybody looks; where nothing is changed, say it."""
    if left := ground.site.unfinished:
        title = f"goes on with {first_names(left, SHOWN)}"
        builder.shown(title, lambda: ground.site.take_up(builder.tell, acts=acts))


def compared(builder: Builder[BuildingSight], ground: Ground) -> BootstrapOutcome:
    """In what hosts and cluster differ from what is wanted; nothing is changed and nothing is measured."""
    builder.announce_look(ground.hosts)
    seen = builder.shown("looks at hosts and cluster", lambda: ground.site.look(ground.hosts, deep=False))
    found = drift_of(ground.wanted, seen, ground.hosts)
    unknown = sum(one.word is VerdictWord.UNKNOWN for one in found)
    known = len(found) - unknown
    why = f"{known} difference{'s'[: known != 1]}" + (f", and of {unknown} things nobody can tell" if unknown else "")
    word = "failed" if known else "unknown" if unknown else "done"
    name, since = builder.profile.name, builder.book.since
    more = engine_notes(ground.wanted)
    notes, folded = (*(one.text for one in found), *more), (*said_once(found), *more)
    return BootstrapOutcome(name, "drift", word, why, {}, (), since, notes, folded)


def notes_of(ground: Ground, seen: BuildingSight) -> tuple[str, ...]:
    """What pre-checks found that keeps hosts from being touched, and what somebody passes over, each once.

    Behind it what can never be taken back, and what the engine cannot do or tell.
    """
    said = said_before(ground, seen)
    if not checks_hosts(ground.plan) or ground.wanted.fit:
        return said
    checks = checks_of(ground.wanted, seen)
    concerned = set(ground.hosts)
    stopping = [one for one in checks.stopped if concerned & set(one.hosts)]
    return (
        *(f"{one.check} ({first_names(one.hosts, SHOWN)}): {one.word}: {one.found}: {one.advice}" for one in stopping),
        *(f"{one.check} ({first_names(one.hosts, SHOWN)}): passed over: {one.forced}" for one in checks.forced),
        *said,
    )


def checks_hosts(plan: Sequence[Step]) -> bool:
    """Whether hosts are to be found fit first."""
    return any(step.stage is Stage.PRECHECKS and step.subject != CLUSTER for step in plan)


def said_before(ground: Ground, seen: BuildingSight) -> tuple[str, ...]:
    """What is said before anything begins: what can never be taken back, what the engine cannot do or tell."""
    ours = ground.request.verb == "upgrade" and ground.wanted.release is not None
    never = (way_back(running_versions(seen), ground.request.version),) if ours else ()
    return (*never, *engine_notes(ground.wanted))


def untested(ground: Ground, plan: Sequence[Step]) -> tuple[str, ...]:
    """That nodes keep the start-up taint where nothing here tests them, as they were seen last."""
    last = ground.site.last
    nodes = last.cluster.nodes if last is not None and ground.request.verb in GATED else None
    return waiting_note(ground.site.request_cluster, plan, nodes)


def engine_notes(wanted: Wanted) -> tuple[str, ...]:
    """What the engine cannot do, or cannot tell, of what is asked for."""
    if not isinstance(wanted.engine, Kubespray):
        return ()
    return kubespray_notes(section(wanted), wanted.verb, wanted.version)


def refuse_change(ground: Ground, seen: BuildingSight) -> None:
    """Nothing where the cluster bears what is asked for.

    Raises:
        Refused: it would lose its quorum, leave versions out, or nobody can tell; or the profile says otherwise of
            what a cluster that stands can never change.
    """
    request, bootstrap, best = ground.request, section(ground.wanted), seen.cluster.best
    if ground.wanted.release is not None and request.verb in CHANGES_HOSTS:
        refuse_other_cluster(ground.wanted.cluster, seen.cluster)
    why = ""
    if request.verb == "leave":
        members = None if best is None or best.members is None else {one.name: not one.why for one in best.members}
        why = why_not_leave(bootstrap, request.hosts, members, request.dead)
    elif request.verb == "uninstall" and isinstance(seen.components, Unread):
        why = f"nobody can tell what is installed: {seen.components.why}"
    elif request.with_data and request.confirmed != ground.wanted.cluster.name:
        why = f"its data will be gone for ever: say --confirmed {ground.wanted.cluster.name}"
    elif request.verb == "upgrade":
        why = why_not_upgrade(running_versions(seen), request.version)
    if why:
        raise Refused(request.verb, why)


def running_versions(seen: BuildingSight) -> list[str]:
    """Versions of Kubernetes that nodes run, and the one that the cluster is meant to have."""
    nodes, best = (seen.cluster.nodes or {}).values(), seen.cluster.best
    running = [str(part(node, "status", "nodeInfo").get("kubeletVersion", "")) for node in nodes]
    return [*running, *([best.version] if best is not None else [])]


def refuse_other_cluster(cluster: ClusterProfile, sight: ControlSight) -> None:
    """Nothing where the cluster that stands can become what the profile says.

    Raises:
        Refused: it keeps one of these fields for ever.
    """
    found = unchangeable(cluster, sight)
    if found:
        more = f" (and {', '.join(one.what for one in found[1:SHOWN])})" if len(found) > 1 else ""
        keeps = "a cluster that stands keeps it for ever: put the field back, or make another cluster"
        raise Refused(found[0].what, f"found {found[0].found}, wanted {found[0].wanted}: {keeps}{more}")


def not_approved(
    builder: Builder[BuildingSight], ground: Ground, first: BootstrapOutcome, notes: Sequence[str] = ()
) -> str:
    """Ask a person whether the plan is carried out, and what comes of it (`notes`); "" where it is, else why not."""
    steps = [step for step in first.steps if step.word != "pass"]
    if not steps:
        return ""
    text = "\n".join(sorted(f"{step.id} {step.wanted}" for step in ground.plan))
    said = "; ".join(f"{step.id}: {step.summary}" for step in steps[:SHOWN])
    more = f"; and {len(steps) - SHOWN} more" if len(steps) > SHOWN else ""
    question = "; ".join([f"{ground.request.verb} {first.cluster}: carry out {len(steps)} steps? {said}{more}", *notes])
    asked = builder.book.ask(hashlib.sha256(text.encode()).hexdigest()[:12], question, builder.tell)
    return "" if asked.state == "approved" else f"{asked.state}: {asked.why or 'nobody answered in time'}"


def publish_first(first: BootstrapOutcome) -> None:
    """Show on the flow run's page what would be carried out, before any of it is, and hosts by stages as they are."""
    own = str(flow_run.get_id() or "")
    if own:  # else a command of a person, who reads it on the screen
        put_artifact(own, plan_sheet(first.cluster, first.verb, first.steps, first.said))
        publish_table(own, first)


def publish(outcome: BootstrapOutcome) -> None:
    """Show on the flow run's page hosts by stages as it left them, and keep a page with the time line."""
    publish_table(str(flow_run.get_id() or ""), outcome)
    keep_page(outcome)


def publish_table(own: str, outcome: BootstrapOutcome) -> None:
    """Hosts by stages; a comparison knows of none."""
    if outcome.table:
        put_artifact(own, table_sheet(outcome.cluster, outcome.table, outcome.why))


def keep_page(outcome: BootstrapOutcome) -> Path:
    """Keep the page of a bootstrap that has ended; where it lies."""
    return write_page(f"bootstrap-{outcome.cluster}", page_of(outcome))


def page_of(outcome: BootstrapOutcome) -> str:
    """The page of a bootstrap that has ended."""
    records = list(world().ledger.bootstrap_steps(outcome.cluster).values())
    title = f"{outcome.cluster}: {outcome.verb}"
    return bootstrap_page(title, outcome.why, outcome.table, outcome.steps, records, outcome.since, outcome.said)
