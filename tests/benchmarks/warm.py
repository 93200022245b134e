"""From the launcher's call to a rank's first line with numpy imported: a plain start beside a warm one."""

from __future__ import annotations

import select
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.harness.warm_harness import Yard, end_of, python
from workflows.programs.runtime import processes

TRIALS = 20
GOAL_RATIO = 4.0


def first_line_seconds(start: Callable[[processes.Start], processes.RankProcess], plan: processes.Start) -> float:
    """Seconds until the rank's first line is there to be read."""
    began = time.perf_counter()
    process = start(plan)
    select.select([process.stdout], [], [])
    seconds = time.perf_counter() - began
    end_of(process)
    return seconds


def measured(trials: int, module: str = "numpy") -> tuple[list[float], list[float]]:
    """Seconds of plain and of warm starts, taken in turns: what else the machine does meets both.

    Args:
        trials: of each.
        module: imported by the rank before its first line.
    """
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        (folder / "first.py").write_text(f"import {module}\nprint('first line')\n")
        with Yard(folder, python("first.py"), [module]) as yard:
            yard.listen()
            plain: list[float] = []
            warm: list[float] = []
            for rank in range(trials):
                plain.append(first_line_seconds(processes.start, yard.start_of(rank)))
                warm.append(first_line_seconds(yard.forked, yard.start_of(rank)))
    return plain, warm


def main() -> int:
    """Print them; 1 where the goal was missed."""
    plain, warm = measured(TRIALS)
    for name, seconds in (("plain", plain), ("warm", warm)):
        row = f"median {statistics.median(seconds) * 1e3:.1f} ms, worst {max(seconds) * 1e3:.1f} ms"
        print(f"start to first line with numpy, {name}: {row}, {len(seconds)} trials")
    ratio = statistics.median(plain) / statistics.median(warm)
    print(f"ratio {ratio:.1f}, goal {GOAL_RATIO:.0f}")
    return 0 if ratio >= GOAL_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
