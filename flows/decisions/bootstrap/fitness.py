"""Which hosts were found fit so lately that a command which goes on after a kill need not measure them again. Pure.

Looks that measure (who reaches whom, how fast disks are, whether the mirror gives its files) take longer than all else
before the first step: what a command that was cut off minutes ago has proven of the same profile, stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from workflows.model.bootstrap import CLUSTER, Stage, Step, StepRecord

FRESH_SECONDS = 900.0
"""A command itself measures once, at its beginning, and goes on for longer than that where hosts are many."""


def lately_fit(plan: Sequence[Step], records: Mapping[str, StepRecord], now: float) -> dict[str, float]:
    """Seconds since each host of the plan was found fit; nothing where they are to be measured.

    All of them stand, or none: who reaches whom is seen among all. A command that came to its end leaves no step begun:
    whoever asks again after that, perhaps because something failed, wants to know how hosts are now.

    Args:
        plan: every step of the request.
        records: what the ledger remembers, by id.
        now: Unix seconds.
    """
    others = [records.get(step.id) for step in plan if step.stage is not Stage.PRECHECKS]
    if not any(record is not None and record.state == "began" for record in others):
        return {}
    found: dict[str, float] = {}
    for step in plan:
        if step.stage is not Stage.PRECHECKS or step.subject == CLUSTER:
            continue
        record = records.get(step.id)
        if record is None or (record.state, record.wanted) != ("proven", step.wanted) or record.ended_at is None:
            return {}
        found[step.subject] = now - record.ended_at
    return found if all(0.0 <= age <= FRESH_SECONDS for age in found.values()) else {}
