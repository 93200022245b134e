"""Whether a gang lives: where its coordinator is silent by its launchers' logs, and after restarts in place. Pure.

Nothing is recovered because the observer failed: silence alone ends nothing. Only a gang that its own logs show
standing still, for longer than any phase may, and of which the coordinator reports no progress either, counts as hung.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flows.decisions.recovery.resume_rule import prove_resume
from profiles.run import RunProfile
from profiles.vocabulary import VerdictWord
from workflows.model.attempt import AttemptView, CoordinatorFacts, SecondSight
from workflows.model.liveness import CALM, LOOK_SECONDS
from workflows.model.records import IncidentRecord, Story
from workflows.programs.coordinator.budgets import SECOND_WINDOW, HangLimits
from workflows.programs.launcher.options import STEPLESS

LOOKS = 2
"""One look says where a gang is, two say whether it goes on."""

RESTART_SECONDS = 10.0
"""A gang that may be restarted in place, or is being, is left alone for so long. Launchers hold five seconds for the
coordinator's word, which takes one at most; then processes start, by fork or as any program does."""

SILENT_SECONDS = 1.5
"""Launchers report every second: one that is later than the others by more is silent."""
NODE_SECONDS = 90.0
"""Kubernetes calls a silent node not ready after 40 s."""
NO_PROGRESS = "no progress for"
"""How a coordinator begins to say why a gang hangs."""


@dataclass(frozen=True)
class NoFinding:
    """Nothing to say: the coordinator answers, or the logs were not looked at often enough yet."""


@dataclass(frozen=True)
class Progressing:
    """Steps are made: the training is left alone."""

    why: str
    about: str
    """What makes it the same thing to be said, though its numbers grow."""


@dataclass(frozen=True)
class Undecided:
    """Not known: nothing is touched."""

    why: str
    about: str


@dataclass(frozen=True)
class Hung:
    """It stands still by two paths."""

    why: str


LivenessVerdict = NoFinding | Progressing | Undecided | Hung
Rule = Callable[[AttemptView, SecondSight, RunProfile], LivenessVerdict | None]


def judge(view: AttemptView, run: RunProfile) -> LivenessVerdict:
    """Whether a gang makes progress, hangs, or cannot be judged now; the first rule that says something counts."""
    second = view.second
    if second is None or second.looks < LOOKS:
        return NoFinding()
    found = (rule(view, second, run) for rule in RULES)
    return next(judged for judged in found if judged is not None)


def limit_seconds(second: SecondSight, run: RunProfile) -> float:
    """How long a gang must be seen standing still: longer than its coordinator would give any phase.

    Which phase it is in is not known for sure, so the longest counts; one that its log names (an evaluation) too.
    """
    hang, furthest = run.recovery.hang, second.furthest
    known = HangLimits(hang.init_seconds, hang.step_floor_seconds, hang.step_factor, hang.checkpoint_seconds)
    phases = {"init", "step", "checkpoint", furthest.phase if furthest is not None else "init"}
    first = max(hang.step_factor * second.longest_seconds, *map(known.of, phases))
    return first * (1 + SECOND_WINDOW) + run.recovery.observer_silence_seconds


def _progressing(view: AttemptView, second: SecondSight, run: RunProfile) -> LivenessVerdict | None:
    if not second.ever_moved or not _step_may_follow(view, second, run):
        return None
    why = f"{_silence(view, second)}; {_position(second)}: training continues"
    return Progressing(why, f"goes on {second.unheard_since:.3f}")


def _node_in_doubt(view: AttemptView, second: SecondSight, _: RunProfile) -> LivenessVerdict | None:
    """What becomes of a lost node is decided elsewhere, and of a log behind it nothing is known."""
    mine = {pod.node for pod in view.pods if pod.ranks}
    doubted = {node.name for node in view.nodes if node.name in mine and node.ready is not True} | {*second.unreached}
    if not doubted:
        return None
    names = ", ".join(sorted(doubted)[:4])
    why = f"{names} is not ready or not reachable: first it must be known whether the node is lost"
    return _undecided(view, second, why, names)


def _unread(view: AttemptView, second: SecondSight, _: RunProfile) -> LivenessVerdict | None:
    if not second.unread:
        return None
    pod, why = second.unread[0]
    return _undecided(view, second, f"the log of {pod} shows no step: {why}", f"{pod} {why}")


def _says_nothing(view: AttemptView, second: SecondSight, run: RunProfile) -> LivenessVerdict | None:
    """Logs without any step prove nothing: another rank may print them, or post them to the coordinator alone."""
    if run.progress.framework in STEPLESS:
        return _undecided(view, second, "its program prints no steps, so their absence proves nothing", "stepless")
    shows_steps = second.step is not None
    return None if shows_steps else _undecided(view, second, "no log read so far shows a step", "no steps")


