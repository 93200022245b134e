r"""Whether it depends on a line's numbers that a pattern matches: Xid 79 is another matter than Xid 43.

A pattern with numbers in it is tried with any numbers in their place. Where it still does not match, no line that
differs in numbers alone is matched by it.
"""

from __future__ import annotations

import re
from functools import cache

_KEPT = re.compile(r"(\\.|\{\d*,?\d*\}|\(\?P?<\w+>|\(\?P=\w+\)|\[(?:\\.|[^\]\\])*\])")
"""Escapes, repetitions, names of groups, sets of characters."""
MAX_FAILED = 4096
"""Texts, with 0 for every digit, that are remembered of one pattern."""
_PARENTHESIS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|[()]")
_BACK = re.compile(r"\(\?P=|\\[1-9]")
"""What asks for the same text, and with it the same number, again."""
_ZEROS = bytes.maketrans(b"123456789", b"000000000")
_LOOK = re.compile(r"\(\?<?[!=]")


def numbers_matter(pattern: str, text: str) -> bool:
    """False where the pattern holds or fails for all lines that differ from the text in numbers alone."""
    if not _has_numbers(pattern):
        return False
    relaxed = _with_any_numbers(pattern)
    return relaxed is None or relaxed.search(text) is not None


def blind(pattern: str) -> bool:
    """True where the pattern takes every digit for any other: it holds for a text as for its `zeroed` form."""
    return not _has_numbers(pattern)


class Seldom:
    """A pattern that looks at no digit and seldom holds: of texts that differ in digits alone one is tried.

    Raises:
        ValueError: some digit matters to the pattern.
    """

    def __init__(self, pattern: str) -> None:
        if not blind(pattern):
            raise ValueError(f"some digit matters to {pattern}")
        self.regex = re.compile(pattern)
        self._failed: set[bytes] = set()

    def search(self, text: str) -> re.Match[str] | None:
        """As the pattern itself."""
        key = zeroed(text)
        if key in self._failed:
            return None
        hit = self.regex.search(text)
        if hit is None:
            if len(self._failed) >= MAX_FAILED:
                self._failed.clear()
            self._failed.add(key)
        return hit


def zeroed(text: str) -> bytes:
    """The text with 0 for every digit."""
    return text.encode("utf-8", "replace").translate(_ZEROS)


@cache
def _has_numbers(pattern: str) -> bool:
    parts = enumerate(_KEPT.split(pattern))
    return _BACK.search(pattern) is not None or any(
        _some_digits(part) if place % 2 else _any_digit(part) for place, part in parts
    )


def _any_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _some_digits(kept: str) -> bool:
    """A set of characters with some digits, and not all of them."""
    return kept.startswith("[") and _any_digit(kept.replace("0-9", "").replace(r"\d", ""))


@cache
def _with_any_numbers(pattern: str) -> re.Pattern[str] | None:
    """The pattern with any numbers for those that stand in it; None where that cannot be had so simply."""
    if _BACK.search(pattern) is not None:
        return None
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
