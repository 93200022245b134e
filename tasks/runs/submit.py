"""One attempt's life in the cluster: written down, submitted or adopted, watched, ended in the ledger.

No rank and no coordinator starts before the Secret with the attempt's token exists, and the coordinator answers only to
that token. So pods may be made before the previous attempt is gone.
"""

from __future__ import annotations

import secrets
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from profiles.errors import PrimusError, Refused, Unavailable
from profiles.resolve import Resolved
from profiles.run import RunProfile
from profiles.vocabulary import Mode, RunState, VerdictWord
from tasks.cluster import Cluster, Manifest, current
from tasks.context import patient, touch, world
from tasks.lease import our_ledger
from tasks.runs.actions import PoolRoom
from tasks.runs.clear import let_coordinator_move
from tasks.runs.in_place import IncidentWriter
from tasks.runs.liveness import SecondPath, further
from tasks.runs.watch import AttemptWatch
from workflows import labels
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.training import manifests
from workflows.model.attempt import AttemptView
from workflows.model.checkpoints import corrections, forbidden, standing
from workflows.model.gang_status import CLOCK_SECONDS, GangNews, alike, withheld
from workflows.model.incidents import note_of_put_aside
from workflows.model.ownership import refuse_foreign, signed
from workflows.model.records import AttemptRecord, CheckpointRecord, MarkRecord, RequestRecord
from workflows.model.workflow import workflow_of
from workflows.programs.coordinator.service import RELEASE_SECONDS

T = TypeVar("T")
POLL_SECONDS = 0.25
"""Between two looks at the ledger for people's requests."""
SAVE_SECONDS = 0.5
"""Between two writes of progress; steps are kept in rows of many."""


@touch("plans attempt {attempt.number} on {attempt.where}")
def write_attempt(attempt: AttemptRecord) -> AttemptRecord:
    """Write the attempt down before anything of it exists."""
    here = world()
    return here.ledger.plan_attempt(here.fencing, attempt)


@touch("submits attempt {attempt.number} on {attempt.where}")
def submit_attempt(resolved: Resolved, attempt: AttemptRecord) -> float:
    """Create the attempt's workflow, or adopt what an earlier life of this flow created; when that was.

    Nothing of it can train yet: `let_start` comes once nothing of the attempt before can train any more.
    """
    here = world()
    refuse_foreign(current().get("Secret", labels.secret_name(attempt.run, attempt.number)), our_ledger())
    plan = plan_of(resolved, attempt, here.fencing, our_ledger())
    run = here.ledger.run(attempt.run)
    marks = labels.of_people(run.owner, run.tags) if run else {}
    make_or_adopt(current(), attempt, replace(plan, marks=marks))
    return here.now()


@patient
def let_start(attempt: AttemptRecord, submitted_at: float) -> AttemptRecord:
    """Hand out the attempt's token: its pods may be made before, but no rank and no coordinator starts without it."""
    here = world()
    fencing = here.fencing
    ensure_token(current(), attempt)
    here.ledger.add_marks(fencing, [MarkRecord(attempt.run, attempt.number, "submitted", submitted_at)])
    return here.ledger.update_attempt(fencing, attempt.run, attempt.number, submitted_at=submitted_at)


def make_or_adopt(cluster: Cluster, attempt: AttemptRecord, plan: AttemptPlan) -> None:
    """Create the attempt's workflow, unless it is there or has made its gang.

    Raises:
        Foreign: what is there belongs to another ledger.
        Unavailable, Refused.
    """
    if not is_made(cluster, attempt):
        *gates, main = manifests(plan)
        _pass_gates(cluster, gates)
        cluster.apply(main)


def is_made(cluster: Cluster, attempt: AttemptRecord) -> bool:
    """Whether the cluster has the attempt's workflow or its gang.

    Raises:
        Foreign: what has its name belongs to another ledger.
        Unavailable, Refused.
    """
    name, ledger = labels.attempt_name(attempt.run, attempt.number), our_ledger()
    workflow = cluster.get("Workflow", name)
    refuse_foreign(workflow, ledger)
    jobset = cluster.get("JobSet", name)
    refuse_foreign(jobset, ledger)
    return workflow is not None or jobset is not None


