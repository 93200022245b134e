"""How one rank ended: wrongly or not, and in words. Pure."""

from __future__ import annotations

from typing import Tuple

from workflows.reports import RankEnd


def failed(end: RankEnd) -> bool:
    """Whether a rank ended wrongly by itself."""
    return not end.requested and (end.signal is not None or end.exit_code != 0)


def blame(end: RankEnd) -> Tuple[bool, int]:
    """Orders ranks found ended together: one that was killed came before those that noticed it and raised."""
    return (end.signal is None, end.rank)


def describe(end: RankEnd) -> str:
    """One sentence on how a rank ended."""
    how = f"was killed by signal {end.signal}" if end.signal is not None else f"exited with {end.exit_code}"
    return f"rank {end.rank} {how}" + (f" after step {end.last_step}" if end.last_step is not None else "")
