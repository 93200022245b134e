"""The functions of sprig (`sprig.trim`, …) that ordinary workflows use; none that differs at each call.

Each entry: the function and the types of its arguments. Sprig is lenient where expr is strict: a text that is no number
counts as 0.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
from collections.abc import Callable
from typing import Any

from tasks.embedded.engine.expr.go_values import (
    SPACES,
    by_bytes,
    float_of_text,
    lower,
    matches,
    plain,
    truncated,
    upper,
    whole_of_literal,
    wrapped,
)
from tasks.embedded.engine.expr.operators import is_number, json_of
from tasks.embedded.engine.json_values import is_list, is_map

# Functions of values whose type only the workflow knows.
# pyright: reportUnknownLambdaType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false

Entry = tuple[Callable[..., Any], str]
_LARGEST_TEXT = 1 << 20


def from_json(text: str) -> Any:
    """`json.Unmarshal` into any value: every number is a float.

    Raises:
        ValueError: it is no JSON.
    """
    value = json.loads(text, parse_int=_json_number, parse_float=_json_number, parse_constant=_no_number)
    return _without_surrogates(value)


def _json_number(text: str) -> float:
    return float_of_text(text)


def _no_number(text: str) -> float:
    raise ValueError(f"JSON has no {text}")


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return re.sub("[\ud800-\udfff]", "\ufffd", value)
    if is_list(value):
        return [_without_surrogates(item) for item in value]
    if is_map(value):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def from_base64(text: str) -> str:
    """`base64.StdEncoding`: line ends are passed over, nothing else.

    Raises:
        ValueError: it is no such text.
    """
    foreign = re.search(r"[^A-Za-z0-9+/=\r\n]", text)
    if foreign is not None:
        raise ValueError(f"illegal base64 data at input byte {len(text[: foreign.start()].encode())}")
    return by_bytes(text, lambda given: base64.b64decode(re.sub(rb"[\r\n]", b"", given), validate=True))


def repeat(text: str, count: int) -> str:
    """The text so many times, as long as that is a parameter's size.

    Raises:
        ValueError: it would be larger than a megabyte, or the count is negative.
    """
    if count < 0:
        raise ValueError(f"expected a positive integer, got {count}")
    if len(text) * count > _LARGEST_TEXT:
        raise ValueError("the text would be larger than a megabyte")
    return text * count


def same_kind(values: list[Any]) -> None:
    """Numbers alone or texts alone, which can be sorted.

    Raises:
        TypeError: they cannot.
    """
    if len(values) > 1 and not (all(map(is_number, values)) or all(isinstance(value, str) for value in values)):
        raise TypeError("only numbers, or only texts, can be compared")


def _whole(value: Any) -> int:
    if isinstance(value, str):
        try:
            return whole_of_literal(re.sub(r"\.0+$", "", value))
        except ValueError:
            return 0
    if isinstance(value, float):
        return truncated(value)
    return int(value) if isinstance(value, int) else 0


def _float(value: Any) -> float:
    if isinstance(value, str):
        try:
            return float_of_text(value)
        except ValueError:
            return 0.0
    return float(value) if isinstance(value, int | float) else 0.0


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", 0, False) or value in ([], {})


def _quotient(left: Any, right: Any) -> int:
    """Towards zero, as Go."""
    divided, divisor = _whole(left), _whole(right)
    value = abs(divided) // abs(divisor)
    return wrapped(value if (divided < 0) == (divisor < 0) else -value)


def _remainder(left: Any, right: Any) -> int:
    return _whole(left) - _whole(right) * _quotient(left, right)


def _round(value: Any, places: int, half: float = 0.5) -> float:
    """Sprig's own way: below zero, a half goes down."""
    scale = math.pow(10, places)
    digits = scale * _float(value)
    return float(math.ceil(digits) if math.modf(digits)[0] >= half else math.floor(digits)) / scale


def _substring(start: int, end: int, text: str) -> str:
    """In bytes, as Go counts."""

    def part(given: bytes) -> bytes:
        low, high = (0, end) if start < 0 else (start, len(given) if end < 0 or end > len(given) else end)
        if not 0 <= low <= high <= len(given):
            raise ValueError(f"slice bounds out of range [{low}:{high}]")
        return given[low:high]

    return by_bytes(text, part)


def _shortened(length: int, text: str) -> str:
    return by_bytes(text, lambda given: given[length:] if length < 0 else given[:length])


def _until(count: int) -> list[int]:
    if abs(count) > _LARGEST_TEXT:
        raise ValueError("the list would be too long")
    return list(range(0, count, 1 if count >= 0 else -1))


def _default(value: Any, given: Any = None) -> Any:
    return value if _is_empty(given) else given


