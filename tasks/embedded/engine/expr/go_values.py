"""How Go reads and writes numbers and texts (strconv, fmt, strings, regexp), where Python does it otherwise.

Held against Argo's own functions by the table `tests/tables/embedded/engine/expr/go.yaml`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

import re2  # pyright: ignore[reportMissingTypeStubs]

from tasks.embedded.engine.json_values import is_list, is_map

SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
"""`unicode.IsSpace`; Python's own `strip` also takes the separators U+001C to U+001F."""
_SMALLEST, _LARGEST = -(1 << 63), (1 << 63) - 1
_DIGITS, _HEX_DIGITS = "[0-9](?:_?[0-9])*", "[0-9a-fA-F](?:_?[0-9a-fA-F])*"
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}\.?(?:{_DIGITS})?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEXADECIMAL = re.compile(rf"[+-]?0[xX](?:_?{_HEX_DIGITS}\.?(?:{_HEX_DIGITS})?|\.{_HEX_DIGITS})[pP][+-]?{_DIGITS}")
_NOT_FINITE = re.compile(r"[+-]?inf(?:inity)?|nan", re.ASCII | re.IGNORECASE)
_LITERAL = re.compile(
    r"""(?P<sign>[+-]?)(?:
    0[bB](?P<binary>(?:_?[01])+)|0[oO]?(?P<octal>(?:_?[0-7])+)|0[xX](?P<hexadecimal>(?:_?[0-9a-fA-F])+)
    |(?P<decimal>[1-9](?:_?\d)*|0))""",
    re.ASCII | re.VERBOSE,
)
_BASES = {"binary": 2, "octal": 8, "hexadecimal": 16, "decimal": 10}


def wrapped(value: int) -> int:
    """A whole number in 64 bits, as Go's arithmetic overflows."""
    return (value - _SMALLEST) % (1 << 64) + _SMALLEST


def truncated(value: float) -> int:
    """`int(value)` of a float: towards zero, the smallest number where it does not fit (as on amd64)."""
    return int(value) if math.isfinite(value) and _SMALLEST <= value < -float(_SMALLEST) else _SMALLEST


def whole_of_text(text: str) -> int:
    """`strconv.Atoi`: a sign and ASCII digits, nothing else.

    Raises:
        ValueError: it is no such text, or does not fit into 64 bits.
    """
    if re.fullmatch(r"[+-]?[0-9]+", text) is None or not _SMALLEST <= int(text) <= _LARGEST:
        raise ValueError(f"'{text}' is no whole number")
    return int(text)


def whole_of_literal(text: str) -> int:
    """`strconv.ParseInt(text, 0, 64)`: a whole number as Go's source has it, `0x1F`, `010` (8), `1_000`.

    Raises:
        ValueError: it is no such text, or does not fit into 64 bits.
    """
    found = _LITERAL.fullmatch(text)
    if found is None:
        raise ValueError(f"'{text}' is no whole number")
    kind = str(found.lastgroup)
    value = int(f"{found['sign']}{found[kind].replace('_', '')}", _BASES[kind])
    if not _SMALLEST <= value <= _LARGEST:
        raise ValueError(f"'{text}' does not fit into 64 bits")
    return value


def float_of_text(text: str) -> float:
    """`strconv.ParseFloat`: decimal or hexadecimal with `_` between digits, `inf`, `nan`; no blanks.

    Raises:
        ValueError: it is no such text, or larger than any float.
    """
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    try:
        if _DECIMAL.fullmatch(text):
            value = float(text.replace("_", ""))
        elif _HEXADECIMAL.fullmatch(text):
            value = float.fromhex(text.replace("_", ""))
        else:
            raise ValueError(f"'{text}' is no number")
    except OverflowError as error:
        raise ValueError(f"'{text}' is out of range") from error
    if math.isinf(value):
        raise ValueError(f"'{text}' is out of range")
    return value


def plain(value: Any) -> str:
    """`fmt.Sprintf("%v", value)`: `[1 a <nil>]`, `map[a:1]`, `1e+06`."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _plain_float(value)
    if is_list(value):
        return f"[{' '.join(plain(item) for item in value)}]"
    if is_map(value):
        return f"map[{' '.join(f'{key}:{plain(value[key])}' for key in sorted(value))}]"
    return str(value)


def _plain_float(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    exact = Decimal(repr(value)).normalize()
    exponent = exact.adjusted()
    if value == 0 or -4 <= exponent < 6:
        return format(exact, "f")
    return re.sub(r"[eE]([+-])(\d)$", r"e\g<1>0\2", f"{exact.scaleb(-exponent):f}e{exponent:+d}")


def by_bytes(text: str, change: Callable[[bytes], bytes]) -> str:
    """A text changed byte by byte; what is no UTF-8 afterwards shows as U+FFFD, as in Go's JSON."""
    changed = change(text.encode()).decode("utf-8", "surrogateescape")
    return re.sub("[\udc80-\udcff]", "\ufffd", changed)


def upper(text: str) -> str:
    """`strings.ToUpper`: letter by letter, so that ß stays."""
    return "".join(_mapped(letter, letter.upper()) for letter in text)


def lower(text: str) -> str:
    """`strings.ToLower`: letter by letter."""
    return "".join("i" if letter == "\u0130" else _mapped(letter, letter.lower()) for letter in text)


def _mapped(letter: str, changed: str) -> str:
    for candidate in (changed, letter.title()):
        if len(candidate) == 1:
            return candidate
    return letter


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> Any:
    if re.search(r"(?<!\\)(?:\\\\)*\\C", pattern):
        raise ValueError("invalid escape sequence: \\C")  # the one thing that RE2 has and Go has not
    options = cast(Any, re2).Options()
    options.log_errors = False
    try:
        return cast(Any, re2).compile(pattern, options)
    except cast(Any, re2).error as error:
        said = error.args[0]
        raise ValueError(said.decode(errors="replace") if isinstance(said, bytes) else str(said)) from error


def matches(pattern: str, text: str) -> bool:
    """`regexp.MatchString`: RE2's language, in a time that grows with the text alone.

    Raises:
        ValueError: the pattern is none of Go's.
    """
    return _compiled(pattern).search(text) is not None
