"""What a person, a schedule or a program asks for: one flat value, so that it shows as a form."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from profiles.values import (
    LABEL_CHARACTERS,
    LABEL_PATTERN,
    NAME_PATTERN,
    OR_EMPTY,
    OWNER_CHARACTERS,
    OWNER_PATTERN,
    Value,
)
from profiles.vocabulary import Mode

TagName = Annotated[str, Field(pattern=LABEL_PATTERN, max_length=LABEL_CHARACTERS)]
TagValue = Annotated[str, Field(pattern=LABEL_PATTERN + OR_EMPTY, max_length=LABEL_CHARACTERS)]


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
    tags: dict[TagName, TagValue] = {}
    """Words of yours by which runs are found, such as `team: vision`; of a run that is there they are added or changed.
    Names and values as Kubernetes' labels, which they become on its objects (`tags.primus-flows.io/team`)."""
    owner: Annotated[str, Field(pattern=OWNER_PATTERN, max_length=OWNER_CHARACTERS)] = ""
    """Whose run it is; empty: of who asks. Anybody may say anybody: who did what stands in the history."""