def _dictionary(*pairs: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for index in range(0, len(pairs), 2):
        found[plain(pairs[index])] = pairs[index + 1] if index + 1 < len(pairs) else ""
    return found


_ESCAPES = dict(zip('\a\b\f\n\r\t\v"\\', ("\\a", "\\b", "\\f", "\\n", "\\r", "\\t", "\\v", '\\"', "\\\\"), strict=True))


def _quoted(text: str) -> str:
    """`strconv.Quote`."""
    return f'"{"".join(_ESCAPES.get(letter) or _printed(letter) for letter in text)}"'


def _printed(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _each(show: Callable[[str], str]) -> Callable[..., str]:
    return lambda *values: " ".join(show(plain(value)) for value in values if value is not None)


def _title(text: str) -> str:
    """`strings.Title`: what follows a separator in title case."""
    found: list[str] = []
    for before, letter in zip(f" {text}", text, strict=False):
        inside = before.isalnum() or before == "_" or (ord(before) >= 0x80 and before not in SPACES)
        found.append(letter if inside or len(letter.title()) > 1 else letter.title())
    return "".join(found)


def _texts(values: Any) -> list[str]:
    if is_list(values):
        return [plain(value) for value in values if value is not None]
    return [] if values is None else [plain(values)]


def _parts(separator: str, text: str) -> list[str]:
    return text.split(separator) if separator else list(text)


def _without_spaces(text: str) -> str:
    """Byte by byte, as sprig does it: where it takes a space out, what is no ASCII comes out as Latin-1."""
    letters = text.encode().decode("latin-1")
    kept = "".join(letter for letter in letters if letter not in SPACES)
    return text if kept == letters else kept


def _list(values: Any) -> list[Any]:
    if not is_list(values):
        raise TypeError(f"{values!r} is no list")
    return values


def _has(item: Any, values: Any) -> bool:
    return values is not None and any(type(item) is type(other) and item == other for other in _list(values))


def _read_json(text: str) -> Any:
    try:
        return from_json(text)
    except ValueError:
        return None


def _to_json(value: Any) -> str:
    try:
        return json_of(value)
    except ValueError:
        return ""


def _decoded(text: str) -> str:
    try:
        return from_base64(text)
    except (ValueError, binascii.Error) as error:
        return str(error)


def _is_match(pattern: str, text: str) -> bool:
    try:
        return matches(pattern, text)
    except ValueError:
        return False


SPRIG: dict[str, Entry] = {
    "trim": (lambda text: text.strip(SPACES), "text"),
    "trimAll": (lambda characters, text: text.strip(characters) if characters else text, "text text"),
    "trimPrefix": (lambda prefix, text: text.removeprefix(prefix), "text text"),
    "trimSuffix": (lambda suffix, text: text.removesuffix(suffix), "text text"),
    "upper": (upper, "text"),
    "lower": (lower, "text"),
    "title": (_title, "text"),
    "repeat": (lambda count, text: repeat(text, count), "whole text"),
    "replace": (lambda old, new, text: text.replace(old, new), "text text text"),
    "contains": (lambda part, text: part in text, "text text"),
    "hasPrefix": (lambda part, text: text.startswith(part), "text text"),
    "hasSuffix": (lambda part, text: text.endswith(part), "text text"),
    "nospace": (_without_spaces, "text"),
    "substr": (_substring, "whole whole text"),
    "trunc": (_shortened, "whole text"),
    "quote": (_each(_quoted), "any*"),
    "squote": (_each(lambda text: f"'{text}'"), "any*"),
    "cat": (_each(str), "any*"),
    "join": (lambda separator, values: separator.join(_texts(values)), "text any"),
    "splitList": (_parts, "text text"),
    "toString": (plain, "any"),
    "int": (_whole, "any"),
    "int64": (_whole, "any"),
    "float64": (_float, "any"),
    "add": (lambda *values: wrapped(sum(map(_whole, values))), "any*"),
    "add1": (lambda value: wrapped(_whole(value) + 1), "any"),
    "sub": (lambda left, right: wrapped(_whole(left) - _whole(right)), "any any"),
    "mul": (lambda *values: wrapped(math.prod(map(_whole, values))), "any any*"),
    "div": (_quotient, "any any"),
    "mod": (_remainder, "any any"),
    "max": (lambda *values: max(map(_whole, values)), "any any*"),
    "min": (lambda *values: min(map(_whole, values)), "any any*"),
    "floor": (lambda value: float(math.floor(_float(value))), "any"),
    "ceil": (lambda value: math.copysign(math.ceil(_float(value)), _float(value)), "any"),
    "round": (_round, "any whole float?"),
    "until": (_until, "whole"),
    "empty": (_is_empty, "any"),
    "default": (_default, "any any?"),
    "coalesce": (lambda *values: next((value for value in values if not _is_empty(value)), None), "any*"),
    "ternary": (lambda yes, no, condition: yes if condition else no, "any any truth"),
    "list": (lambda *values: list(values), "any*"),
    "dict": (_dictionary, "any*"),
    "first": (lambda value: _list(value)[0] if value else None, "list"),
    "last": (lambda value: _list(value)[-1] if value else None, "list"),
    "rest": (lambda value: _list(value)[1:] if value else None, "list"),
    "has": (_has, "any any"),
    "toJson": (_to_json, "any"),
    "fromJson": (_read_json, "text"),
    "b64enc": (lambda text: base64.b64encode(text.encode()).decode(), "text"),
    "b64dec": (_decoded, "text"),
    "sha256sum": (lambda text: hashlib.sha256(text.encode()).hexdigest(), "text"),
    "regexMatch": (_is_match, "text text"),
}
