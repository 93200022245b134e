"""`make campaign`: many faults mixed over many runs on embedded clusters; exit code 1 where anything is wrong.

python -m tests.campaign --seed 7 --faults 200
python -m tests.campaign --seed 7 --faults 200 --run 12     one run of it once more, with its whole story
python -m tests.campaign --seed 7 --faults 200 --plan       what would be broken
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType

from tests.campaign.crew import RUN_LIMIT_SECONDS, play_all
from tests.campaign.outcome import RunOutcome, outcome_of, unplayed
from tests.campaign.plan import RunPlan, campaign
from tests.campaign.report import document, text

FAULTS, SEED, WORKERS = 200, 7, 2


def main(arguments: Sequence[str]) -> int:
    """Plan, play, judge, report."""
    options = _options(arguments)
    plans = campaign(options.seed, options.faults)
    if options.outcome:
        number: int = options.run
        return play_here(plans[number], Path(options.outcome))
    if options.run is not None:
        plans = tuple(plan for plan in plans if plan.number in (0, options.run))
    if options.plan:
        print("\n".join(line for plan in plans for line in plan.lines))
        return 0
    outcomes = _played(plans, options)
    whole = campaign(options.seed, options.faults)
    found = document(whole, outcomes, options.seed, options.faults)
    if options.run is not None or found["violations"]:
        print("\n".join(f"--- run {one.number}\n{one.told}" for one in outcomes if one.told), file=sys.stderr)
    print(json.dumps(found) if options.json else text(found, whole, outcomes))
    return 1 if found["violations"] else 0


def play_here(plan: RunPlan, path: Path) -> int:
    """Play one run in this process, and write its outcome; 1 where something is wrong."""
    from tests.campaign.play import played  # Prefect takes seconds to load

    signal.signal(signal.SIGALRM, _too_long)
    signal.setitimer(signal.ITIMER_REAL, RUN_LIMIT_SECONDS)
    began, told = time.monotonic(), ""
    try:
        with played(plan, os.environ["PREFECT_API_URL"]) as (seen, tell):
            signal.setitimer(signal.ITIMER_REAL, 0)
            outcome = outcome_of(seen)
            told = tell() if outcome.violations else ""
    except Exception as problem:  # whatever it is, the campaign goes on and says so
        why = f"{type(problem).__name__}: {problem}".splitlines()[0]
        outcome, told = unplayed(plan, why), told + traceback.format_exc()
    outcome = replace(outcome, told=told, seconds=time.monotonic() - began)
    path.write_text(json.dumps(outcome.to_json()))
    return 1 if outcome.violations else 0


def _too_long(_: int, __: FrameType | None) -> None:
    raise TimeoutError(f"the run did not end within {RUN_LIMIT_SECONDS:g} s")


def _played(plans: Sequence[RunPlan], options: argparse.Namespace) -> list[RunOutcome]:
    from tests.support.servers.prefect_servers import migrated_harness

    def tell(one: RunOutcome) -> None:
        label = "; ".join(strike.label for strike in one.strikes) or "nothing is broken"
        wrong = f"{len(one.violations)} WRONG" if one.violations else "ok"
        print(f"run {one.number}: {wrong} in {one.seconds:.0f} s: {label}", file=sys.stderr, flush=True)

    with migrated_harness() as api_url:
        return play_all(plans, options.faults, api_url, options.workers, tell)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.campaign", description="Break many runs, and look what came of it."
    )
    parser.add_argument("--seed", type=int, default=SEED, help="decides everything that is planned")
    parser.add_argument("--faults", type=int, default=FAULTS, help="how many are caused")
    parser.add_argument("--workers", type=int, default=WORKERS, help="runs at once")
    parser.add_argument("--run", type=int, help="play only this run, and the one without faults")
    parser.add_argument("--plan", action="store_true", help="print what would be broken")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--outcome", default="", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.faults < 1 or options.workers < 1:
        parser.error("--faults and --workers must be at least 1")
    last = campaign(options.seed, options.faults)[-1].number
    if options.run is not None and not 0 <= options.run <= last:
        parser.error(f"--run: this campaign has the runs 0 to {last}")
    return options


if __name__ == "__main__":
    os.environ.setdefault("DO_NOT_TRACK", "1")
    os.environ.setdefault("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "ERROR")
    sys.exit(main(sys.argv[1:]))
