"""From plain data to a profile value, and from pydantic's errors to ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from profiles.errors import ProfileError
from profiles.fields import annotation_at, child, expected, field_names, has, words, written
from profiles.loading.document import WHOLE, FieldPath
from profiles.values import OR_EMPTY, PATTERNS, WRONG, did_you_mean

Model = TypeVar("Model", bound=BaseModel)

MAX_SHOWN = 60
"""Characters of a wrong value that a message repeats."""

_ORDER = {"extra_forbidden": 0, WRONG: 1, "missing": 2}
"""A misspelt name also misses the right one: say the misspelling first."""

_BOUNDS = {
    "greater_than_equal": "at least",
    "greater_than": "greater than",
    "less_than_equal": "at most",
    "less_than": "less than",
}


def checked(model: type[Model], data: Any, source: str, lines: Mapping[FieldPath, int] | None = None) -> Model:
    """The value that `data` describes. Types are taken as they stand: `true` is no number and `1` no text.

    `source` and `lines` (line of each path where known) are for messages.

    Raises:
        ProfileError: names the field, what is wrong and what to do.
    """
    try:
        text = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ProfileError(WHOLE, f"holds something that is no plain value ({error})", source) from error
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise explained(model, data, error, source, lines or {}) from error


def asked_for(model: type[Model], data: Mapping[str, Any], prefix: str = "--") -> Model:
    """The value that a command's words or a form describe: what is wrong is named as whoever asks gave it.

    Raises:
        ProfileError: names the flag or field, what is wrong and what to do.
    """
    try:
        return checked(model, data, "")
    except ProfileError as error:
        raise ProfileError(f"{prefix}{error.field}", error.reason) from error


def explained(
    model: type[BaseModel], data: Any, error: ValidationError, source: str, lines: Mapping[FieldPath, int]
) -> ProfileError:
    """The most helpful of pydantic's complaints as one of ours; the fields of the others are named behind it."""
    found = [(_path(item, data), item) for item in error.errors(include_url=False)]
    real = [pair for pair in found if not _follows_from_another(pair[1])] or found
    real.sort(key=lambda pair: _ORDER.get(pair[1]["type"], 1))
    path, first = real[0]
    others = sorted({written(other) for other, _ in real if other != path})
    more = f" (wrong too: {', '.join(others[:5])})" if others else ""
    line = lines.get(path) if first["type"] != "missing" else None
    where = f"{source}, line {line}" if line else source
    return ProfileError(written(path) or WHOLE, _reason(model, path, first) + more, where)


def complained(error: Exception) -> Exception:
    """The first of pydantic's complaints where nobody knows any more what was checked; another error as it is."""
    if not isinstance(error, ValidationError):
        return error
    first, *others = error.errors(include_url=False)
    more = f" (wrong too: {', '.join(sorted({written(item['loc']) for item in others})[:5])})" if others else ""
    reason = (
        f"{first['msg'][:1].lower()}{first['msg'][1:]}, got {_shown(first['input'])}; correct it where it was given"
    )
    return ProfileError(written(first["loc"]) or WHOLE, reason + more, error.title)


def _follows_from_another(item: ErrorDetails) -> bool:
    """A list whose items are wrong is reported as too short as well."""
    return item["type"] == "too_short" and bool(item["input"])


def _path(item: ErrorDetails, data: Any) -> FieldPath:
    """Where in the data; without the steps that only pydantic knows, such as the members of a union."""
    path: list[str | int] = []
    here = data
    for step in item["loc"]:
        if has(here, step):
            here = child(here, step)
            path.append(step)
    if item["type"] == "missing":
        path.append(item["loc"][-1])
    if item["type"] == WRONG:
        path += _steps(item.get("ctx", {})["field"])
    return tuple(path)


def _steps(field: str) -> list[str | int]:
    return [int(step) if step.isdigit() else step for step in field.replace("[", ".").replace("]", "").split(".")]


def _reason(model: type[BaseModel], path: FieldPath, item: ErrorDetails) -> str:
    kind, context = item["type"], item.get("ctx", {})
    got = f", got {_shown(item['input'])}"
    annotation = annotation_at(model, path)
    match kind:
        case "extra_forbidden":
            known = field_names(annotation_at(model, path[:-1]))
            text = "no such field" + did_you_mean(str(path[-1]), known, "fields here")
        case "missing":
            text = f"is missing; it must be {expected(annotation)}"
        case "literal_error" | "enum":
            text = "is not a word this field knows" + got + did_you_mean(str(item["input"]), words(annotation))
        case "string_pattern_mismatch" if (pattern := str(context.get("pattern")).removesuffix(OR_EMPTY)) in PATTERNS:
            text = f"must be {PATTERNS[pattern]}{got}"
        case "too_short" | "too_long" | "string_too_long" | "string_too_short":
            text = f"must have {_length(context, kind)}{got}"
        case _ if kind == WRONG:
            text = str(context["reason"])
        case _ if kind in _BOUNDS:
            text = f"must be {_BOUNDS[kind]} {_number(context)}{got}"
        case _:
            text = f"must be {expected(annotation)}{got}"
    return text


def _number(context: Mapping[str, Any]) -> str:
    value = next(iter(context.values()))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _length(context: Mapping[str, Any], kind: str) -> str:
    counted = "characters" if kind.startswith("string") else "entries"
    if "max_length" in context:
        return f"at most {context['max_length']} {counted}"
    return f"at least {context.get('min_length', 1)} {counted[:-1] if counted == 'characters' else 'entry'}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
