"""Keeps the page of a run on the Prefect server up to date, beside the driver and never in its way; writes reports.

A thread looks at the ledger's counter and writes artifacts anew after a change: the same ones, over and over. A server
that is away is skipped and tried again. It uses at most a fiftieth of a core, whatever a look costs. Pages of reports
go into the home, and their main numbers to the Prefect server.
"""

from __future__ import annotations

import contextvars
import logging
import os
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from prefect import get_run_logger
from prefect.runtime import flow_run as own_flow_run

from profiles.errors import Transient, Unavailable
from profiles.vocabulary import FINISHED, RunState
from tasks.context import patient, touch, world
from tasks.ledger.ledger import Ledger
from tasks.prefect.events import ConsoleServer, console_server, flow_run_link, open_console, patience
from workflows.model.events import Fall, PageGround, RunPage, Sheet
from workflows.model.records import AttemptRecord, StepRow, Story
from workflows.programs.runtime.text import uncoloured

POLL_SECONDS = 0.5
"""Between two looks at the ledger's counter."""
LEAST_SECONDS = 2.0
"""Between two updates."""
SHARE = 50
"""An update is followed by a rest of so many times the processor time that it took."""
AWAY_SECONDS = 5.0
LAST_SECONDS = 3.0
"""How long the end of a run may wait for its last page."""
FLOW_LOGGER = "prefect.flow_runs"
WAITING_NAME, PAUSED_NAME = "WaitingForApproval", "AutomationPaused"
"""Names of the state Running while a person must answer, and while one has halted automatic actions."""
MOST_STEPS = 200_000
"""Kept in memory, about 40 MB; beyond it old ones are thinned out."""


class Times(Protocol):
    """Finds out whether an attempt became slower, step after step."""

    def add(self, row: StepRow) -> Fall | None:
        """The next completed step; the fall that it proves."""
        ...


@dataclass(frozen=True)
class Writer:
    """The pure part: what the pages say."""

    page: Callable[[PageGround], RunPage]
    moments: Callable[[Story], tuple[tuple[str, str], ...]]
    """What the log of the flow run tells."""
    times: Callable[[], Times]


@dataclass
class Steps:
    """Completed steps by attempt, as the ledger gives them, read once."""

    by_attempt: dict[int, list[StepRow]] = field(default_factory=dict[int, list[StepRow]])
    all: bool = True
    _seen: dict[int, set[tuple[int, float]]] = field(default_factory=dict[int, set[tuple[int, float]]])

    def read(self, ledger: Ledger, run: str, attempt: int) -> list[StepRow]:
        """Steps of the attempt that were not read before."""
        known = self.by_attempt.setdefault(attempt, [])
        since = known[-1].at if known else float("-inf")
        # Several steps may share one time: those of the newest are read again and dropped.
        edge = self._seen.get(attempt, set[tuple[int, float]]())
        fresh = [row for row in ledger.steps(run, attempt, since) if (row.step, row.at) not in edge]
        if fresh:
            known += fresh
            self._seen[attempt] = {(row.step, row.at) for row in known[-1000:] if row.at == known[-1].at}
            self._thin()
        return fresh

    def _thin(self) -> None:
        while sum(map(len, self.by_attempt.values())) > MOST_STEPS:
            self.all = False
            for number, rows in self.by_attempt.items():
                half = len(rows) // 2
                self.by_attempt[number] = [*rows[:half:2], *rows[half:]]


