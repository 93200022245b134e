"""A killed rank until the step after the checkpoint's: restarted in place, forked and plainly, and the floor of each.

The demo with numpy, two ranks on two launchers; the fault comes three steps after a save. The floor is what no
supervisor can go below: the same ranks from the same checkpoint, forked or started at once with nobody in between.
`python -m tests.benchmarks.in_place [trials] [trials of the large case]`
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from tasks.programs_archive import programs_archive
from tests.benchmarks.by_hand import STEP, first_step_seconds
from tests.support.harness import launcher_harness
from tests.support.harness.launcher_harness import GangOnLoopback, Program, until
from tests.support.harness.warm_harness import Yard, kill, python
from workflows.programs.launcher.rendezvous import free_port

Found = TypeVar("Found")
TRIALS, LARGE_TRIALS, FLOORS, PODS = 20, 3, 5, 2
LARGE_DEADLINE_SECONDS = 600.0
MEDIAN_GOAL_SECONDS, WORST_GOAL_SECONDS = 0.25, 0.5
PRELOAD = ("numpy.random", "zipfile", "workflows.programs.demo.train")
"""With what numpy itself imports only when it is used."""
THREADS = {"OPENBLAS_NUM_THREADS": "1"}
"""As the demo sets it for itself: in the parked process numpy is imported before the demo can."""


@dataclass(frozen=True)
class Case:
    """What is trained; one fault comes `fault_after` steps after the first save."""

    name: str
    ranks: int = 2
    """Of both pods together."""
    save_every: int = 5
    fault_after: int = 3
    steps: int = 13
    import_seconds: float = 0.0
    checkpoint_mib: int = 0

    def words(self, corpus: Path) -> list[str]:
        """The demo's flags."""
        return [f"--steps={self.steps}", f"--save-every={self.save_every}", "--step-seconds=0.1", f"--corpus={corpus}",
                f"--import-seconds={self.import_seconds}", f"--checkpoint-mib={self.checkpoint_mib}"]  # fmt: skip

    @property
    def preload(self) -> tuple[str, ...]:
        """Modules of the parked process."""
        return (*PRELOAD, "workflows.programs.demo.heavy_imports") if self.import_seconds else PRELOAD

    @property
    def environment(self) -> dict[str, str]:
        """Of the launchers."""
        return {**THREADS, "PRIMUS_DEMO_IMPORT_SECONDS": str(self.import_seconds)}


SMALL = Case("2 ranks")
LARGE = Case("16 ranks, 3 s of imports, 2 GiB", 16, 40, 3, 80, import_seconds=3.0, checkpoint_mib=2048)
"""Its first save is read for seconds until it is proven; the fault comes when it is."""


@dataclass(frozen=True)
class Outcome:
    """What became of a gang."""

    weights: str
    """Digest of the last weights; "": it did not come so far."""
    seconds: float | None = None
    """From the fault to the first step; None: there was no fault."""
    lost_steps: int = 0


class Bench:
    """Gangs that train the same, each in a folder of its own.

    Args:
        folder: for all of them.
        case: what they train.
    """

    def __init__(self, folder: Path, case: Case) -> None:
        folder.mkdir()
        self._folder, self.case = folder.resolve(), case
        self._corpus = folder / "corpus.txt"
        self._corpus.write_text("the quick brown fox jumps over the lazy dog, again and again; " * 200)
        self._archive = programs_archive(folder)
        self._pods: list[Program] = []
        self._kept = self._folder / "calm" / "checkpoints" / f"step-{case.save_every}"

    def train(self, name: str, victim: int | None, forkable: bool = True) -> Outcome:
        """A gang from its start to its end.

        Args:
            name: of its folder, which stays for the gang that nobody harms.
            victim: the rank that is killed; None: nobody is.
            forkable: ranks that begin again are forked.
        """
        hurt = None if victim is None else partial(strike, victim=victim)
        weights, told = self.run(name, hurt, forkable)
        return Outcome(weights, *((None, 0) if told is None else told))

    def run(
        self, name: str, hurt: Callable[[GangOnLoopback, Bench], Found] | None, forkable: bool = True
    ) -> tuple[str, Found | None]:
        """The same with whatever may happen to it; weights ("": it did not come to its end) and what `hurt` found.

        Args:
            name: of its folder, which stays for the gang that nobody harms.
            hurt: does something to the gang while it trains.
            forkable: ranks that begin again are forked.
        """
        folder = self._folder / name
        folder.mkdir()
        with contextlib.closing(GangOnLoopback(folder)) as gang:
            self.begin(gang, forkable)
            found = None if hurt is None else hurt(gang, self)
            codes = [pod.end() for pod in self._pods]
        manifest = folder / "checkpoints" / f"step-{self.case.steps}" / "manifest.json"
        whole = not any(codes) and manifest.exists()
        weights = str(json.loads(manifest.read_text())["meta"]["weights_sha256"]) if whole else ""
        if hurt is not None:
            shutil.rmtree(folder)
        return weights, found

    def begin(self, gang: GangOnLoopback, forkable: bool = True, resume_step: int = 0) -> None:
        """Start a coordinator and launchers; with `resume_step` another attempt, from that checkpoint."""
        case, checkpoints = self.case, gang.folder / "checkpoints"
        words = [*case.words(self._corpus), f"--checkpoint-dir={checkpoints}", f"--fault-file={gang.folder}/fault.json"]
        flags = ["--checkpoint-format=auto", f"--steps={case.steps}", "--resume-argument=--resume={resume_from}"]
        flags += ["--in-place=true", f"--preload={','.join(case.preload)}", f"--forkable={str(forkable).lower()}"]
        each, command = case.ranks // PODS, [sys.executable, str(self._archive), "demo-train", *words]
        gang.environment.update(case.environment, PRIMUS_CHECKPOINT_DIR=str(checkpoints))
        if resume_step:
            gang.environment["PRIMUS_ATTEMPT"] = "2"
            gang.environment["PRIMUS_RESUME_FROM"] = str(checkpoints / f"step-{resume_step}")
            gang.environment["PRIMUS_RESUME_STEP"] = str(resume_step)
        gang.coordinate(PODS, each, restarts=3)
        self._pods = [gang.launch(at, *flags, pods=PODS, processes=each, command=command) for at in range(PODS)]

    def floor_plain(self) -> float:
        """Seconds of one step, the restore and the start of the processes, by hand."""
        words = [*self.case.words(self._corpus), f"--resume={self._kept}"]
        return first_step_seconds(self._archive, words, self.case.ranks, self._folder)

    def floors_forked(self, count: int) -> list[float]:
        """The same, forked: so many times."""
        words = [*self.case.words(self._corpus), f"--resume={self._kept}"]
        command = python(str(self._archive), "demo-train", *words)
        with Yard(self._folder, command, self.case.preload, self.case.environment) as yard:
            yard.listen()
            return [forked_seconds(yard, self.case.ranks) for _ in range(count)]


