"""What runs a part at a time: each commit takes the next part, and `PRIMUS_PROOF=all` takes all of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
EVERYTHING = os.environ.get("PRIMUS_PROOF") == "all"


@cache
def commits() -> int:
    """Number of commits up to this one; 0 without git."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-list", "--count", "HEAD"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError, ValueError):
        return 0


def turn(modulus: int) -> int:
    """Which of so many parts has its turn at this commit."""
    return commits() % modulus


def in_turn(items: Sequence[T], modulus: int) -> tuple[T, ...]:
    """Every so-and-so-many-th item, beginning with another one at each commit; with `PRIMUS_PROOF=all` every item."""
    return tuple(items if EVERYTHING else items[turn(modulus) :: modulus])
