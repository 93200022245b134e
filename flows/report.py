"""The report flow: the account of all runs of a cluster, as a page in the home and as an artifact on the server."""

from __future__ import annotations

import os

from prefect import flow
from prefect.runtime import flow_run

from flows.accounts import account_of_all
from flows.decisions.ages import since_seconds
from flows.pages.fleet_page import fleet_page, in_words
from flows.pages.fleet_sheet import page_name, sheet_of
from profiles.load import load_cluster
from tasks.opening import localised
from tasks.report_files import put_artifact, write_page
from tasks.session import session
from tasks.settings import Settings
from tasks.world import world


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
