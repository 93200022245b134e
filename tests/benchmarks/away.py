"""The console away for ten minutes in the middle of two runs, one of which loses a rank meanwhile.

Not among those of `make bench`, for its length: `python -m tests.benchmarks away`, shorter with `PRIMUS_AWAY_SECONDS`.
The server is stopped by a signal: it keeps its port and answers nobody, the worst way of being away.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from profiles.vocabulary import RunState
from tasks.ledger.ledger import Ledger
from tests.support.harness.consoles import Console, console
from tests.support.harness.many_runs import STEP_SECONDS, calm_profile, cause_kill
from tests.support.running.waiting import until

BEFORE_STEPS, AFTER_SECONDS = 10, 20.0
NAMES = ("calm", "hurt")


def step_of(ledger: Ledger, name: str) -> int:
    """The furthest step that the ledger knows; 0 before there is one."""
    story = ledger.story(name) if ledger.run(name) else None
    return max((attempt.last_step or 0 for attempt in story.attempts), default=0) if story else 0


def asked(made: Console, profile: Path, steps: int) -> dict[str, str]:
    """Both runs asked for by the API; their flow runs."""
    overrides = [f"steps={steps}"]
    return {
        name: made.ask("train/local", {"request": {"profile": str(profile), "name": name, "overrides": overrides}})
        for name in NAMES
    }


def silenced(made: Console, ledger: Ledger, seconds: float) -> dict[str, int]:
    """The server silent for so long, a rank killed after a third of it; the runs' steps at the end of it."""
    server = made.pid("server")
    assert server is not None
    os.kill(server, signal.SIGSTOP)
    try:
        time.sleep(seconds / 3)
        cause_kill("hurt", made.home, ledger)
        time.sleep(2 * seconds / 3)
        return {name: step_of(ledger, name) for name in NAMES}
    finally:
        os.kill(server, signal.SIGCONT)


def await_ends(ledger: Ledger, seconds: float) -> None:
    """A step takes a little longer than it is asked to, and there were many."""
    deadline = time.monotonic() + seconds / 2 + 60.0
    while any(ledger.story(name).run.ended_at is None for name in NAMES):
        assert time.monotonic() < deadline, [ledger.story(name).run for name in NAMES]
        time.sleep(1.0)


def tell(ledger: Ledger, name: str, before: int, after: int, state: str) -> bool:
    """One line; whether all is as it should be."""
    story = ledger.story(name)
    back = [f"{item.resumed_at - item.detected_at:.1f} s" for item in story.troubles if item.resumed_at is not None]
    print(
        f"{name}: step {before} -> {after} meanwhile; attempts {', '.join(one.outcome for one in story.attempts)}; "
        f"noticed -> first step again: {', '.join(back) or 'never needed'}; its flow run {state}"
    )
    ended_right = story.run.state is RunState.SUCCEEDED and state == "COMPLETED"
    return ended_right and after > before and len(story.troubles) == NAMES.index(name)


def main() -> int:
    """Print what became of both; 1 where one did not end right or something else was recovered."""
    seconds = float(os.environ.get("PRIMUS_AWAY_SECONDS", "600"))
    with (
        tempfile.TemporaryDirectory(prefix="primus-bench-", ignore_cleanup_errors=True) as folder,
        console(Path(folder) / "home") as made,
    ):
        made.up()
        ledger = Ledger(f"sqlite:///{made.home}/ledger.sqlite")
        flow_runs = asked(
            made, calm_profile(Path(folder)), BEFORE_STEPS + int((seconds + AFTER_SECONDS) / STEP_SECONDS)
        )
        until("both train", lambda: min(step_of(ledger, name) for name in NAMES) >= BEFORE_STEPS, made.told)
        before = {name: step_of(ledger, name) for name in NAMES}
        after = silenced(made, ledger, seconds)
        await_ends(ledger, seconds)
        states = {name: str(made.ended(identity)["type"]) for name, identity in flow_runs.items()}
        print(f"server silent for {seconds:g} s")
        right = [tell(ledger, name, before[name], after[name], states[name]) for name in NAMES]
        ledger.close()
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
