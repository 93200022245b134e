"""Trials of a run: its own program for a few steps, gang beside gang, on nodes that are held for it.

There are no retries and no recovery: a trial that dies is an answer, and the diagnosis of runs says what went wrong.
After a kill, the same test finds the same trials again; the cluster ends those that no test comes back for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.node_tests.grading.comparisons import History, laid, reach_days
from flows.decisions.node_tests.grading.history_arrays import DAY_SECONDS
from flows.decisions.node_tests.grading.model import NodeGrade
from flows.decisions.node_tests.trial import (
    CHECKS,
    Rate,
    Seating,
    TrialObservation,
    blamed_by,
    grades_of,
    in_a_line,
    is_good,
    merged,
    not_finite,
    not_seated,
    rates,
    rule_of,
    seat,
    seat_again,
    slow_alone,
    steps_done,
)
from flows.decisions.recovery.assess import Case, assess
from flows.decisions.recovery.nodes import refusal
from flows.testing.nodes import Outcome
from profiles.cluster import ClusterProfile
from profiles.errors import Conflict, PrimusError, ProfileError, Refused
from profiles.loading.load import resolve
from profiles.resolve import Resolved
from profiles.run import RunProfile
from profiles.vocabulary import FaultClass, VerdictWord
from tasks.context import world
from tasks.lease import driving, our_ledger
from tasks.node_tests.preflight import keep_verdicts
from tasks.nodes.holds import give_nodes_back, hold_nodes
from tasks.runs.trial import (
    Trial,
    TrialWatch,
    clear_others,
    clear_trial,
    close_trial,
    evidence_of,
    lines_told,
    make_trial,
    nodes_of_pool,
    open_trial,
    own_pods,
    watching,
)
from workflows import labels
from workflows.attempt.trial import lasts_seconds, steps_of, trial_key, tried
from workflows.model.attempt import AttemptView, Evidence, Signal
from workflows.model.records import StepRow, VerdictRecord

Tell = Callable[[str], None]
LOOK_SECONDS = 0.25

DEPTH = "training"
GANGS_AT_ONCE = 8
"""Side by side: each is watched by eight threads."""


@dataclass(frozen=True)
class _Ground:
    """What is tried."""

    resolved: Resolved
    """As it is tried."""
    key: str
    owner: str
    tell: Tell

    @property
    def size(self) -> int:
        """Nodes of one gang."""
        return self.resolved.run.deciding_role.replicas


def try_run(cluster: ClusterProfile, run: RunProfile, pools: Mapping[str, str], tell: Tell, owner: str = "") -> Outcome:
    """Try a run on nodes, gang by gang, and keep a verdict of depth `training` about each node.

    `pools`: nodes in the order in which gangs are made of them; those of other pools than the run takes are not
    tried. `owner`: of the holds; "": the trial itself.

    Raises:
        ProfileError: the run does not fit the cluster or these nodes, or cannot be tried; nothing was touched.
        Conflict: somebody else tries the same now.
        Unavailable: cluster or ledger do not answer; what was kept stands.
    """
    plain, began = resolve(run, cluster), world().now()
    own = of_pool(plain, pools)
    key = trial_key(plain, own, our_ledger())
    held_by = owner or labels.hold_owner(f"{labels.TRIAL}-{key}")
    ground = _Ground(tried(plain, held_by), key, held_by, tell)
    with driving(f"preflight/{cluster.name}/{labels.TRIAL}-{key}"):
        busy = _hold(ground, list(own))
        free = [node for node in own if node not in busy]
        try:
            for node, why in busy.items():
                tell(f"{node} is not tried: {why}")
            grades = _try(ground, free)
        finally:
            with suppress(PrimusError):  # if not, the holds end by themselves
                give_nodes_back(free, held_by)
    seconds = world().now() - began
    return Outcome(f"trial of {run.name}", DEPTH, grades, seconds, len(CHECKS), busy=busy)


def of_pool(resolved: Resolved, pools: Mapping[str, str]) -> dict[str, str]:
    """Those of the nodes (name -> pool) that the run may have: a run takes one pool, never a mixture.

    Raises:
        ProfileError: there is none.
    """
    wanted = resolved.pool.name
    found = {node: pool for node, pool in pools.items() if pool == wanted}
    if not found:
        raise ProfileError("nodes", f"none of them is of pool {wanted}, which run {resolved.run.name} takes")
    return found


def _hold(ground: _Ground, nodes: Sequence[str]) -> dict[str, str]:
    """Hold the nodes on which a gang could start; those that are not held, and why."""
    profile = ground.resolved.cluster
    known = nodes_of_pool(ground.resolved)
    unfit: dict[str, str] = {}
    for node in nodes:
        found = known.get(node)
        why = refusal(replace(found, verdict=VerdictWord.UNKNOWN, busy="")) if found else "no such node now"
        unfit |= {node: why} if why else {}
    free = [node for node in nodes if node not in unfit]
    least = float(lasts_seconds(ground.resolved.run))
    return unfit | hold_nodes(profile, free, ground.owner, least_seconds=least, own=own_pods(ground.key))


def _try(ground: _Ground, nodes: Sequence[str]) -> dict[str, NodeGrade]:
    """Every node once, and once more those that gave no answer, beside nodes that passed."""
    first = seat(nodes, ground.size)
    grades = _all_gangs(ground, first)
    again = seat_again(grades, first.rest, ground.size)
    if again.gangs:
        grades = merged(grades, _all_gangs(ground, again))
    short = f"{ground.size} nodes make a gang, and too few passed to fill it up"
    lonely = {node: not_seated(node, short) for node in again.rest if node not in grades}
    _keep(ground, lonely)
    return {node: (grades | lonely)[node] for node in nodes}


def _all_gangs(ground: _Ground, seating: Seating) -> dict[str, NodeGrade]:
    found: dict[str, NodeGrade] = {}
    for begin in range(0, len(seating.gangs), GANGS_AT_ONCE):
        gangs = seating.gangs[begin : begin + GANGS_AT_ONCE]
        _hold(ground, [node for gang in seating.gangs[begin:] for node in gang])  # for longer: gangs before took time
        found = merged(found, _side_by_side(ground, gangs))
    return found


def _side_by_side(ground: _Ground, gangs: Sequence[tuple[str, ...]]) -> dict[str, NodeGrade]:
    """Run some gangs at the same time, to their end: nothing of them is left, and their verdicts are kept."""
    trials = [open_trial(ground.resolved, ground.key, gang) for gang in gangs]
    try:
        clear_others(ground.resolved, ground.key, trials)
        seen = follow(ground.resolved.run, trials, ground.tell)
        floor = ground.resolved.run.trial.at_least_steps_per_second
        found: list[Rate] = rates(seen, floor, _past(ground, gangs))
        judged = [_with_lines(ground, *both) for both in zip(trials, seen, found, strict=True)]
    finally:
        for trial in trials:
            with suppress(Conflict):  # an object of its name that is not ours
                clear_trial(trial)
    grades: dict[str, NodeGrade] = {}
    for one, rate in zip(judged, found, strict=True):
        grades |= grades_of(one, rate)
        ground.tell(f"{', '.join(one.nodes[:4])}: {'good' if is_good(one, rate) else 'not good'}")
    _keep(ground, grades)
    for trial in trials:
        close_trial(trial)
    return grades


def _with_lines(ground: _Ground, trial: Trial, seen: TrialObservation, rate: Rate) -> TrialObservation:
    """The observation with what ranks print: NaN, and the rank that holds up a gang that is too slow."""
    if seen.ended:
        return seen
    evidence = lines_told(trial)
    diagnosis = diagnose(evidence)
    if diagnosis.fault_class is FaultClass.NUMERIC:
        return replace(seen, lost=in_a_line(diagnosis))
    if rate.verdict is not VerdictWord.FAIL:
        return seen
    floor = ground.resolved.run.trial.at_least_steps_per_second
    named = blamed_by(diagnosis, seen.nodes, homes_of(evidence)) or slow_alone(seen, rate, floor)
    return replace(seen, blamed=named)


def _past(ground: _Ground, gangs: Sequence[tuple[str, ...]]) -> History:
    """The past of the first node of each gang."""
    run = ground.resolved.run
    rules, nodes, now = (
        [rule_of(run.name, run.trial.at_least_steps_per_second)],
        sorted(gang[0] for gang in gangs),
        world().now(),
    )
    looks = world().ledger.looks(ground.resolved.cluster.name, nodes, now - reach_days(rules) * DAY_SECONDS)
    return laid(looks, rules, nodes, now)


def _keep(ground: _Ground, grades: Mapping[str, NodeGrade]) -> None:
    cluster, now = ground.resolved.cluster.name, world().now()
    source = f"preflight trial of {ground.resolved.run.name}"
    records = [
        VerdictRecord(cluster, node, one.verdict, DEPTH, now, one.reasons, source) for node, one in grades.items()
    ]
    if records:
        keep_verdicts(records)


def follow(run: RunProfile, trials: Sequence[Trial], tell: Tell) -> list[TrialObservation]:
    """Begin all trials, then watch them side by side until each has ended.

    Raises:
        Unavailable: the ledger does not answer. A cluster that does not is waited for until the deadline.
    """
    limit = world().now() + run.trial.deadline_seconds
    ended: dict[int, TrialObservation] = {}
    with ExitStack() as stack:
        watches: dict[int, TrialWatch] = {}
        for number, trial in enumerate(trials):
            if (refused := _refused(trial)) is not None:
                ended[number] = refused
            else:
                watches[number] = stack.enter_context(watching(trial))
        steps_by_gang: dict[int, int] = {}
        while open_ones := [number for number in watches if number not in ended]:
            for number in open_ones:
                view = watches[number].look(LOOK_SECONDS / len(open_ones))
                if (seen := _look(trials[number], watches[number], view, limit)) is not None:
                    ended[number] = seen
            steps_by_gang = _progress(run, watches, steps_by_gang, tell)
    return [ended[number] for number in range(len(trials))]


def _progress(
    run: RunProfile, watches: Mapping[int, TrialWatch], steps_by_gang: dict[int, int], tell: Tell
) -> dict[int, int]:
    """Say how far each gang is, where that changed."""
    now = {number: steps_done(watch.rows, run.progress.every_steps) for number, watch in watches.items()}
    if now != steps_by_gang and any(now.values()):
        wanted = steps_of(run)
        tell(f"steps seen, of {wanted}: {', '.join(str(min(count, wanted)) for count in now.values())}")
    return now


def _refused(trial: Trial) -> TrialObservation | None:
    """Begin the trial; the observation where the cluster does not take it."""
    try:
        make_trial(trial)
    except (Refused, Conflict) as error:
        return _observation(trial, (), f"the cluster does not take it: {error}")
    return None


def _look(trial: Trial, watch: TrialWatch, view: AttemptView, limit: float) -> TrialObservation | None:
    """The observation where the trial has ended; None: it goes on."""
    run = trial.resolved.run
    enough = steps_done(watch.rows, run.progress.every_steps) >= steps_of(run)
    if enough and not_finite(watch.rows) is None:
        return _observation(trial, watch.rows)
    finding = assess(view, Case(trial.resolved, trial.attempt))
    late = "" if finding is not None or world().now() < limit else _silence(trial, view)
    if finding is None and not late:
        return None
    watch.last_look()
    if late:
        return _observation(trial, watch.rows, late)
    if finding is None or finding.signal is None:
        ended = steps_done(watch.rows, run.progress.every_steps) < steps_of(run)
        return _observation(trial, watch.rows, "the program ended by itself with exit code 0" if ended else "")
    return _diagnosed(trial, watch, evidence_of(trial, finding.signal, finding.why, not_finite(watch.rows)))


def _silence(trial: Trial, view: AttemptView) -> str:
    """Why nothing came within the deadline, as far as anything says so."""
    why = view.away or view.unplaced or ("its gang never began" if not view.pods else "")
    return f"not enough steps within {trial.resolved.run.trial.deadline_seconds:g} s" + (f": {why}" if why else "")


def _diagnosed(trial: Trial, watch: TrialWatch, evidence: Evidence) -> TrialObservation:
    diagnosis = diagnose(evidence)
    seen = _observation(trial, watch.rows, in_a_line(diagnosis))
    if evidence.signal is Signal.NUMERIC and not_finite(seen.rows) is not None:
        seen = replace(seen, ended=f"loss not finite at step {not_finite(seen.rows)}")
    return replace(seen, blamed=blamed_by(diagnosis, seen.nodes, homes_of(evidence)))


def _observation(trial: Trial, rows: Sequence[StepRow], ended: str = "") -> TrialObservation:
    run = trial.resolved.run
    return TrialObservation(
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