def _hung(view: AttemptView, second: SecondSight, run: RunProfile) -> LivenessVerdict | None:
    limit, still = limit_seconds(second, run), _still_seconds(view, second)
    if still < limit:
        return None
    return Hung(
        f"no progress by either path: {_silence(view, second)}, and {_position(second)}, for {still:.0f} s; "
        f"limit {limit:.0f} s (the longest phase and its second window)"
    )


def _stands_still(view: AttemptView, second: SecondSight, run: RunProfile) -> LivenessVerdict | None:
    if _step_may_follow(view, second, run):
        return NoFinding()  # the next step may follow any moment
    limit = limit_seconds(second, run)
    why = f"{_position(second)}, for {_still_seconds(view, second):.0f} s; it counts as a hang after {limit:.0f} s"
    return _undecided(view, second, why, f"stands still {second.still_since}")


def _undecided(view: AttemptView, second: SecondSight, why: str, about: str) -> Undecided:
    return Undecided(f"{_silence(view, second)}, and {why}", f"held {second.unheard_since:.3f} {about}")


def _still_seconds(view: AttemptView, second: SecondSight) -> float:
    """For how long nothing was seen to be done, seconds."""
    return 0.0 if second.still_since is None else max(0.0, view.now - second.still_since)


def _step_may_follow(view: AttemptView, second: SecondSight, run: RunProfile) -> bool:
    """Whether the next step may just not have been seen yet: it is as long as they are, or was looked for rarely."""
    hang = run.recovery.hang
    longest = max(hang.step_floor_seconds, hang.step_factor * second.longest_seconds)
    return _still_seconds(view, second) < longest + LOOK_SECONDS * CALM


def _silence(view: AttemptView, second: SecondSight) -> str:
    seconds = max(0.0, view.now - second.unheard_since)
    state = "has heard no launcher" if second.deaf else "has not been heard"
    return f"the coordinator {state} for {seconds:.0f} s"


def _position(second: SecondSight) -> str:
    return "nothing is known about its ranks" if second.furthest is None else second.furthest.words


RULES: tuple[Rule, ...] = (_progressing, _node_in_doubt, _unread, _says_nothing, _hung, _stands_still)
"""In this order: that steps are made settles it; what could not be read settles nothing."""


def last_end(story: Story) -> IncidentRecord | None:
    """The newest incident but for those that its attempt lived on after; None: there was none."""
    ends = (item for item in reversed(story.incidents) if not item.went_on)
    return next(ends, None)


def broken(facts: CoordinatorFacts, now: float) -> bool:
    """Whether a rank has failed and nothing is left that haste could spoil.

    `now` is of the same clock as `facts.at`.
    While the coordinator may still restart the ranks in place the gang is not at its end: it decides, in a second, and
    says so by a restart or by an order to stop. But a restart that brings nobody up is no life either.
    """
    restarting = bool(facts.news.restarts) and facts.launched_at is None
    if not (facts.failed_ranks or restarting):
        return False
    if facts.failed_ranks and (facts.news.stopping or facts.news.left <= 0):
        return True
    since = facts.at if facts.failed_since is None else facts.failed_since
    return now - since >= RESTART_SECONDS


def hung(facts: CoordinatorFacts) -> str:
    """Why the gang counts as hung where its coordinator does nothing more about it; "": it does not.

    Either no right was lent, and a hang is only noted; or the right is used up or in doubt, and the gang was asked to
    stop because of it. While a launcher is silent as well, it may be its node that is lost: the cluster says so in
    less than a minute, and knows more.
    """
    news = facts.news
    if news.stopping:
        return news.stop_why if news.stop_why.startswith(NO_PROGRESS) else ""
    hang = news.hang
    if hang is None or not hang.confirmed or news.left > 0:
        return ""
    times = [at for _, _, at in facts.heard]
    silent = bool(times) and max(times) - min(times) > SILENT_SECONDS
    return "" if silent and hang.waited_seconds < NODE_SECONDS else hang.why


def started_over(facts: CoordinatorFacts, run: RunProfile) -> str:
    """Which restart in place did not go on from its checkpoint, and how that is known; "": all did, as far as known."""
    for restart in facts.news.restarts:
        proof, why = prove_resume(restart.resume_step, restart.first_step, run.checkpoint, run.progress.every_steps)
        if proof is VerdictWord.FAIL:
            return f"restart in place {restart.number}: {why}"
    return ""
