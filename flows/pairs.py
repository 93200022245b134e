"""Tests of pairs of nodes: each meets one other, whoever misses meets others, and who is to blame is found that way.

Which pairs meet next is decided by `flows.decisions.fabric.pairs`; here they are measured, round after round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from flows.decisions.fabric.pair_reading import Met, Told, halves, judged, met_of, pair_checks, pair_rules, verdicts
from flows.decisions.fabric.pairs import Pair, Pairs, checks_for, next_pairs
from flows.decisions.grading.history import DAY_SECONDS, History, laid, reach_days
from flows.decisions.grading.model import CheckRule, NodeGrade
from profiles.cluster import ClusterProfile
from profiles.hardware import HardwareProfile
from profiles.load import load_hardware
from profiles.suite import SuiteProfile
from profiles.suite_check import Check
from tasks.link_tests import LinksTest
from tasks.linking import Asked, run_round
from tasks.world import world
from workflows.pair_calls import PairCalls, pair_calls_of
from workflows.programs.gang_report import PairReport, pair_report_from

DEPTH = "fabric"


@dataclass(frozen=True)
class PairsTested:
    """What pairs of nodes of one kind of hardware found."""

    hardware: str
    checks: tuple[str, ...]
    met: tuple[Met, ...]
    """Every meeting, round by round."""
    rounds: int
    grades: Mapping[str, NodeGrade]
    """By node."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PairGround:
    """Nodes of one kind of hardware, and what they measure with each other."""

    profile: ClusterProfile
    suite: SuiteProfile
    hardware: HardwareProfile
    checks: tuple[Check, ...]
    pools: Mapping[str, str]
    """Node -> its pool."""
    most: Mapping[str, int]
    """Pool -> so many of its nodes at once; missing: any number."""
    test: LinksTest
    """Of which its rounds are a part."""
    tell: Callable[[str], None]

    @property
    def fatal(self) -> tuple[str, ...]:
        """Checks that count."""
        return tuple(check.name for check in self.checks if check.severity == "fatal")


@dataclass
class _Book:
    """What was told and judged so far."""

    told: dict[str, Told] = field(default_factory=dict[str, Told])
    """What each node told first: the peers of whoever is measured again."""
    met: list[Met] = field(default_factory=list[Met])
    notes: dict[str, None] = field(default_factory=dict[str, None])


def pairs_of(profile: ClusterProfile, suite: SuiteProfile) -> dict[str, tuple[Check, ...]]:
    """Checks of pairs that nodes of each kind of hardware of this cluster make; kinds without are left out."""
    kinds = {pool.hardware: load_hardware(pool.hardware) for pool in profile.pools}
    made = {name: pair_checks(suite.checks_of(DEPTH, kind)) for name, kind in kinds.items()}
    return {name: checks for name, checks in made.items() if checks}


def try_pairs(ground: PairGround) -> PairsTested:
    """Measure pairs until it is known who is to blame for what missed. Keeps nothing.

    Raises:
        Unavailable: cluster or ledger do not answer.
        Refused: the cluster does not take a workflow.
    """
    rules = pair_rules(ground.checks, ground.hardware)
    state, book = Pairs(tuple(ground.pools), ground.fatal, ground.test.seed), _Book()
    history = _past(ground, rules)
    while pairs := next_pairs(state):
        wanted = ground.checks if not state.rounds else _again(ground, state, pairs)
        calls = pair_calls_of(wanted)
        told = _measured(ground, pairs, calls, len(state.rounds) + 1, book)
        # Beside what all others told: peers of a few would be too few to say anything.
        beside = {node: {**book.told.get(node, {}), **told.get(node, {})} for node in {**book.told, **told}}
        names = [check.name for check in wanted]
        reasons = judged(rules, ground.hardware.name, beside, history)
        met = [met_of(pair, names, reasons) for pair in pairs]
        for node, own in told.items():
            book.told.setdefault(node, own)
        book.met += met
        state = state.after([one.meeting for one in met])
    grades = verdicts(state, book.met, ground.checks)
    names = tuple(check.name for check in ground.checks)
    return PairsTested(ground.hardware.name, names, tuple(book.met), len(state.rounds), grades, tuple(book.notes))


def _again(ground: PairGround, state: Pairs, pairs: Sequence[Pair]) -> tuple[Check, ...]:
    """What is still open; whoever met nobody yet makes every check."""
    if any(not state.met[node] for pair in pairs for node in pair):
        return ground.checks
    names = checks_for(state)
    return tuple(check for check in ground.checks if check.name in names)


def _measured(ground: PairGround, pairs: Sequence[Pair], calls: PairCalls, number: int, book: _Book) -> dict[str, Told]:
    """What each node of these pairs told."""
    seen = -1

    def progress(ended: int, nodes: int) -> None:
        nonlocal seen
        if ended != seen:
            seen = ended
            ground.tell(f"pairs, round {number}: {ended} of {nodes} nodes have ended")

    asked = Asked(ground.profile, ground.suite.name, calls.demand, ground.pools, ground.most)
    found: dict[str, Told] = {}
    for pair, group in zip(pairs, run_round(asked, ground.test, pairs, progress, pair_report_from), strict=True):
        reports: Mapping[str, PairReport] = group.reports
        book.notes |= dict.fromkeys(one.notes for one in reports.values() if one.notes)
        found |= halves(pair, reports, group.silent, calls.number_of)
    return found


def _past(ground: PairGround, rules: Sequence[CheckRule]) -> History:
    """Figures of these nodes before, not how tests ended: whether a miss comes back other partners tell.

    The past ends where the test was begun: whoever goes on with it must not take its own verdicts for an earlier one's.
    """
    now, nodes = ground.test.begun_at, sorted(ground.pools)
    looks = world().ledger.looks(ground.profile.name, nodes, now - reach_days(rules) * DAY_SECONDS)
    return replace(laid(looks, rules, nodes, now), outcomes=None)
