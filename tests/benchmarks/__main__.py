"""`make bench`: every benchmark in a process of its own, one after the other; exit code 1 where a goal was missed.

Each prints its figures beside a goal and a limit or a peer measured in the same run. Name some to run only those:
`python -m tests.benchmarks recovery start`.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

ORDER = (
    "start",
    "console",
    "incident_event",
    "flow_run_requests",
    "many",
    "recovery",
    "recovery_large",
    "manifests",
    "embedded",
    "checkpoints",
    "diagnosis",
    "fleet",
    "scale",
    "reconcile",
    "grading",
    "tool_parsers",
    "probe_overhead",
    "fabric_rounds",
    "health_status",
    "host_look",
    "bootstrap_plan",
    "on_call",
    "warm",
    "in_place",
    "parsing",
    "stacks",
    "gang",
    "straggling",
    "coordinator",
)


def main(names: list[str]) -> int:
    """Run them; 1 where a goal was missed."""
    here = Path(__file__).parent
    unknown = [name for name in names if not (here / f"{name}.py").exists()]
    if unknown:
        print(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(ORDER)}", file=sys.stderr)
        return 2
    cores = len(os.sched_getaffinity(0))
    print(
        f"{time.strftime('%Y-%m-%d')}, {cores} cores, Python {platform.python_version()}, Linux {platform.release()}\n"
    )
    missed: list[str] = []
    for name in names or ORDER:
        print(f"== {name} ==", flush=True)
        done = subprocess.run([sys.executable, "-m", f"tests.benchmarks.{name}"], cwd=here.parent.parent, check=False)
        if done.returncode != 0:
            missed.append(name)
        print(flush=True)
    print(f"goals missed in: {', '.join(missed)}" if missed else "every goal was met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
