"""Real texts with damage, for properties of readers: text that is only random has none of the marks a reader looks for.

A property that draws from here is worth something only where texts get past a reader's first look, so beside each
stands an assertion that they do (`reaches`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import Phase, find, settings
from hypothesis import strategies as st

T = TypeVar("T")
SEARCHING = settings(max_examples=1000, phases=[Phase.generate], database=None, derandomize=True, deadline=None)


@st.composite
def damaged(draw: st.DrawFn, samples: Sequence[str], marks: Sequence[str] = ()) -> str:
    """A sample in which up to three pieces are missing or are something else: any text, a mark, a part of a sample.

    Args:
        samples: whole texts as programs print them.
        marks: pieces by which the reader goes.
    """
    text = draw(st.sampled_from(samples))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = start + draw(st.integers(0, 8) | st.integers(0, len(text)))
        text = text[:start] + draw(_piece(samples, marks)) + text[end:]
    return text


def _piece(samples: Sequence[str], marks: Sequence[str]) -> st.SearchStrategy[str]:
    some = st.text(max_size=8) | st.integers().map(str) | st.floats().map(str) | st.sampled_from(samples)
    return some | st.sampled_from(marks) if marks else some


def reaches(texts: st.SearchStrategy[T], holds: Callable[[T], bool]) -> bool:
    """True where the property's texts hold one of this kind.

    Raises:
        NoSuchExample: of hypothesis; there is none among many.
    """
    find(texts, holds, settings=SEARCHING)
    return True
