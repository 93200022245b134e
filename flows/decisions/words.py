"""Many words looked for at once, at the speed of compiled code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from struct import unpack_from

from pydantic_core import SchemaValidator, core_schema

_LOWER, _DROPPED = bytes(range(256)).lower(), b"0123456789 \t"
PIECE_BYTES = 4
"""A text holds a word only if it holds the word's first bytes, and the next ones: those are compared as numbers."""


def template(text: bytes) -> bytes:
    """Lines as they are compared and looked through: in lower case, without digits, spaces and tabs."""
    return text.translate(_LOWER, _DROPPED)


def inner(words: set[bytes]) -> dict[bytes, set[bytes]]:
    """By word, the others of them that it holds."""
    sizes = sorted({len(word) for word in words})
    return {
        word: {word[at : at + size] for size in sizes if size < len(word) for at in range(len(word) - size + 1)} & words
        for word in words
    }


def beginnings(words: Iterable[bytes], size: int) -> set[bytes]:
    """At most so many first bytes of each word, without those that begin with a shorter one of them."""
    first = {word[:size] for word in words}
    return {word for word in first if not any(word[:less] in first for less in range(1, len(word)))}


def finder(words: Iterable[bytes]) -> Callable[[str], bool]:
    """Whether a text (latin-1) holds any of many words, in time linear to its length.

    The engine is the one that pydantic checks patterns with; Python's own needs as long as all words one by one.
    """
    pattern = "|".join(re.escape(word.decode("latin-1")) for word in sorted(set(words)) if word)
    schema = core_schema.str_schema(pattern=pattern or r"[^\s\S]", regex_engine="rust-regex", strict=True)
    return SchemaValidator(schema).isinstance_python


class Words:
    """Tells which of many words a text holds."""

    def __init__(self, words: Iterable[bytes]) -> None:
        self._short: list[bytes] = []
        self._by_piece: dict[int, list[tuple[int, bytes]]] = {}
        for word in sorted(set(words)):
            if len(word) < PIECE_BYTES:
                self._short.append(word)
            else:
                first = next(_pieces(word))
                second = next(_pieces(word[PIECE_BYTES:])) if len(word) >= 2 * PIECE_BYTES else first
                self._by_piece.setdefault(first, []).append((second, word))
        self._pieces = frozenset(self._by_piece)

    def within(self, text: bytes) -> list[bytes]:
        """The words that the text holds."""
        pieces = set(_pieces(text))
        likely = (self._by_piece[piece] for piece in self._pieces & pieces)
        long = (word for words in likely for second, word in words if second in pieces)
        return [word for word in (*self._short, *long) if word in text]


def _pieces(text: bytes) -> Iterator[int]:
    """All pieces of the text, wherever they begin, as numbers."""
    size = len(text)
    return chain.from_iterable(
        unpack_from(f"{(size - start) // PIECE_BYTES}I", text, start) for start in range(min(PIECE_BYTES, size))
    )
