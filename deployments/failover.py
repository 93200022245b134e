"""`primus failover RUN`: the failover flow by hand, for a run that nobody drives."""

from __future__ import annotations

import asyncio
import os
import time

from deployments.console import ensure_console
from deployments.driver import driver_of
from deployments.edge import GOOD, WRONG_USAGE, out, say
from profiles.vocabulary import FINISHED
from tasks.ledger import Ledger
from tasks.prefect_server import quiet_environment
from tasks.settings import Settings


def recover_by_hand(run: str) -> int:
    """Examine, diagnose and decide the open incident of a run without a living driver.

    Returns:
        0 where it was decided or there is nothing to decide, 2 where a driver lives.

    Raises:
        NotFound: no such run.
        Conflict: a driver took it a moment ago.
        Unavailable: the ledger, the cluster or the Prefect server does not answer.
    """
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    story = ledger.story(run)
    driver = driver_of(run, story.lease, settings.home, time.time())
    if story.run.state in FINISHED:
        out(f"{run} has {story.run.state}: nothing is to be decided; go on with it: primus resume {run}")
        return GOOD
    if driver.alive:
        say(
            f"{run} is driven by process {driver.pid} on {driver.host}, which decides by itself; nothing was touched. "
            f"See it: primus status {run}; what waits for you: primus approvals"
        )
        return WRONG_USAGE
    incident = story.open_incident
    if incident is None:
        out(f"{run} has no open incident; nobody drives it: {_go_on(story.run.profile, run)}")
        return GOOD
    say(f"{incident.id}: {incident.signal}: {incident.seen}")
    os.environ.update(quiet_environment(settings.home), PREFECT_API_URL=ensure_console(settings.home))
    from flows.failover import failover  # reads the environment when it is imported

    out(f"{incident.id}: {asyncio.run(failover(run))}")
    say(f"decided and written down; a driver carries it out: {_go_on(story.run.profile, run)}")
    return GOOD


def _go_on(profile: str, run: str) -> str:
    return f"primus train {profile} --name {run} (as it was begun)"
