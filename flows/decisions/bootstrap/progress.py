"""What people see of hosts while they are worked on: a table made of what is heard, and which of its rows fit.

It knows neither clock nor screen: whoever hears says when, whoever draws says for how many rows there is room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from workflows.model.bootstrap import LOOK, HostNews, NewsWord

URGENT: tuple[NewsWord, ...] = ("fail", "unknown", "at work", "not yet", "pass")
"""Where not all rows fit, these stand first."""
WORDS: tuple[NewsWord, ...] = get_args(NewsWord)


@dataclass(frozen=True)
class HostProgress:
    """One row: what a host is at, or how that ended."""

    subject: str
    """A host, a component, or `CLUSTER`."""
    stage: str
    word: NewsWord
    said: str
    """The last that was heard of it."""
    began_at: float
    """Unix seconds at which it was begun, or at which its turn was announced."""
    ended_at: float | None = None
    """Unix seconds; None: it is not over."""

    def seconds(self, now: float) -> float | None:
        """How long it has taken so far, or took; None: it was not begun."""
        if self.word == "not yet":
            return None
        return max(0.0, (self.ended_at if self.ended_at is not None else now) - self.began_at)


Progress = Mapping[str, HostProgress]
"""By subject, in the order in which they were first heard of."""


@dataclass(frozen=True)
class ProgressView:
    """What there is room for."""

    rows: tuple[HostProgress, ...]
    all: Mapping[NewsWord, int]
    """How many there are of each word, shown or not."""
    further: Mapping[NewsWord, int]
    """The same of those that are not shown."""


def progress_after(before: Progress, heard: Iterable[tuple[float, HostNews]]) -> dict[str, HostProgress]:
    """The table after this was heard, each at its Unix seconds, in its order."""
    rows = dict(before)
    for at, news in heard:
        row = row_after(rows.get(news.subject), news, at)
        if row is not None:
            rows[news.subject] = row
    return rows


def row_after(before: HostProgress | None, news: HostNews, at: float) -> HostProgress | None:
    """A row after one piece of news; None: it says nothing of a host that nothing else is known of.

    Details of a step (stage "") are of hosts that are at work alone: a play works on others, too, for their sake. What
    a look does (`LOOK`) is of hosts of which nothing else is known: later looks only ask how work ended.
    """
    if news.stage == "":
        return replace(before, said=news.said) if before is not None and before.word == "at work" else before
    if news.stage == LOOK and before is not None and before.stage != LOOK:
        return before
    ends = news.word in ("pass", "fail", "unknown")
    same = before is not None and before.stage == news.stage and before.word == "at work"
    began = before.began_at if before is not None and (same or (ends and before.stage == LOOK)) else at
    return HostProgress(news.subject, news.stage, news.word, news.said, began, at if ends else None)


def view_of(progress: Progress, most_rows: int) -> ProgressView:
    """The rows for which there is room, and how many further ones there are of which word.

    All stand in their own order where they fit. Else those that failed stand first, then those of which nobody can
    tell, then those at work, the longest first, then the rest.
    """
    counted = Counter[NewsWord](row.word for row in progress.values())
    if len(progress) <= most_rows:
        shown = tuple(progress.values())
    else:
        order = sorted(progress.values(), key=lambda row: (URGENT.index(row.word), row.began_at))
        shown = tuple(order[: max(0, most_rows)])
    left = counted - Counter[NewsWord](row.word for row in shown)
    return ProgressView(shown, _in_order(counted), _in_order(left))


def count_words(counts: Mapping[NewsWord, int]) -> str:
    """Such as `2 fail, 9,940 pass`: what is urgent first."""
    return ", ".join(f"{counts[word]:,} {word}" for word in URGENT if counts.get(word))


def further_words(view: ProgressView) -> str:
    """Such as `… and 9,950 further: 10 not yet, 9,940 pass`; "" where all are shown."""
    number = sum(view.further.values())
    return f"… and {number:,} further: {count_words(view.further)}" if number else ""


def _in_order(counts: Mapping[NewsWord, int]) -> dict[NewsWord, int]:
    return {word: counts[word] for word in WORDS if counts.get(word)}
