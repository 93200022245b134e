"""The report flow: where the GPU-hours of a cluster's runs went, as a page in the home and an artifact on the server.

Runs are read in bulk. A run's summary is made once, when the run has ended, and kept in the ledger, so that its steps
are unpacked only once. `account_of_all` needs no Prefect, so that the command starts fast.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from prefect import flow
from prefect.runtime import flow_run

from flows.decisions.accounting.fleet import Json, fleet_account
from flows.decisions.accounting.report import summarise
from flows.decisions.text import since_seconds
from flows.pages.fleet import fleet_page, in_words, page_name, sheet_of
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.loading.load import load_cluster, load_hardware
from tasks.context import session, world
from tasks.ledger.ledger import Ledger
from tasks.prefect.run_page import put_artifact, write_page
from tasks.runs.open import resolved_of
from tasks.settings import Settings, localised
from workflows.model.runs import RunSummary

Tell = Callable[[str], None]

TELL_EVERY = 100
"""Runs without a summary between two lines of progress."""


@flow(name="report", flow_run_name="report {cluster} since {since}")
async def report(since: str = "7d", cluster: str = "") -> str:
    """Say where the GPU-hours of a cluster went: goodput, causes, failures, cost; as a page and an artifact.

    Args:
        since: Begin of the window: an age (30m, 6h, 7d) or a date and time (2026-01-31T12:00, UTC).
        cluster: Name of the cluster profile; empty: the one of the environment.

    Returns:
        The account in one line. The artifact `fleet-report` names the page, which lies in PRIMUS_HOME/reports.

    Raises:
        ProfileError: no such cluster profile, or a window that is none.
    """
    settings = Settings.from_environment(os.environ)
    profile = localised(load_cluster(cluster or settings.cluster), settings.home)
    with session(settings):
        here = world()
        now = here.now()
        account = account_of_all(here.ledger, profile, since_seconds(since or "7d", now, "since"), now, print_nothing)
        path = write_page(page_name(account), fleet_page(account))
        put_artifact(str(flow_run.get_id() or ""), sheet_of(account, path))
    return in_words(account)


def print_nothing(_: str) -> None:
    """Progress of the reading is for terminals."""


def account_of_all(ledger: Ledger, cluster: ClusterProfile | None, since: float, now: float, tell: Tell) -> Json:
    """The account of a cluster's runs between `since` and `now` (Unix seconds).

    Summaries of ended runs that have none yet are written to the ledger. `cluster`: None: every cluster, so that no
    capacity is known. `tell` gets the progress of the reading, where it takes long.

    Raises:
        Unavailable: the ledger does not answer.
        ProfileError: `since` is not before now.
    """
    if since >= now:
        raise ProfileError("--since", "must lie in the past: an age like 7d or a date and time before now")
    window = ledger.window(cluster.name if cluster else "", since, now)
    missing = sum(item.summary is None for item in window.runs)
    summaries: list[RunSummary] = []
    for item in window.runs:
        summaries.append(item.summary or summary_of(ledger, item.run, now))
        missing -= item.summary is None
        if item.summary is None and missing and missing % TELL_EVERY == 0:
            tell(f"{missing} more runs have no summary yet; each gets one once")
    if cluster is None:
        return fleet_account(window, summaries, 0)
    return fleet_account(window, summaries, capacity_of(cluster), cluster.name, nodes_of(cluster))


def nodes_of(cluster: ClusterProfile) -> int:
    """Nodes with GPUs; all nodes where none has any."""
    with_gpus = sum(pool.nodes for pool in cluster.pools if load_hardware(pool.hardware).gpus_per_node)
    return with_gpus or sum(pool.nodes for pool in cluster.pools)


def capacity_of(cluster: ClusterProfile) -> int:
    """GPUs of all pools together; 0 where nodes have none."""
    return sum(pool.nodes * load_hardware(pool.hardware).gpus_per_node for pool in cluster.pools)


def summary_of(ledger: Ledger, run: str, now: float) -> RunSummary:
    """The account of a run until its end, or until `now`; kept where it has ended.

    Reads every step of the run: about ten seconds for a million of them.

    Raises:
        NotFound: no such run.
        Unavailable: the ledger does not answer.
    """
    story = ledger.story(run)
    steps = {attempt.number: ledger.steps(run, attempt.number) for attempt in story.attempts}
    summary = summarise(story, steps, resolved_of(story.run), now)
    if story.run.ended_at is not None:
        ledger.keep_summary(summary)
    return summary
