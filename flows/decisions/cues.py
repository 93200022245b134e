"""Cues: the words without which a line means nothing to a pattern or an observer.

Hundreds of patterns are asked about every line, and nearly all of them in vain. So each one says which words wake it.
A line is looked through once for the words of all cues together; lines that differ in numbers alone are looked through
once. What is left of each question is a look-up and a bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property

from flows.decisions.words import Words, template
from workflows.evidence import LogLine

MAX_BYTES = 16 << 20
"""What remembered texts may take; when it is more, all are forgotten and read again."""
ENTRY_BYTES = 400
"""What is kept of one text takes so much more than its letters."""


class Held(dict[str, int]):
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
            hold at least one of them. ValueError where nothing else is in one.
        of: patterns that are tried behind this cue alone (the tests make up texts that they match).
    """

    def __init__(self, *words: str, of: Iterable[re.Pattern[str]] = ()) -> None:
        self.patterns = tuple(of)
        self.bit = HELD.register(words)
        CUES.append(self)

    def holds(self, text: str) -> bool:
        """May this whole text of a line (no part of it: those are remembered apart) be meant?"""
        return HELD[text] & self.bit != 0

    def among(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """Those of the lines that may be meant, in order."""
        held, bit = HELD, self.bit
        return [line for line in lines if held[line.text] & bit]

    def anywhere(self, lines: Iterable[LogLine]) -> bool:
        """May any of the lines be meant?"""
        held, bit = HELD, self.bit
        return any(held[line.text] & bit for line in lines)


HELD = Held()
CUES: list[Cue] = []
"""All cues, as their modules are imported."""
