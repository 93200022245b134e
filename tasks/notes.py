"""Into the ledger comes what a gang's coordinator finds and nothing is done about, as an incident each, once."""

from __future__ import annotations

from dataclasses import replace

from tasks.world import patient, touch, world
from workflows.gang_news import GangNews
from workflows.notes import notes_of, well_again
from workflows.records import AttemptRecord, IncidentRecord
from workflows.told import TOLD

MOST = 200
"""Of one attempt: a gang whose figures jump for ever says nothing new by it, and every reader reads them all."""
AT_ONCE = 8
"""Notes that one look writes: where a whole rack lags the rest comes with the next ones, and ends are seen between."""


@touch("notes {note.signal}: {note.seen}")
def write_note(note: IncidentRecord) -> IncidentRecord:
    """Write it down, or take over what another observer of the same fact wrote."""
    here = world()
    return here.ledger.open_incident(here.fencing, note)


@patient
def _lasts(note: IncidentRecord, over_at: float | None) -> IncidentRecord:
    """Write down until when it was so; None: it goes on."""
    here = world()
    return here.ledger.update_incident(here.fencing, note.run, note.id, over_at=over_at)


class Notes:
    """What was told of one attempt so far.

    Args:
        attempt: whose gang.
    """

    def __init__(self, attempt: AttemptRecord) -> None:
        self._attempt = attempt
        self._known: dict[str, IncidentRecord] = {}
        """By their facts."""

    def remember(self, incidents: list[IncidentRecord]) -> None:
        """What an earlier life of this flow, or another observer, wrote of the attempt."""
        self._known |= {item.fact: item for item in incidents if item.fact is not None and item.signal in TOLD}

    def lacks(self, news: GangNews) -> bool:
        """Whether something of the news was not written yet."""
        told = notes_of(self._attempt, news, 0.0)
        return any(map(self._is_news, told)) or bool(well_again(list(self._known.values()), news, told))

    def keep(self, news: GangNews) -> None:
        """Write what is new, `AT_ONCE` of it at most, and what is over.

        Raises:
            Unavailable: the ledger does not answer; the next call writes it.
        """
        now = world().now()
        told = notes_of(self._attempt, news, now)
        for item in [item for item in told if self._is_news(item)][:AT_ONCE]:
            self._keep(item)
        for item in well_again(list(self._known.values()), news, told):
            self._put(_lasts(item, now))

    def _is_news(self, item: IncidentRecord) -> bool:
        known = self._known.get(item.fact or "")
        return len(self._known) < MOST if known is None else known.over_at is not None

    def _keep(self, item: IncidentRecord) -> None:
        known = self._known.get(item.fact or "")
        if known is not None:
            self._put(_lasts(known, None))  # the same rank, called slow since the same step, is so once more
        elif len(self._known) < MOST:
            stem = item.id.rpartition("-n")[0]
            self._put(write_note(replace(item, id=f"{stem}-n{1 + len(self._known)}")))

    def _put(self, item: IncidentRecord) -> None:
        self._known[item.fact or ""] = item
