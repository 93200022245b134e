r"""Whether it depends on a line's numbers that a pattern matches: Xid 79 is another matter than Xid 43.

A pattern with numbers in it is tried with any numbers in their place. Where it still does not match, no line that
differs in numbers alone is matched by it.
"""

from __future__ import annotations

import re
from functools import cache

_KEPT = re.compile(r"(\\.|\{\d*,?\d*\}|\(\?P?<\w+>|\(\?P=\w+\)|\[(?:\\.|[^\]\\])*\])")
"""Escapes, repetitions, names of groups, sets of characters."""
_PARENTHESIS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|[()]")
_LOOK = re.compile(r"\(\?<?[!=]")


def numbers_matter(pattern: str, text: str) -> bool:
    """False where the pattern holds or fails for all lines that differ from the text in numbers alone."""
    if not _has_numbers(pattern):
        return False
    relaxed = _with_any_numbers(pattern)
    return relaxed is None or relaxed.search(text) is not None


@cache
def _has_numbers(pattern: str) -> bool:
    parts = enumerate(_KEPT.split(pattern))
    return any(_some_digits(part) if place % 2 else _any_digit(part) for place, part in parts)


def _any_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _some_digits(kept: str) -> bool:
    """A set of characters with some digits, and not all of them."""
    return kept.startswith("[") and _any_digit(kept.replace("0-9", "").replace(r"\d", ""))


@cache
def _with_any_numbers(pattern: str) -> re.Pattern[str] | None:
    """The pattern with any numbers for those that stand in it; None where that cannot be had so simply."""
    parts = _KEPT.split(_without_looks(pattern))
    made: list[str] = []
    for place, part in enumerate(parts):
        if place % 2:
            if _some_digits(part) and part.startswith("[^"):
                return None
            made.append(f"[\\d{part[1:]}" if _some_digits(part) else part)
            continue
        following = parts[place + 1] if place + 1 < len(parts) else ""
        if part[-1:].isdigit() and following.startswith("{"):
            return None
        made.append(re.sub(r"\d+([?*+]?)", lambda number: r"\d*" if number[1] else r"\d+", part))
    return re.compile("".join(made))


def _without_looks(pattern: str) -> str:
    """The pattern without what looks around for numbers: it matches more, which is safe."""
    opened: list[int] = []
    taken: list[tuple[int, int]] = []
    for hit in _PARENTHESIS.finditer(pattern):
        if hit[0] == "(":
            opened.append(hit.start())
        elif hit[0] == ")":
            start = opened.pop()
            if _LOOK.match(pattern, start) and _has_numbers(pattern[start : hit.end()]):
                taken = [*(piece for piece in taken if piece[0] < start), (start, hit.end())]
    for start, end in reversed(taken):
        pattern = pattern[:start] + pattern[end:]
    return pattern
