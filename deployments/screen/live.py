"""Watching a run at a terminal: one quiet screen, drawn anew where something changed; nothing is driven.

`screen` is pure: values in, something to draw out. `follow` reads the ledger until the run ends. A `Teller` shows the
changes: `Screen` on a terminal that can draw one, `Lines` elsewhere.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from deployments.exit_codes import say
from deployments.processes.driver import driver_of
from flows.decisions.recovery.straggler import sentences
from flows.decisions.text import age, bar, sparkline
from flows.decisions.views.status import Surroundings, ended_words, outcome_words, status_of, troubles_of
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED, RunState
from tasks.ledger.ledger import Ledger
from tasks.runs.open import resolved_of
from tasks.settings import Settings
from workflows.model.records import TOLD, AttemptRecord, IncidentRecord, StepRow, Story
from workflows.model.why import DriverSight
from workflows.programs.progress.pace import beats
from workflows.programs.runtime.text import INSTEAD, visible

Json = dict[str, Any]
STYLES = {"running": "green", "succeeded": "green", "pending": "cyan", "recovering": "yellow", "stopped": "yellow"} | {
    "waiting-for-approval": "bold yellow",
    "failed": "bold red",
    "unknown": "bold red",
}
ATTEMPTS, INCIDENTS, QUESTIONS, SLOW_RANKS = 3, 3, 2, 3
"""So many of each, the newest: the rest is in `primus status`."""
LABEL = 10
QUIET_SECONDS = 30.0
"""From here on the screen says how long ago the last step was."""

LOOK_SECONDS = 0.1
"""Between two looks at the ledger's version (one row by its key)."""
DRIVER_SECONDS = 2.0
"""Between two looks whether the driver lives."""
RELIEVED_SECONDS = 60.0
"""A driver on another machine is one of a flow runner's: when its pod is replaced the next one needs a while."""

DRAW_SECONDS = 0.5
"""Between two drawings, however much happens."""
IDLE_SECONDS = 5.0
"""Between two drawings where nothing happens: spans of time go on."""
STEPS = 600
"""The newest ones, drawn as curves."""


@dataclass(frozen=True)
class Trend:
    """The newest steps as the screen draws them."""

    losses: tuple[float | None, ...] = ()
    rates: tuple[float | None, ...] = ()
    """Steps per second, each of some steps."""
    last_at: float | None = None
    """Unix seconds of the last step."""


def trend_of(steps: Sequence[StepRow]) -> Trend:
    """The trend of these steps."""
    rates = [beat.steps / beat.seconds for beat in beats((row.step, row.at) for row in steps)]
    return Trend(tuple(row.loss for row in steps), tuple(rates), steps[-1].at if steps else None)


def screen(status: Json, trend: Trend, now: float, width: int, height: int = 0) -> RenderableType:
    """The run on one screen.

    `status` is the document of `primus status`, with or without pods and goodput, `now` in Unix seconds, a line has
    `width` characters. Where it takes more than `height` lines (0: as many as it takes), older incidents and
    attempts go.
    """
    waiting = [item for item in status["approvals"] if item["state"] == "waiting"]
    top = [
        *_head(status, trend, now, width),
        *[line for item in waiting[:QUESTIONS] for line in _question(item, width)],
    ]
    top += [Text(), *_progress(status, trend, width)]
    foot = [Text(), _foot(status, width)]
    room = height - len(top) - len(foot) if height else sys.maxsize
    attempts = _section(
        "attempts", [[_attempt(row, status["incidents"], width)] for row in status["attempts"][-ATTEMPTS:]], room
    )
    room -= len(attempts)
    # What is only told stands above while it is so: it must not push out what was done something about.
    shown = troubles_of(status["incidents"])[-INCIDENTS:]
    incidents = _section("incidents", [_incident(row, width) for row in shown], room)
    return Group(*top, *attempts, *incidents, *foot)


def _head(status: Json, trend: Trend, now: float, width: int) -> list[Text]:
    head = Text(f"{status['run']}  ", "bold")
    head.append(str(status["state"]), STYLES.get(status["state"], ""))
    head.append(f"  {status['profile']} on {status['cluster']}, mode {status['mode']}", "dim")
    lines = [_one_line(head, width), *_some_lines(status["why"], 2, width)]
    if status["paused_why"] is not None:
        lines += _some_lines(f"automatic actions are halted: {status['paused_why']}", 2, width, "bold yellow")
    lines += [line for said in sentences(status)[:SLOW_RANKS] for line in _some_lines(said, 1, width, "yellow")]
    silent = None if trend.last_at is None else now - trend.last_at
    if status["state"] == "running" and silent is not None and silent > QUIET_SECONDS:
        lines.append(Text(f"the last step was {age(silent)} ago", "yellow"))
    return lines


