"""`GET /metrics` of the coordinator: its gang for Prometheus. Pure; an unknown figure has no series.

Usage of resources comes from the launchers' heartbeats; it is outside the state and never journaled.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, cast

from workflows.programs.coordinator.hang_watch import Watch
from workflows.programs.coordinator.state import FINAL_STATES, Key, Member, State
from workflows.programs.coordinator.status import saves
from workflows.programs.runtime.prometheus import Family, Labels, exposition
from workflows.status import Straggler

POD = ("memory_bytes", "memory_limit_bytes", "shared_memory_bytes", "shared_memory_limit_bytes")
OF_EACH = {
    "ranks": ("memory_bytes", "cpu_cores", "open_files", "open_files_limit", "processes"),
    "nics": ("received_bytes", "sent_bytes", "errors"),
    "gpus": (
        "memory_bytes",
        "memory_limit_bytes",
        "busy_percent",
        "temperature_celsius",
        "power_watts",
        "uncorrected_errors",
    ),
}
"""Figures by kind of device or process."""
MOST_OF_EACH = 64
LONGEST_NAME = 64
MOST = 1e18
"""Upper limit of a figure; anything larger is garbage."""
Usage = Dict[str, Any]
UsageLabels = Tuple[Tuple[str, Any], ...]

MOST_LAUNCHERS = 512
"""Larger gangs export only the oldest heartbeat and no usage: thousands of series a second say no more."""


def parse_usage(told: Any) -> Optional[Usage]:
    """Usage in a launcher's heartbeat, without impossible figures; None where it has no valid time."""
    if not isinstance(told, dict):
        return None
    body = cast("Dict[str, Any]", told)
    at = _figure(body.get("at"))
    if at is None:
        return None
    found: Usage = {"at": at, **_figures(body, POD)}
    for kind, names in OF_EACH.items():
        each = body.get(kind)
        items = list(cast("Dict[str, Any]", each).items())[:MOST_OF_EACH] if isinstance(each, dict) else []
        found[kind] = {name[:LONGEST_NAME]: figures for name, one in items if (figures := _figures(one, names))}
    return found


class UsageByLauncher:
    """Newest usage of each launcher, checked only when it is read: most of a thousand a second never are."""

    def __init__(self) -> None:
        self._newest: Dict[Key, Any] = {}

    def record(self, key: Key, told: Any) -> None:
        """Keep the usage in a heartbeat of `key`, if there is any."""
        if told is not None:
            self._newest[key] = told

    def of(self, key: Key) -> Optional[Usage]:
        """Usage of one launcher; None: none that is valid."""
        return parse_usage(self._newest.get(key))

    def to_json(self, members: Iterable[Member]) -> Dict[str, Any]:
        """Usage of the members for which it is known, as JSON."""
        pods = [
            {"role": one.role, "pod_index": one.pod_index, "pod": one.pod, "node": one.node, **use}
            for one in members
            if (use := self.of(one.key)) is not None
        ]
        return {"pods": pods}


def usage_samples(uses: UsageByLauncher, members: Iterable[Member]) -> Dict[str, List[Tuple[UsageLabels, float]]]:
    """Labels and values of the members' usage, by name of the figure."""
    found: Dict[str, List[Tuple[UsageLabels, float]]] = {}
    for member in members:
        use = uses.of(member.key) or {}
        place: UsageLabels = (("pod_index", member.pod_index), ("node", member.node))
        _add(found, "pod", use, POD, place)
        for kind, label in (("ranks", "rank"), ("nics", "device"), ("gpus", "gpu")):
            each: Mapping[str, Usage] = use.get(kind, {})
            for name, figures in each.items():
                _add(found, label, figures, OF_EACH[kind], (*place, (label, name)))
    return found


def _add(
    found: Dict[str, List[Tuple[UsageLabels, float]]],
    kind: str,
    figures: Usage,
    names: Tuple[str, ...],
    labels: UsageLabels,
) -> None:
    for name in names:
        if name in figures:
            found.setdefault(f"{kind}_{name}", []).append((labels, figures[name]))


def _figures(told: Any, names: Tuple[str, ...]) -> Usage:
    if not isinstance(told, dict):
        return {}
    body = cast("Dict[str, Any]", told)
    checked = ((name, _figure(body.get(name))) for name in names)
    return {name: value for name, value in checked if value is not None}


def _figure(told: Any) -> Optional[float]:
    is_number = isinstance(told, (int, float)) and not isinstance(told, bool)
    return told if is_number and 0 <= told < MOST else None


def render_metrics(
    state: State,
    heard: Mapping[Key, float],
    uses: UsageByLauncher,
    watch: Watch,
    stragglers: Iterable[Straggler],
    now: float,
) -> str:
    """The metrics in Prometheus' text format.

    `heard` has the Unix time of each launcher's last request, `stragglers` those of `/status`, `now` is Unix time.
    """
    gang = [*_progress(state), *_saves(state), *_restarts(state, now)]
    gang += [*_launchers(state, heard, now), *_usage(state, uses)]
    families = [*gang, *_hang(watch), *_slow(stragglers)]
    return exposition(family for family in families if family.samples)


