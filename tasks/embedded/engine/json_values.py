"""Small typed readers for JSON as it comes from manifests and status objects, and JSON text as Go writes it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeGuard, cast

Json = dict[str, Any]
"""A JSON object."""


def is_map(value: object) -> TypeGuard[Json]:
    """Whether it is a JSON object."""
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    """Whether it is a JSON list."""
    return isinstance(value, list)


def as_map(value: object) -> Json:
    """The object itself, or an empty one where it is something else (or absent)."""
    return cast(Json, value) if isinstance(value, dict) else {}


def as_list(value: object) -> list[Any]:
    """The list itself, or an empty one where it is something else (or absent)."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def maps(value: object) -> list[Json]:
    """The objects of a list of objects."""
    return [as_map(item) for item in as_list(value)]


def without_nulls(value: Any) -> Any:
    """A copy of a JSON value in which no object has a null: to Kubernetes, a null field is an absent one."""
    if is_map(value):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if is_list(value) else value


def text_of(value: object) -> str:
    """A parameter's value as text: strings as they are, everything else as compact JSON (`true`, `3`, `[1,2]`)."""
    return value if isinstance(value, str) else go_json(value)


def go_json(value: object) -> str:
    """JSON text exactly as Go's `json.Marshal` writes it: compact, sorted keys, `<`, `>` and `&` escaped."""
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    if "<" in text or ">" in text or "&" in text:
        text = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return text


def why_no_json(text: str) -> str:
    """What Go says of a text that is no JSON; of most, it complains about the first character."""
    first = text.strip()[:1]
    if not first:
        return "unexpected end of JSON input"
    return f"invalid character '{first}' looking for beginning of value"


def stamp(seconds: float) -> str:
    """A moment (seconds since 1970) as RFC 3339 with microseconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@lru_cache(maxsize=4096)
def moment(text: str) -> float:
    """The seconds since 1970 of an RFC 3339 text; 0.0 where it is empty."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0
