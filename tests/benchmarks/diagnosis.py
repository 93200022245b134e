"""`primus diagnose` of 100 MB: seconds, memory and the first answer, beside `grep -c` and a Python loop.

Run it by itself (`python -m tests.benchmarks.diagnosis [MB]`). One log is made of healthy lines of the corpus, of step
lines of many ranks and of NCCL's chatter, with new numbers every time; one is free text, in which every line is new. A
fault stands in the middle of each, and a run counts only if it was found on its line.
"""

from __future__ import annotations

import json
import os
import pty
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from flows.decisions.diagnosis.diagnose import diagnose
from profiles.vocabulary import FaultClass
from tests.support.cases.corpus_cases import cases
from workflows.model.attempt import Evidence, LogLine, Signal

MB = 100
SECONDS_GOAL, MEGABYTES_GOAL, FIRST_GOAL_SECONDS = 5.0, 150, 1.5
REPEATS = 3
CHUNK_LINES = 20_000
PODS, POD_LINES, GANG_GOAL_SECONDS = 64, 200, 0.5
FAULT = "node-7 kernel: NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
RAISED = """Traceback (most recent call last):
  File "/workspace/train.py", line 377, in main
    loss = model(batch)
  File "/workspace/model.py", line 91, in forward
    return self.projection(batch.flatten(1))
RuntimeError: mat1 and mat2 shapes cannot be multiplied (4096x1024 and 512x4096)""".splitlines()
WAITED = (
    "[E ProcessGroupNCCL.cpp:563] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8821, "
    "OpType=ALLREDUCE, NumelIn=25557032, NumelOut=25557032, Timeout(ms)=600000) ran for 600127 milliseconds before "
    "timing out."
)
DIGITS = b"0123456789"
ENVIRONMENT = {**os.environ, "PRIMUS_HOME": "/nonexistent"}


def main() -> int:
    """Print each figure beside its goal; 1 where one is missed."""
    size = int(sys.argv[1]) if len(sys.argv) > 1 else MB
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name, chunk in (("training log", training), ("free text", prose)):
            path = Path(folder) / f"{name.replace(' ', '-')}.log"
            line = write(path, chunk, size)
            good &= measure(name, path, line)
    good &= measure_gang()
    return 0 if good else 1


def measure(name: str, path: Path, line: int) -> bool:
    """One log: whole command, first answer, limits."""
    runs = [diagnosed(path, line) for _ in range(REPEATS)]
    seconds, busy, megabytes = min(run[0] for run in runs), min(run[1] for run in runs), max(run[2] for run in runs)
    first = min(first_answer(path) for _ in range(REPEATS))
    grep = min(timed("grep", "-c", "NVRM", str(path)) for _ in range(REPEATS))
    loop = min(timed(sys.executable, "-c", LOOP, str(path)) for _ in range(REPEATS))
    size = path.stat().st_size / 1e6
    print(f"{name} of {size:.0f} MB, {line * 2:,} lines or so:")
    print(
        f"  diagnosed in {seconds:.2f} s (goal <= {SECONDS_GOAL} s), {size / seconds:.0f} MB/s, "
        f"{busy:.2f} s of one core, {megabytes:.0f} MB resident (goal <= {MEGABYTES_GOAL} MB)"
    )
    print(f"  first answer from its end after {first:.2f} s (goal <= {FIRST_GOAL_SECONDS} s)")
    print(
        f"  grep -c of one word {grep:.2f} s, ratio {seconds / grep:.1f}; "
        f"a Python loop that lowers and searches each line for three words {loop:.2f} s, ratio {seconds / loop:.1f}"
    )
    return seconds <= SECONDS_GOAL and megabytes <= MEGABYTES_GOAL and first <= FIRST_GOAL_SECONDS


LOOP = """
import sys
found = 0
with open(sys.argv[1], errors="replace") as file:
    for line in file:
        lower = line.lower()
        found += "nvrm" in lower or "traceback" in lower or "error:" in lower
"""


def measure_gang() -> bool:
    """A failure of many pods, as the flow diagnoses it before it recovers: processor time, every line new each time."""
    diagnose(gang_of(random.Random(0), pods=2))  # patterns are compiled by the first one
    evidences = [gang_of(random.Random(seed), PODS) for seed in range(1, 1 + REPEATS)]
    runs: list[float] = []
    for evidence in evidences:
        began = time.process_time()
        found = diagnose(evidence)
        runs.append(time.process_time() - began)
        assert found.fault_class is FaultClass.USER_CODE, found
    began, lines, cued = time.process_time(), evidences[0].lines, 0
    for line in lines:
        lower = line.text.lower()
        cued += "nvrm" in lower or "traceback" in lower or "error:" in lower
    loop, seconds = time.process_time() - began, min(runs)
    print(
        f"{PODS} pods x {POD_LINES} lines, a rank's exception in one: {seconds * 1000:.0f} ms, "
        f"{seconds / len(lines) * 1e6:.0f} us a line (goal <= {GANG_GOAL_SECONDS} s); a Python loop that lowers and "
        f"searches each line for three words {loop * 1000:.0f} ms, {cued} found"
    )
    return seconds <= GANG_GOAL_SECONDS


