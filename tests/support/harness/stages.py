"""A stage for stories: a home, a ledger and an embedded cluster of its own, and real faults.

A story starts a run, breaks something, and looks at what the ledger, the files and the processes say. Its flow
runs in a thread of the test's process; where the driver itself is to be killed, in a process as users have it.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from deployments.processes.driver import OwnDriver, driver_pid
from flows.train import train
from profiles.drill import parse_fault
from profiles.request import TrainRequest
from profiles.resolve import Resolved
from profiles.vocabulary import FINISHED, RunState
from tasks.ledger.ledger import Ledger
from tasks.runs.faults import FAULT_FILE, Scene, cause, step_seen
from tasks.runs.open import open_run, run_folder
from tasks.settings import Settings
from tests.campaign.expected import is_noise
from tests.support.harness.grounds import EmbeddedGround, Ground
from workflows.model.records import AttemptRecord, IncidentRecord, Story

DEADLINE_SECONDS = EmbeddedGround.deadline_seconds
PROFILE = Path(__file__).parents[1] / "profiles" / "story.yaml"


def write(file: Path, request: dict[str, Any]) -> None:
    """A fault file, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_suffix(".written")
    written.write_text(json.dumps(request))
    written.replace(file)


class Stage:
    """One home with one embedded cluster. Use `stage()`."""

    def __init__(self, home: Path, api_url: str, ground: Ground) -> None:
        self.home, self.api_url, self.ground = home, api_url, ground
        os.environ["PRIMUS_HOME"] = str(home)
        self.settings = Settings.from_environment({"PRIMUS_HOME": str(home)})
        self.ledger = Ledger(self.settings.ledger_url)
        self.run = ""
        self._thread: threading.Thread | None = None
        self.error: BaseException | None = None
        self.outcome = ""

    def start(self, name: str = "story", profile: str = str(PROFILE), **request: Any) -> Stage:
        """Write the run down and let a flow drive it in a thread."""
        self.open(name, profile, **request)
        return self.drive()

    def open(
        self, name: str = "story", profile: str = str(PROFILE), *, in_place: bool = False, **request: Any
    ) -> Stage:
        """Write the run down.

        Unless `in_place`, ranks are not restarted inside their pods: most stories are about new attempts.
        """
        right = () if in_place else ("recovery.in_place_restarts=0",)
        wanted = TrainRequest(
            profile=profile,
            name=name,
            cluster=request.pop("cluster", self.ground.profile),
            overrides=(*right, *request.pop("overrides", ())),
            **request,
        )
        self.run = open_run(wanted, self.settings, self.ledger, time.time()).name
        return self

    def drive(self) -> Stage:
        """Drive the run in a thread of this process."""

        def work() -> None:
            try:
                self.outcome = asyncio.run(train(TrainRequest(name=self.run, profile="")))  # pyright: ignore
            except BaseException as error:  # the story looks at it
                self.error = error

        self.error = None
        # The thread takes over Prefect's settings of the test session, which live in a context.
        # A story that failed leaves it waiting for what is gone: it must not keep the session from ending.
        self._thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), daemon=True)
        self._thread.start()
        return self

    @property
    def thread(self) -> threading.Thread:
        assert self._thread is not None
        return self._thread

    def forget_thread(self) -> None:
        """Go on without the flow of this process."""
        self._thread, self.error = None, None

    def drive_in_process(self) -> int:
        """Drive the run in a process of its own, as the command line does; its pid."""
        return OwnDriver(self.home, self.api_url).drive(self.run)

    @property
    def resolved(self) -> Resolved:
        return Resolved.model_validate(self.story.run.resolved)

    @property
    def story(self) -> Story:
        return self.ledger.story(self.run)

    @property
    def cluster(self) -> Any:
        return self.ground.cluster(self.resolved, self.home)

    @property
    def folder(self) -> Path:
        return run_folder(self.resolved, self.run)

    def scene(self) -> Scene:
        attempt = self.story.attempt
        assert attempt is not None
        return Scene(self.settings, self.ledger, self.cluster, self.resolved, attempt)

    def until(self, holds: Callable[[Story], bool], what: str) -> Story:
        """Wait until the ledger says so."""
        deadline = time.monotonic() + self.ground.deadline_seconds
        with self._changes() as written:
            while not holds(story := self.story):
                assert time.monotonic() < deadline, f"did not happen: {what}; {self.tell()}"
                if self._thread is not None and not self._thread.is_alive() and not holds(self.story):
                    raise AssertionError(f"the flow ended before: {what}; {self.tell()}") from self.error
                again = time.monotonic() + 0.05  # for what else the condition looks at
                time.sleep(0.01)
                while not written() and time.monotonic() < again:
                    time.sleep(0.01)
        return story

    @contextmanager
    def _changes(self) -> Generator[Callable[[], bool]]:
        """Asks cheaply whether anybody wrote to the ledger since it was asked last: by a mark that SQLite alone has."""
        url = self.ledger.database.url
        if url.get_backend_name() != "sqlite":
            yield lambda: True
            return
        with closing(sqlite3.connect(str(url.database))) as database:
            known = 0

            def written() -> bool:
                nonlocal known
                before = known
                [known] = database.execute("PRAGMA data_version").fetchone()
                return known != before

            written()
            yield written

    def at_step(self, step: int) -> Stage:
        """Wait until the newest attempt's launchers have seen the step."""
        story = self.until(lambda story: story.attempt is not None and story.attempt.submitted_at is not None, "submit")
        deadline = time.monotonic() + self.ground.deadline_seconds
        scene = self.scene()
        with self._changes() as written:
            while step_seen(scene) < step:
                assert time.monotonic() < deadline, f"step {step} was not seen; {self.tell()}"
                assert story.run.state not in FINISHED, f"it ended before step {step} was seen; {self.tell()}"
                time.sleep(0.005)
                if written():
                    story, scene = self.story, self.scene()
        return self

    @contextmanager
    def held_at(self, step: int) -> Generator[Stage]:
        """The newest attempt has done so many steps and does no more within, where its trainer polls a fault file.

        However long this machine takes to strike, the training is where the story wants it.
        """
        file = self.folder / FAULT_FILE
        write(file, {"fault": "hold", "step": step})
        try:
            yield self.at_step(step)
        finally:
            # A fault that was asked for stands there instead, or has fired already.
            with suppress(FileNotFoundError, ValueError):
                if json.loads(file.read_text())["fault"] == "hold":
                    file.unlink()

    def fault(self, text: str) -> float:
        """Cause the fault, when its step was seen and before the next one."""
        spec = parse_fault(text)
        if spec.step is None:
            return cause(spec, self.scene())
        with self.held_at(spec.step):
            return cause(replace(spec, step=None), self.scene())

    def drained(self, node: str) -> bool:
        """Ask once more that the node be emptied; whether it is."""
        return not self.ground.drain(self.resolved, self.home, node)

    def end(self) -> Story:
        """Wait until the run has ended and its driver too."""
        story = self.until(lambda story: story.run.state in FINISHED, "the end of the run")
        if self._thread is not None:
            self._thread.join(self.ground.deadline_seconds)
            assert not self._thread.is_alive(), self.tell()
        deadline = time.monotonic() + self.ground.deadline_seconds
        while driver_pid(self.home, self.run) is not None:
            assert time.monotonic() < deadline, "the driver does not end"
            time.sleep(0.05)
        return story

    def no_orphans(self) -> None:
        """Nothing of the cluster runs any more."""
        self.ground.no_orphans(self.resolved, self.home)

    def weights(self) -> str:
        """Digest of the weights that the newest attempt's rank 0 printed."""
        attempt = self.story.attempt
        assert attempt is not None
        said = "".join(path.read_text(errors="replace") for path in self.folder.glob(f"a{attempt.number}/*/rank-0.log"))
        assert "weights sha256 " in said, said[-2000:]
        return said.rpartition("weights sha256 ")[2][:64]

    def tell(self) -> str:
        """The whole story, for a failed assertion."""
        story = self.story
        lines = [f"{story.run.state}: {story.run.why}", f"error: {self.error!r}"]
        lines += [f"{item}" for item in (*story.attempts, *story.incidents, *story.actions, *story.approvals)]
        log = self.home / "runs" / self.run / "driver.log"
        if log.exists():
            lines.append(log.read_text(errors="replace")[-3000:])
        for path in sorted(self.folder.glob("a*/*/launcher.log"))[-4:]:
            lines.append(f"--- {path}\n{path.read_text(errors='replace')[-1500:]}")
        return "\n".join(lines)


