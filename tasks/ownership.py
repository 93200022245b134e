"""Whose objects in the cluster are: those of another ledger's run of the same name are left alone."""

from __future__ import annotations

from contextlib import suppress

from profiles.errors import NotFound, Refused
from tasks.cluster import Kind, Manifest, current
from tasks.world import patient, world
from workflows import labels, ownership


def our_ledger() -> str:
    """Identity of the ledger of this process.

    Raises:
        Unavailable: it does not answer, and was never asked.
    """
    return world().ledger.identity()


@patient
def taken_by_another(run: str) -> str:
    """Why this ledger may not begin a run of this name: another one's is on the cluster; "" where there is none.

    A cluster that may not be listed says nothing here: what is created under a name that is taken is refused anyway.
    """
    found: list[Manifest] = []
    kinds: tuple[Kind, ...] = ("JobSet", "Workflow")
    for kind in kinds:
        with suppress(NotFound, Refused):
            found += [{"kind": kind, **item} for item in current().list(kind, {labels.RUN: run})]
    others = [item for item in found if ownership.is_foreign(item, our_ledger())]
    return str(ownership.foreign(others[0])) if others else ""


def is_taken(kind: Kind, name: str) -> bool:
    """Whether an object of this name is another ledger's.

    Raises:
        Unavailable, Refused.
    """
    found = current().get(kind, name)
    return found is not None and ownership.is_foreign(found, our_ledger())


def ours(kind: Kind, name: str) -> Manifest | None:
    """The object; None where it does not exist or belongs to another ledger.

    Raises:
        Unavailable, Refused.
    """
    found = current().get(kind, name)
    return None if found is None or ownership.is_foreign(found, our_ledger()) else found