def _progress(status: Json, trend: Trend, width: int) -> list[Text]:
    step, total, rate = status["step"], status["steps"], status["steps_per_second"]
    told = {"step": "none completed yet" if step is None else str(step)}
    if step is not None and total:
        eta = f", {age(status['eta_seconds'])} to go" if status["eta_seconds"] is not None else ""
        told["step"] = f"{step} of {total}, {step / total:.0%}{eta}"
    if status["loss"] is not None:
        told["loss"] = f"{status['loss']:.4g}"
    if rate is not None:
        told["speed"] = f"{rate:.3g} steps/s"
    room = max(8, width - LABEL - 2 - max(map(len, told.values())))
    drawn = {
        "step": bar(step / total, room) if step is not None and total else "",
        "loss": sparkline(trend.losses, room),
        "speed": sparkline(trend.rates, room, bottom=0.0),
    }
    durable = status["last_durable_step"]
    kept = "none yet" if durable is None else f"step {durable} is proven and durable"
    lines = [_labelled(name, f"{drawn[name]} {text}".strip(), width, len(drawn[name])) for name, text in told.items()]
    return [*lines, _labelled("checkpoint", kept, width)]


def _attempt(row: Json, incidents: Sequence[Json], width: int) -> Text:
    steps = "no step yet" if row["first_step"] is None else f"steps {row['first_step']} to {row['last_step']}"
    came = f", from step {row['resumed_from_step']}" if row["resumed_from_step"] is not None else ""
    came += f", {row['restarts_in_place']} in place" if row["restarts_in_place"] else ""
    text = f"{row['number']:>3}  {outcome_words(row, incidents):<16} {steps}{came}  {' '.join(row['nodes'])}"
    return _one_line(Text(text, "dim" if row["outcome"] else ""), width)


def _incident(row: Json, width: int) -> list[Text]:
    blamed = next((item["node"] or f"rank {item['rank']}" for item in row["culprits"]), "nobody")
    known = f"{row['class']} ({row['confidence']:.2f}), {blamed}" if row["class"] else row["signal"]
    back = row["resumed_after_seconds"]
    took = f" in {back:.1f} s" if back is not None else ""
    when = (f"  {(row['detected_at'] or '')[11:19]}  ", "dim")
    text = Text.assemble(when, f"{known} -> {row['action'] or 'not decided yet'}{took}")
    return [_one_line(text, width), *([_one_line(Text(f"{'':12}{row['why']}", "dim"), width)] if row["why"] else [])]


def _question(item: Json, width: int) -> list[Text]:
    asked = _some_lines(f"waits for you: {item['question']}", 3, width, "bold yellow")
    answers = [f'  primus {word} {item["id"]} --why "..."' for word in ("approve", "deny")]
    return [Text(), *asked, *(_one_line(Text(answer), width) for answer in answers)]


def _foot(status: Json, width: int) -> Text:
    if status["state"] in FINISHED:
        return _one_line(Text(f"where the time went: primus report {status['run']}", "dim"), width)
    held = _driver(status["driver"])
    return _one_line(Text(f"Ctrl-C stops watching, never the training; {held}", "dim"), width)


def _driver(driver: Json | None) -> str:
    if driver is None:
        return "no driver has taken it yet"
    return f"driven by process {driver['pid']} on {driver['host']}" if driver["alive"] else "its driver is gone"


def _section(title: str, entries: Sequence[Sequence[Text]], room: int) -> list[Text]:
    """A heading and the newest entries that there is room for."""
    kept = list(entries)
    while kept and 2 + sum(map(len, kept)) > room:
        kept.pop(0)
    return [Text(), Text(title, "bold"), *[line for entry in kept for line in entry]] if kept else []


def _some_lines(text: str, most: int, width: int, style: str = "") -> list[Text]:
    """The text in at most so many lines, broken between words."""
    lines = wrap(" ".join(text.split()), width, max_lines=most, placeholder="…")
    return [_one_line(Text(line, style), width) for line in lines]


def _labelled(label: str, text: str, width: int, drawn: int = 0) -> Text:
    """A fact with its name; the first `drawn` characters are a picture."""
    name = (label.ljust(LABEL + 1), "dim")
    return _one_line(Text.assemble(name, (text[:drawn], "cyan"), text[drawn:]), width)


def _one_line(text: Text, width: int) -> Text:
    text.plain = visible(text.plain).replace("\x1b", INSTEAD)
    text.truncate(width, overflow="ellipsis")
    text.no_wrap = True
    return text


