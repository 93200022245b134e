"""Where a cluster profile's storage lies that says `{home}`."""

from __future__ import annotations

from pathlib import Path

from profiles.cluster import ClusterProfile
from profiles.errors import Unavailable


def localised(profile: ClusterProfile, home: Path) -> ClusterProfile:
    """The profile with `{home}` replaced in its storage; frozen into the run, so a moved home does not move a run."""
    shared = tuple(
        item.model_copy(
            update={
                "source": item.source.replace("{home}", str(home)),
                "mount_path": item.mount_path.replace("{home}", str(home)),
            }
        )
        for item in profile.storage
    )
    return profile.model_copy(update={"storage": shared})


def make_own_storage(profile: ClusterProfile, home: Path) -> None:
    """Folders of PRIMUS_HOME that pods of a real cluster mount: only an existing one is taken there.

    Raises:
        Unavailable: one cannot be made.
    """
    for item in profile.storage:
        if item.kind == "host_path" and Path(item.source).is_relative_to(home):
            try:
                Path(item.source).mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise Unavailable(f"{item.source} cannot be made: {error.strerror}") from error
