"""What the prover remembers about one candidate from look to look, and what it may make of it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Optional, Tuple

from workflows.programs.checkpoint_examine import Finding
from workflows.programs.checkpoint_formats import Candidate
from workflows.programs.checkpoint_listing import FileFacts

Signature = Tuple[FileFacts, ...]


@dataclass(frozen=True)
class Watched:
    """What is remembered about one candidate between looks."""

    signature: Signature
    looks: int = 1
    """Looks in a row at which it was just so."""
    settled: bool = False
    """Said all there is to say about it as it is."""


def watch(previous: Optional[Watched], signature: Signature, counts: bool = True) -> Watched:
    """The memory after one more look.

    Args:
        previous: what was remembered; None: it is new.
        signature: how it is now.
        counts: False for a look that was asked for: it may come right after another one, and what is still written
            would seem to be at rest.
    """
    if previous is None or previous.signature != signature:
        return Watched(signature, int(counts))
    return replace(previous, looks=previous.looks + counts)


def due_now(candidate: Candidate, now: Watched) -> bool:
    """Whether it is at rest: our own format, whose folder gets its name last, is so from the first look on."""
    return not now.settled and (now.looks >= 2 or candidate.format == "primus")


def resumable(found: Finding, since_ns: int) -> str:
    """What ranks restarted in place are told to go on from it; "": only a new attempt may.

    Nobody looks at the storage before a restart in place. So it must have been written by this attempt, or it may be
    one that was passed over; it must not be overwritten by the next save; and its path alone must say which one it is,
    which it does not where a tracker file does.
    """
    candidate = found.candidate
    older = candidate.newest_mtime_ns() < since_ns
    return "" if older or candidate.overwritten or candidate.format == "megatron" else found.path