def gang_of(rng: random.Random, pods: int) -> Evidence:
    """The last lines of every pod: ordinary ones, one rank's exception, and the others' time-outs after it."""
    healthy = (line for line in training(rng).decode().splitlines() if line.startswith(("[default", "[rank", "node-")))
    text = [line.split("]: ", 1)[-1] for line in healthy]
    lines: list[LogLine] = []
    for pod in range(pods):
        start = rng.randrange(len(text) - POD_LINES)
        last = RAISED if pod == pods // 3 else [WAITED.format(pod)]
        said = [*text[start : start + POD_LINES - len(last)], *last]
        file = f"bench-a1-worker-0-{pod}"
        lines += [LogLine(one, "rank", pod, f"node-{pod}", None, file, number) for number, one in enumerate(said, 1)]
    return Evidence(Signal.POD_FAILED, "bench", 1, 1_740_000_000.0, lines=tuple(lines))


def diagnosed(path: Path, line: int) -> tuple[float, float, float]:
    """Seconds, processor seconds and megabytes of the whole command; what it found must be right."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "deployments.cli.main", "diagnose", str(path), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=ENVIRONMENT) as child:
        assert child.stdout is not None
        answer = json.loads(child.stdout.read())
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    assert answer["class"] == FaultClass.GPU_HARDWARE, answer
    assert answer["evidence"][0]["line"] == line, (answer["evidence"][0], line)
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def first_answer(path: Path) -> float:
    """Seconds until the first line on standard error where that is a terminal."""
    ours, theirs = pty.openpty()
    began = time.perf_counter()
    command = [sys.executable, "-m", "deployments.cli.main", "diagnose", str(path)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=ENVIRONMENT) as child:
        os.close(theirs)
        assert os.read(ours, 1000).startswith(b"from the ends of the logs")
        seconds = time.perf_counter() - began
        child.kill()
    os.close(ours)
    return seconds


def timed(*command: str) -> float:
    """Seconds of a command."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)  # grep stops at once where nobody reads what it says
    return time.perf_counter() - began


def write(path: Path, chunk: Callable[[random.Random], bytes], size: int) -> int:
    """A log of `size` MB with a fault in its middle; the number of the fault's line."""
    rng = random.Random(7)
    text, lines, fault = chunk(rng), 0, 0
    with path.open("wb") as file:
        while (written := file.tell()) < size * 1e6:
            if not fault and written >= size * 5e5:
                file.write(FAULT.encode())
                lines += 1
                fault = lines
            digits = bytes(rng.sample(DIGITS, len(DIGITS)))
            file.write(text.translate(bytes.maketrans(DIGITS, digits)))
            lines += CHUNK_LINES
            text = chunk(rng) if chunk is prose else text
    return fault


def training(rng: random.Random) -> bytes:
    """Lines as a training of 64 ranks prints them, and healthy lines of the corpus."""
    texts = (
        text for case in cases("development") if case.expected is FaultClass.NONE for _, t in case.files for text in t
    )
    healthy = [text for text in texts if "error" not in text.lower() and "xid" not in text.lower()]
    lines: list[str] = []
    for number in range(CHUNK_LINES):
        rank, kind = rng.randrange(64), rng.random()
        if kind < 0.35:
            lines.append(
                f"[default{rank}]: [2025-03-01 10:00:0{number % 10}] iteration {number:8d}/ 500000 | consumed samples: "
                f"{number * 256:12d} | elapsed time per iteration (ms): {rng.uniform(900, 1400):.1f} | learning rate: "
                f"{rng.random():.6f}E-05 | lm loss: {rng.uniform(1, 4):.6E} | grad norm: {rng.random():.3f} |"
            )
        elif kind < 0.6:
            lines.append(
                f"node-{rank // 8}:{rng.randrange(9999)}:{rng.randrange(9999)} [{rank % 8}] NCCL INFO Channel "
                f"{number % 32:02d}/0 : {rank}[{rank % 8}] -> {rank + 1}[0] via P2P/CUMEM/read"
            )
        elif kind < 0.8:
            name = f"{rng.getrandbits(64):016x}.tar"
            lines.append(f"[rank{rank}]: data loader got s3://bucket/data/{name} in {rng.random():.3f} s")
        else:
            lines.append(rng.choice(healthy))
    return ("\n".join(lines) + "\n").encode()


def prose(rng: random.Random) -> bytes:
    """Lines of which none is like another."""
    words = ["state", "memory", "model", "after", "error", "failed", "server", "world"]
    words += [
        "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randrange(3, 10))) for _ in range(3000)
    ]
    return "".join(" ".join(rng.choices(words, k=15)) + "\n" for _ in range(CHUNK_LINES)).encode()


if __name__ == "__main__":
    sys.exit(main())
