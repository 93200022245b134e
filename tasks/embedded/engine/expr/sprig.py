"""The functions of sprig (`sprig.trim`, …) that ordinary workflows use; none that differs at each call.

Each entry: the function, the least and the largest number of its arguments. Sprig is lenient where expr is strict: a
text that is no number counts as 0.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable
from typing import Any

from tasks.embedded.engine.json_values import go_json, text_of

# Functions of values whose type only the workflow knows.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false


_MANY = 99
Entry = tuple[Callable[..., Any], int, int]


def _whole(value: Any) -> int:
    try:
        return int(value, 0) if isinstance(value, str) else int(value)
    except (TypeError, ValueError):
        return 0


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return 0.0


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", 0, False) or value in ([], {})


def _trimmed(characters: str, text: str) -> str:
    return text.strip(characters)


def _quotient(left: Any, right: Any) -> int:
    """Towards zero, as Go."""
    divided, divisor = _whole(left), _whole(right)
    value = abs(divided) // abs(divisor)
    return value if (divided < 0) == (divisor < 0) else -value


def _remainder(left: Any, right: Any) -> int:
    return _whole(left) - _whole(right) * _quotient(left, right)


def _product(*values: Any) -> int:
    return math.prod(_whole(value) for value in values)


def _round(value: Any, places: int) -> float:
    scale = 10.0 ** _whole(places)
    return math.copysign(math.floor(abs(_float(value)) * scale + 0.5) / scale, _float(value))


def _substring(start: int, end: int, text: str) -> str:
    if start < 0:
        return text[:end]
    return text[start:] if end < 0 or end > len(text) else text[start:end]


def _shortened(length: int, text: str) -> str:
    return text[length:] if length < 0 and len(text) + length > 0 else text[:length] if length >= 0 else text


def _until(count: Any) -> list[int]:
    end = _whole(count)
    return list(range(0, end, 1 if end >= 0 else -1))


def _ternary(yes: Any, no: Any, condition: Any) -> Any:
    return yes if condition is True else no


def _default(fallback: Any, given: Any = None) -> Any:
    return fallback if _is_empty(given) else given


def _dictionary(*pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index in range(0, len(pairs), 2):
        found[text_of(pairs[index])] = pairs[index + 1] if index + 1 < len(pairs) else ""
    return found


def _quoted(*values: Any) -> str:
    return " ".join(json.dumps(text_of(value), ensure_ascii=False) for value in values if value is not None)


def repeat(text: str, count: int) -> str:
    """The text so many times, as long as that is a parameter's size.

    Raises:
        ValueError: it would be larger than a megabyte.
    """
    if len(text) * count > 1 << 20:
        raise ValueError("the text would be larger than a megabyte")
    return text * count


SPRIG: dict[str, Entry] = {
    "trim": (str.strip, 1, 1),
    "trimAll": (_trimmed, 2, 2),
    "trimPrefix": (lambda prefix, text: text.removeprefix(prefix), 2, 2),
    "trimSuffix": (lambda suffix, text: text.removesuffix(suffix), 2, 2),
    "upper": (str.upper, 1, 1),
    "lower": (str.lower, 1, 1),
    "title": (lambda text: re.sub(r"\b\w", lambda found: found[0].upper(), text), 1, 1),
    "repeat": (lambda count, text: repeat(text, _whole(count)), 2, 2),
    "replace": (lambda old, new, text: text.replace(old, new), 3, 3),
    "contains": (lambda part, text: part in text, 2, 2),
    "hasPrefix": (lambda part, text: text.startswith(part), 2, 2),
    "hasSuffix": (lambda part, text: text.endswith(part), 2, 2),
    "nospace": (lambda text: re.sub(r"\s", "", text), 1, 1),
    "substr": (_substring, 3, 3),
    "trunc": (_shortened, 2, 2),
    "quote": (_quoted, 1, _MANY),
    "squote": (lambda *values: " ".join(f"'{text_of(value)}'" for value in values if value is not None), 1, _MANY),
    "cat": (lambda *values: " ".join(text_of(value) for value in values if value is not None), 1, _MANY),
    "join": (lambda separator, values: separator.join(text_of(value) for value in values), 2, 2),
    "splitList": (lambda separator, text: text.split(separator), 2, 2),
    "toString": (text_of, 1, 1),
    "int": (_whole, 1, 1),
    "int64": (_whole, 1, 1),
    "float64": (_float, 1, 1),
    "add": (lambda *values: sum(_whole(value) for value in values), 1, _MANY),
    "add1": (lambda value: _whole(value) + 1, 1, 1),
    "sub": (lambda left, right: _whole(left) - _whole(right), 2, 2),
    "mul": (_product, 1, _MANY),
    "div": (_quotient, 2, 2),
    "mod": (_remainder, 2, 2),
    "max": (lambda *values: max(_whole(value) for value in values), 1, _MANY),
    "min": (lambda *values: min(_whole(value) for value in values), 1, _MANY),
    "floor": (lambda value: float(math.floor(_float(value))), 1, 1),
    "ceil": (lambda value: float(math.ceil(_float(value))), 1, 1),
    "round": (_round, 2, 2),
    "until": (_until, 1, 1),
    "empty": (_is_empty, 1, 1),
    "default": (_default, 1, 2),
    "coalesce": (lambda *values: next((value for value in values if not _is_empty(value)), None), 1, _MANY),
    "ternary": (_ternary, 3, 3),
    "list": (lambda *values: list(values), 0, _MANY),
    "dict": (_dictionary, 0, _MANY),
    "first": (lambda value: value[0] if value else None, 1, 1),
    "last": (lambda value: value[-1] if value else None, 1, 1),
    "rest": (lambda value: value[1:], 1, 1),
    "has": (lambda item, values: item in values, 2, 2),
    "toJson": (go_json, 1, 1),
    "fromJson": (json.loads, 1, 1),
    "b64enc": (lambda text: base64.b64encode(text.encode()).decode(), 1, 1),
    "b64dec": (lambda text: base64.b64decode(text).decode(), 1, 1),
    "sha256sum": (lambda text: hashlib.sha256(text.encode()).hexdigest(), 1, 1),
    "regexMatch": (lambda pattern, text: re.search(pattern, text) is not None, 2, 2),
}
