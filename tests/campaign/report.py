"""The report of a campaign: a table by kind of fault, what is wrong, and how to tell it again. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from profiles.vocabulary import Action
from tests.campaign.outcome import RunOutcome, StrikeOutcome
from tests.campaign.plan import RunPlan

COLUMNS = ("fault", "caused", "with others", "in place", "new attempts", "gave up", "median s", "worst s", "violations")
Json = dict[str, Any]


def document(plans: Sequence[RunPlan], outcomes: Sequence[RunOutcome], seed: int, count: int) -> Json:
    """The report as JSON. Seconds: from a strike's first fault to the first step after the checkpoint's step."""
    return {
        "seed": seed,
        "faults": sum(len(strike.kinds) for one in outcomes for strike in one.strikes),
        "of": count,
        "runs": len(outcomes),
        "in_place_runs": sum(one.in_place for one in outcomes),
        "restarts_in_place": sum(one.restarts_in_place for one in outcomes),
        "gave_up": sum(plans[one.number].ending is not None for one in outcomes),
        "kinds": by_kind(outcomes),
        "violations": [
            {"run": one.number, "kind": item.kind, "text": item.text} for one in outcomes for item in one.violations
        ],
        "outcomes": [one.to_json() for one in outcomes],
    }


def by_kind(outcomes: Sequence[RunOutcome]) -> list[Json]:
    """A row for each kind of fault; seconds are of the strikes that begin with it, violations of its runs."""
    strikes = [(one, strike) for one in outcomes for strike in one.strikes]
    kinds = sorted({kind for _, strike in strikes for kind in strike.kinds})
    return [_row(kind, [(one, strike) for one, strike in strikes if kind in strike.kinds]) for kind in kinds]


def _row(kind: str, strikes: list[tuple[RunOutcome, StrikeOutcome]]) -> Json:
    actions = [action for _, strike in strikes if strike.kinds[0] == kind for action in strike.actions]
    taken = [strike.seconds for _, strike in strikes if strike.kinds[0] == kind and strike.seconds is not None]
    return {
        "fault": kind,
        "caused": sum(strike.kinds.count(kind) for _, strike in strikes),
        "with others": sum(len(strike.kinds) > 1 for _, strike in strikes),
        "in place": actions.count(Action.RESTART_IN_PLACE),
        "new attempts": actions.count(Action.NEW_ATTEMPT) + actions.count(Action.ROLL_BACK),
        "gave up": actions.count(Action.GIVE_UP),
        "median s": round(statistics.median(taken), 2) if taken else None,
        "worst s": round(max(taken), 2) if taken else None,
        "violations": sum(len(one.violations) for one in {one.number: one for one, _ in strikes}.values()),
    }


def text(found: Json, plans: Sequence[RunPlan], outcomes: Sequence[RunOutcome]) -> str:
    """The report for a terminal: the table, then each run with something wrong."""
    rows = [COLUMNS, *(tuple(_cell(row[name]) for name in COLUMNS) for row in found["kinds"])]
    widths = [max(len(row[place]) for row in rows) for place in range(len(COLUMNS))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    for one in outcomes:
        if one.violations:
            lines += ["", *plans[one.number].lines]
            lines += [f"  WRONG {item.kind}: {item.text}" for item in one.violations]
            lines.append(f"  alone: {again(found, one.number)}")
    wrong = len(found["violations"])
    lines += [
        "",
        f"seed {found['seed']}: {found['faults']} faults in {found['runs']} runs ({found['in_place_runs']} that may "
        f"restart in place did so {found['restarts_in_place']} times; {found['gave_up']} must give up): "
        + (f"{wrong} violations" if wrong else "nothing is wrong"),
    ]
    return "\n".join(lines)


def again(found: Json, number: int) -> str:
    """The command that plays one run of it once more."""
    return f"python -m tests.campaign --seed {found['seed']} --faults {found['of']} --run {number}"


def _cell(value: Any) -> str:
    return "" if value is None else str(value)
