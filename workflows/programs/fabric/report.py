"""Reports of members of a group or a pair, small enough for a workflow's status."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Optional, Tuple

SOCKETS, GPUS = "sockets", "gpus"
WHY_CHARACTERS = 240
MOST_MISSED = 16


@dataclass(frozen=True)
class GangReport:
    """One member's answer."""

    node: str
    group: int
    rank: int
    at: float
    """When it began, Unix seconds."""
    by: str = SOCKETS
    """`gpus`: a collective library moved data between GPUs. `sockets`: our own ring over TCP did."""
    rails: Optional[Tuple[float, ...]] = None
    """GB/s of each rail `[rails]` as this member saw it: bus bandwidth of the all-reduce; where one machine stands for
    several nodes, its own hop of the ring by itself. None: no answer, see `why`."""
    all_reduce: Optional[float] = None
    """GB/s, bus bandwidth over all rails."""
    all_to_all: Optional[float] = None
    """GB/s, likewise; None: not made."""
    wrong: int = 0
    """Values or parts that were not what they should be."""
    missed: Tuple[int, ...] = ()
    """Ranks that did not come, ended or fell silent; at most `MOST_MISSED`."""
    why: str = ""
    """Why there is no answer."""
    notes: str = ""
    """Remarks, such as that a machine is shared or that something was left out."""
    seconds: float = 0.0

    def text(self) -> str:
        """One line of JSON."""
        plain = asdict(self)
        plain.update(why=self.why[:WHY_CHARACTERS], notes=self.notes[:WHY_CHARACTERS], missed=self.missed[:MOST_MISSED])
        return json.dumps(plain, separators=(",", ":"))


def parse_report(text: str) -> GangReport:
    """The report in `text`; raises ValueError where it is something else."""
    try:
        plain: Any = json.loads(text)
        rails = plain["rails"]
        return GangReport(
            node=str(plain["node"]),
            group=int(plain["group"]),
            rank=int(plain["rank"]),
            at=float(plain["at"]),
            by=str(plain["by"]),
            rails=None if rails is None else tuple(float(one) for one in rails),
            all_reduce=_figure(plain["all_reduce"]),
            all_to_all=_figure(plain["all_to_all"]),
            wrong=int(plain["wrong"]),
            missed=tuple(int(one) for one in plain["missed"]),
            why=str(plain["why"]),
            notes=str(plain["notes"]),
            seconds=float(plain["seconds"]),
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no report of a member: {type(error).__name__}: {error}") from error


@dataclass(frozen=True)
class PairReport:
    """One node's answer."""

    node: str
    group: int
    rank: int
    at: float
    """When it began, Unix seconds."""
    partner: str = ""
    """Node of its partner; "": none came."""
    answers: str = ""
    """Output of each call in which it was the client, from `probes.run.pack_answers`; absent calls were not made."""
    why: str = ""
    """Why calls are missing; "" where none is."""
    notes: str = ""
    """Remarks, such as that one machine stands for both nodes."""
    seconds: float = 0.0

    def text(self) -> str:
        """One line of JSON."""
        plain = asdict(self)
        plain.update(why=self.why[:WHY_CHARACTERS])
        return json.dumps(plain, separators=(",", ":"))


def parse_pair_report(text: str) -> PairReport:
    """The report in `text`; raises ValueError where it is something else."""
    try:
        plain: Any = json.loads(text)
        return PairReport(
            node=str(plain["node"]),
            group=int(plain["group"]),
            rank=int(plain["rank"]),
            at=float(plain["at"]),
            partner=str(plain["partner"]),
            answers=str(plain["answers"]),
            why=str(plain["why"]),
            notes=str(plain["notes"]),
            seconds=float(plain["seconds"]),
        )
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"no report of a node of a pair: {type(error).__name__}: {error}") from error


def _figure(value: Any) -> Optional[float]:
    return None if value is None else float(value)
