"""The form of a rule: what one kind of line says about a failure.

The tables are data (`flows.decisions.rulebook`), matched by `flows.decisions.matching`. A rule never decides alone:
`flows.decisions.diagnose` weighs what all of them and all other witnesses say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from profiles.vocabulary import FaultClass

Blames = Literal["rank", "node", "peer", "code", "nobody"]
"""Who is to blame if the rule is right: the rank or node that printed the line, the one it names, the code, nobody."""

GPU_CONSEQUENCES = ("gpu_driver", "process_killed", "collective_timeout", "user_code", "unknown")
"""What a broken GPU makes everybody else print."""


@dataclass(frozen=True)
class Rule:
    """One kind of line."""

    name: str
    """Unique, kebab case; appears beside the line as evidence."""
    pattern: str
    """Regular expression searched in the cleaned line, without nested repetition. Group `peer`, or any other with a
    name: who is blamed."""
    fault_class: FaultClass
    """`none`: healthy noise; the line tells nothing, whatever else matches."""
    weight: float
    """Probability, 0 to 1, that the class is right where only this line is known."""
    blames: Blames
    example: str
    """A line that programs really print; the tests replay it."""
    near_miss: str
    """A similar line that must not match."""
    source: str
    """Where the fact comes from."""
    literals: tuple[str, ...]
    """Lower-case texts of which every match holds at least one; lets long logs be skipped quickly."""
    supersedes: tuple[str, ...] = ()
    """Names of rules or words of fault classes that are consequences of this: no longer counted once this is known."""
    vendor: Literal["any", "nvidia", "amd"] = "any"
    echo: bool = False
    """A consequence that others than the culprit print: hardly counted as soon as an original is known."""
    fallback: bool = False
    """Counts only where no other rule matches the line."""
    origins: tuple[str, ...] = ()
    """Sources of lines it applies to, e.g. `kernel`; empty: all."""
    advice: str = ""
    """What a person can do, where the class alone does not say it."""

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled pattern (compiled at first use)."""
        return re.compile(self.pattern)
