"""Cues: the words without which a line means nothing to a pattern or an observer; all of them are looked for at once.

Hundreds of patterns are asked about every line, and nearly all of them in vain. So each one says which words wake it. A
line is looked through once, in compiled code, for the words of all cues together; lines that differ in numbers alone
are looked through once. What is left of each question is a look-up and a bit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from struct import unpack_from

from pydantic_core import SchemaValidator, core_schema

from flows.decisions.diagnosis.literals import literals_of
from workflows.model.attempt import LogLine

_LOWER, _DROPPED = bytes(range(256)).lower(), b"0123456789 \t"
PIECE_BYTES = 4
"""A text holds a word only if it holds the word's first bytes, and the next ones: those are compared as numbers."""

MAX_BYTES = 16 << 20
"""What remembered texts may take; when it is more, all are forgotten and read again."""
ENTRY_BYTES = 400
"""What is kept of one text takes so much more than its letters."""


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
    """Tells which of many words a text holds, at the speed of compiled code."""

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


class CuesOfTexts(dict[str, int]):
    """The cues that each text holds, one bit a cue; texts are looked through when they are first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._bits: dict[bytes, int] = {}
        self._templates: dict[bytes, int] = {}
        self._bytes = 0
        self._cues = 0

    def register(self, words: Iterable[str]) -> int:
        """The bit of one more cue."""
        self._cues += 1
        bit = 1 << self._cues
        for word in map(template, map(str.encode, words)):
            if not word:
                raise ValueError("a word of digits and spaces alone wakes nobody")
            self._bits[word] = self._bits.get(word, 0) | bit
        self.__dict__.pop("_words", None)
        self.clear()
        return bit

    def clear(self) -> None:
        """Forget all texts."""
        super().clear()
        self._templates.clear()
        self._bytes = 0

    def __missing__(self, text: str) -> int:
        key = template(text.encode("utf-8", "replace"))
        bits = self._templates.get(key)
        if bits is None:
            bits = 0
            for word in self._words.within(key):
                bits |= self._bits[word]
        self._bytes += len(text) + len(key) + ENTRY_BYTES
        if self._bytes > MAX_BYTES:
            self.clear()
        self._templates[key] = self[text] = bits
        return bits

    @cached_property
    def _words(self) -> Words:
        return Words(self._bits)


class Cue:
    """Some words; a line that holds none of them cannot be meant.

    Args:
        words: in any case; digits, spaces and tabs in them, and in texts, do not count. Every text that is meant must
            hold at least one of them. ValueError where nothing else is in one. Without any, those that the patterns
            want (`literals_of`).
        of: patterns that are tried behind this cue alone (the tests make up texts that they match).
    """

    def __init__(self, *words: str, of: Iterable[re.Pattern[str]] = ()) -> None:
        self.patterns = tuple(of)
        self.read_off = not words
        self.bit = HELD.register(words or [word for one in self.patterns for word in literals_of(one.pattern)])
        CUES.append(self)

    def holds(self, text: str) -> bool:
        """May this whole text of a line (no part of it: those are remembered apart) be meant?"""
        return HELD[text] & self.bit != 0

    def among(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """Those of the lines that may be meant, in order."""
        held, bit = HELD, self.bit
        return [line for line in lines if held[line.text] & bit]

    def hits(self, lines: Iterable[LogLine], most: int | None = None) -> Iterator[tuple[LogLine, re.Match[str]]]:
        """The lines that are meant, in order, each with what the first pattern that holds finds in it.

        `most`: so many characters of each line are looked at; None: all of them.
        """
        for line in self.among(lines):
            found = (hit for pattern in self.patterns if (hit := pattern.search(line.text[:most])) is not None)
            if (hit := next(found, None)) is not None:
                yield line, hit

    def anywhere(self, lines: Iterable[LogLine]) -> bool:
        """May any of the lines be meant?"""
        held, bit = HELD, self.bit
        return any(held[line.text] & bit for line in lines)


HELD = CuesOfTexts()
CUES: list[Cue] = []
"""All cues, as their modules are imported."""
