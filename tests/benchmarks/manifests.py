"""Manifests for 12,500 nodes: seconds and memory to build them and turn them into dictionaries.

Run it by itself (`python -m tests.benchmarks.manifests`): memory is that of the whole process. The limit measured in
the same run is writing the same manifests as JSON, which whoever sends them must do anyway.
"""

from __future__ import annotations

import json
import resource
import sys
import time

from tests.support.builders.attempt_plans import a_gpu_plan
from workflows.attempt.training import manifests
from workflows.lint.lint import lint

NODES = 12_500
SECONDS_GOAL = 2.0
MEGABYTES_GOAL = 300
BYTES_GOAL = 1024 * 1024
REPEATS = 5


def megabytes() -> float:
    """Largest resident size of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    """Print each figure beside its goal; 1 where one is missed."""
    plan = a_gpu_plan(NODES)
    imported = megabytes()
    seconds: list[float] = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        sent = manifests(plan)
        seconds.append(time.perf_counter() - began)
    built = megabytes()
    began = time.perf_counter()
    texts = [json.dumps(one) for one in sent]
    written = time.perf_counter() - began
    began = time.perf_counter()
    findings = [finding for one in sent for finding in lint(one, plan)]
    checked = time.perf_counter() - began
    largest = max(map(len, texts))
    print(f"manifests for {NODES} nodes: {len(sent)} objects, the largest {largest} bytes (goal < {BYTES_GOAL})")
    print(
        f"  build and to_dict {seconds[0]:.3f} s the first time, {min(seconds):.3f} s the best of {REPEATS} "
        f"(goal <= {SECONDS_GOAL} s); writing the same as JSON {written:.4f} s, ratio {min(seconds) / written:.1f}"
    )
    print(f"  memory {built:.0f} MB, of it {built - imported:.0f} MB for building (goal <= {MEGABYTES_GOAL} MB)")
    print(f"  lint and schema {checked:.3f} s, {len(findings)} findings")
    good = seconds[0] <= SECONDS_GOAL and built <= MEGABYTES_GOAL and largest < BYTES_GOAL and not findings
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
