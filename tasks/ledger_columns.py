"""Columns of the ledger's tables: what they hold, in words that two databases understand."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Dialect,
    Float,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    TypeDecorator,
)


class AnyFloat(TypeDecorator[float]):
    """A float that may be NaN: SQLite silently turns NaN into NULL, so it is kept as its shortest exact text."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> str | None:
        """Text that reads back as the very same float."""
        return None if value is None else repr(float(value))

    def process_result_value(self, value: Any | None, dialect: Dialect) -> float | None:
        """The float."""
        return None if value is None else float(value)


METADATA = MetaData()
_SEQUENCE = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts rows by itself only for a column that is called exactly INTEGER."""


def sequence() -> Column[int]:
    """A number the database counts up by itself: the order of rows."""
    return Column("seq", _SEQUENCE, primary_key=True, autoincrement=True)


def text(name: str, *, key: bool = False) -> Column[str]:
    """Text, never NULL."""
    return Column(name, Text, primary_key=key, nullable=False)


def time(name: str) -> Column[float]:
    """Unix seconds, or any float, never NULL."""
    return Column(name, Float(53), nullable=False)


def maybe_time(name: str) -> Column[float]:
    """The same, NULL where it has not happened."""
    return Column(name, Float(53))


def whole(name: str, *, key: bool = False) -> Column[int]:
    """A whole number, never NULL."""
    return Column(name, BigInteger, primary_key=key, nullable=False, autoincrement=False)


def maybe_whole(name: str) -> Column[int]:
    """The same, NULL where it is not known."""
    return Column(name, BigInteger)


def flag(name: str) -> Column[bool]:
    """True or false."""
    return Column(name, Boolean, nullable=False)


def packed(name: str) -> Column[bytes]:
    """Bytes, never NULL."""
    return Column(name, LargeBinary, nullable=False)
