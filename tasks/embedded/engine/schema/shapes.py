"""Checking a JSON value against a table of fields; every deviation is named by its full path."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, assert_never

from profiles.errors import Refused, check_all
from tasks.embedded.engine.json_values import is_list, is_map
from tasks.embedded.engine.kube.quantity import milli


@dataclass(frozen=True)
class Scalar:
    """A single value."""

    kind: Literal[
        "text",
        "whole",
        "flag",
        "text-or-number",
        "value",
        "anything",
        "path",
        "inner-path",
        "quantity",
        "field-path",
    ]
    choices: tuple[str, ...] = ()
    """Where not empty: nothing else is accepted."""


@dataclass(frozen=True)
class ListShape:
    """A list."""

    item: Shape
    least: int = 0


@dataclass(frozen=True)
class MapShape:
    """An object with any keys."""

    value: Shape


@dataclass(frozen=True)
class Fields:
    """An object with known fields."""

    fields: Mapping[str, Shape]
    required: tuple[str, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Fields that Argo or Kubernetes know and this cluster does not run: field -> what to do instead."""
    one_of: tuple[str, ...] = ()
    """Exactly one of these must be given."""


Shape = Scalar | ListShape | MapShape | Fields

TEXT = Scalar("text")
WHOLE = Scalar("whole")
FLAG = Scalar("flag")
TEXT_OR_NUMBER = Scalar("text-or-number")
VALUE = Scalar("value")
ANYTHING = Scalar("anything")
PATH = Scalar("path")
INNER_PATH = Scalar("inner-path")
QUANTITY = Scalar("quantity")
FIELD_PATH = Scalar("field-path")
TEXTS = ListShape(TEXT)
TEXT_MAP = MapShape(TEXT)

_SAID = {
    "text": "a text",
    "whole": "a whole number",
    "flag": "true or false",
    "text-or-number": "a text or a number",
    "value": "a text, number or flag",
    "anything": "something",
    "path": "an absolute path",
    "inner-path": "a path inside the volume, without .. and without a leading /",
    "quantity": "a quantity like 500m, 2 or 1Gi",
    "field-path": "metadata.name/namespace/uid/labels['x']/annotations['x'], spec.nodeName or status.podIP",
}


def check(value: object, shape: Shape, path: str) -> None:
    """Check a value.

    Raises:
        Refused: it deviates; the path is the deviating field's.
    """
    match shape:
        case Scalar():
            _check_scalar(value, shape, path)
        case ListShape():
            _check_list(value, shape, path)
        case MapShape():
            _check_keyed(value, shape, path)
        case Fields():
            _check_fields(value, shape, path)
        case _:
            assert_never(shape)


def _check_list(value: object, shape: ListShape, path: str) -> None:
    if not is_list(value):
        raise Refused(path, f"must be a list, not {_kind(value)}")
    if len(value) < shape.least:
        raise Refused(path, f"needs at least {shape.least} entry")
    check_all(partial(check, entry, shape.item, f"{path}[{index}]") for index, entry in enumerate(value))


def _check_keyed(value: object, shape: MapShape, path: str) -> None:
    if not is_map(value):
        raise Refused(path, f"must be an object, not {_kind(value)}")
    check_all(partial(check, entry, shape.value, f"{path}.{key}") for key, entry in value.items())


def _kind(value: object) -> str:
    if value is None:
        return "null"
    names: dict[type, str] = {bool: "a flag", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")


def _check_scalar(value: object, shape: Scalar, path: str) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    fits = {
        "whole": whole,
        "flag": isinstance(value, bool),
        "text-or-number": isinstance(value, str) or whole,
        "value": isinstance(value, str | int | float | bool),
        "anything": value is not None,
        "quantity": isinstance(value, str | int | float) and not isinstance(value, bool),
    }
    if not fits.get(shape.kind, isinstance(value, str)):
        raise Refused(path, f"must be {_SAID[shape.kind]}, not {_kind(value)}")
    text = str(value)
    if "{{" not in text and not _FORMS.get(shape.kind, _any_form)(text):
        raise Refused(path, f"must be {_SAID[shape.kind]}, not '{text}'")
    if shape.choices and value not in shape.choices:
        raise Refused(path, f"must be one of {', '.join(shape.choices)}, not '{value}'")


def _any_form(text: str) -> bool:
    return True


def _is_inner_path(text: str) -> bool:
    return not text.startswith("/") and ".." not in text.split("/")


def _is_quantity(text: str) -> bool:
    try:
        milli(text)
    except ValueError:
        return False
    return True


_FORMS: dict[str, Callable[[str], object]] = {
    "path": lambda text: text.startswith("/"),
    "inner-path": _is_inner_path,
    "quantity": _is_quantity,
    "field-path": re.compile(
        r"metadata\.(name|namespace|uid|labels|annotations|(labels|annotations)\['[^']+'\])"
        r"|spec\.(nodeName|serviceAccountName)|status\.(podIP|podIPs|hostIP)"
    ).fullmatch,
}
"""What a text must look like, unless a tag in it is still to be replaced."""


def _check_fields(value: object, shape: Fields, path: str) -> None:
    if not is_map(value):
        raise Refused(path, f"must be an object, not {_kind(value)}")
    given = {key for key, entry in value.items() if entry is not None}
    missing = [key for key in shape.required if key not in given]
    check_all(
        (
            *(partial(_check_field, value, key, shape, path) for key in value),
            *(partial(_refuse, _inner(path, key), "is required") for key in missing),
        )
    )
    if shape.one_of and len(given.intersection(shape.one_of)) != 1:
        raise Refused(path, f"needs exactly one of {', '.join(shape.one_of)}")


class NotRun(Refused):
    """A field that is unknown, or not run here: whatever else is wrong can be told without it."""

    def __init__(self, path: str, reason: str, holder: dict[str, object], key: str) -> None:
        super().__init__(path, reason)
        self._holder, self._key = holder, key

    def leave_out(self) -> None:
        """Take the field out of the object that was checked."""
        self._holder.pop(self._key, None)


def _inner(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _refuse(path: str, reason: str) -> None:
    raise Refused(path, reason)


def _check_field(value: dict[str, object], key: str, shape: Fields, path: str) -> None:
    if key not in shape.fields:
        raise NotRun(_inner(path, key), _why_not(key, shape), value, key)
    if value[key] is not None:
        check(value[key], shape.fields[key], _inner(path, key))


def _why_not(key: str, shape: Fields) -> str:
    if key in shape.refused:
        return f"not supported by the embedded cluster: {shape.refused[key]}"
    close = difflib.get_close_matches(key, [*shape.fields, *shape.refused], n=1)
    return f"unknown field; did you mean {close[0]}?" if close else "unknown field"
