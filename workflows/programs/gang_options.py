"""What a member of a group is asked. Standard library only, Python 3.9."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from workflows.programs import flags


@dataclass(frozen=True)
class Options:
    """Who we are and what is measured."""

    folder: str
    """Of the round; each group has one of its own in it."""
    group: int
    rank: int
    ranks: int
    """Members of the group."""
    meet_seconds: float = 60.0
    """Whoever has not come by then does not come."""
    deadline_seconds: float = 120.0
    """For everything; then the report says what was waited for, and the process ends."""
    all_reduce_bytes: int = 4 << 20
    all_to_all_bytes: int = 0
    """0: not made."""
    iterations: int = 3
    gpus: int = 0
    """GPUs of each node that take part; 0: measured by sockets."""
    out_dir: str = ""
    """Folder for the output parameter `report`; empty: standard output only."""

    def argv(self) -> List[str]:
        """These options as flags."""
        return flags.to_argv(self)
