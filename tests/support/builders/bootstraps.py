"""Bootstraps of any number of hosts as they end, well or with faults, for pages and tables; nothing is carried out."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from profiles.vocabulary import VerdictWord
from workflows.model.bootstrap import CLUSTER, Stage, StepOutcome, StepRecord

SINCE = 1_800_000_000.0
COMPONENTS = (
    *("argo-workflows", "jobset", "kueue", "metrics-server", "cert-manager", "distribution"),
    *("victoria-metrics", "node-exporter", "amd-gpu-operator"),
)
AT_ONCE = 50
FAULTS = (
    "containerd.service is failed: exit code 1: failed to load plugin io.containerd.grpc.v1.cri",
    "vm.max_map_count is 65530, wanted 1048576",
)


@dataclass
class MadeBootstrap:
    """Three control planes and workers, of which every fiftieth has a fault where `faults` is said."""

    hosts: int
    faults: bool = False
    alike: bool = True
    """Faults have few reasons; else each host has one of its own."""
    table: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    steps: list[StepOutcome] = field(default_factory=list[StepOutcome])
    records: list[StepRecord] = field(default_factory=list[StepRecord])

    def __post_init__(self) -> None:
        self._random = random.Random(self.hosts)
        planes = [f"cp-{number}" for number in range(1, 4)]
        workers = [f"gpu-r{number // 40 + 1:02}-n{number % 40 + 1:02}" for number in range(self.hosts - 3)]
        chosen = workers[::50] if self.faults and self.alike else workers if self.faults else []
        self.bad = {name: self._fault(number) for number, name in enumerate(chosen)}
        for name in (*planes, *workers):
            self._add(Stage.PRECHECKS, name, "31 checks pass", None)
        at = self._stage(Stage.HOSTS, [*planes, *workers], 40.0, (60.0, 90.0))
        for name in planes:
            at = self._stage(Stage.CONTROL_PLANE, [name], at, (70.0, 90.0))
        at = self._stage(Stage.WORKERS, workers, at, (20.0, 45.0))
        at = self._stage(Stage.NETWORK, [*planes, *workers], at, (3.0, 8.0))
        at = self._stage(Stage.COMPONENTS, list(COMPONENTS), at, (20.0, 90.0))
        self._stage(Stage.PROOF, [CLUSTER], at, (100.0, 140.0))

    @property
    def why(self) -> str:
        """The last word."""
        names = [f"hosts/{name}" for name in self.bad]
        return f"failed: {', '.join(names[:6])} and more" if names else f"all {len(self.steps)} steps hold"

    @property
    def page(self) -> tuple[Any, ...]:
        """What the page is made of."""
        return "made: build", self.why, self.table, self.steps, self.records, SINCE

    def _fault(self, number: int) -> str:
        if self.alike:
            return FAULTS[number % 2]
        return f"10.0.{number // 250}.{number % 250}: {random.Random(number).randbytes(20).hex()} is no such thing"

    def _stage(self, stage: Stage, names: list[str], at: float, takes: tuple[float, float]) -> float:
        """All of a stage, some at once; when it is over."""
        waits = stage in (Stage.COMPONENTS, Stage.PROOF) and bool(self.bad)
        able = [name for name in names if not waits and (stage is Stage.HOSTS or name not in self.bad)]
        for first in range(0, len(able), AT_ONCE):
            batch = able[first : first + AT_ONCE]
            for name in batch:
                why = self.bad.get(name, "")
                self._add(stage, name, why or f"{stage} holds", (at, at + self._random.uniform(*takes)), bool(why))
            at += takes[1] + 5.0
        for name in names:
            if name not in able:
                self._add(stage, name, "it is not there", None, True)
        return at

    def _add(self, stage: Stage, name: str, why: str, times: tuple[float, float] | None, failed: bool = False) -> None:
        word = VerdictWord.FAIL if failed else VerdictWord.PASS
        seconds = None if times is None else round(times[1] - times[0], 1)
        self.steps.append(StepOutcome(f"{stage}/{name}", f"{stage} of {name}", word, why, seconds))
        self.table.setdefault(name, {})[stage.value] = "not yet" if failed and times is None else word.value
        if times is not None:
            state = "failed" if failed else "proven"
            began, ended = SINCE + times[0], SINCE + times[1]
            self.records.append(StepRecord("made", stage, name, "w", state, 1, began, ended, why))
