"""Changes of a profile from the command line: `steps=100`, `roles.trainer.replicas=4`, `hardware=[h200]`."""

from __future__ import annotations

import re
from typing import Any, cast

from pydantic import BaseModel

from profiles.errors import ProfileError
from profiles.fields import child, expected, field_names, holds_text, inside, is_optional, is_text, plain, written
from profiles.loading.document import FieldPath, read
from profiles.values import did_you_mean

_STEP = re.compile(r"""\.?([A-Za-z0-9_/-]+)|\[(\d{1,6})\]|\["([^"]*)"\]|\['([^']*)'\]""")


def apply_override(model: type[BaseModel], data: dict[str, Any], text: str) -> dict[str, Any]:
    """A copy of `data` with one change.

    What the value means depends on the field: text stays as it is written, everything else is read as YAML. Entries of
    a list are named by number, or by their `name` where they have one. `model` tells which fields exist, `data` is not
    yet checked, `text` is `path=value`.

    Raises:
        ProfileError: the path leads nowhere (with did-you-mean), or the value cannot be read.
    """
    source = f"--set {text}"
    left, equals, right = text.partition("=")
    if not equals or not left.strip():
        raise ProfileError(left.strip() or "--set", "must be written as field=value, e.g. steps=100", source)
    steps = _split(left.strip(), source)
    path, annotation = _resolve(model, data, steps, source)
    value = _value(annotation, right, written(path), source)
    return cast("dict[str, Any]", _with(data, path, value))


def _split(text: str, source: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None or (position == 0 and match[0].startswith(".")):
            raise ProfileError(text, "is no path; write it like roles[0].replicas or roles.trainer.replicas", source)
        name = next((part for part in (match[1], match[3], match[4]) if part is not None), "")
        steps.append(int(match[2]) if match[2] is not None else name)
        position = match.end()
    return steps


def _resolve(
    model: type[BaseModel], data: dict[str, Any], steps: list[str | int], source: str
) -> tuple[FieldPath, Any]:
    """The path with names of list entries replaced by their numbers, and the annotation at its end."""
    path: list[str | int] = []
    annotation: Any = model
    here: Any = data
    for given in steps:
        step = _entry(here, annotation, given, path, source)
        annotation = _inside(annotation, step, path, source)
        here = child(here, step)
        path.append(step)
    return tuple(path), annotation


def _entry(here: Any, annotation: Any, step: str | int, path: list[str | int], source: str) -> str | int:
    """`step` as a number where it stands inside a list."""
    if getattr(plain(annotation), "__origin__", None) is not tuple:
        return step
    entries = cast("list[Any]", here) if isinstance(here, list) else []
    if isinstance(step, int):
        if step < len(entries):
            return step
        where = written([*path, step])
        raise ProfileError(where, f"there is no such entry: the list has {len(entries)}, counted from 0", source)
    names = [str(cast("dict[str, Any]", item).get("name")) for item in entries if isinstance(item, dict)]
    if step in names:
        return names.index(step)
    known = did_you_mean(step, names, "entries") or "; write the entry's number, e.g. [0], or set the whole list"
    raise ProfileError(written([*path, step]), "there is no such entry" + known, source)


def _inside(annotation: Any, step: str | int, path: list[str | int], source: str) -> Any:
    found = inside(annotation, step)
    if found is None:
        names = field_names(annotation)
        hint = did_you_mean(str(step), names, "fields here") if names else f"; {written(path)} has no fields inside"
        raise ProfileError(written([*path, step]), "no such field" + hint, source)
    return found


def _value(annotation: Any, text: str, field: str, source: str) -> Any:
    if is_text(annotation):
        return None if is_optional(annotation) and text == "null" else text
    try:
        return read(text, source, plain_is_text=holds_text(annotation)).data
    except ProfileError as error:
        raise ProfileError(field, f"must be {expected(annotation)}: {error.reason}", source) from error


def _with(data: Any, path: FieldPath, value: Any) -> Any:
    """A copy with `value` at the end of `path`; mappings on the way are made where they are missing."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int) and isinstance(data, list):
        entries = list(cast("list[Any]", data))
        entries[step] = _with(entries[step], rest, value)
        return entries
    mapping = dict(cast("dict[Any, Any]", data)) if isinstance(data, dict) else {}
    mapping[step] = _with(mapping.get(step), rest, value)
    return mapping
