"""The trial of one gang: begun or taken up again, watched, looked at where it went wrong, and cleared away.

A trial is a run that no ledger knows: its objects are those of an attempt, their name is written down before anything
is made, and the cluster itself ends them if no process comes back. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from profiles.errors import NotFound
from profiles.resolve import Resolved
from profiles.vocabulary import Mode, RunState
from tasks.cluster import current
from tasks.context import world
from tasks.lease import our_ledger
from tasks.nodes.sweep import take_number
from tasks.runs.actions import node_candidates
from tasks.runs.evidence import gather, lines_of
from tasks.runs.examine import leave_nothing
from tasks.runs.submit import Remembered, attempt_token, ensure_token, is_made, make_or_adopt, plan_of
from tasks.runs.watch import AttemptWatch
from workflows import labels
from workflows.attempt.gang_pods import PIPELINE
from workflows.attempt.trial import gang_key, lasts_seconds
from workflows.model.attempt import AttemptView, Evidence, Signal
from workflows.model.fleet import NodeCandidate
from workflows.model.manifest import seconds
from workflows.model.ownership import is_foreign
from workflows.model.records import AttemptRecord, IncidentRecord, RunRecord, StepRow, Story

Own = Callable[[str], bool]

OLD_SECONDS = 6 * 3600.0
"""No trial lasts so long: `deadline_seconds` is at most four hours."""
LINE_PODS = 64
"""Of so many pods of a slow gang the logs are read."""


@dataclass(frozen=True)
class Trial:
    """The trial of one gang."""

    resolved: Resolved
    """As it is tried (`workflows.attempt.trial.tried`)."""
    attempt: AttemptRecord
    cursor: str
    """Where its number is written down."""

    @property
    def number(self) -> int:
        """Its number."""
        return int(self.attempt.run.rpartition("-")[2])


def open_trial(resolved: Resolved, key: str, nodes: tuple[str, ...]) -> Trial:
    """Write a trial of this gang down, or find the one whose objects still live.

    `key` is that of the whole test (`workflows.attempt.trial.trial_key`); nodes stand in the order of ranks.

    Raises:
        Unavailable: ledger or cluster do not answer.
    """
    here, cluster = world(), resolved.cluster.name
    cursor = f"{labels.TRIAL}/{cluster}/{key}/{gang_key(nodes)}"
    begun, read = here.ledger.cursor(cursor), here.ledger.cursor(f"{cursor}/read")
    if begun is not None and (read is None or read.position < begun.position):
        trial = Trial(resolved, _attempt(key, begun.position, nodes, here.now()), cursor)
        if is_made(current(), trial.attempt):
            return trial
        clear_trial(trial)  # it was cleared away, or only its Secret was made: its folder may hold steps already
    number = take_number(f"{labels.TRIAL}/{cluster}")
    here.ledger.move_cursor(cursor, number, here.now())
    return Trial(resolved, _attempt(key, number, nodes, here.now()), cursor)


def _attempt(key: str, number: int, nodes: tuple[str, ...], now: float) -> AttemptRecord:
    name = labels.trial_name(key, number)
    return AttemptRecord(run=name, number=1, planned_at=now, why="a trial", nodes=nodes, submitted_at=now)


def close_trial(trial: Trial) -> None:
    """Its verdicts stand: the next one gets a number of its own.

    Raises:
        Unavailable: the ledger does not answer; the next one finds no objects and gets a number of its own too.
    """
    world().ledger.move_cursor(f"{trial.cursor}/read", trial.number, world().now())


def make_trial(trial: Trial) -> None:
    """Create its objects, or adopt them; after its deadline and a margin the cluster ends them by itself.

    Raises:
        Unavailable, Refused, ProfileError.
    """
    resolved, attempt, cluster = trial.resolved, trial.attempt, current()
    ensure_token(cluster, attempt)
    lasts = lasts_seconds(resolved.run)
    make_or_adopt(cluster, attempt, plan_of(resolved, attempt, world().fencing, our_ledger(), lasts))


def clear_trial(trial: Trial) -> None:
    """Leave no object of it, and wait until its pods are gone.

    Raises:
        Conflict: objects of its name are not ours.
    """
    leave_nothing.fn(trial.resolved, trial.attempt, keep_completed=False)


def clear_others(resolved: Resolved, key: str, keep: Sequence[Trial]) -> None:
    """End what earlier lives left: trials of this test whose gangs are other ones now, and very old ones of any test.

    Raises:
        Unavailable, Refused.
    """
    kept = {trial.attempt.run for trial in keep}
    mine = f"{labels.TRIAL}-{key}-"
    now, found = world().now(), dict[str, float]()
    for kind in ("JobSet", "Workflow"):
        for item in current().list(kind, {labels.PIPELINE: PIPELINE}):
            if is_foreign(item, our_ledger()):
                continue
            run = str(item["metadata"].get("labels", {}).get(labels.RUN, ""))
            found[run] = seconds(item["metadata"].get("creationTimestamp")) or now
    for run, made_at in sorted(found.items()):
        if labels.is_trial(run) and run not in kept and (run.startswith(mine) or now - made_at > OLD_SECONDS):
            attempt = AttemptRecord(run=run, number=1, planned_at=now, why="left")
            clear_trial(Trial(resolved, attempt, ""))


class TrialWatch:
    """What is seen of one trial. Made by `watching`."""

    def __init__(self, watch: AttemptWatch) -> None:
        self._watch = watch
        self.rows: list[StepRow] = []

    def look(self, timeout_seconds: float) -> AttemptView:
        """The view after the next change or `timeout_seconds`; `rows` hold every step that was reported until then."""
        view = self._watch.wait(timeout_seconds)
        self.rows += self._watch.take_steps()
        return view

    def last_look(self) -> AttemptView:
        """The same, once the coordinator was asked once more."""
        self._watch.ask_once()
        return self.look(0.0)


@contextmanager
def watching(trial: Trial) -> Generator[TrialWatch]:
    """Watch it inside the block."""
    cluster = current()
    token = Remembered(lambda: attempt_token(cluster, trial.attempt))
    with AttemptWatch(cluster, trial.resolved, trial.attempt, world().now, token) as watch:
        yield TrialWatch(watch)


def evidence_of(trial: Trial, signal: Signal, why: str, step: int | None) -> Evidence:
    """Everything that is known of how it went wrong."""
    now, attempt = world().now(), trial.attempt
    incident = IncidentRecord(
        id=f"{attempt.run}-i1", run=attempt.run, attempt=1, at=now, detected_at=now, signal=str(signal), step=step
    )
    return gather.fn(trial.resolved, attempt, replace(incident, evidence=(why,)), _story(trial, now))


def lines_told(trial: Trial) -> Evidence:
    """What the ranks of a gang print that lives: some trainers say who holds up the others."""
    found = evidence_of(trial, Signal.LOGS, "", None)
    lines = list(found.lines)
    for pod in [pod for pod in found.pods if pod.ranks][:LINE_PODS]:
        with suppress(NotFound):
            lines += lines_of(current(), pod)
    return replace(found, lines=tuple(lines))


def _story(trial: Trial, now: float) -> Story:
    profile, cluster = trial.resolved.run, trial.resolved.cluster
    run = RunRecord(
        name=trial.attempt.run,
        state=RunState.RUNNING,
        why="a trial",
        profile=profile.name,
        resolved={},
        digest="",
        cluster=cluster.name,
        mode=Mode.ACT,
        created_at=now,
    )
    return Story(run, (trial.attempt,))


def nodes_of_pool(resolved: Resolved) -> dict[str, NodeCandidate]:
    """Every node of the run's pool with what is known of it."""
    return {node.name: node for node in node_candidates(resolved, "", 0)}


def own_pods(key: str) -> Own:
    """Whether a run of that name is a trial of this test."""
    return lambda run: run.startswith(f"{labels.TRIAL}-{key}-") and labels.is_trial(run)