def strike(gang: GangOnLoopback, bench: Bench, victim: int) -> tuple[float, int]:
    """Kill a rank: seconds until the gang has completed a step again, and the steps that were lost."""
    case = bench.case
    process = gang.ranks()[victim]
    names = {"step": case.save_every + case.fault_after, "last_checkpoint_step": case.save_every}
    until(lambda: all((gang.ask("/status").get(name) or 0) >= most for name, most in names.items()), "the fault's step")
    at = time.time()
    os.kill(process, signal.SIGKILL)
    until(lambda: any(one["first_step_at"] for one in gang.ask("/status").get("restarts", [])), "a step again")
    (restart,) = gang.ask("/status")["restarts"]
    return restart["first_step_at"] - at, restart["step"] - (restart["resume_step"] or 0)


def forked_seconds(yard: Yard, count: int) -> float:
    """Seconds from the first fork to the first step line of rank 0."""
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1")), "WORLD_SIZE": str(count)}
    began = time.perf_counter()
    processes = [yard.forked(yard.start_of(rank, **where)) for rank in range(count)]
    text = b""
    while not STEP.search(text):
        select.select([processes[0].stdout], [], [])
        text += os.read(processes[0].stdout, 65536)
    seconds = time.perf_counter() - began
    for process in processes:
        kill(process)
    return seconds


def told(name: str, outcomes: list[Outcome], calm: str, floors: list[float]) -> tuple[float, float, bool]:
    """One row, printed; median, worst, and whether every gang ended as one that lost nobody."""
    taken = [one.seconds for one in outcomes if one.seconds is not None]
    right = sum(1 for one in outcomes if one.weights == calm != "")
    median, worst, floor = statistics.median(taken), max(taken), statistics.median(floors)
    print(
        f"{name}: killed rank -> first step median {median:.3f} s, worst {worst:.3f} s, {right} of {len(outcomes)} "
        f"with weights as without a fault, {sum(one.lost_steps for one in outcomes)} steps lost; "
        f"floor (start, restore, one step) {floor:.3f} s, {median - floor:.3f} s above it",
        flush=True,
    )
    return median, worst, right == len(outcomes)


def measured(place: Path, case: Case, trials: int) -> tuple[float, float, bool]:
    """Median and worst of restarts with forks, and whether all ended right; plain restarts in turns beside them."""
    bench = Bench(place, case)
    calm = bench.train("calm", None).weights
    forked: list[Outcome] = []
    plain: list[Outcome] = []
    for number in range(trials):
        victim = (case.ranks - 1) * (number % 2)
        forked.append(bench.train(f"forked-{number}", victim))
        plain.append(bench.train(f"plain-{number}", victim, forkable=False))
    median, worst, good = told(f"{case.name}, forked", forked, calm, bench.floors_forked(FLOORS))
    slow, _, also_good = told(f"{case.name}, plainly", plain, calm, [bench.floor_plain() for _ in range(FLOORS)])
    print(f"{case.name}: a plain restart takes {slow / median:.1f} times as long", flush=True)
    return median, worst, good and also_good


def main(trials: int = TRIALS, large_trials: int = LARGE_TRIALS) -> int:
    """Print them; 1 where a goal was missed."""
    with tempfile.TemporaryDirectory(prefix="primus-bench-", ignore_cleanup_errors=True) as place:
        median, worst, good = measured(Path(place) / "small", SMALL, trials)
        met = median <= MEDIAN_GOAL_SECONDS and worst <= WORST_GOAL_SECONDS and good
        goal = f"median <= {MEDIAN_GOAL_SECONDS} s, worst <= {WORST_GOAL_SECONDS} s, all right"
        print(f"goal with forks: {goal}: {'met' if met else 'MISSED'}", flush=True)
        launcher_harness.DEADLINE_SECONDS = LARGE_DEADLINE_SECONDS  # pyright: ignore[reportConstantRedefinition]
        _, _, large_good = measured(Path(place) / "large", LARGE, large_trials)
    return 0 if met and large_good else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:3])))
