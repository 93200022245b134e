"""A lost node on the bed until the first resumed step, beside the floor: what the engines alone need for as much.

The floor is what nobody can do without: the moment when the API server first shows the loss, as a second pair of eyes
sees it; then an empty workflow of the attempt's own shape, whose pods do nothing and whose JobSet sleeps, from its
submission until all pods of the JobSet run; then the trainer's own start by hand. Needs a bed (`make bed-up`).
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import yaml

from deployments.processes.console import ensure_console, stop_console
from tasks.cluster import Cluster, Manifest
from tasks.programs_archive import programs_archive
from tasks.runs.submit import plan_of
from tests.bed.ground import BedGround
from tests.benchmarks.by_hand import first_step_seconds
from tests.benchmarks.scenes import command, shown, wait_for_first_step
from tests.support.harness.stages import Stage, stage
from workflows import labels
from workflows.attempt import pods
from workflows.attempt.plan import AttemptPlan
from workflows.attempt.training import manifests
from workflows.model.records import AttemptRecord, RequestRecord

REPEATS = 3
STEP_SECONDS = 0.1
LOOK_SECONDS = 0.02
STEPS_BETWEEN = 8
GOAL_SECONDS = 1.5
"""Over the floor."""
DEADLINE_SECONDS = 120.0
IDLE = "bed.local/busybox:1"
OVERRIDES = ("steps=100000", "checkpoint.interval_steps=5", command("--step-seconds", str(STEP_SECONDS)))


def empty(manifest: Manifest, seconds: int = 0) -> Manifest:
    """The same object with every program replaced: steps that pass at once, ranks that sleep so many seconds."""
    copy: Manifest = yaml.safe_load(yaml.safe_dump(manifest))
    for template in copy["spec"].get("templates", []):
        if "resource" in template:
            inner = empty(yaml.safe_load(template["resource"]["manifest"]), 600)
            template["resource"]["manifest"] = yaml.safe_dump(inner)
        if "container" in template:
            template["container"] |= {
                "image": IDLE,
                "command": ["sh", "-c", f"printf pass >{pods.OUTPUTS_MOUNT}/verdict"],
            }
    for job in copy["spec"].get("replicatedJobs", []):
        pod = job["template"]["spec"]["template"]["spec"]
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            idle = ["sleep", str(seconds if container in pod["containers"] else 0)]
            container |= {"image": IDLE, "command": idle, "env": []}
    return copy


def floor(cluster: Cluster, plan: AttemptPlan) -> float:
    """Seconds from submitting an empty attempt until its pods run; everything of it is deleted."""
    name = labels.attempt_name(plan.run, plan.attempt)
    *_, main = [empty(one) for one in manifests(plan)]
    began = time.monotonic()
    cluster.apply(main)
    wanted = plan.resolved.run.deciding_role.replicas
    marks = {labels.RUN: plan.run, "jobset.sigs.k8s.io/jobset-name": name}
    try:
        while sum(pod["status"].get("phase") == "Running" for pod in cluster.list("Pod", marks)) < wanted + 1:
            assert time.monotonic() - began < DEADLINE_SECONDS, f"the empty attempt {name} does not start"
            time.sleep(0.02)
        return time.monotonic() - began
    finally:
        cluster.delete("Workflow", name, grace_seconds=1)
        cluster.delete("JobSet", name, grace_seconds=1)


class Witness(threading.Thread):
    """Looks past the product for the first sign of a loss: the node's condition, or a pod of the gang that failed.

    Args:
        cluster: its own connection.
        node: the node that will be lost.
        gang: the run whose pods count.
    """

    def __init__(self, cluster: Cluster, node: str, gang: str) -> None:
        super().__init__(daemon=True)
        self._cluster, self._node, self._gang = cluster, node, gang
        self.seen_at = 0.0
        self.start()

    def run(self) -> None:
        """Ask until there is a sign."""
        began = time.time()
        while not self._sign():
            assert time.time() - began < DEADLINE_SECONDS, f"nobody says that {self._node} is lost"
            time.sleep(LOOK_SECONDS)
        self.seen_at = time.time()

    def _sign(self) -> bool:
        node = self._cluster.get("Node", self._node) or {"status": {"conditions": []}}
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])
        pods_of_run = self._cluster.list("Pod", {labels.RUN: self._gang})
        return not ready or any(pod["status"].get("phase") == "Failed" for pod in pods_of_run)


def recovery(made: Stage) -> tuple[float, float, float]:
    """Seconds from a node's loss to the first resumed step; to the loss's first sign; of the empty shape."""
    made.start("bench", profile="demo", overrides=OVERRIDES)
    wait_for_first_step(made, 1, DEADLINE_SECONDS)
    made.at_step((made.story.attempts[0].first_step or 0) + STEPS_BETWEEN)
    node = made.story.attempts[0].nodes[1]
    witness = Witness(BedGround().cluster(made.resolved, made.home), node, made.run)
    at = made.fault(f"lose-node:{node}")
    took = wait_for_first_step(made, 2, DEADLINE_SECONDS) - at
    witness.join(DEADLINE_SECONDS)
    attempt = made.story.attempts[1]
    print(f"of it: {breakdown(attempt, witness.seen_at)}", flush=True)
    made.ledger.request(RequestRecord(f"{made.run}-stop", made.run, "stop", 0.0, "measured"))
    made.end()
    made.no_orphans()
    plan = replace(plan_of(made.resolved, attempt, 1), run="floor", attempt=1)
    return took, witness.seen_at - at, floor(made.cluster, plan)


def breakdown(attempt: AttemptRecord, sign_at: float) -> str:
    """Seconds from the first sign of the loss to each moment of the attempt that came after it, one after the other."""
    moments = {
        "decided": attempt.planned_at,
        "submitted": attempt.submitted_at,
        "gang applied": attempt.applied_at,
        "all pods run": attempt.running_at,
        "first step": attempt.first_step_at,
    }
    said: list[str] = []
    before = sign_at
    for name, at in moments.items():
        if at is not None:
            said.append(f"{name} {at - before:+.2f}")
            before = at
    return ", ".join(said)


def by_hand(home: Path) -> float:
    """The same ranks' own start on this machine, from nothing."""
    options = ["--steps", "100000", "--seed", "7", "--step-seconds", str(STEP_SECONDS)]
    archive = programs_archive(home)
    return statistics.median(first_step_seconds(archive, options, 2, home) for _ in range(3))


def main() -> int:
    """Print the figures; 1 where the goal was missed."""
    home = Path(tempfile.mkdtemp(prefix="primus-bench-"))
    url = ensure_console(home)
    taken: list[float] = []
    signs: list[float] = []
    floors: list[float] = []
    try:
        own = by_hand(home)
        for _ in range(REPEATS):
            with stage(url, BedGround()) as made:
                took, sign, least = recovery(made)
            taken.append(took)
            signs.append(sign)
            floors.append(sign + least + own)
    finally:
        stop_console(home)
    over = statistics.median(took - least for took, least in zip(taken, floors, strict=True))
    met = over <= GOAL_SECONDS
    print(
        f"node lost on the bed -> first resumed step {shown(taken)}; the floor of the same shape {shown(floors)} "
        f"(of it the first sign {shown(signs)}, the ranks' own start {own:.2f} s); "
        f"over it {over:.2f} s, goal <= {GOAL_SECONDS}: {'met' if met else 'MISSED'}",
        flush=True,
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