def _pass_gates(cluster: Cluster, gates: list[Manifest]) -> None:
    """Send the gates of a gang too large for one workflow, and wait for all of them.

    A gate that fails leaves the main workflow out; the submission is refused with the gate's own message.
    """
    for gate in gates:
        found = cluster.get("Workflow", gate["metadata"]["name"])
        refuse_foreign(found, our_ledger())
        if found is None:
            cluster.apply(gate)
    waiting = {gate["metadata"]["name"] for gate in gates}
    while waiting:
        for event in cluster.watch("Workflow", timeout_seconds=10.0):
            name = event.object.get("metadata", {}).get("name", "")
            facts = workflow_of(event.object)
            if name in waiting and facts.phase in ("Failed", "Error"):
                raise Refused(name, f"the gate did not pass: {facts.message or facts.failed_steps[:4]}")
            waiting -= {name} if facts.phase == "Succeeded" else set()
            if not waiting:
                break


@touch("watches attempt {attempt.number}")
def watch_attempt(
    resolved: Resolved, attempt: AttemptRecord, until: Callable[[AttemptView, AttemptRecord], T | None]
) -> tuple[T, AttemptView]:
    """Wait until `until` says something about the attempt; progress goes to the ledger meanwhile.

    Nothing is concluded here; a cluster, coordinator or ledger that does not answer only makes the wait longer.
    """
    cluster = current()
    token = Remembered(lambda: attempt_token(cluster, attempt))
    notebook, room = Notebook(attempt, resolved.run), PoolRoom(resolved, attempt)
    second = SecondPath(cluster, resolved)
    with AttemptWatch(cluster, resolved, attempt, world().now, token, notebook.withheld, notebook.release) as watch:
        while True:
            view = second.look(room.look(notebook.with_requests(watch.wait(POLL_SECONDS))))
            let_coordinator_move(cluster, view)
            notebook.keep(watch, view)
            said = until(view, notebook.attempt)
            if said is not None:
                watch.ask_once()
                notebook.keep(watch, watch.view(), now_or_never=True)
                return said, view


