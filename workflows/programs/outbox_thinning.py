"""Which reports are left out when more wait than may. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Set, Tuple

Reports = List[Dict[str, Any]]


def thinned(reports: Reports, room: int) -> Reports:
    """`room` of these reports at most, in order; more only where more ranks ended.

    Kept in any case: how ranks ended, the newest report of all, the newest step and the newest phase of each rank, its
    first loss that is no number, the newest word on each checkpoint. Left out first: phases that repeat the one before,
    older words on a checkpoint. Then every second step, again and again: the course stays visible, more coarsely the
    longer it lasts; then the oldest phases; then the oldest of what was to be kept, but for ends.
    """
    precious = _precious(reports)
    steps, phases = _course(reports, precious)
    while steps and len(precious) + len(steps) + len(phases) > room:
        steps = steps[1::2]
    over = len(precious) + len(steps) + len(phases) - room
    phases = phases[max(0, over) :]
    ends = {index for index in precious if reports[index].get("report") == "RankEnd"}
    others = sorted(precious - ends)
    others = others[max(0, len(ends) + len(others) + len(steps) + len(phases) - room) :]
    return [reports[index] for index in sorted([*ends, *others, *steps, *phases])]


def _precious(reports: Reports) -> Set[int]:
    newest: Dict[Tuple[Any, ...], int] = {}
    kept: Set[int] = {len(reports) - 1} if reports else set()
    for index, report in enumerate(reports):
        kind = report.get("report")
        if kind == "CheckpointSeen":
            newest[kind, report.get("path")] = index
        elif kind in ("StepSeen", "PhaseSeen"):
            newest[kind, report.get("rank")] = index
            if isinstance(report.get("loss"), str):
                newest.setdefault(("loss", report.get("rank")), index)
        else:
            kept.add(index)
    return kept | set(newest.values())


def _course(reports: Reports, precious: Set[int]) -> Tuple[List[int], List[int]]:
    """Steps, and phases that a rank entered from another one, which may be left out."""
    steps: List[int] = []
    phases: List[int] = []
    entered: Dict[Any, Tuple[Any, ...]] = {}
    for index, report in enumerate(reports):
        kind = report.get("report")
        if kind == "PhaseSeen":
            phase = (report.get("phase"), report.get("incarnation"))
            if entered.get(report.get("rank")) != phase and index not in precious:
                phases.append(index)
            entered[report.get("rank")] = phase
        elif kind == "StepSeen" and index not in precious:
            steps.append(index)
    return steps, phases
