"""Many words looked for at once, at the speed of compiled code."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from pydantic_core import SchemaValidator, core_schema

_LOWER, _DROPPED = bytes(range(256)).lower(), b"0123456789 \t"
GROUP = 24
"""Words looked for at once where it matters which ones are held."""


def template(text: bytes) -> bytes:
    """Lines as they are compared and looked through: in lower case, without digits, spaces and tabs."""
    return text.translate(_LOWER, _DROPPED)


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
        listed = sorted(set(words))
        groups = [listed[start : start + GROUP] for start in range(0, len(listed), GROUP)]
        self._groups = [(finder(group), group) for group in groups]

    def within(self, text: bytes) -> list[bytes]:
        """The words that the text holds."""
        decoded = text.decode("latin-1")
        return [word for holds_any, words in self._groups if holds_any(decoded) for word in words if word in text]
