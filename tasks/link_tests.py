"""A test between nodes and its rounds, written down so that whoever was killed in it goes on where it was.

The test is known by what it tests. Each round is written down before its workflows are submitted, and again with what
its pods told. Rounds are asked for in one order, since what is asked next follows from what was told: the next flow
asks for the same ones, reads those that ended, and adopts the workflows of the one that was under way.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from profiles.suite import SuiteProfile
from tasks.sweeping import take_number
from tasks.world import world
from workflows.link_rounds import PodTold, RoundRecord, pack
from workflows.links import LINKS

RESUMED_SECONDS = 6 * 3600.0
"""A test that was begun longer ago is begun anew: what its rounds told says nothing of these nodes now."""
SUSPECTED_SECONDS = 30 * 86400.0
"""A link that missed in a test is looked at by itself for so long."""
MOST_SUSPECTED = 64
"""Such links, the newest ones."""


@dataclass(frozen=True)
class WantedLinks:
    """What is tested, before it has a number."""

    cluster: str
    suite: SuiteProfile
    pools: Mapping[str, str]
    """The nodes, with their pool."""
    share: float
    """Of a pool, at most, that is measured at the same time."""
    seed: int | None
    """None: by the clock."""

    @property
    def key(self) -> str:
        """The same for the same test, whoever asks for it."""
        asked = [self.suite.model_dump_json(), list(self.pools.items()), self.share, self.seed]
        return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


class LinksTest:
    """A test that was begun, and its rounds in the order in which they are asked for. Lives as long as its flow."""

    def __init__(self, wanted: WantedLinks, number: int, begun_at: float) -> None:
        self.wanted, self.number, self.begun_at = wanted, number, begun_at
        self.suspects = _suspects(wanted.cluster, begun_at)
        self._kept = {one.step: one for one in world().ledger.link_rounds(wanted.cluster, number)}
        self._step = 0

    @property
    def seed(self) -> int:
        """Which partners meet, the same for whoever goes on with it."""
        return int(self.begun_at) if self.wanted.seed is None else self.wanted.seed

    @property
    def told_at(self) -> float:
        """Unix seconds when its newest round was known, for whoever goes on with it, too."""
        return max((one.at for one in self._kept.values() if one.told), default=self.begun_at)

    def next_round(self, asked: str) -> tuple[RoundRecord, bool]:
        """The next round, and whether it was begun before; then it may be told already.

        Raises:
            Unavailable: the ledger does not answer.
        """
        self._step += 1
        known = self._kept.get(self._step)
        if known is not None and known.asked == asked:
            return known, True
        return self._write(self._step, asked), False

    def is_last(self, one: RoundRecord) -> bool:
        """No later one was begun: whoever was killed may have left its workflows."""
        return one.step == max(self._kept)

    def begin_anew(self, one: RoundRecord) -> RoundRecord:
        """The same round under a number of its own: what is in the old one's folder is half a measurement.

        Raises:
            Unavailable: the ledger does not answer.
        """
        return self._write(one.step, one.asked)

    def keep(self, one: RoundRecord, told: Mapping[str, PodTold]) -> None:
        """Write down what its pods told.

        Raises:
            Unavailable: the ledger does not answer.
        """
        self._keep(replace(one, told=pack(told), at=world().now()))

    def _write(self, step: int, asked: str) -> RoundRecord:
        cluster = self.wanted.cluster
        record = RoundRecord(cluster, self.number, step, take_number(f"{LINKS}/{cluster}"), asked, world().now())
        self._keep(record)
        return record

    def _keep(self, record: RoundRecord) -> None:
        world().ledger.keep_link_round(record)
        self._kept[record.step] = record


def open_links(wanted: WantedLinks) -> LinksTest:
    """Begin the test, or go on with the one that was begun and whose verdicts do not stand.

    Raises:
        Unavailable: the ledger does not answer.
    """
    ledger, own, now = world().ledger, cursor_of(wanted), world().now()
    begun, read = ledger.cursor(own), ledger.cursor(f"{own}/read")
    is_open = begun is not None and (read is None or read.position < begun.position)
    if begun is not None and is_open and now - begun.at < RESUMED_SECONDS:
        return LinksTest(wanted, begun.position, begun.at)
    number = take_number(f"{LINKS}/{wanted.cluster}")
    ledger.move_cursor(own, number, now)
    return LinksTest(wanted, number, now)


def close_links(test: LinksTest, missed: Sequence[tuple[str, str]] = ()) -> None:
    """Its verdicts stand: it is closed, and its rounds are forgotten; links that missed are remembered.

    Raises:
        Unavailable: the ledger does not answer.
    """
    wanted = test.wanted
    names = [f"{_missed(wanted.cluster)}{left} {right}" for left, right in missed]
    world().ledger.end_link_test(wanted.cluster, test.number, f"{cursor_of(wanted)}/read", world().now(), names)


def cursor_of(wanted: WantedLinks) -> str:
    """Name of the cursor that holds the test's number."""
    return f"{LINKS}/{wanted.cluster}/{wanted.key}"


def _missed(cluster: str) -> str:
    """Beginning of the names of cursors that count in how many tests a link missed; both its ends follow."""
    return f"{LINKS}/{cluster}/missed/"


def _suspects(cluster: str, at: float) -> tuple[tuple[str, str], ...]:
    """Links that missed in tests that ended before, the newest first; what the test itself finds is not among them."""
    found = world().ledger.cursors(_missed(cluster))
    recent = {name: one.at for name, one in found.items() if at - SUSPECTED_SECONDS <= one.at <= at}
    pairs = (name.partition(" ") for name in sorted(recent, key=lambda name: (-recent[name], name))[:MOST_SUSPECTED])
    return tuple((left, right) for left, _, right in pairs)