def _progress(state: State) -> List[Family]:
    progress, stall = state.progress, state.progress.stall
    return [
        _one("primus_gang_step", "gauge", "Training step seen last, over all attempts.", progress.step),
        _one("primus_gang_planned_steps", "gauge", "Steps that are planned.", state.steps or None),
        _one("primus_gang_steps_per_second", "gauge", "Over the newest steps.", progress.steps_per_second),
        _one("primus_gang_checkpoint_step", "gauge", "Newest step proven good.", progress.last_checkpoint_step),
        _one("primus_gang_checkpoint_stall_since_seconds", "gauge",
             "Unix time since when ranks stand still to save; absent while they do not.",
             stall.at if stall is not None and stall.phase == "checkpoint" else None),
    ]  # fmt: skip


def _saves(state: State) -> List[Family]:
    told = saves(state)
    stages = (("staged", told.staged), ("written", told.written), ("durable", told.durable))
    steps: List[Tuple[Labels, float]] = [
        ((("stage", stage),), float(step)) for stage, step in stages if step is not None
    ]
    advice = told.advice
    return [
        Family("primus_gang_save_step", "gauge",
               "Newest step whose save let the ranks go on, lies whole on the storage, was proven good.", steps),
        _one("primus_gang_saves_total", "counter", "Saves in this attempt.", told.count),
        _one("primus_gang_save_stall_seconds", "gauge", "Ranks stand still so long for a save, the median.",
             told.stall_seconds),
        _one("primus_gang_save_drain_seconds", "gauge", "From the begin of a save until it is durable, the median.",
             told.drain_seconds),
        _one("primus_gang_save_advised_steps", "gauge", "Steps between two saves at which least is lost.",
             advice.steps if advice and advice.measured else None),
    ]  # fmt: skip


def _restarts(state: State, now: float) -> List[Family]:
    kinds: Dict[str, int] = {"rank-failed": 0, "hang": 0}
    for one in state.restarts:
        kinds[one.kind] = kinds.get(one.kind, 0) + 1
    counted = Family("primus_gang_restarts_total", "counter", "Restarts in place in this attempt.",
                     [((("kind", kind),), float(count)) for kind, count in kinds.items()])  # fmt: skip
    return [
        _one("primus_gang_incarnation", "gauge", "Of the ranks inside the attempt.", state.incarnation),
        counted,
        _one("primus_gang_restarts_left", "gauge", "What is left of the right to them.", state.restarts_left(now)),
    ]


def _launchers(state: State, heard: Mapping[Key, float], now: float) -> List[Family]:
    members = [one for one in state.members.values() if one.role == state.deciding_role]
    up = sum(len(one.pids) for one in members if one.state in ("running", "leaving"))
    living = [one for one in members if one.state not in FINAL_STATES]  # the others have nothing more to say
    ages = [(one, max(0.0, now - heard[one.key])) for one in living if one.key in heard]
    each: List[Tuple[Labels, float]] = [
        ((("pod_index", one.pod_index), ("node", one.node)), age) for one, age in ages[: MOST_LAUNCHERS + 1]
    ]
    return [
        _one("primus_gang_ranks_up", "gauge", "Ranks whose launchers run them.", up),
        _one("primus_gang_launchers", "gauge", "Launchers that have joined.", len(members)),
        _one("primus_gang_heartbeat_age_seconds_max", "gauge", "Of the launcher that is silent for longest.",
             max((age for _, age in ages), default=None)),
        Family("primus_gang_heartbeat_age_seconds", "gauge", "Since the last word of each launcher.",
               each if len(each) <= MOST_LAUNCHERS else []),
    ]  # fmt: skip


def _usage(state: State, uses: UsageByLauncher) -> List[Family]:
    members = list(state.members.values())
    found = usage_samples(uses, members) if len(members) <= MOST_LAUNCHERS else {}
    families: List[Family] = []
    for name, told in found.items():
        grows = name.startswith("device_") or name.endswith("_errors")
        what = f"As the newest look of each pod's launcher found it: {name.replace('_', ' ')}."
        kind = "counter" if grows else "gauge"
        families.append(Family(f"primus_gang_{name}{'_total' if grows else ''}", kind, what, told))
    return families


def _hang(watch: Watch) -> List[Family]:
    watched = watch.verdict != "over"
    budget = watch.budget.seconds if watched else float("inf")
    doubt = {"suspect": 1, "observer": 1, "confirmed": 2}.get(watch.verdict, 0)
    return [
        _one("primus_gang_hang_budget_seconds", "gauge", "How long nothing may progress before a hang is suspected.",
             budget if budget < float("inf") else None),
        _one("primus_gang_quiet_seconds", "gauge", "Since the last progress.",
             watch.quiet_seconds if watched else None),
        _one("primus_gang_hang", "gauge", "0: it goes on, 1: a hang is suspected, 2: it is hung.",
             doubt if watched else None),
    ]  # fmt: skip


def _slow(stragglers: Iterable[Straggler]) -> List[Family]:
    ratios: List[Tuple[Labels, float]] = []
    costs: List[Tuple[Labels, float]] = []
    for one in stragglers:
        labels = (("rank", one.rank), ("node", one.node))
        ratios.append((labels, one.ratio))
        costs.append((labels, one.cost_seconds))
    return [
        Family("primus_gang_straggler_ratio", "gauge", "Own time before the barrier, times the peers'.", ratios),
        Family("primus_gang_straggler_cost_seconds", "gauge", "What the gang has waited for it.", costs),
    ]


def _one(name: str, kind: str, what: str, value: Optional[float]) -> Family:
    return Family(name, kind, what, [] if value is None else [((), float(value))])