class RunPages:
    """The pages of one run; one thread works with it.

    `flow_run` shows them.
    """

    def __init__(self, ledger: Ledger, run: str, flow_run: str, writer: Writer) -> None:
        self._ledger, self._run, self._flow_run, self._writer = ledger, run, flow_run, writer
        self._steps = Steps()
        self._times: dict[int, Times] = {}
        self._written: dict[str, Sheet] = {}
        self._ids: dict[str, str] = {}
        self._server: ConsoleServer | None = None
        self._version = -1
        self._form: str | None = None
        self._standing = ("Running", "")
        """Name and message of the flow run's state, as written last."""
        self._tags: frozenset[str] = frozenset()
        """People's own words that the flow run carries as tags, as written last."""
        self._complained = False
        self._told: set[str] | None = None

    def begin(self) -> None:
        """What happened before this driver came stands in the log of the one before it.

        Raises:
            Transient: the ledger is away.
        """
        if self._told is None:
            self._told = {key for key, _ in self._writer.moments(self._ledger.story(self._run))}

    def connect(self) -> None:
        """Reach the server for the first time, which takes longer than any page.

        Raises:
            Transient: ledger or server are away.
        """
        if self._form is None:
            cluster = self._ledger.story(self._run).run.cluster
            with patience():
                self._form = self._open().form(f"approve/{cluster}")

    def changed(self) -> bool:
        """Whether the ledger says anything new of the run."""
        return self._ledger.changes(self._run) != self._version

    def update(self, log: Callable[[str], None]) -> None:
        """Read, write to the log, and write the artifacts that have changed.

        Raises:
            Transient: ledger or server are away; the next update does everything that is missing.
        """
        self.begin()
        version = self._ledger.changes(self._run)
        story = self._ledger.story(self._run)
        told = self._told or set[str]()
        new = [(key, text) for key, text in self._writer.moments(story) if key not in told]
        for _, text in new:
            log(uncoloured(text))
        self._told = told | {key for key, _ in new}
        for attempt in story.attempts:
            if attempt.number not in self._steps.by_attempt or attempt is story.attempt or attempt.ended_at is None:
                self._read(attempt)
        links = (("flow run", flow_run_link(self._flow_run)),) if self._flow_run else ()
        self.connect()
        now = self._ledger.database.clock()
        form = self._form or ""
        self._write(self._writer.page(PageGround(story, self._steps.by_attempt, now, self._steps.all, links, form)))
        self._stand(story)
        self._tag(story)
        self._version = version

    def _stand(self, story: Story) -> None:
        """A run that waits for a person, or is paused by one, is not shown as any other that runs."""
        if not self._flow_run or story.run.state in FINISHED:
            return  # the engine says how it ended
        name, why = "Running", ""
        if story.run.state is RunState.WAITING_FOR_APPROVAL:
            name, why = WAITING_NAME, f"waits for a person: {story.run.why}"
        elif story.paused:
            name, why = PAUSED_NAME, f"automatic actions are halted, training goes on: primus unpause {story.run.name}"
        if (name, why) != self._standing:
            with patience():
                self._open().stand(self._flow_run, name, why)
            self._standing = name, why

    def _tag(self, story: Story) -> None:
        """What people find the run by in the ledger they find it by on the server."""
        owner, tags = story.run.owner, story.run.tags
        wanted = frozenset(([f"owner={owner}"] if owner else []) + [f"{name}={value}" for name, value in tags.items()])
        if self._flow_run and wanted != self._tags:
            with patience():
                self._open().tag(self._flow_run, wanted, self._tags - wanted)
            self._tags = wanted

    def _open(self) -> ConsoleServer:
        self._server = self._server or open_console()
        return self._server

    def _read(self, attempt: AttemptRecord) -> None:
        times = self._times.setdefault(attempt.number, self._writer.times())
        for row in self._steps.read(self._ledger, self._run, attempt.number):
            fall = times.add(row)
            if fall is not None:
                self._ledger.note_fall(self._run, attempt.number, fall, attempt.nodes)

    def _write(self, page: RunPage) -> None:
        changed = [sheet for sheet in page.sheets if self._written.get(sheet.key) != sheet]
        if not changed:
            return
        with patience():
            for sheet in changed:
                self._ids[sheet.key] = self._open().put(self._flow_run, sheet, self._ids.get(sheet.key, ""))
                self._written[sheet.key] = sheet
        self._complained = False

    def away(self, error: Transient) -> None:
        """A neighbour does not answer: said once."""
        self.close()
        if not self._complained:
            logging.getLogger("primus").warning("the page of %s waits: %s", self._run, error)
        self._complained = True

    def close(self) -> None:
        """Give the connection back."""
        opened, self._server = self._server, None
        if opened is not None:
            with suppress(Exception):  # the server may be away
                opened.close()


@contextmanager
def pages_kept(run: str, writer: Writer) -> Generator[None]:
    """Inside the block the flow run that this is shows where the run stands; where this is none, nothing is shown."""
    flow_run = str(own_flow_run.id or "")
    if not flow_run:
        yield
        return
    ended, log = threading.Event(), get_run_logger()
    # Drivers are quiet (PREFECT_LOGGING_LEVEL=WARNING); what happens to the run is what its log is for.
    logging.getLogger(FLOW_LOGGER).setLevel(logging.INFO)
    pages = RunPages(world().ledger, run, flow_run, writer)
    with suppress(Transient):
        pages.begin()
    work = contextvars.copy_context().run
    keeper = threading.Thread(target=work, args=(_keep, pages, log.info, ended), daemon=True, name=f"pages of {run}")
    keeper.start()
    try:
        yield
    finally:
        ended.set()
        keeper.join(LAST_SECONDS)


def own_log() -> Callable[[str], None]:
    """Writes lines into the log of the flow run that goes on here, which its page shows."""
    logging.getLogger(FLOW_LOGGER).setLevel(logging.INFO)  # drivers are quiet else
    log = get_run_logger()
    return lambda line: log.info("%s", uncoloured(line))


def _keep(pages: RunPages, log: Callable[[str], None], ended: threading.Event) -> None:
    try:
        while True:
            last = ended.is_set()
            try:
                rest = _once(pages, log)
            except Transient as error:
                rest = AWAY_SECONDS
                pages.away(error)
            if last:
                return
            ended.wait(rest)
    except Exception:  # whatever it is, training goes on without a page
        logging.getLogger("primus").exception("pages of a run are not kept any more")
    finally:
        pages.close()


def _once(pages: RunPages, log: Callable[[str], None]) -> float:
    """One look; how long to rest after it."""
    if not pages.changed():
        return POLL_SECONDS
    pages.connect()
    begun = time.thread_time()
    pages.update(log)
    return max(LEAST_SECONDS, SHARE * (time.thread_time() - begun))


@patient
def write_page(name: str, text: str) -> Path:
    """Write a page to PRIMUS_HOME/reports/<name>.html, in place of one of that name; readers see it whole.

    Raises:
        Unavailable: the folder cannot be written (a full disk); waited out.
    """
    folder = world().settings.home / "reports"
    path = folder / f"{name}.html"
    fresh = folder / f".{name}.{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)
    except OSError as error:
        raise Unavailable(f"{path} cannot be written ({error.strerror}): make room, or its owner ours") from error
    return path


@touch("put the artifact {sheet.key}")
def put_artifact(flow_run: str, sheet: Sheet) -> None:
    """Show a sheet on the page of a flow run; "" where it belongs to none."""
    with console_server() as server:
        server.put(flow_run or None, sheet)
