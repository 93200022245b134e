"""What a probe or a tool told: figures and words with their units, before anybody judges them.

Standard library only, Python 3.9: this travels inside the program archive.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Tuple

EVIDENCE_CHARACTERS = 400
"""A longer line is cut: readings travel as an output parameter."""


@dataclass(frozen=True)
class Reading:
    """One thing that was told."""

    quantity: str
    """What it is, in the words of `profiles/suites`: `hbm_bandwidth`, `ecc_uncorrectable`, `driver_version`."""
    value: Optional[float] = None
    """The figure, in `unit`; None where a word was told, or no figure."""
    unit: str = ""
    subject: str = ""
    """Whom it is about: `gpu 3`, `gpu 0 -> gpu 1`, `mlx5_0/1`, `eth0`, `/data`; "": the node."""
    word: str = ""
    """What was told where it is no figure: a version, a state."""
    said: str = ""
    """`pass` or `fail` where the tool judged by itself; "" where it did not."""
    line: str = ""
    """The line that says so."""


@dataclass(frozen=True)
class Parsed:
    """What a text told."""

    readings: Tuple[Reading, ...] = ()
    unknown: str = ""
    """Why not everything is known: nothing was printed, it broke off, it is another tool's, it says that it could not.

    Never "" where `readings` is empty. With readings beside it: these are known, others are missing.
    """
    version: str = ""
    """The tool's own version, as far as it was printed."""
