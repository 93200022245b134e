"""What the console asks of the ledger and writes into it."""

from __future__ import annotations

import json
from dataclasses import asdict

from tasks.ledger_part import LedgerPart
from tasks.ledger_rows import to_row
from tasks.ledger_tables import MARKS
from workflows.console import Fall
from workflows.records import MarkRecord

FELL = "throughput-fell"
"""Kind of the mark; `cuts` of the accounting know nothing of it."""


class ConsoleLedger(LedgerPart):
    """Events and falls of throughput."""

    def identity(self) -> str:
        """What tells this ledger from every other one, as long as it lives: random, and made with it."""
        if not self.database.ledger_id:
            with self.database.reading():
                pass  # whoever opens a ledger learns which one it is
        return self.database.ledger_id

    def note_fall(self, run: str, attempt: int, fall: Fall, nodes: tuple[str, ...]) -> bool:
        """Write that an attempt became slower; True where that was not known. The same fall is written once."""
        why = (
            f"steps take {fall.after_seconds:.3g} s instead of {fall.before_seconds:.3g} s "
            f"({fall.ratio:.2f} times as long) since step {fall.step} of attempt {attempt}"
        )
        mark = MarkRecord(run, attempt, FELL, fall.at, why)
        data = {"attempt": attempt, **asdict(fall), "ratio": round(fall.ratio, 3), "nodes": list(nodes)}
        with self.database.writing(run) as transaction:
            fresh = transaction.insert_once(MARKS, to_row(mark))
            if fresh:
                transaction.note("throughput", f"{run}/{attempt}", why, json.dumps(data))
        return fresh
