"""What a person, a schedule or a program asks for: one flat value, so that it shows as a form."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from profiles.values import NAME_PATTERN, OR_EMPTY, Value
from profiles.vocabulary import Mode


class TrainRequest(Value):
    """Start a training run, or continue the one with this name."""

    profile: str = "demo"
    """Shipped run profile by name, or a path to a YAML file."""
    name: Annotated[str, Field(pattern=NAME_PATTERN + OR_EMPTY, max_length=30)] = ""
    """Name of the run; empty: the profile's name and the next free number. The same name continues that run."""
    cluster: str = ""
    """Cluster profile by name or path; empty: PRIMUS_CLUSTER, else `local`."""
    mode: Mode | None = None
    """How far automation goes; empty: as the recovery profile says."""
    overrides: tuple[str, ...] = ()
    """Changes of the profile as `a.b=c`."""
    inline: dict[str, Any] | None = None
    """A whole run profile instead of `profile`."""
