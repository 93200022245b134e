"""Where a cluster profile's storage lies that says `{home}`."""

from __future__ import annotations

from pathlib import Path

from profiles.cluster import ClusterProfile


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
