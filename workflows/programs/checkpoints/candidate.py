"""A candidate: files that may be one checkpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Set, Tuple

from workflows.programs.checkpoints.listing import FileFacts

UNKNOWN_STEP = -1
"""Step of a candidate whose name says none."""


@dataclass(frozen=True)
class Candidate:
    """Files that may be a checkpoint."""

    format: str
    """A word of `FORMATS`; `pattern`: single files."""
    step: int
    """Step in its name; `UNKNOWN_STEP`: none."""
    path: str
    """Relative to the listing's root; "": the root itself."""
    files: Tuple[FileFacts, ...]
    """Paths relative to the candidate's folder; for single files their own names."""
    overwritten: bool = False
    """Whether the trainer overwrites it with each save."""
    single: bool = False
    """Files of one folder among others, not a folder; `path` is the first one, or what all their names begin with."""
    marker: str = ""
    """Name of a file that marks it as unfinished."""

    def newest_mtime_ns(self) -> int:
        """Modification time of its newest file."""
        return max((one.mtime_ns for one in self.files), default=0)

    def total_bytes(self) -> int:
        """Size of all its files."""
        return sum(one.bytes for one in self.files)

    def names(self) -> Set[str]:
        """Paths of its files."""
        return {one.path for one in self.files}
