"""Cases of what our own probes tell of GPUs, storage and arithmetic: told by a stand-in, since there is no GPU here."""

from __future__ import annotations

from dataclasses import dataclass

from profiles.hardware import HardwareProfile
from tests.support.cases.rows import values
from tests.support.faults.cases import Case, check_of, good_answer, on_each
from tests.support.faults.changes import BOTH
from tests.support.faults.node import VirtualNode


@dataclass(frozen=True)
class Figure:
    """The check's probe tells one figure: that share of what passes, of one GPU; or that count."""

    check: str
    expect: str
    share: float | None = None
    count: float = 0.0
    kinds: tuple[str, ...] = BOTH

    def cases(self, name: str) -> list[Case]:
        """One for each kind."""
        own = check_of(self.check)
        probe, subject = own.probe.name if own.probe else "", "" if self.share is None else "gpu 3"

        def make(made: VirtualNode, hardware: HardwareProfile) -> None:
            limit = max((bound.figure for bound in own.bounds_on(hardware) if bound.figure), default=100.0)
            figure = self.count if self.share is None else self.share * limit
            made.answers[probe] = good_answer(probe, hardware, {(own.quantity, subject): figure})

        changed = f"{own.quantity}: {self.count:g}" if self.share is None else f"{subject}: {self.share:g} x the limit"
        return on_each(name, self.kinds, self.check, self.expect, make, changed)


FIGURES = values("faults/compute", "a_figure_beyond_its_limit", Figure)
CASES: tuple[Case, ...] = tuple(case for name, figure in FIGURES.items() for case in figure.cases(name))
