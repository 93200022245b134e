"""Trials of a run watched side by side to their ends, and what went wrong with each said by the diagnosis of runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from flows.decisions.assess import Case, assess
from flows.decisions.diagnose import diagnose
from flows.decisions.trial import TrialSeen, blamed_by, done, in_a_line, not_finite
from profiles.errors import Conflict, Refused
from profiles.run import RunProfile
from tasks.trialling import Trial, TrialWatch, evidence_of, make_trial, watching
from tasks.world import world
from workflows.evidence import AttemptView, Evidence, Signal
from workflows.records import StepRow
from workflows.trial import steps_of

Tell = Callable[[str], None]
LOOK_SECONDS = 0.25


def follow(run: RunProfile, trials: Sequence[Trial], tell: Tell) -> list[TrialSeen]:
    """Begin all, then watch them side by side until each was seen to its end.

    Args:
        run: as it is tried.
        trials: one a gang.
        tell: gets a line when steps were seen.

    Raises:
        Unavailable: the ledger does not answer. A cluster that does not is waited for until the deadline.
    """
    limit = world().now() + run.trial.deadline_seconds
    ended: dict[int, TrialSeen] = {}
    with ExitStack() as stack:
        watches: dict[int, TrialWatch] = {}
        for number, trial in enumerate(trials):
            if (refused := _refused(trial)) is not None:
                ended[number] = refused
            else:
                watches[number] = stack.enter_context(watching(trial))
        told: dict[int, int] = {}
        while open_ones := [number for number in watches if number not in ended]:
            for number in open_ones:
                view = watches[number].look(LOOK_SECONDS / len(open_ones))
                if (seen := _look(trials[number], watches[number], view, limit)) is not None:
                    ended[number] = seen
            told = _progress(run, watches, told, tell)
    return [ended[number] for number in range(len(trials))]


def _progress(run: RunProfile, watches: Mapping[int, TrialWatch], told: dict[int, int], tell: Tell) -> dict[int, int]:
    """Say how far each gang is, where that changed."""
    now = {number: done(watch.rows, run.progress.every_steps) for number, watch in watches.items()}
    if now != told and any(now.values()):
        wanted = steps_of(run)
        tell(f"steps seen, of {wanted}: {', '.join(str(min(count, wanted)) for count in now.values())}")
    return now


def _refused(trial: Trial) -> TrialSeen | None:
    """Begin it; what is known where the cluster does not take it."""
    try:
        make_trial(trial)
    except (Refused, Conflict) as error:
        return _seen(trial, (), f"the cluster does not take it: {error}")
    return None


def _look(trial: Trial, watch: TrialWatch, view: AttemptView, limit: float) -> TrialSeen | None:
    """What was seen where it is at its end; None: it goes on."""
    run = trial.resolved.run
    enough = done(watch.rows, run.progress.every_steps) >= steps_of(run)
    if enough and not_finite(watch.rows) is None:
        return _seen(trial, watch.rows)
    finding = assess(view, Case(trial.resolved, trial.attempt))
    late = "" if finding is not None or world().now() < limit else _silence(trial, view)
    if finding is None and not late:
        return None
    watch.last_look()
    if late:
        return _seen(trial, watch.rows, late)
    if finding is None or finding.signal is None:
        ended = done(watch.rows, run.progress.every_steps) < steps_of(run)
        return _seen(trial, watch.rows, "the program ended by itself with exit code 0" if ended else "")
    return _diagnosed(trial, watch, evidence_of(trial, finding.signal, finding.why, not_finite(watch.rows)))


def _silence(trial: Trial, view: AttemptView) -> str:
    """Why nothing came within the deadline, as far as anybody says so."""
    why = view.away or view.unplaced or ("its gang never began" if not view.pods else "")
    return f"not enough steps within {trial.resolved.run.trial.deadline_seconds:g} s" + (f": {why}" if why else "")


def _diagnosed(trial: Trial, watch: TrialWatch, evidence: Evidence) -> TrialSeen:
    said = diagnose(evidence)
    seen = _seen(trial, watch.rows, in_a_line(said))
    if evidence.signal is Signal.NUMERIC and not_finite(seen.rows) is not None:
        seen = replace(seen, ended=f"loss not finite at step {not_finite(seen.rows)}")
    return replace(seen, blamed=blamed_by(said, seen.nodes, homes_of(evidence)))


def _seen(trial: Trial, rows: Sequence[StepRow], ended: str = "") -> TrialSeen:
    run = trial.resolved.run
    return TrialSeen(
        run=run.name,
        nodes=trial.attempt.nodes,
        steps=steps_of(run),
        rows=tuple(rows),
        every_steps=run.progress.every_steps,
        skip_steps=run.trial.skip_steps,
        ended=ended,
    )


def homes_of(evidence: Evidence) -> dict[int, str]:
    """Rank -> its node."""
    return {rank: pod.node for pod in evidence.pods for rank in pod.ranks}
