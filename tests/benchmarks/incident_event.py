"""From a coordinator's restart in place to its row in the ledger, and to the event on the Prefect server.

The whole way as users have it: `primus up`, a flow run that drives, ranks that are killed one after the other. All
clocks are this machine's. The floor is how often anybody looks: the flow asks the coordinator every 0.2 s, the sender
of events reads the ledger, and the server writes events down in batches of its own.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from profiles.drill import parse_fault
from tasks.ledger.ledger import Ledger
from tasks.runs.faults import break_at
from tasks.settings import Settings
from tests.support.harness.consoles import Console, console
from tests.support.harness.stages import PROFILE
from tests.support.running.waiting import until
from workflows.model.gang_status import RESTART_MARK
from workflows.model.records import IncidentRecord

RUNS, GOAL_SECONDS = 6, 1.0
STEPS = 200
FAULTS = ("kill-rank:0,step=12", "kill-rank:1,step=60")
"""A rank on each node: no node is the reason twice."""


class Way:
    """Where one home's restarts in place are watched on their way.

    Args:
        made: with server, runner and monitor.
        folder: its home.
    """

    def __init__(self, made: Console, folder: Path) -> None:
        self._made, self._settings = made, Settings.from_environment({"PRIMUS_HOME": str(folder)})
        self.ledger = Ledger(self._settings.ledger_url)

    def measured(self, number: int) -> list[tuple[float, float]]:
        """Seconds from each restart to its row, and from it to its event on the server."""
        run, found = f"told-{number}", list[tuple[float, float]]()
        words = ("train", str(PROFILE), "--name", run, "--set", f"steps={STEPS}", "--detach")
        self._made.primus(*words)
        for place, fault in enumerate(FAULTS):
            break_at(run, parse_fault(fault), self._settings, self.ledger)
            shown_at = self._shown(run, place + 1)
            incident = self._restarts(run)[place]
            found.append((self._row_at(incident) - incident.detected_at, shown_at - incident.detected_at))
        until(f"the end of {run}", lambda: self.ledger.story(run).run.ended_at, self._made.told)
        return found

    def _restarts(self, run: str) -> list[IncidentRecord]:
        return [item for item in self.ledger.incidents(run) if item.id.startswith(f"{run}-a1-r")]

    def _row_at(self, incident: IncidentRecord) -> float:
        """When the ledger wrote it."""
        lines = self.ledger.history(incident.run)
        return next(line.at for line in lines if line.kind == "incident" and line.subject == incident.id)

    def _shown(self, run: str, number: int) -> float:
        """When the server showed so many restarts of the run, Unix seconds."""
        name, resource = {"name": ["primus.incident.restarted_in_place"]}, {"id": [f"primus.run.local.{run}"]}
        wanted = {"filter": {"event": name, "resource": resource}, "limit": 50}

        def all_there() -> bool:
            found: list[dict[str, Any]] = self._made.post("/events/filter", wanted)["events"]
            return len({one["payload"]["incident"] for one in found}) >= number

        until(f"{number} events about {run}", all_there, self._made.told)
        return time.time()


def main() -> int:
    """Print the figures beside the goal; 1 where it was missed."""
    folders = tempfile.TemporaryDirectory(prefix="primus-bench-", ignore_cleanup_errors=True)
    with folders as folder, console(Path(folder)) as made:
        made.up()
        way = Way(made, Path(folder))
        found = [pair for number in range(RUNS) for pair in way.measured(number)]
        marks = sum(mark.kind == RESTART_MARK for name in way.ledger.run_names() for mark in way.ledger.marks(name))
        way.ledger.close()
    for index, what in enumerate(("row in the ledger", "event on the server")):
        seconds = sorted(pair[index] for pair in found)
        late = sum(one > GOAL_SECONDS for one in seconds)
        print(
            f"restart in place -> {what}: median {statistics.median(seconds):.2f} s, worst {seconds[-1]:.2f} s, "
            f"n={len(seconds)}; goal <= {GOAL_SECONDS:g} s, {late} later"
        )
    print(f"each once: {len(found)} restarts, {marks} of them written down")
    return 0 if max(pair[1] for pair in found) <= GOAL_SECONDS and marks == len(found) else 1


if __name__ == "__main__":
    raise SystemExit(main())
