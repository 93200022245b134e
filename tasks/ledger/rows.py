"""Between the frozen records and the plain values that a database column can hold. Knows no database."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import StrEnum
from functools import cache
from types import UnionType
from typing import TYPE_CHECKING, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from profiles.errors import Permanent

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Record = TypeVar("Record", bound="DataclassInstance")
Json = Mapping[str, Any]
Row = dict[str, Any]
"""Column name -> str, int, float, bool, bytes or None."""


def to_row(record: DataclassInstance) -> Row:
    """The record's fields as column values: enumerations by their word, all that has parts as JSON text.

    A value with fields of its own is an object of JSON, and "" where there is none.
    """
    details = _details(type(record))
    row = {field.name: _encode(getattr(record, field.name)) for field in dataclasses.fields(record)}
    return row | {name: row[name] or "" for name in details} if details else row


def to_changes(record_type: type[DataclassInstance], changes: Mapping[str, object]) -> Row:
    """`changes` as column values.

    Raises:
        Permanent: a name that the record does not have; a mistake in our code.
    """
    known = {field.name for field in dataclasses.fields(record_type)}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise Permanent(f"{record_type.__name__} has no field {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    return {name: _encode(value) for name, value in changes.items()}


def from_row(record_type: type[Record], row: Mapping[Any, Any]) -> Record:
    """The record that `to_row` came from; columns that are no fields are ignored.

    Raises:
        Permanent: a value this program does not know, as a newer one may have written.
    """
    try:
        return record_type(**{name: decode(row[name]) for name, decode in _decoders(record_type)})
    except (ValueError, TypeError, KeyError) as error:
        raise Permanent(
            f"the ledger holds a {record_type.__name__} that this program cannot read ({error}): "
            "use the version of primus-flows that wrote it, or a newer one"
        ) from error


def read_column(record_type: type[DataclassInstance], name: str, value: object) -> Any:
    """One field of a record, by the value of its column."""
    return dict(_decoders(record_type))[name](value)


def to_text(value: DataclassInstance | None) -> str:
    """A value with fields of its own as its column holds it; "" for none."""
    return "" if value is None else str(_encode(value))


def storable(text: str) -> str:
    """The text without what databases refuse: NUL characters and halves of surrogate pairs (from undecodable logs)."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return text.replace("\0", "\ufffd").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _encode(value: object) -> object:
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, (tuple, list, dict)):
        # Escaped to ASCII by json, so NUL and lone surrogates survive as escapes in a text column.
        return json.dumps(value, separators=(",", ":"))
    if dataclasses.is_dataclass(value):
        return json.dumps({_key(field): getattr(value, field.name) for field in dataclasses.fields(value)})
    return value


def _key(field: dataclasses.Field[Any]) -> str:
    """Its name in JSON."""
    return field.metadata.get("key", field.name)


@cache
def _details(record_type: type[DataclassInstance]) -> tuple[str, ...]:
    """Fields that hold a value with fields of its own."""
    hints = get_type_hints(record_type)
    return tuple(field.name for field in dataclasses.fields(record_type) if _with_fields(hints[field.name]))


def _with_fields(hint: Any) -> list[type[DataclassInstance]]:
    return [part for part in get_args(hint) if dataclasses.is_dataclass(part) and isinstance(part, type)]


@cache
def _decoders(record_type: type[DataclassInstance]) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    hints = get_type_hints(record_type)
    return tuple((field.name, _column(hints[field.name])) for field in dataclasses.fields(record_type))


def _column(hint: Any) -> Callable[[Any], Any]:
    shape = _shape(hint)
    if get_origin(hint) in (tuple, dict):
        return lambda value: shape(json.loads(value))
    if kinds := _with_fields(hint):
        return lambda value: _detail(kinds, json.loads(value)) if value else None
    return shape


def _detail(kinds: list[type[DataclassInstance]], told: Json) -> DataclassInstance:
    """The value that has these fields; the first kind where several may be meant, a default where one is missing."""
    kind = max(kinds, key=lambda kind: len({_key(field) for field in dataclasses.fields(kind)} & told.keys()))
    hints = get_type_hints(kind)
    known = [field for field in dataclasses.fields(kind) if _key(field) in told]
    return kind(**{field.name: _shape(hints[field.name])(told[_key(field)]) for field in known})


def _shape(hint: Any) -> Callable[[Any], Any]:
    """What turns a JSON or column value back into the hinted type."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _union_shape([_shape(part) for part in get_args(hint) if part is not type(None)])
    if origin is tuple:
        return _tuple_shape(get_args(hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return lambda value: value


def _union_shape(shapes: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """None, or the first shape that accepts the value: the words of our enumerations never overlap."""

    def decode(value: Any) -> Any:
        if value is None:
            return None
        for shape in shapes[:-1]:
            with suppress(ValueError):
                return shape(value)
        return shapes[-1](value)

    return decode


def _tuple_shape(parts: tuple[Any, ...]) -> Callable[[Any], Any]:
    if len(parts) == 2 and parts[1] is Ellipsis:
        item = _shape(parts[0])
        return lambda value: tuple(item(entry) for entry in value)
    items = tuple(_shape(part) for part in parts)
    return lambda value: tuple(item(entry) for item, entry in zip(items, cast("list[Any]", value), strict=True))