class Notebook:
    """Writes what a watch sees into the ledger: rarely, in batches, and later where the ledger is away."""

    def __init__(self, attempt: AttemptRecord, wanted: RunProfile) -> None:
        self.attempt = attempt
        self._recovery = wanted.recovery
        self._removes = wanted.checkpoint.remove_surplus == "while_running"
        self._released = ""
        self._now = world().now
        """Of its own: those who ask the coordinator are threads without a world."""
        self._why_not: str | None = None
        self._saved_at = 0.0
        self._checked_at = 0.0
        self._stop = ""
        self._checkpoints: set[str] = set()
        self._corrected = False
        """Whether what the look before the attempt found was compared with what the ledger says."""
        self._moments: list[MarkRecord] = []
        self._news = IncidentWriter(attempt)

    def withheld(self) -> str | None:
        """Why the right to restart in place may not be used now, by the ledger; "": it may; None: not asked."""
        return self._why_not

    def release(self) -> str:
        """The ledger's identity while checkpoints that nobody needs may go; "": not, or nobody has looked lately."""
        return self._released if self._now() - self._checked_at < RELEASE_SECONDS else ""

    def with_requests(self, view: AttemptView) -> AttemptView:
        """The view with what a person asked for."""
        here = world()
        if here.now() - self._checked_at >= POLL_SECONDS:
            self._checked_at, self._released = here.now(), ""
            try:
                waiting = here.ledger.requests(self.attempt.run, open_only=True)
                mode, paused = here.ledger.automation(self.attempt.run)
                self._why_not = withheld(self._recovery, mode, paused=paused)
                if self._removes and not paused and mode is not Mode.OBSERVE and self._has_caught_up():
                    asked = here.ledger.approvals(self.attempt.run, waiting_only=True)
                    self._released = "" if asked else our_ledger()
            except Unavailable:
                return replace(view, stop_requested=self._stop)
            stop = next((item for item in waiting if item.kind == "stop"), None)
            self._stop = (stop.why or "a person asked for it") if stop else ""
            wakes = [item for item in waiting if item.kind == "wake"]
            if wakes:
                return replace(view, stop_requested=self._stop, woken=self._woken_by(wakes))
        return replace(view, stop_requested=self._stop)

    def _has_caught_up(self) -> bool:
        """Whether no checkpoint is forbidden any more to whoever resumes next.

        After a roll-back, and where one could not be loaded, proven ones lie there that nobody may resume from: they
        would count for those to keep, until this attempt has trained past them.
        """
        attempt = self.attempt
        if attempt.max_resume_step is None and not attempt.excluded_checkpoints:
            return True
        ledger = world().ledger
        found = standing(ledger.checkpoints(attempt.run))
        limit, excluded = forbidden(ledger.attempts(attempt.run), ((item.step, item.path) for item in found))
        return not excluded and (limit is None or limit >= max((item.step for item in found), default=0))

    def _woken_by(self, wakes: list[RequestRecord]) -> str:
        """Take the requests to look again; why the first of them was made."""
        here = world()
        for item in wakes:
            here.ledger.finish_request(here.fencing, item.run, item.id, here.now())
        return wakes[0].why or "somebody asked for it"

    def keep(self, watch: AttemptWatch, view: AttemptView, *, now_or_never: bool = False) -> None:
        """Save what is new."""
        here = world()
        changes = changes_of(self.attempt, view) | further(self.attempt, view)
        news = view.coordinator.news if view.coordinator is not None else GangNews()
        urgent = now_or_never or bool(changes) or self._news.is_new(news)
        if not urgent and here.now() - self._saved_at < SAVE_SECONDS:
            return
        try:
            rows = watch.take_steps()
            if rows:
                here.ledger.add_steps(self.attempt.run, self.attempt.number, rows, fencing=here.fencing)
                changes |= {"last_step": rows[-1].step, "last_step_at": rows[-1].at, "loss": rows[-1].loss}
            told = [item.last_step for item in watch.terminations() if item.last_step is not None]
            if now_or_never and told and max(told) > (rows[-1].step if rows else self.attempt.last_step or -1):
                changes["last_step"] = max(told)  # the coordinator ended before it could be asked once more
            if changes:
                self.attempt = here.ledger.update_attempt(
                    here.fencing, self.attempt.run, self.attempt.number, **changes
                )
            self._keep_checkpoints(watch)
            self._correct_checkpoints(view)
            self._keep_moments(watch)
            self._note_running(changes)
            self._news.keep(news)
        except Unavailable:
            return  # steps of this moment are read again from the run's folder
        self._saved_at = here.now()

    def _keep_checkpoints(self, watch: AttemptWatch) -> None:
        here = world()
        for item in watch.checkpoints():
            key = f"{item.path}@{item.at}"
            if key not in self._checkpoints:
                here.ledger.add_checkpoint(
                    here.fencing,
                    CheckpointRecord(
                        run=self.attempt.run,
                        step=item.step,
                        path=item.path,
                        attempt=self.attempt.number,
                        at=item.at,
                        verdict=VerdictWord(item.verdict),
                        why=item.why,
                        bytes=item.bytes,
                        format=item.format,
                    ),
                )
                self._checkpoints.add(key)

    def _correct_checkpoints(self, view: AttemptView) -> None:
        choice, here = view.workflow.choice, world()
        if self._corrected or choice is None:
            return
        attempt = self.attempt
        known = here.ledger.checkpoints(attempt.run)
        for record in corrections(attempt.run, attempt.number, attempt.planned_at, choice, known):
            here.ledger.add_checkpoint(here.fencing, record)
        note = note_of_put_aside(attempt, choice, here.now())
        if note is not None:
            self._news.tell(note)
        self._corrected = True

    def _keep_moments(self, watch: AttemptWatch) -> None:
        self._moments += watch.take_moments()
        here = world()
        here.ledger.add_marks(here.fencing, self._moments)
        self._moments = []

    def _note_running(self, changes: dict[str, object]) -> None:
        if "first_step" not in changes:
            return
        here, why = world(), f"attempt {self.attempt.number} makes progress"
        here.ledger.set_run_state(self.attempt.run, here.fencing, RunState.RUNNING, why)


@patient
def end_attempt(
    attempt: AttemptRecord, outcome: str, at: float, resume_proof: VerdictWord | None = None
) -> AttemptRecord:
    """Write down how the attempt ended, and whether its resume was proven."""
    here = world()
    here.ledger.add_marks(here.fencing, [MarkRecord(attempt.run, attempt.number, "ended", at, outcome)])
    return here.ledger.update_attempt(
        here.fencing, attempt.run, attempt.number, ended_at=at, outcome=outcome, resume_proof=resume_proof
    )


