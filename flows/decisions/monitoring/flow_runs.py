"""Which runs lost their driver, which due flow runs are started, and what follows when their process died. Pure.

A run is driven again only where that is safe: its driver released it, is proven dead, or did not renew its lease. A
driver that is late but lives keeps its run; while a ledger or a server is away nothing is judged. What people ask for
is always started. Of a timetable only the newest flow run counts: a missed night is caught up once, and one that would
overlap with the one before is skipped, not queued.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from profiles.vocabulary import RunState
from workflows.model.runs import Due, FlowRunSeen, OpenRun, Phase, Plain

GRACE_SECONDS = 15.0
"""Whoever opened, continued or claimed something a moment ago is about to drive it: as long as a lease lasts."""
LONGEST_PAUSE_SECONDS = 60.0
"""Between two starts of a driver that dies again and again."""


@dataclass(frozen=True)
class Drive:
    """Give the run a driver: schedule its flow run again, or make one where it has none."""

    run: str
    why: str


@dataclass(frozen=True)
class Reopen:
    """Schedule a flow run again whose claimer died before the run was opened."""

    flow_run: str
    why: str


@dataclass(frozen=True)
class Conclude:
    """Report to the server how the run ended: its driver could not any more."""

    flow_run: str
    run: str


@dataclass(frozen=True)
class AskToStop:
    """A person cancelled the flow run: its driver lets the run save and stops it."""

    flow_run: str
    run: str


@dataclass(frozen=True)
class PauseRun:
    """A person paused the flow run: automatic actions of its run are halted, as by `primus pause`; training goes on."""

    flow_run: str
    run: str


@dataclass(frozen=True)
class LetGo:
    """The flow run was deleted while its driver works: it ends, so that another one is seen to drive the run."""

    flow_run: str


@dataclass(frozen=True)
class Drop:
    """End a flow run that was cancelled before anything was opened for it."""

    flow_run: str


Move = Drive | Reopen | Conclude | AskToStop | PauseRun | LetGo | Drop


@dataclass(frozen=True)
class Tries:
    """How often this runner gave a run a driver lately."""

    number: int
    last_at: float
    """Unix seconds."""


@dataclass(frozen=True)
class FlowRunSnapshot:
    """What a runner sees at one moment."""

    now: float
    cluster: str
    """Name of the cluster that this runner serves; runs of others are not its business."""
    runs: tuple[OpenRun, ...]
    """Every run of the ledger that has not ended."""
    flow_runs: tuple[FlowRunSeen, ...]
    """Flow runs of this runner's deployment that have not ended."""
    working: frozenset[str] = frozenset()
    """Ids of flow runs whose drivers are living children of this runner."""
    stop_requested: frozenset[str] = frozenset()
    """Ids of cancelled flow runs whose runs were asked to stop already."""
    deleted: frozenset[str] = frozenset()
    """Ids of flow runs whose drivers work, and that the server does not have any more."""


def look_after(snapshot: FlowRunSnapshot, tries: Mapping[str, Tries]) -> tuple[Move, ...]:
    """What is to be done now, flow runs first. Doing any of it twice is harmless."""
    opened = {run.name: run for run in snapshot.runs}
    found = [_about_flow_run(flow_run, opened, snapshot) for flow_run in snapshot.flow_runs]
    taken = {flow_run.run for flow_run in snapshot.flow_runs if _has_its_turn(flow_run, snapshot)}
    drives = [
        Drive(run.name, why)
        for run in snapshot.runs
        if run.cluster == snapshot.cluster
        and run.name not in taken
        and (why := undriven(run, snapshot.now))
        and not _too_soon(tries.get(run.name), snapshot.now)
    ]
    deleted = [LetGo(one) for one in sorted(snapshot.deleted & snapshot.working)]
    return (*(move for move in found if move is not None), *deleted, *drives)


def undriven(run: OpenRun, now: float) -> str:
    """Why the run has no driver; "" where it has one, or may be about to get one."""
    if run.state is RunState.UNKNOWN:
        return ""  # a person must say what became of it
    # A lease of the run's present life: whoever opened or continued it gave it a driver.
    had_driver = run.lease is not None and run.lease.expires_at - GRACE_SECONDS >= run.since
    if now - run.since < GRACE_SECONDS and not had_driver:
        return ""
    if run.lease is None:
        return "it has no driver: the last one released it"
    holder = f"process {run.lease.driver.pid} on {run.lease.driver.host}"
    if run.alive is False:
        return f"its driver is dead: {holder}"
    if run.alive is None and now >= run.lease.expires_at:
        return f"its driver did not renew its lease: {holder}"
    return ""


