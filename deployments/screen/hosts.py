"""Hosts that become a cluster, on one screen: a line a host, drawn anew twice a second.

What stands in the table is decided in `flows.decisions.bootstrap.progress`; `screen` here is pure, too: rows in,
something to draw out. `watched` shows it where a person sits at a terminal; elsewhere lines are told, as ever.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from deployments.exit_codes import say
from flows.decisions.bootstrap.progress import (
    HostProgress,
    Progress,
    count_words,
    further_words,
    progress_after,
    view_of,
)
from flows.decisions.text import age
from workflows.model.bootstrap import HostNews
from workflows.programs.runtime.text import INSTEAD, uncoloured

if TYPE_CHECKING:  # with it comes Prefect
    from tasks.bootstrap.site import Hear, Tell

STYLES = {"pass": "green", "fail": "bold red", "unknown": "bold yellow", "at work": "cyan", "not yet": "dim"}
"""Beside the word itself, which says it, too."""
A_SECOND = 2.0
"""Drawings."""
STAGE, WORD, SPAN = 13, 7, 9
"""Cells of these columns: the longest stage, word and span of time."""
NAME, SHARE_OF_NAME = 40, 4
"""Cells of a name at most, and which share of the width; it is cut in its middle: both ends tell hosts apart."""
LEAST_SAID = 20
"""Cells that the last words keep; where the terminal is narrower the stage is left out."""
AROUND = 2
"""Lines above and below the rows: what is done, and where the logs lie."""
_DRAWN_OTHERWISE = dict.fromkeys(map(ord, "\ufe0e\ufe0f\u200b\u200c\u200d\u2060\ufeff\u00ad"))
"""Signs that have no width of their own and change that of others, each terminal in its way."""


def screen(title: str, foot: str, progress: Progress, now: float, size: tuple[int, int]) -> RenderableType:
    """The table in at most `size` cells (width, height); `now` in Unix seconds."""
    width, height = size
    room = max(1, height - AROUND)
    view = view_of(progress, room if len(progress) <= room else room - 1)
    head = Text.assemble((f"{title}  ", "bold"), count_words(view.all))
    names = max((len(row.subject) for row in view.rows), default=0)
    name_width = min(names, NAME, width // SHARE_OF_NAME)
    lines = [_cut(head, width), *(_row(row, now, width, name_width) for row in view.rows)]
    if further := further_words(view):
        lines.append(_cut(Text(further, "dim"), width))
    return Group(*lines, _cut(Text(foot, "dim"), width))


def _row(row: HostProgress, now: float, width: int, name_width: int) -> Text:
    seconds = row.seconds(now)
    taken = "" if seconds is None else age(seconds)
    line = Text(_cut_inside(row.subject, name_width).ljust(name_width))
    line.append("  ")
    fixed = name_width + 2 + WORD + 2 + SPAN + 2
    if width - fixed - STAGE - 2 >= LEAST_SAID:
        line.append(row.stage.ljust(STAGE)[:STAGE] + "  ")
    line.append(row.word.ljust(WORD), STYLES[row.word])
    line.append(f"  {taken:>{SPAN}}  ")
    line.append(plain(row.said), "" if row.word == "at work" else "dim" if row.word == "not yet" else STYLES[row.word])
    return _cut(line, width)


def plain(text: str) -> str:
    """Others' words as one line, in which every sign is as wide as it is counted."""
    return " ".join(uncoloured(text).replace("\x1b", INSTEAD).translate(_DRAWN_OTHERWISE).split())


def _cut_inside(name: str, width: int) -> str:
    """A name in at most `width` characters: its begin and its end, where numbers stand."""
    if len(name) <= width:
        return name
    end = (width - 1) * 2 // 3
    return f"{name[: width - 1 - end]}…{name[-end:]}"


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    line.no_wrap = True
    return line


@dataclass
class HostScreen:
    """Keeps what is heard until the next drawing; hosts are heard from several threads."""

    title: str
    foot: str
    clock: Callable[[], float] = time.time
    heard: deque[tuple[float, HostNews]] = field(default_factory=deque[tuple[float, HostNews]])
    progress: Progress = field(default_factory=dict[str, HostProgress])

    def __post_init__(self) -> None:
        self.began_at = self.clock()

    def hear(self, news: HostNews) -> None:
        """A host does something."""
        self.heard.append((self.clock(), news))

    def draw(self, size: tuple[int, int]) -> RenderableType:
        """The table as it is now."""
        news = [self.heard.popleft() for _ in range(len(self.heard))]
        self.progress, now = progress_after(self.progress, news), self.clock()
        if not self.progress:
            return Group()  # nobody was asked yet, and perhaps nobody will be: what is wrong is found first
        return screen(f"{self.title}, {age(now - self.began_at)}", self.foot, self.progress, now, size)


@contextmanager
def watched(title: str, logs: Path, *, plainly: bool) -> Generator[tuple[Tell, Hear | None]]:
    """Who is told lines, and who hears what hosts do: None where no terminal can draw it, or `plainly` is asked for.

    The table goes at the end, since the last word of a command has one of its own; it stays where an error ends it.
    `logs` is the folder with a log for each host.
    """
    console = Console(stderr=True)
    if plainly or not (console.is_terminal and sys.stdout.isatty()) or console.is_dumb_terminal:
        yield say, None
        return
    shown = HostScreen(title, f"logs of hosts: {logs} (Ctrl-C stops; the same command goes on)")
    live = Live(
        get_renderable=lambda: shown.draw((console.size.width, console.size.height - 1)),
        console=console,
        refresh_per_second=A_SECOND,
        transient=True,
        vertical_overflow="crop",
    )
    with live:
        try:
            yield say, shown.hear
        except BaseException:
            live.transient = not shown.progress
            raise
