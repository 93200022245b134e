"""Which ledger owns an object in a cluster: a cluster may serve many ledgers, whose runs may have the same names.

Every object that we create carries the identity of its ledger as an annotation. One without it was made by an older
version and counts as ours; to a caller without a ledger every object does.
"""

from __future__ import annotations

from typing import Any

from profiles.errors import Foreign
from workflows import labels
from workflows.model.manifest import Json, part


def marks(fencing: int, ledger: str) -> dict[str, str]:
    """Annotations of an object of ours: who wrote it; `ledger` empty: of no ledger."""
    return {labels.FENCING: str(fencing), **({labels.LEDGER: ledger} if ledger else {})}


def owner_of(manifest: Json) -> str:
    """Identity of the ledger that owns the object; "" where it says none."""
    return str(part(manifest, "metadata", "annotations").get(labels.LEDGER) or "")


def is_foreign(manifest: Json, ledger: str) -> bool:
    """Whether the object belongs to another ledger than this one."""
    return bool(ledger) and owner_of(manifest) not in ("", ledger)


def signed(manifest: dict[str, Any], ledger: str) -> dict[str, Any]:
    """The manifest, saying that it belongs to this ledger."""
    metadata = dict(manifest["metadata"])
    metadata["annotations"] = {**part(metadata, "annotations"), labels.LEDGER: ledger}
    return {**manifest, "metadata": metadata}


def foreign(manifest: Json) -> Foreign:
    """What is said of an object of another ledger."""
    metadata = part(manifest, "metadata")
    what = f"{manifest.get('kind', 'object')} {metadata.get('name', '')}"
    run = str(part(metadata, "labels").get(labels.RUN) or "")
    whose = f"a run {run} of another ledger is on this cluster" if run else "it belongs to another ledger"
    return Foreign(
        f"{what} exists and is not ours: {whose} ({owner_of(manifest)[:8]}); nothing of it was touched. "
        f"Choose another --name; where that ledger is lost, delete {what} first"
    )


def refuse_foreign(manifest: Json | None, ledger: str) -> None:
    """Nothing where the object is not there or ours.

    Raises:
        Foreign: it belongs to another ledger.
    """
    if manifest is not None and is_foreign(manifest, ledger):
        raise foreign(manifest)
