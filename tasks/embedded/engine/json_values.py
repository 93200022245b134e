"""Small typed readers for JSON as it comes from manifests and status objects, and JSON text as Go writes it."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime
from decimal import Decimal
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


def go_json(value: object, *, indent: str = "") -> str:
    """JSON text exactly as Go's `json.Marshal` writes it: compact, sorted keys, `<`, `>`, `&`, U+2028, U+2029 escaped.

    With `indent` as `json.MarshalIndent` does.
    """
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
    if indent or _FLOAT.search(text):
        text = _written(value, indent, "\n" if indent else "")
    return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


_ESCAPED = re.compile("[<>&\u2028\u2029]")
_FLOAT = re.compile(r"\d[.e]|NaN|Infinity")
"""What the text of every Python float has in it (and some other texts)."""


def _written(value: Any, indent: str, line: str) -> str:
    if isinstance(value, float):
        return _float_text(value)
    inner, colon = line + indent, ": " if indent else ":"
    if is_list(value) and value:
        return f"[{inner}{f',{inner}'.join(_written(item, indent, inner) for item in value)}{line}]"
    if is_map(value) and value:
        pairs = (
            f"{json.dumps(key, ensure_ascii=False)}{colon}{_written(value[key], indent, inner)}"
            for key in sorted(value)
        )
        return f"{{{inner}{f',{inner}'.join(pairs)}{line}}}"
    return json.dumps(value, ensure_ascii=False)


def _float_text(value: float) -> str:
    """Whole floats without a point, an exponent only below 1e-6 and from 1e21 on."""
    exact = Decimal(repr(value)) if math.isfinite(value) else None
    if exact is None:
        return json.dumps(value)
    if value == 0 or -6 <= exact.adjusted() < 21:
        return format(exact.normalize(), "f")
    return re.sub(r"e([+-])0", r"e\1", repr(value))


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


def whole_seconds(text: str) -> str:
    """A stamp as Kubernetes keeps it and workflows read it: cut off to whole seconds."""
    return datetime.fromisoformat(text).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
