"""A rank that prints a thousand lines a second: what its launcher takes of a core, all of it, and reading alone.

Beside it a bare loop of the same Python that only moves the same lines from a pipe into a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.support.harness.launcher_harness import GangOnLoopback
from workflows.programs.progress.reader import ProgressReader, StepCounting, framework_of

LINES_PER_SECOND = 1000
SECONDS = 10.0
GOAL_PERCENT = 2.0
READ_LINES = 20_000
STARTED_SECONDS = 2.0
"""Not measured: the first steps, which are all told one by one."""
MEGATRON = (
    " [2026-03-01 10:02:56] iteration {n:8d}/ 1000000 | consumed samples: {n:12d}"
    " | elapsed time per iteration (ms): 1.0 | throughput per GPU (TFLOP/s/GPU): 432.1 | learning rate: 1.500000E-04"
    " | global batch size:   512 | lm loss: 2.345678E+00 | loss scale: 1.0 | grad norm: 0.512"
    " | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
KINDS = {
    "noise": (
        "primus-demo",
        "[2026-03-01 10:02:56,123] INFO loader: shard {n} of 4096 was opened and read ahead, 1.2 GB",
    ),
    "demo steps": (
        "primus-demo",
        "step {n}/1000000 | loss 2.3456 | tokens/s 12345 | step time 0.0010 s | compute 0.0009 s",
    ),
    "Megatron-LM": ("megatron", MEGATRON),
    "@primus": (
        "none",
        '@primus {{"report": "StepSeen", "step": {n}, "loss": 2.3456, "seconds": 0.001, "compute_seconds": 0.0009}}',
    ),
}
WITH_GOAL = ("noise", "demo steps")
PRINTER = """
import sys, time
form, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
began, n = time.monotonic(), 0
while n < rate * seconds:
    n += 1
    sys.stdout.write(form.format(n=n) + "\\n")
    sys.stdout.flush()
    time.sleep(max(0.0, began + n / rate - time.monotonic()))
"""
BARE = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while data := os.read(0, 65536):
    os.write(file, data)
"""


def processor_seconds(pid: int) -> float:
    """Of all threads of a process, by the scheduler's own count."""
    total = 0
    for name in os.listdir(f"/proc/{pid}/task"):
        total += int(Path(f"/proc/{pid}/task/{name}/schedstat").read_text().split()[0])
    return total / 1e9


def share(pid: int) -> float:
    """Percent of a core that a process takes over `SECONDS`, once it has settled."""
    time.sleep(STARTED_SECONDS)
    before, began = processor_seconds(pid), time.monotonic()
    time.sleep(SECONDS)
    return 100 * (processor_seconds(pid) - before) / (time.monotonic() - began)


def printing(form: str) -> list[str]:
    """The command of a rank."""
    seconds = STARTED_SECONDS + SECONDS + 3
    return [sys.executable, "-S", "-c", PRINTER, form, str(LINES_PER_SECOND), str(seconds)]


@contextmanager
def ended(process: subprocess.Popen[bytes]) -> Generator[subprocess.Popen[bytes]]:
    """Kill it afterwards."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def launcher_percent(folder: Path, framework: str, form: str) -> float:
    """Of the launcher's process, with a coordinator that takes its reports."""
    gang = GangOnLoopback(folder)
    try:
        gang.coordinate()
        pod = gang.launch(0, f"--framework={framework}", "--steps=1000000", command=printing(form))
        pod.says("started ranks")
        return share(pod.process.pid)
    finally:
        gang.close()


def bare_percent(folder: Path, form: str) -> float:
    """Of a loop that reads the pipe and writes what it read to a file."""
    rank = subprocess.Popen(printing(form), stdout=subprocess.PIPE)
    command = [sys.executable, "-S", "-c", BARE, str(folder / "bare.log")]
    with ended(rank), ended(subprocess.Popen(command, stdin=rank.stdout)) as bare:
        return share(bare.pid)


def reading_percent(framework: str, form: str) -> float:
    """Of finding steps in as many lines as come in a second."""
    reader = ProgressReader(framework_of(framework), StepCounting(steps=1_000_000), 0)
    lines = [form.format(n=number) for number in range(1, READ_LINES + 1)]
    began = time.process_time()
    for line in lines:
        reader.feed(line, 0.0)
    return 100 * (time.process_time() - began) / READ_LINES * LINES_PER_SECOND


def main() -> int:
    """Print them; 1 where a goal was missed."""
    missed = False
    for kind, (framework, form) in KINDS.items():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            bare = bare_percent(folder, form)
            whole = launcher_percent(folder, framework, form)
        goal = f"goal {GOAL_PERCENT:g} %" if kind in WITH_GOAL else "no goal"
        missed = missed or (kind in WITH_GOAL and whole > GOAL_PERCENT)
        row = f"launcher {whole:.1f} % of a core, {goal}; finding steps alone {reading_percent(framework, form):.2f} %"
        print(f"{LINES_PER_SECOND} lines a second, {kind}: {row}; a bare loop into a file {bare:.1f} %", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
