"""The did-you-mean of every message of this folder."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN = 24
"""More words than this are not listed: the line would no longer be read."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The known word that is spelt most alike; "" where nothing comes near."""
    by_lower = {item.lower().replace("-", "_"): item for item in known}
    found = difflib.get_close_matches(word.lower().replace("-", "_")[:80], list(by_lower), n=1, cutoff=0.6)
    return by_lower[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str], noun: str = "known") -> str:
    """The end of a sentence, e.g. `; did you mean "replicas"? (known: command, image, replicas)`."""
    words = sorted(set(known))
    close = nearest(word, words)
    guess = f'; did you mean "{close}"?' if close else ""
    if not words:
        return guess
    more = f", … ({len(words) - SHOWN} more)" if len(words) > SHOWN else ""
    return f"{guess} ({noun}: {', '.join(words[:SHOWN])}{more})"