def pause_before(number: int) -> float:
    """Seconds between the start number `number` of a run's driver and the next one: 1, 2, 4 … 60."""
    return min(LONGEST_PAUSE_SECONDS, 2.0 ** min(number - 1, 10))


def _too_soon(tries: Tries | None, now: float) -> bool:
    return tries is not None and now - tries.last_at < pause_before(tries.number)


def _about_flow_run(flow_run: FlowRunSeen, opened: Mapping[str, OpenRun], snapshot: FlowRunSnapshot) -> Move | None:
    if not flow_run.run:
        return None if flow_run.id in snapshot.working else _about_unopened(flow_run, snapshot.now)
    if flow_run.run not in opened:
        return None if flow_run.id in snapshot.working else Conclude(flow_run.id, flow_run.run)
    if flow_run.phase is Phase.CANCELLING and flow_run.id not in snapshot.stop_requested:
        return AskToStop(flow_run.id, flow_run.run)
    return PauseRun(flow_run.id, flow_run.run) if flow_run.phase is Phase.PAUSED else None


def _about_unopened(flow_run: FlowRunSeen, now: float) -> Move | None:
    if flow_run.phase is Phase.CANCELLING:
        return Drop(flow_run.id)
    if flow_run.phase in (Phase.CLAIMED, Phase.RUNNING) and now - flow_run.since >= GRACE_SECONDS:
        return Reopen(flow_run.id, "the process that claimed it did not open its run")
    return None


def _has_its_turn(flow_run: FlowRunSeen, snapshot: FlowRunSnapshot) -> bool:
    """Whether a driver works for it, or will in a moment."""
    if flow_run.id in snapshot.working or flow_run.phase is Phase.WAITING:
        return True
    return flow_run.phase is Phase.CLAIMED and snapshot.now - flow_run.since < GRACE_SECONDS


MOST_STARTS = 3
"""A flow run whose process died so often is given up: it is what kills it."""


@dataclass(frozen=True)
class Start:
    """Claim it and run it."""

    flow_run: str


@dataclass(frozen=True)
class Skip:
    """End it without running it."""

    flow_run: str
    why: str


@dataclass(frozen=True)
class Again:
    """Schedule it anew: the process that claimed or ran it is gone."""

    flow_run: str
    why: str


@dataclass(frozen=True)
class GiveUp:
    """Call it crashed."""

    flow_run: str
    why: str


@dataclass(frozen=True)
class Cancel:
    """End its process, if it has one: a person cancelled it."""

    flow_run: str


Choice = Start | Skip
Fate = Again | GiveUp | Cancel


def choose(due: Sequence[Due], alone: frozenset[str], busy: frozenset[str]) -> tuple[Choice, ...]:
    """What becomes of each flow run that is due, in the order in which they are.

    `due`: unclaimed; `alone`: deployments of which one flow run runs at a time; `busy`: those of which one runs now.
    """
    newest = {item.deployment: item.id for item in sorted(due, key=_order) if item.scheduled}
    chosen: list[Choice] = []
    taken = set(busy)
    for item in sorted(due, key=_order):
        if item.scheduled and newest[item.deployment] != item.id:
            chosen.append(Skip(item.id, "missed: a later one is due already"))
        elif item.deployment not in alone:
            chosen.append(Start(item.id))
        elif item.deployment not in taken:
            taken.add(item.deployment)
            chosen.append(Start(item.id))
        elif item.scheduled:
            chosen.append(Skip(item.id, "overlap: the one before has not ended"))
        # What a person asked for waits for its turn.
    return tuple(chosen)


def look_after_plain(
    seen: Iterable[Plain], working: frozenset[str], fleeting: frozenset[str], now: float
) -> tuple[Fate, ...]:
    """What becomes of flow runs that were claimed: all our flows go on where they were, so they are begun again.

    `seen`: claimed, running or being cancelled. `working`: ids of those whose process lives. `fleeting`: deployments
    with a timetable, whose next flow run does what this one left undone.
    """
    fates = (_fate(one, one.id in working, one.deployment in fleeting, now) for one in seen)
    return tuple(fate for fate in fates if fate is not None)


def _fate(one: Plain, works: bool, fleeting: bool, now: float) -> Fate | None:
    if one.phase is Phase.CANCELLING:
        return Cancel(one.id)
    if works or now - one.since < GRACE_SECONDS or one.phase not in (Phase.CLAIMED, Phase.RUNNING):
        return None
    if one.phase is Phase.CLAIMED:
        return Again(one.id, "the process that claimed it did not run it")
    if fleeting:
        return GiveUp(one.id, "its process died; the next run does its work")
    if one.begun >= MOST_STARTS:
        return GiveUp(one.id, f"its process died {one.begun} times")
    return Again(one.id, "its process died")


def _order(item: Due) -> tuple[float, str]:
    return (item.at, item.id)