@contextmanager
def stage(api_url: str, ground: Ground | None = None) -> Generator[Stage]:
    """A stage in a short temporary folder, struck afterwards with everything on it."""
    home = Path(tempfile.mkdtemp(prefix="primus-"))
    before = os.environ.get("PRIMUS_HOME")
    made = Stage(home, api_url, ground or EmbeddedGround())
    try:
        yield made
        if made.run and made.story.run.state in FINISHED:
            made.no_orphans()
    finally:
        if made.run:
            made.ground.strike(made.resolved, home)
        made.ledger.close()
        if before is not None:
            os.environ["PRIMUS_HOME"] = before
        shutil.rmtree(home, ignore_errors=True)


def incident(story: Story, number: int = 0) -> IncidentRecord:
    """The run's incident, with the whole story where there is none."""
    assert len(story.troubles) > number, story
    return story.troubles[number]


def beyond_noise(story: Story) -> list[IncidentRecord]:
    """Incidents without those that come to ranks who share a machine: slower for a while, which is only told."""
    return [item for item in story.incidents if not is_noise(item)]


def outcomes(story: Story) -> list[str | None]:
    """How the attempts ended."""
    return [attempt.outcome for attempt in story.attempts]


def numbers_are_unique(attempts: tuple[AttemptRecord, ...]) -> bool:
    """One attempt per number, without gaps."""
    return [attempt.number for attempt in attempts] == list(range(1, len(attempts) + 1))


def succeeded(story: Story) -> bool:
    """The run reached its goal."""
    return story.run.state is RunState.SUCCEEDED
