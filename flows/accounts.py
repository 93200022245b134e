"""The account of all runs: read in bulk; what has no summary yet gets one. No Prefect: commands start fast."""

from __future__ import annotations

from collections.abc import Callable

from flows.decisions.fleet_account import Json, fleet_account
from flows.summaries import summary_of
from profiles.cluster import ClusterProfile
from profiles.errors import ProfileError
from profiles.load import load_hardware
from tasks.ledger import Ledger
from workflows.summary import RunSummary

Tell = Callable[[str], None]
TELL_EVERY = 100
"""Runs without a summary between two lines of progress."""


def account_of_all(ledger: Ledger, cluster: ClusterProfile | None, since: float, now: float, tell: Tell) -> Json:
    """The account of a cluster's runs between `since` and `now` (Unix seconds).

    Args:
        ledger: where the runs stand; summaries of ended runs that have none yet are written to it.
        cluster: whose runs; None: of every cluster, so that no capacity is known.
        since: begin of the window.
        now: its end.
        tell: told how far the reading is, where it takes long.

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
