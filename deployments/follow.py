"""Watching a run from outside: the ledger is read, nothing is driven. Quiet where nobody looks."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from deployments.driver import driver_of
from deployments.edge import say
from profiles.errors import Unavailable
from profiles.vocabulary import FINISHED, RunState
from tasks.ledger import Ledger
from tasks.settings import Settings
from workflows.records import AttemptRecord, IncidentRecord, Story
from workflows.told import TOLD

LOOK_SECONDS = 0.1
"""Between two looks at the ledger's version (one row by its key)."""
DRIVER_SECONDS = 2.0
"""Between two looks whether the driver lives."""
RELIEVED_SECONDS = 60.0
"""A driver on another machine is one of a flow runner's: when its pod is replaced the next one needs a while."""


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

    Args:
        run: its name.
        settings: of this process.
        ledger: where it stands.
        teller: who shows it; None: a line for everything that happens.

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
                _orphaned(run, settings)
                return RunState.UNKNOWN
        shown.beat()
        time.sleep(LOOK_SECONDS)


def _orphaned(run: str, settings: Settings) -> None:
    log = settings.home / "runs" / run / "driver.log"
    say(f"the driver of {run} is gone; training may go on. Continue: the same `primus train --name {run}`; see {log}")


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
            _say_once(self.attempts, attempt.number, _attempt_line(attempt))
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
        return f"attempt {attempt.number} ended: {attempt.outcome}, last step {attempt.last_step}"
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


def wait_for(ledger: Ledger, run: str, until: Callable[[Story], bool], timeout_seconds: float) -> Story:
    """The story as soon as `until(story)` holds.

    Raises:
        Unavailable: it did not hold within `timeout_seconds`.
    """
    deadline, version = time.monotonic() + timeout_seconds, -1
    while True:
        changed = ledger.changes(run)
        if changed != version:
            version = changed
            story = ledger.story(run)
            if until(story):
                return story
            if story.run.state in FINISHED:
                raise Unavailable(f"{run} ended before what was waited for: {story.run.state}, {story.run.why}")
        if time.monotonic() > deadline:
            raise Unavailable(f"{run}: what was waited for did not come within {timeout_seconds:g} s")
        time.sleep(0.02)
