"""A changed copy of a frozen dataclass, several times faster than `dataclasses.replace`.

The coordinator changes its state with every report that it hears, and with all at once when it reads its journal.
"""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def replace(value: T, **fields: Any) -> T:
    """`value` with other fields. Not for classes with `__post_init__`, slots or fields that are not of `__init__`.

    Raises:
        TypeError: it has no such field.
    """
    known = value.__dict__
    if not fields.keys() <= known.keys():
        raise TypeError(f"{type(value).__name__} has no field {', '.join(sorted(fields.keys() - known.keys()))}")
    changed = object.__new__(type(value))
    changed.__dict__.update(known)
    changed.__dict__.update(fields)
    return changed
