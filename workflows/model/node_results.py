"""What a test of one node reported, whichever launcher started it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workflows.programs.parsers.text import ParsedOutput


@dataclass(frozen=True)
class NodeResult:
    """What one node reported."""

    node: str
    at: float = 0.0
    """Unix seconds by the node's clock; 0: it told nothing."""
    seconds: float = 0.0
    answers: Mapping[int, Sequence[ParsedOutput]] = field(default_factory=dict[int, Sequence[ParsedOutput]])
    """Number of a call -> what each attempt told."""
    why: str = ""
    """Why there is no answer."""