def plan_of(
    resolved: Resolved, attempt: AttemptRecord, fencing: int, ledger: str = "", lasts_seconds: int = 0
) -> AttemptPlan:
    """What the builders need of an attempt.

    It is driven by whoever has the number `fencing`, stands in the ledger of that identity, and the cluster ends it
    after `lasts_seconds` (0: it does not).
    """
    return AttemptPlan(
        resolved=resolved,
        run=attempt.run,
        attempt=attempt.number,
        nodes=attempt.nodes,
        avoid_nodes=attempt.avoid_nodes,
        max_resume_step=attempt.max_resume_step,
        excluded_checkpoints=attempt.excluded_checkpoints,
        fencing=fencing,
        ledger=ledger,
        returns=bool(attempt.incident),
        restarts_in_place=attempt.restarts_lent,
        mttf_seconds=attempt.mttf_seconds or 0.0,
        interval_steps=attempt.interval_steps,
        lasts_seconds=lasts_seconds,
    )


def ensure_token(cluster: Cluster, attempt: AttemptRecord) -> None:
    """The Secret without which nothing of the attempt starts.

    Raises:
        Foreign: the one of that name belongs to another ledger.
        Unavailable, Refused.
    """
    name, ledger = labels.secret_name(attempt.run, attempt.number), our_ledger()
    found = cluster.get("Secret", name)
    refuse_foreign(found, ledger)
    if found is None:
        secret: Manifest = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name, "labels": labels.labels(attempt.run, attempt.number, "train")},
            "type": "Opaque",
            "stringData": {"token": secrets.token_urlsafe(32)},
        }
        cluster.apply(signed(secret, ledger))


def attempt_token(cluster: Cluster, attempt: AttemptRecord) -> str:
    """The coordinator's token of an attempt; "" where its Secret is not there."""
    secret = cluster.get("Secret", labels.secret_name(attempt.run, attempt.number))
    data = (secret or {}).get("data", {}).get("token", "")
    return b64decode(data).decode() if data else str((secret or {}).get("stringData", {}).get("token", ""))


class Remembered:
    """A text asked for until it is there, then remembered."""

    def __init__(self, ask: Callable[[], str]) -> None:
        self._ask, self._text = ask, ""

    def __call__(self) -> str:
        """The text, "" while it is not known."""
        if not self._text:
            try:
                self._text = self._ask()
            except PrimusError:
                return ""
        return self._text


def changes_of(attempt: AttemptRecord, view: AttemptView) -> dict[str, object]:
    """Fields of the record that the view changes, by name."""
    changes: dict[str, object] = {}
    choice, coordinator = view.workflow.choice, view.coordinator
    if attempt.applied_at is None and view.jobset is not None:
        changes["applied_at"] = view.now
    if not attempt.resume_path and choice is not None and choice.resume_from:
        changes |= {"resumed_from_step": choice.resume_step, "resume_path": choice.resume_from}
    if attempt.running_at is None and view.pods and all(pod.phase == "Running" for pod in view.pods):
        changes["running_at"] = view.now
    nodes = tuple(sorted({pod.node for pod in view.pods if pod.node and pod.ranks}))
    if not attempt.nodes and nodes:
        changes["nodes"] = nodes
    if attempt.first_step is None and coordinator is not None and coordinator.first_step is not None:
        told = coordinator.first_step_at
        since = attempt.submitted_at or attempt.planned_at
        # Ranks on a node whose clock is wrong trained again when that was heard, not days ago or to come.
        right = told is not None and since - CLOCK_SECONDS <= told <= view.now + CLOCK_SECONDS
        changes |= {"first_step": coordinator.first_step, "first_step_at": told if right else view.now}
    restarts = 0 if coordinator is None else max((item.number for item in coordinator.news.restarts), default=0)
    if restarts > attempt.restarts_in_place:
        changes["restarts_in_place"] = restarts
    advised = None if coordinator is None else coordinator.news.advised_steps
    if advised is not None and not alike(advised, attempt.advised_steps):
        changes["advised_steps"] = advised
    return changes
