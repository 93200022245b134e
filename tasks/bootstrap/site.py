"""The one seam between a bootstrap and the world: who looks at hosts and cluster, and who carries out steps."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from profiles.cluster import ClusterProfile
from tasks.context import world
from workflows.model.bootstrap import HostNews, Step, StepProofs, StepRecord, builder_of
from workflows.model.records import ApprovalRecord

Tell = Callable[[str], None]
Hear = Callable[[HostNews], None]
"""Whoever shows what hosts do while they do it; it may be called from several threads."""
Seen_co = TypeVar("Seen_co", covariant=True)
LOOK_SECONDS = 0.5
"""Between two looks for a person's answer."""
YES_SECONDS = 3600.0
"""So long a yes counts for the same plan: who was killed while carrying it out is not asked again."""


def as_lines(tell: Tell, *, details: bool = True) -> Hear:
    """Tells what happens at hosts line by line; without `details` only what is begun there, and what came of it."""

    def hear(news: HostNews) -> None:
        if news.line and (details or news.stage):
            tell(news.line)

    return hear


def unheard(news: HostNews) -> None:
    """Nobody watches."""
    del news


class Site(Protocol[Seen_co]):
    """Hosts and their cluster, as a bootstrap touches them."""

    def look(self, hosts: Collection[str], *, deep: bool) -> Seen_co:
        """What is seen now of these hosts and of the cluster; `deep`: also who reaches whom, and how fast disks are.

        A host that does not answer is part of what was seen, never an error.
        """
        ...

    def carry_out(self, steps: Sequence[Step], tell: Tell) -> Mapping[str, str]:
        """Carry out these steps side by side; the ids of those that failed, with the innermost tool's own words.

        Nothing follows from that a step is missing here: only its proof tells whether it holds.
        """
        ...

    def explain(self, steps: Sequence[Step]) -> Mapping[str, str]:
        """Why steps that were carried out do not hold in time, by their ids, where that can be told in one line."""
        ...


@dataclass(frozen=True)
class StepBook:
    """What the ledger keeps of one command's steps."""

    profile: ClusterProfile
    since: float
    """Unix seconds at which the command began."""

    def records(self) -> dict[str, StepRecord]:
        """Every step that was ever begun or proven here, by id."""
        return world().ledger.bootstrap_steps(self.profile.name)

    def begin(self, steps: Sequence[Step]) -> None:
        """Write that these are carried out now, before any of it is done."""
        here = world()
        here.ledger.begin_steps(self.profile.name, steps, here.fencing, here.now(), self.since)

    def end(self, steps: Sequence[Step], proofs: StepProofs) -> None:
        """Write what proofs say."""
        here = world()
        here.ledger.end_steps(self.profile.name, steps, proofs, here.fencing, here.now())

    def ask(self, plan: str, question: str, tell: Tell) -> ApprovalRecord:
        """Ask a person whether a plan is carried out, and wait for the answer. No answer in time means no.

        `plan` is its fingerprint: a command that was killed asks the same question, or has its answer. A no, and a yes
        of long ago, are of another day: the same plan is asked about anew.
        """
        here, run = world(), builder_of(self.profile.name)
        before = [one for one in here.ledger.approvals(run) if one.id.startswith(f"{run}-{plan}-")]
        number = len(before) + (not before or not _still_counts(before[-1], here.now()))
        expires_at = here.now() + self.profile.monitor.approval_timeout_seconds
        identity = f"{run}-{plan}-{number}-approval"
        record = ApprovalRecord(identity, run, "", question, "waiting", here.now(), expires_at)
        asked = here.ledger.ask(here.fencing, record)
        if asked.state == "waiting":
            tell(f'waiting for a person: {question} primus approve {identity} --why "..." (or deny)')
        while asked.state == "waiting":
            pause(LOOK_SECONDS)
            late = here.now() >= asked.expires_at
            asked = here.ledger.expire(asked.id, here.now()) if late else here.ledger.approval(asked.id) or asked
        return asked


def _still_counts(asked: ApprovalRecord, now: float) -> bool:
    if asked.state == "waiting":
        return now < asked.expires_at
    return asked.state == "approved" and now < (asked.answered_at or 0.0) + YES_SECONDS


def pause(seconds: float) -> None:
    """Rest between two looks."""
    threading.Event().wait(seconds)