class Teller(Protocol):
    """Shows a person what happens."""

    def tell(self, story: Story) -> None:
        """The story has changed."""
        ...

    def beat(self) -> None:
        """Called between two looks, whether or not anything has changed."""
        ...


def follow(run: str, settings: Settings, ledger: Ledger, teller: Teller | None = None) -> RunState:
    """Show what happens to the run until it ends, or until it has lost its driver.

    `teller` shows it; None: a line for everything that happens.

    Returns:
        The state it ended in; UNKNOWN where nobody drives it any more (the line to continue it was said).
    """
    shown: Teller = Lines() if teller is None else teller
    version, looked, driven = -1, time.monotonic(), time.monotonic()
    elsewhere = False
    while True:
        now_version = ledger.changes(run)
        if now_version != version:
            version = now_version
            story = ledger.story(run)
            shown.tell(story)
            if story.run.state in FINISHED:
                return story.run.state
        if time.monotonic() - looked > DRIVER_SECONDS:
            looked = time.monotonic()
            driver = driver_of(run, ledger.lease(run), settings.home, time.time())
            if driver.alive:
                driven, elsewhere = looked, driver.host != socket.gethostname()
            patience = RELIEVED_SECONDS if elsewhere else 0.0
            if looked - driven > patience and ledger.story(run).run.state not in FINISHED:
                _orphaned(run, driver)
                return RunState.UNKNOWN
        shown.beat()
        time.sleep(LOOK_SECONDS)


def _orphaned(run: str, driver: DriverSight) -> None:
    told = f" It ended with: {driver.end}." if driver.end else ""
    log = f"; see {driver.log}" if driver.log else ""
    say(f"the driver of {run} is gone; training may go on.{told} Continue: primus resume {run}{log}")


@dataclass
class Lines:
    """A line for everything that happens, each said once; at a terminal the step too, which is written over."""

    attempts: dict[Any, str] = field(default_factory=lambda: {})
    incidents: dict[Any, str] = field(default_factory=lambda: {})
    state: str = ""
    step: int | None = None

    def tell(self, story: Story) -> None:
        """Say what is new."""
        for attempt in story.attempts:
            # What the launchers wrote may tell of later steps than were heard: the end is told once all the same.
            key = f"{attempt.number} ended" if attempt.ended_at is not None else attempt.number
            if key not in self.attempts or attempt.ended_at is None:
                _say_once(self.attempts, key, _attempt_line(attempt))
        for incident in story.incidents:
            _say_once(self.incidents, incident.id, _incident_line(incident))
        if story.run.state != self.state and story.run.state in (*FINISHED, RunState.WAITING_FOR_APPROVAL):
            self.state = story.run.state
            say(f"{story.run.name}: {story.run.state}: {story.run.why}")
            for item in story.approvals:
                if item.state == "waiting":
                    say(f"  {item.question}\n  primus approve {item.id} --why ...   or   primus deny {item.id}")
        newest = story.attempt
        if sys.stderr.isatty() and newest is not None and newest.last_step not in (None, self.step):
            self.step = newest.last_step
            loss = newest.loss if newest.loss is not None else "?"
            sys.stderr.write(f"\r  step {newest.last_step}  loss {loss}   \r")
            sys.stderr.flush()

    def beat(self) -> None:
        """Nothing to do: lines stand."""


def _say_once(said: dict[Any, str], key: int | str, line: str) -> None:
    if line and said.get(key) != line:
        said[key] = line
        say(line)


def _attempt_line(attempt: AttemptRecord) -> str:
    where = ", ".join(attempt.nodes) or "wherever there is room"
    if attempt.ended_at is not None:
        return ended_words(attempt)
    if attempt.first_step is not None:
        resumed = "" if attempt.resumed_from_step is None else f" resumed from step {attempt.resumed_from_step};"
        return f"attempt {attempt.number} on {where}:{resumed} first step {attempt.first_step}"
    return f"attempt {attempt.number} on {where}"


def _incident_line(incident: IncidentRecord) -> str:
    if incident.action is None:
        return f"  {incident.signal}: {'; '.join(incident.evidence[:1])}"
    if incident.signal in TOLD:
        return f"  {incident.fault_class}: {incident.why}"
    blamed = ", ".join(node or f"rank {rank}" for node, rank in incident.culprits) or "nobody"
    return (
        f"  {incident.fault_class} ({incident.confidence:.2f}, blamed: {blamed}) -> {incident.action}: {incident.why}"
    )


class Screen:
    """Draws the run while it is watched; a `Teller`."""

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
            self._resolved = resolved_of(story.run)
        steps = self._newest(story)
        driver = driver_of(story.run.name, story.lease, self._settings.home, now)
        around = Surroundings(now=now, driver=driver, steps=steps)
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
