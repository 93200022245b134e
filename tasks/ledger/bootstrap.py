"""Steps of bootstraps: written before they are carried out, and after their proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sqlalchemy import select

from profiles.vocabulary import VerdictWord
from tasks.ledger.database import LedgerPart, LedgerTransaction, as_json
from tasks.ledger.rows import from_row, to_row
from tasks.ledger.tables import BOOTSTRAP_STEPS
from workflows.model.bootstrap import Step, StepProof, StepRecord, builder_of


class BootstrapLedger(LedgerPart):
    """What was begun of bootstraps, and how it ended."""

    def bootstrap_steps(self, cluster: str) -> dict[str, StepRecord]:
        """Every step that was ever begun or proven of this cluster, by id."""
        with self.database.reading() as transaction:
            return _steps(transaction, cluster)

    def begin_steps(self, cluster: str, steps: Sequence[Step], fencing: int, now: float, since: float) -> None:
        """Write that these are carried out now, before any of it is done; tries before `since` are not counted.

        Raises:
            Fenced: another process builds this cluster.
        """
        with self.database.writing(builder_of(cluster), fencing, synced=True) as transaction:
            known = _steps(transaction, cluster)
            for step in steps:
                before = known.get(step.id)
                again = before is not None and before.began_at >= since and before.wanted == step.wanted
                tries = before.tries + 1 if before is not None and again else 1
                record = StepRecord(
                    cluster, step.stage, step.subject, step.wanted, "began", tries, now, None, step.summary
                )
                _put(transaction, record, before is None)

    def end_steps(
        self, cluster: str, steps: Sequence[Step], proofs: Mapping[str, StepProof], fencing: int, now: float
    ) -> None:
        """Write what the proofs of these steps say; one that already stands so is not written again.

        Raises:
            Fenced: another process builds this cluster.
        """
        with self.database.writing(builder_of(cluster), fencing, synced=True) as transaction:
            known = _steps(transaction, cluster)
            for step in steps:
                proof, before = proofs[step.id], known.get(step.id)
                holds = proof.word is VerdictWord.PASS
                if before is None and not holds:
                    continue  # never begun, and it does not hold: there is nothing to remember
                found = before or StepRecord(
                    cluster, step.stage, step.subject, step.wanted, "proven", 0, now, now, proof.why
                )
                wanted = step.wanted if holds else found.wanted
                after = replace(found, wanted=wanted, state="proven" if holds else "failed", why=proof.why)
                if (
                    before is None
                    or (after.wanted, after.state) != (before.wanted, before.state)
                    or not before.ended_at
                ):
                    _put(transaction, replace(after, ended_at=now), before is None)


def _steps(transaction: LedgerTransaction, cluster: str) -> dict[str, StepRecord]:
    rows = transaction.all(select(BOOTSTRAP_STEPS).where(BOOTSTRAP_STEPS.c.cluster == cluster))
    found = [from_row(StepRecord, row) for row in rows]
    return {record.id: record for record in found}


def _put(transaction: LedgerTransaction, record: StepRecord, fresh: bool) -> None:
    row = to_row(record)
    if fresh:
        transaction.insert_once(BOOTSTRAP_STEPS, row)
    else:
        key = {name: row.pop(name) for name in ("cluster", "stage", "subject")}
        transaction.update(BOOTSTRAP_STEPS, key, row)
    transaction.note("bootstrap", record.id, f"{record.state}: {record.why}", as_json(record))
