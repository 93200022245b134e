"""What all parts of the ledger share: a database, and writing one record once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, select

from profiles.errors import NotFound
from tasks.ledger_database import Database, Transaction
from tasks.ledger_rows import Record, from_row, to_changes, to_row

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class LedgerPart:
    """A group of the ledger's methods over one `Database`."""

    database: Database


def create_or_get(
    transaction: Transaction, table: Table, record: Record, key: Mapping[str, Any], kind: str, why: str
) -> tuple[Record, bool]:
    """The record as it stands in the table, and whether this call put it there."""
    row = to_row(record)
    if transaction.insert_once(table, row):
        transaction.note(kind, "/".join(str(value) for value in key.values()), why, json.dumps(row, default=str))
        return record, True
    return get(transaction, table, type(record), key, kind), False


def get(
    transaction: Transaction,
    table: Table,
    record_type: type[Record],
    key: Mapping[str, Any],
    kind: str,
    *,
    lock: bool = False,
) -> Record:
    """The record with this key; `lock` keeps others from changing it until the transaction ends.

    Raises:
        NotFound: there is none.
    """
    query = select(table).where(*(table.c[name] == value for name, value in key.items()))
    found = transaction.one(query.with_for_update() if lock else query)
    if found is None:
        raise NotFound(f"the ledger knows no {kind} {'/'.join(str(value) for value in key.values())}")
    return from_row(record_type, found)


def change(
    transaction: Transaction,
    table: Table,
    record_type: type[Record],
    key: Mapping[str, Any],
    kind: str,
    changes: Mapping[str, object],
    *,
    noted: bool = True,
) -> Record:
    """Set fields of the record with this key and return it.

    Raises:
        NotFound: there is none.
        Permanent: a name that is no field.
    """
    values = to_changes(record_type, changes)
    subject = "/".join(str(value) for value in key.values())
    if values and not transaction.update(table, key, values):
        raise NotFound(f"the ledger knows no {kind} {subject}")
    if values and noted:
        transaction.note(kind, subject, str(values.get("why", "")), json.dumps(values, default=str))
    return get(transaction, table, record_type, key, kind)


def as_json(record: DataclassInstance) -> str:
    """The record as the history keeps it."""
    return json.dumps(to_row(record), default=str)
