"""Single values of the YAML subset that `yaml_text.py` reads: plain words, quoted texts, block texts."""

from __future__ import annotations

import itertools
import re

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_TRUE = frozenset(word for base in ("yes", "true", "on") for word in (base, base.capitalize(), base.upper()))
_FALSE = frozenset(word for base in ("no", "false", "off") for word in (base, base.capitalize(), base.upper()))
_WHOLE = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]+|0b[01_]+|0[0-7_]*|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)(?:[eE][-+][0-9]+)?")
_SPECIAL = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
_FOLD = re.compile(r"[ \t]*\n[ \t]*((?:\n[ \t]*)*)")
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_LETTERS = {
    "0": "\0",
    "a": "\a",
    "b": "\b",
    "t": "\t",
    "\t": "\t",
    "n": "\n",
    "v": "\v",
    "f": "\f",
    "r": "\r",
    "e": "\x1b",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
}
SINGLE = re.compile(r"'((?:[^']|'')*)'")
DOUBLE = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)

Scalar = str | int | float | bool | None


def plain(text: str) -> Scalar:
    """The value of a word without quotes, by YAML 1.1's rules (as Kubernetes' own tools read it)."""
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _WHOLE.fullmatch(text):
        return _whole(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return float(_SPECIAL[text.lower()]) if text.lower() in _SPECIAL else text


def _whole(text: str) -> int:
    sign = -1 if text[0] == "-" else 1
    digits = text.lstrip("+-")
    base = {"0x": 16, "0b": 2}.get(digits[:2], 8 if digits[0] == "0" and len(digits) > 1 else 10)
    return sign * int(digits[2:] if base in (16, 2) else digits, base)


def fold(text: str) -> str:
    """Lines of a text joined as YAML does: one line break is a blank, further ones stay."""
    return _FOLD.sub(lambda found: "\n" * found[1].count("\n") or " ", text) if "\n" in text else text


def single_quoted(inner: str) -> str:
    """The text between single quotes."""
    return fold(inner).replace("''", "'")


def double_quoted(inner: str) -> str:
    """The text between double quotes."""
    joined = re.sub(r"((?:^|[^\\])(?:\\\\)*)\\[ \t]*\n[ \t]*", r"\1", inner)
    return _ESCAPE.sub(_unescaped, fold(joined))


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    if len(text) > 1:
        return chr(int(text[1:], 16))
    return _LETTERS.get(text, text)


def block_text(lines: list[str], folded: bool, chomp: str) -> str:
    """A `|` or `>` text.

    Args:
        lines: its lines without their common indentation.
        folded: `>`: lines become one, but for blank and deeper lines.
        chomp: "" keeps one line break at the end, "-" none, "+" all.
    """
    trailing = 0
    while lines and not lines[-1]:
        lines = lines[:-1]
        trailing += 1
    if not lines:
        return "\n" * trailing if chomp == "+" else ""
    body = _folded(lines) if folded else "\n".join(lines)
    return body + {"-": "", "+": "\n" * (trailing + 1)}.get(chomp, "\n")


def _folded(lines: list[str]) -> str:
    made = lines[0]
    breaks = 0
    for before, line in itertools.pairwise(lines):
        deep = line[:1] in (" ", "\t") or before[:1] in (" ", "\t")
        if not line:
            breaks += 1
            continue
        made += ("\n" * (breaks + 1) if deep else "\n" * breaks or " ") + line
        breaks = 0
    return made
