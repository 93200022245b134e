"""The ledger: the durable history of runs, and the only memory that outlives every process of ours.

Plain synchronous methods over the frozen records of `workflows.records`. A write either stands completely or raises
and left nothing, so callers repeat it after `Unavailable`: ids are deterministic and writing twice is harmless. Methods
that a driver calls take its `fencing` number and raise `Fenced` in the very transaction that sees a newer driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.ledger_attempts import AttemptLedger
from tasks.ledger_console import ConsoleLedger
from tasks.ledger_database import Database
from tasks.ledger_findings import FindingLedger
from tasks.ledger_fleet import FleetLedger
from tasks.ledger_incidents import IncidentLedger
from tasks.ledger_leases import LeaseLedger
from tasks.ledger_links import LinkLedger
from tasks.ledger_looks import LookLedger
from tasks.ledger_nodes import NodeLedger
from tasks.ledger_overview import OverviewLedger
from tasks.ledger_reconcile import ReconcileLedger
from tasks.ledger_runs import RunLedger
from tasks.ledger_steps import StepLedger
from tasks.ledger_story import StoryLedger
from tasks.ledger_verdicts import VerdictLedger
from tasks.ledger_window import WindowLedger


class Ledger(
    RunLedger,
    ReconcileLedger,
    LeaseLedger,
    AttemptLedger,
    IncidentLedger,
    FleetLedger,
    VerdictLedger,
    LookLedger,
    LinkLedger,
    NodeLedger,
    StepLedger,
    StoryLedger,
    OverviewLedger,
    FindingLedger,
    ConsoleLedger,
    WindowLedger,
):
    """One ledger. Cheap to make: nothing is opened before the first method is called.

    Args:
        url: `sqlite:///<path>` or `postgresql://user:password@host/database`.
        clock: seconds since the epoch; the time of history lines.

    Raises:
        ProfileError: the URL is none of these.
    """

    def __init__(self, url: str, clock: Callable[[], float] = time.time) -> None:
        self.database = Database(url, clock)

    def close(self) -> None:
        """Give connections back; the ledger can be used again afterwards."""
        self.database.close()
