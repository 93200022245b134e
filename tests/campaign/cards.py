"""The cards of a fault campaign: what is broken at one moment, what meets what, and how a run may have to give up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiles.vocabulary import FaultClass

Moment = Literal["step", "saving", "starting", "together", "recovering"]
"""The first fault of a strike: as soon as a step was seen, while a checkpoint is written, before the first step. Those
after it: at once, or as soon as the ledger knows of the incident."""


@dataclass(frozen=True)
class Fault:
    """One fault."""

    kind: str
    """As `primus drill` calls it; `corrupt-all`: every checkpoint."""
    rank: int | None = None
    """What is struck; of faults of nodes: the node that this rank is on."""
    moment: Moment = "step"
    silent: bool = False
    """Of a lost node: nobody writes a condition."""

    @property
    def label(self) -> str:
        """For people."""
        when = "" if self.moment in ("step", "together", "recovering") else f" while {self.moment}"
        return f"{self.kind}{',silent' if self.silent else ''}{'' if self.rank is None else f':{self.rank}'}{when}"


@dataclass(frozen=True)
class Ending:
    """A run that must end by giving up, with its last strikes."""

    name: str
    cards: tuple[str, ...]
    fault_class: FaultClass
    """Of the last incident."""
    words: str
    """That the run's reason must hold."""
    overrides: tuple[str, ...] = ()
    alone: bool = False
    """Nothing else is broken in that run."""
    in_place: bool = True
    """It may come with restarts in place."""


ALONE = (
    "kill-rank:R",
    "hang-rank:R",
    "slow-rank:R",
    "stop-rank:R",
    "nan-rank:R",
    "oom-rank:R",
    "lose-node:R",
    "lose-node,silent:R",
    "preempt-node:R",
    "kill-coordinator",
    "kill-launcher:R",
    "kill-flow",
    "disk-full",
    "api-away",
    "ledger-away",
    "corrupt-checkpoint",
)
TOGETHER = (
    "saving kill-rank:R",
    "saving kill-launcher:R",
    "saving lose-node:R",
    "saving kill-coordinator",
    "saving kill-flow",
    "starting kill-rank:R",
    "starting kill-launcher:R",
    "starting lose-node:R",
    "starting kill-flow",
    "kill-rank:R + kill-rank:S",
    "kill-rank:R + corrupt-checkpoint",
    "kill-rank:R + kill-coordinator",
    "kill-coordinator + lose-node:R",
    "lose-node:R + lose-node:S",
    "stop-rank:R + kill-rank:S",
    "kill-rank:R + api-away",
    "kill-rank:R + ledger-away",
    "hang-rank:R + kill-flow",
    "kill-rank:R > kill-rank:R",
    "kill-rank:R > kill-rank:S",
    "kill-rank:R > kill-flow",
    "kill-rank:R > lose-node:S",
    "lose-node:R > kill-flow",
    "lose-node:R > lose-node:S",
    "lose-node:R > api-away",
    "kill-launcher:R > kill-coordinator",
    "nan-rank:R > kill-flow",
)
"""`R` and `S`: one rank and the other; ` + `: at once; ` > `: while the run recovers."""
ENDINGS = (
    Ending("an exception of the program", ("exception-rank:R",), FaultClass.USER_CODE, "user_code"),
    Ending("no memory twice", ("oom-rank:R", "oom-rank:S"), FaultClass.HOST_OOM, "2 failures of this kind"),
    Ending(
        "a spent budget",
        ("kill-rank:R", "kill-rank:S"),
        FaultClass.PROCESS_KILLED,
        "budget of 1 restarts",
        ("recovery.restarts.tokens=1",),
        alone=True,
        in_place=False,
    ),
    Ending(
        "no good checkpoint",
        ("kill-rank:R + corrupt-all",),
        FaultClass.CHECKPOINT_CORRUPT,
        "checkpoint",
        in_place=False,
    ),
)


def faults_of(card: str, ranks: tuple[int, int]) -> tuple[Fault, ...]:
    """The faults on a card; `ranks`: what `R` and `S` stand for."""
    found: list[Fault] = []
    moment: Moment = "step"
    for word in card.split():
        if word == "+":
            moment = "together"
        elif word == ">":
            moment = "recovering"
        elif word in ("saving", "starting"):
            moment = word
        else:
            name, _, letter = word.partition(":")
            kind, _, silent = name.partition(",")
            found.append(Fault(kind, ranks["RS".index(letter)] if letter else None, moment, bool(silent)))
    return tuple(found)
