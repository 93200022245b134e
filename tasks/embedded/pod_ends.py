"""What the object of a pod says of the end that is wished for it."""

from __future__ import annotations

from tasks.embedded.objects import END_ANNOTATION, Object, section


def deleting(manifest: Object) -> bool:
    """Whether its deletion was asked for."""
    return bool(manifest["metadata"].get("deletionTimestamp"))


def earlier(pod: Object, grace_seconds: int | None) -> bool:
    """Whether a deletion with this grace ends the pod earlier than what was asked for before."""
    if not deleting(pod):
        return True
    before = pod["metadata"].get("deletionGracePeriodSeconds")
    return grace_seconds is not None and (before is None or grace_seconds < before)


def end_reason(pod: Object) -> str:
    """Why the supervisor must look at its pod again; "" for no reason."""
    metadata = pod["metadata"]
    wish = section(metadata, "annotations").get(END_ANNOTATION, "")
    if deleting(pod):
        return f"deleted {metadata.get('deletionGracePeriodSeconds')} {wish}"
    return wish
