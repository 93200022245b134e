"""The ledger: the durable history of runs, and the only memory that outlives every process of ours.

Plain synchronous methods over the frozen records of `workflows.model.records`. A write either stands completely or
raises and left nothing, so callers repeat it after `Unavailable`: ids are deterministic and writing twice is harmless.
Methods that a driver calls take its `fencing` number and raise `Fenced` in the very transaction that sees a newer
driver.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tasks.ledger.attempts import AttemptLedger
from tasks.ledger.bootstrap import BootstrapLedger
from tasks.ledger.database import Database
from tasks.ledger.findings import FindingLedger
from tasks.ledger.incidents import IncidentLedger
from tasks.ledger.nodes import NodeLedger
from tasks.ledger.overview import OverviewLedger
from tasks.ledger.runs import RunLedger
from tasks.ledger.story import StoryLedger
from tasks.ledger.verdicts import VerdictLedger


class Ledger(
    RunLedger,
    AttemptLedger,
    IncidentLedger,
    NodeLedger,
    VerdictLedger,
    StoryLedger,
    OverviewLedger,
    FindingLedger,
    BootstrapLedger,
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
