"""What a person types at night, over a ledger of a year: 10,000 runs, 100,000 incidents, 12,500 nodes with 4 verdicts.

Each figure is the whole process, from the shell back to the shell, with files in the page cache. Beside it stands what
no command can be quicker than: a Python that imports SQLAlchemy, and one query on the same file without it.
"""

from __future__ import annotations

import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.large_ledger import Size, make

GOAL_SECONDS = 1.0
REPEATS = 5
COMMANDS = (
    ("incidents",),
    ("incidents", "--open"),
    ("incidents", "--since", "7d", "--class", "node_lost"),
    ("incidents", "--run", "run-09998"),
    ("fleet",),
    ("fleet", "--by", "state", "--only", "state=quarantined"),
    ("nodes",),
    ("verdict", "node-77"),
    ("approvals",),
    ("runs",),
    ("runs", "--state", "running", "--limit", "20"),
    ("status", "run-09998"),
    ("pause", "run-09998", "--why", "measured"),
    ("unpause", "run-09998"),
    ("pause", "--all", "--why", "measured"),
    ("unpause", "--all"),
    ("ledger", "--limit", "50"),
)


def seconds_of(words: list[str], home: Path) -> tuple[float, float]:
    """Wall seconds and processor seconds of a whole process."""
    environment = {**os.environ, "PRIMUS_HOME": str(home)}
    before, began = os.times(), time.perf_counter()
    done = subprocess.run(words, env=environment, capture_output=True, check=False, cwd="/")
    took, after = time.perf_counter() - began, os.times()
    if done.returncode not in (0, 1, 3):
        raise RuntimeError(f"{' '.join(words)}: {done.returncode}: {done.stderr.decode()}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return took, spent


def raw_read_seconds(path: Path) -> float:
    """The newest 50 incidents by the standard library alone, in this process."""
    began = time.perf_counter()
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT * FROM incidents ORDER BY detected_at DESC, id DESC LIMIT 50").fetchall()
    connection.close()
    assert len(rows) == 50
    return time.perf_counter() - began


def main() -> int:
    """Print each command's time beside the floor; 1 where one missed the goal."""
    with tempfile.TemporaryDirectory(prefix="primus-on-call-") as folder:
        home = Path(folder)
        size = Size()
        began = time.perf_counter()
        make(f"sqlite:///{home / 'ledger.sqlite'}", size)
        megabytes = (home / "ledger.sqlite").stat().st_size / 1e6
        print(f"ledger: {size.runs} runs, {size.incidents} incidents, {size.nodes} nodes, {megabytes:.0f} MB, ", end="")
        print(f"made in {time.perf_counter() - began:.0f} s")
        python, primus = [sys.executable, "-c"], [sys.executable, "-m", "deployments.cli.main"]
        # A round of everything at a time: what else the machine does meanwhile hits all alike.
        taken: dict[tuple[str, ...], list[tuple[float, float]]] = {words: [] for words in COMMANDS}
        bare: list[tuple[float, float]] = []
        for _ in range(REPEATS):
            took, spent = seconds_of([*python, "import sqlalchemy"], home)
            bare.append((took + raw_read_seconds(home / "ledger.sqlite"), spent))
            for words in COMMANDS:
                taken[words].append(seconds_of([*primus, *words], home))
    floor, floor_spent = map(statistics.median, zip(*bare, strict=True))
    print(f"goal <= {GOAL_SECONDS} s each; median of {REPEATS}: wall, of which processor, ratio to the floor")
    print(f"{'floor: import sqlalchemy + a raw read':58} {floor:5.2f} s {floor_spent:5.2f} s")
    missed = 0
    for words, seconds in taken.items():
        wall, spent = map(statistics.median, zip(*seconds, strict=True))
        missed += wall > GOAL_SECONDS
        mark = "" if wall <= GOAL_SECONDS else "  MISSED"
        print(f"{'primus ' + ' '.join(words):58} {wall:5.2f} s {spent:5.2f} s {wall / floor:4.1f}{mark}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
