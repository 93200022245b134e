"""What one member of a group or of a pair tells, small enough for a workflow's status.

Standard library only, Python 3.9.
"""

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
    """What else is worth knowing: that a machine is shared, that something was left out."""
    seconds: float = 0.0

    def text(self) -> str:
        """One line of JSON."""
        plain = asdict(self)
        plain.update(why=self.why[:WHY_CHARACTERS], notes=self.notes[:WHY_CHARACTERS], missed=self.missed[:MOST_MISSED])
        return json.dumps(plain, separators=(",", ":"))


def report_from(text: str) -> GangReport:
    """What a member told.

    Raises:
        ValueError: it is something else.
    """
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
    """What one node of a pair tells."""

    node: str
    group: int
    rank: int
    at: float
    """When it began, Unix seconds."""
    partner: str = ""
    """Whom it met; "": nobody came."""
    answers: str = ""
    """What each call told when we asked, as `probe.packed` writes it; a call that is not there was not made."""
    why: str = ""
    """Why calls are missing; "" where none is."""
    notes: str = ""
    """What else is worth knowing: that one machine stands for both nodes."""
    seconds: float = 0.0

    def text(self) -> str:
        """One line of JSON."""
        plain = asdict(self)
        plain.update(why=self.why[:WHY_CHARACTERS])
        return json.dumps(plain, separators=(",", ":"))


def pair_report_from(text: str) -> PairReport:
    """What a node of a pair told.

    Raises:
        ValueError: it is something else.
    """
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
