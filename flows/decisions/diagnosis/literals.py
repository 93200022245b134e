"""Words that every match of a pattern holds, read off the pattern itself.

Hundreds of patterns are asked about every line, and nearly all of them in vain: a line that holds none of a pattern's
words need not be tried. What is read off the pattern cannot be forgotten, and does not go stale.

Reading hundreds of patterns takes as long as importing all of the diagnosis, so `literals.json` keeps what was read, by
a digest of the pattern; `make golden` writes it anew. A pattern that is not in it is read when it is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

ops: Any = import_module("re._constants")
parser: Any = import_module("re._parser")
"""Python shows nowhere else how it reads patterns."""
KEPT = Path(__file__).with_name("literals.json")
MOST_WORDS = 64
"""Texts of one part that are written out; where a part has more, another part must do."""
MOST_CHARACTERS = 18
"""So much of a word tells as much as all of it."""
_DROPPED = str.maketrans("", "", "0123456789 \t")
"""Lines are looked through without these (`prefilter.template`)."""

Read = tuple[set[str] | None, set[str]]
"""All texts that a part of a pattern matches (None: too many); words of which each match holds one (empty: none)."""


def literals_of(pattern: str) -> tuple[str, ...]:
    """Lower-case words, of at most 18 characters, of which every match of the pattern holds at least one.

    Raises:
        ValueError: there are none, since no part of the pattern is written out.
    """
    return _kept().get(digest(pattern)) or read_literals(pattern)


def digest(pattern: str) -> str:
    """By what a pattern is known in `literals.json`."""
    return blake2b(pattern.encode(), digest_size=8).hexdigest()


@cache
def _kept() -> dict[str, tuple[str, ...]]:
    return {key: tuple(words) for key, words in json.loads(KEPT.read_text(encoding="utf-8")).items()}


def read_literals(pattern: str) -> tuple[str, ...]:
    """The same, read off the pattern itself."""
    _, words = _read(parser.parse(pattern))
    if not _rarity(words)[0]:
        raise ValueError(f"no word stands in every match of {pattern}")
    cut = {word.strip()[:MOST_CHARACTERS] for word in words}
    return tuple(sorted(word for word in cut if not any(other != word and other in word for other in cut)))


def _read(parts: Iterable[tuple[Any, Any]]) -> Read:
    """A sequence of parts: texts that follow each other are one; the rarest words of all are kept."""
    texts, best, whole = {""}, set[str](), True
    for op, value in parts:
        more, words = _part(op, value)
        if more is not None and len(texts) * len(more) <= MOST_WORDS:
            texts = {first + second for first in texts for second in more}
        else:
            best, whole = max(best, texts, words, key=_rarity), False
            texts = more or {""}
    return (texts if whole else None), max(best, texts, key=_rarity)


def _part(op: Any, value: Any) -> Read:
    if op is ops.LITERAL:
        return _either([value]), set()
    if op is ops.IN:
        return _either([item for kind, item in value if kind is ops.LITERAL]) if _is_plain(value) else None, set()
    if op in (ops.AT, ops.ASSERT, ops.ASSERT_NOT):
        return {""}, set()
    if op is ops.SUBPATTERN:
        return _read(value[3])
    if op is ops.BRANCH:
        return _any_of([_read(branch) for branch in value[1]])
    if op in (ops.MAX_REPEAT, ops.MIN_REPEAT):
        least, most, inner = value
        texts, words = _read(inner)
        if least == 0:
            return ({"", *texts} if texts is not None and most == 1 else None), set()
        return (texts if most == 1 else None), words
    return None, set()


def _is_plain(items: list[tuple[Any, Any]]) -> bool:
    return all(kind is ops.LITERAL for kind, _ in items)


def _either(codes: list[int]) -> set[str] | None:
    """The characters in lower case; None where one is not ASCII and a capital: lines keep those."""
    texts = {chr(code).lower() for code in codes}
    return texts if all(text.isascii() or ord(text) in codes for text in texts) else None


def _any_of(branches: list[Read]) -> Read:
    texts = [found for found, _ in branches if found is not None]
    words = [found for _, found in branches]
    every = set[str]().union(*texts) if len(texts) == len(branches) else None
    return every, set[str]().union(*words) if all(_rarity(found)[0] for found in words) else set()


def _rarity(words: set[str]) -> tuple[int, int]:
    """How seldom a line holds one of the words: by the length of the shortest, then by how few they are."""
    shortest = min((len(word.translate(_DROPPED)) for word in words), default=0)
    return min(shortest, MOST_CHARACTERS), -len(words)
