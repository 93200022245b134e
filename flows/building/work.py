"""The loop of every bootstrap: look, judge, carry out what does not hold, look again, until all of it holds.

It knows neither hosts nor engines: what is to hold is a plan, what holds is judged by a pure function from what a site
saw, and carrying out is the site's. Whoever is killed at any line begins again with a look.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, Protocol, TypeVar, assert_never

from flows.decisions.bootstrap.next_move import (
    CarryOutSteps,
    Halt,
    NextMove,
    Proven,
    holds,
    next_steps,
    step_outcomes,
    table_of,
)
from flows.decisions.bootstrap.summary import group_name
from flows.decisions.text import first_names
from profiles.bootstrap.request import BootstrapRequest
from profiles.cluster import ClusterProfile
from profiles.vocabulary import VerdictWord
from tasks.bootstrap.host_logs import log_step
from tasks.bootstrap.site import Hear, Site, StepBook, Tell, as_lines, pause
from tasks.context import world
from workflows.model.bootstrap import CLUSTER, LOOK, HostNews, NewsWord, Stage, Step, StepOutcome, StepProofs

Seen = TypeVar("Seen")
Result = TypeVar("Result")
Judge = Callable[[Sequence[Step], Seen], StepProofs]
SETTLE_SECONDS = 2.0
"""Between two looks at what was just carried out."""
SHOWN = 6
SILENCE_SECONDS = 60.0
"""So long a silent host is looked at again before a bootstrap stops for it: a reboot of a small machine."""


class Shown(Protocol):
    """How work appears on the pages of a flow run."""

    def __call__(self, name: str, work: Callable[[], Result], /) -> Result:
        """Do the work under this name."""
        ...


def directly(name: str, work: Callable[[], Result], /) -> Result:
    """Where no flow run shows it."""
    del name
    return work()


@dataclass(frozen=True)
class BootstrapOutcome:
    """How a bootstrap ended."""

    cluster: str
    verb: str
    word: Literal["done", "failed", "unknown"]
    why: str
    """In one line."""
    table: Mapping[str, Mapping[str, str]]
    """Hosts x stages: `pass`, `fail`, `unknown` or `not yet`."""
    steps: tuple[StepOutcome, ...]
    since: float
    """Unix seconds at which the command began."""
    notes: tuple[str, ...] = ()
    """What stands beside the steps: what pre-checks found, each once for all hosts that are alike; or differences."""
    folded: tuple[str, ...] = ()
    """Differences for people: each once for all hosts that are alike; empty: `notes` say it so already."""

    @property
    def said(self) -> tuple[str, ...]:
        """The notes as people read them."""
        return self.folded or self.notes


@dataclass
class Builder(Generic[Seen]):
    """One command's work on one cluster."""

    profile: ClusterProfile
    request: BootstrapRequest
    site: Site[Seen]
    judge: Judge[Seen]
    tell: Tell
    shown: Shown = directly
    joined: Callable[[Seen, Seen], Seen] = lambda before, fresh: fresh
    """What was seen of all hosts, and of some of them later -> what is known of all."""
    at_once: int = 50
    hear: Hear | None = None
    """Shows what hosts do; None: `tell` gets it, line by line."""
    book: StepBook = field(init=False)

    def __post_init__(self) -> None:
        self.book = StepBook(self.profile, world().now())
        self._hear: Hear = self.hear or as_lines(self.tell)
        self._begun: Stage | None = None

    def begin(self, hosts: Sequence[str], *, deep: bool = True) -> Seen:
        """The first look; `deep` where hosts are to be found fit."""
        self.tell(f"looking at {len(hosts)} host{'s'[: len(hosts) != 1]}")
        self.announce_look(hosts)
        return self.shown(f"looks at {len(hosts)} hosts", lambda: self.site.look(hosts, deep=deep))

    def sure(self, plan: Sequence[Step], seen: Seen, hosts: Sequence[str], *, deep: bool) -> Seen:
        """What is seen once it is known of each host whether it is fit, or nobody could tell for long enough.

        A host that is just starting, or a look that took too long, says nothing of the host: it is looked at again.
        What fails is told at once.
        """
        checks = [step for step in plan if step.stage is Stage.PRECHECKS]
        began, told = world().now(), ""
        while True:
            proofs = self.judge(checks, seen)
            open_steps = [step for step in checks if not holds(proofs, step.id)]
            unknown = all(
                proofs[step.id].word is VerdictWord.UNKNOWN and step.subject != CLUSTER for step in open_steps
            )
            if not open_steps or not unknown or world().now() - began >= SILENCE_SECONDS:
                return seen
            why = f"{open_steps[0].subject}: {proofs[open_steps[0].id].why}"
            if why != told:
                self.tell(f"waiting, at most {SILENCE_SECONDS:.0f} s: {why}")
            told = why
            pause(SETTLE_SECONDS)
            seen = self.site.look(hosts, deep=deep)

    def announce_look(self, hosts: Sequence[str]) -> None:
        """Whose turn to be looked at is still to come."""
        for name in hosts:
            self._hear(HostNews(name, LOOK, "not yet", "waits to be looked at"))

    def first(self, plan: Sequence[Step], seen: Seen) -> BootstrapOutcome:
        """What the first look says: what would be carried out, or which hosts are not fit; nothing is changed."""
        proofs = self.judge(plan, seen)
        for step in plan:
            if step.stage is Stage.PRECHECKS:
                self._hear(HostNews(step.subject, step.stage, proofs[step.id].word.value, proofs[step.id].why))
        unfit = {step.id: proofs[step.id] for step in plan if step.stage is Stage.PRECHECKS}
        unfit = {name: proof for name, proof in unfit.items() if proof.word is not VerdictWord.PASS}
        failed = {name: proof.why for name, proof in unfit.items() if proof.word is VerdictWord.FAIL}
        unknown = {name: proof.why for name, proof in unfit.items() if proof.word is VerdictWord.UNKNOWN}
        waiting = tuple(step.id for step in plan if not holds(proofs, step.id) and step.id not in unfit)
        move = next_steps(plan, proofs, self.book.records(), self.book.since, self.at_once)
        return self.outcome(plan, proofs, Halt(failed, unknown, waiting) if unfit else move)

    def denied(self, plan: Sequence[Step], seen: Seen, why: str) -> BootstrapOutcome:
        """How it ends where a person does not want the plan."""
        proofs = self.judge(plan, seen)
        outcome = self.outcome(plan, proofs, next_steps(plan, proofs, {}, self.book.since, self.at_once))
        return replace(outcome, word="failed", why=why)

    def carry_through(self, plan: Sequence[Step], seen: Seen) -> BootstrapOutcome:
        """Carry out whatever does not hold, until everything does or nothing more can be done by itself.

        Raises:
            Fenced: another process builds this cluster.
            Unavailable: the ledger does not answer.
        """
        silent_since: float | None = None
        waits_for = ""
        # Whether hosts are fit is asked once, deeply; a host that falls silent later was fit.
        others = [step for step in plan if step.stage is not Stage.PRECHECKS]
        checked = self.judge([step for step in plan if step.stage is Stage.PRECHECKS], seen)
        while True:
            proofs = {**checked, **self.judge(others, seen)}
            self.book.end(plan, proofs)
            records = self.book.records()
            match move := next_steps(plan, proofs, records, self.book.since, self.at_once):
                case Proven():
                    return self.outcome(plan, proofs, move)
                case Halt():
                    silent_since = silent_since or world().now()
                    late = world().now() - silent_since >= SILENCE_SECONDS
                    if late or not only_silent(move):
                        return self.outcome(plan, proofs, move)
                    if move.why != waits_for:
                        self.tell(f"waiting, at most {SILENCE_SECONDS:.0f} s: {move.why}")
                    waits_for = move.why
                    pause(SETTLE_SECONDS)
                    seen = self.again(seen, tuple({name.partition("/")[2] for name in move.unknown}))
                case CarryOutSteps(steps):
                    silent_since = None
                    self._announce(steps, plan, proofs)
                    seen = self.carry_out(steps, seen)
                case _:
                    assert_never(move)

    def carry_out(self, steps: tuple[Step, ...], seen: Seen) -> Seen:
        """Carry these out, and look until each of them holds or its time is over."""
        stages = " and ".join(dict.fromkeys(step.stage for step in steps))
        title = f"{stages} of {group_name([step.subject for step in steps])}"
        self.book.begin(steps)
        for step in steps:
            log_step(self.profile.name, step, "began", step.summary)
            self._say(step, "at work", step.summary, f"{step.subject}: {step.summary}")
        failed = self.shown(title, lambda: self.site.carry_out(steps, self.tell))
        known = {step.id: step for step in steps}
        for name, why in failed.items():
            said = f"failed: {why}"
            if name in known:
                self._say(known[name], "at work", said, f"{name} {said}")
            else:
                self.tell(f"{name} {said}")
        began = world().now()
        while True:
            seen = self.again(seen, tuple(step.subject for step in steps))
            proofs = self.judge(steps, seen)
            open_steps = [step for step in steps if not holds(proofs, step.id) and step.id not in failed]
            late = [proofs[step.id] for step in open_steps]
            silent = all(proof.word is VerdictWord.UNKNOWN for proof in late)
            for step in open_steps:
                self._say(step, "at work", f"waits until it holds: {proofs[step.id].why}")
            if not late or world().now() - began >= (SILENCE_SECONDS if silent else self.most_seconds):
                self._tell_ends(steps, proofs, failed)
                return seen
            pause(SETTLE_SECONDS)

    def _tell_ends(self, steps: Sequence[Step], proofs: StepProofs, failed: Mapping[str, str]) -> None:
        """What came of each, and for what does not hold in time the reason where one is known."""
        late = [step for step in steps if not holds(proofs, step.id) and step.id not in failed]
        reasons: Mapping[str, str] = self.site.explain(late) if late else {}
        for step in steps:
            why = failed.get(step.id) or proofs[step.id].why
            reason = f" ({reasons[step.id]})" if reasons.get(step.id) else ""
            word: NewsWord = proofs[step.id].word.value
            log_step(self.profile.name, step, word, f"{why}{reason}")
            self._say(step, word, f"{why}{reason}", f"{step.id}: {word}: {why}{reason}")

    def _announce(self, steps: Sequence[Step], plan: Sequence[Step], proofs: StepProofs) -> None:
        """Where a stage begins: whose turn in it is still to come."""
        stage, now = steps[0].stage, {step.id for step in steps}
        if stage is not self._begun:
            for step in plan:
                if step.stage is stage and step.id not in now and not holds(proofs, step.id):
                    self._say(step, "not yet", "waits for its turn")
        self._begun = stage

    def _say(self, step: Step, word: NewsWord, said: str, line: str = "") -> None:
        self._hear(HostNews(step.subject, step.stage, word, said, line))

    def again(self, seen: Seen, subjects: Sequence[str]) -> Seen:
        """What is known after a short look at these."""
        known = self.profile.bootstrap.hosts if self.profile.bootstrap is not None else {}
        hosts = [name for name in subjects if name in known] if CLUSTER not in subjects else list(known)
        return self.joined(seen, self.site.look(hosts, deep=False))

    @property
    def most_seconds(self) -> float:
        """So long a step may take to hold after it was carried out."""
        return self.profile.bootstrap.join_seconds if self.profile.bootstrap is not None else SILENCE_SECONDS

    def outcome(self, plan: Sequence[Step], proofs: StepProofs, move: NextMove) -> BootstrapOutcome:
        """How it ended, or would go on."""
        records = self.book.records()
        match move:
            case Proven():
                word, why = "done", f"all {len(plan)} steps hold"
            case CarryOutSteps(steps):
                missing = sum(not holds(proofs, step.id) for step in plan)
                first = first_names([step.id for step in steps], SHOWN)
                word, why = "done", f"{missing} of {len(plan)} steps do not hold yet; first would come {first}"
            case Halt():
                word = "failed" if move.failed or not move.unknown else "unknown"
                why = move.why
            case _:
                assert_never(move)
        table = table_of(plan, proofs, records)
        steps_seen = step_outcomes(plan, proofs, records, self.book.since)
        return BootstrapOutcome(self.profile.name, self.request.verb, word, why, table, steps_seen, self.book.since)


def only_silent(move: Halt) -> bool:
    """Whether it stops for nothing but hosts that were fit before and are silent now: they may come back."""
    return not move.failed and not any(name.startswith(f"{Stage.PRECHECKS}/") for name in move.unknown)
