"""Watching a run at a terminal: one quiet screen that is drawn anew where something changed."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from deployments.driver import driver_of
from deployments.follow import Lines, Teller
from deployments.live_screen import Trend, screen, trend_of
from flows.decisions.status import Surroundings, status_of
from profiles.resolve import Resolved
from tasks.ledger import Ledger
from tasks.settings import Settings
from workflows.records import StepRow, Story

DRAW_SECONDS = 0.5
"""Between two drawings, however much happens."""
IDLE_SECONDS = 5.0
"""Between two drawings where nothing happens: spans of time go on."""
STEPS = 600
"""The newest ones, drawn as curves."""


class Screen:
    """Draws the run while it is watched; a `follow.Teller`.

    Args:
        settings: of this process.
        ledger: where the run stands.
        live: what is drawn on.
    """

    def __init__(self, settings: Settings, ledger: Ledger, live: Live) -> None:
        self._settings, self._ledger, self._live = settings, ledger, live
        self._story: Story | None = None
        self._resolved: Resolved | None = None
        self._drawn_at, self._stale = 0.0, False

    def tell(self, story: Story) -> None:
        """Keep the story; an end is drawn at once."""
        self._story, self._stale = story, True
        if story.run.ended_at is not None:
            self._draw(story)

    def beat(self) -> None:
        """Draw it where it is time to."""
        since = time.monotonic() - self._drawn_at
        if self._story is not None and since >= (DRAW_SECONDS if self._stale else IDLE_SECONDS):
            self._draw(self._story)

    def _draw(self, story: Story) -> None:
        self._drawn_at, self._stale, now = time.monotonic(), False, time.time()
        if self._resolved is None:
            self._resolved = Resolved.model_validate(story.run.resolved)
        steps = self._newest(story)
        driver = driver_of(story.run.name, story.lease, self._settings.home, now)
        around = Surroundings(now=now, driver_alive=driver.alive, steps=steps)
        document = status_of(story, self._resolved, around)
        trend = trend_of(steps) if steps else Trend()
        width, height = self._live.console.size
        self._live.update(screen(document, trend, now, width, height - 1), refresh=True)

    def _newest(self, story: Story) -> list[StepRow]:
        """Of the newest attempt that made one: while the next one starts, its curve stays."""
        made = [item.number for item in story.attempts if item.last_step is not None]
        return self._ledger.newest_steps(story.run.name, made[-1], STEPS) if made else []


@contextmanager
def teller(settings: Settings, ledger: Ledger) -> Generator[Teller]:
    """A screen where standard error is a terminal that can draw one, else lines."""
    console = Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield Lines()
        return
    with Live(console=console, auto_refresh=False, transient=False, vertical_overflow="crop") as live:
        yield Screen(settings, ledger, live)
