"""What the console costs: Prefect in a run, memory, `primus up`, the first line of `primus train`, ledger to pages."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from prefect.settings import PREFECT_API_URL, PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings
from prefect.tasks import Task

from flows.train import train
from profiles.request import TrainRequest
from tasks.ledger.ledger import Ledger
from tests.benchmarks.scenes import shown
from tests.support.harness.consoles import Console, console
from tests.support.harness.stages import PROFILE, stage
from tests.support.running.waiting import until
from workflows.model.runs import FindingRecord

REPEATS = 5
UP_FIRST_GOAL_SECONDS, UP_GOAL_SECONDS, SEEN_GOAL_SECONDS, FIRST_LINE_GOAL_SECONDS = 20.0, 8.0, 1.0, 1.0


@contextmanager
def without_prefect() -> Generator[None]:
    """Tasks are plain calls inside the block."""
    before = Task.__call__

    def plain(self: Any, *words: Any, **named: Any) -> Any:
        return self.fn(*words, **named)

    Task.__call__ = plain  # pyright: ignore
    try:
        yield
    finally:
        Task.__call__ = before  # pyright: ignore


def driven(api_url: str, number: int, *, plain: bool) -> tuple[float, float]:
    """Wall and processor seconds of driving a run of five steps in this process."""
    with stage(api_url) as made, without_prefect() if plain else nullcontext():
        made.open(f"cost-{number}", str(PROFILE), overrides=("steps=5",))
        request, wall, cpu = TrainRequest(name=made.run, profile=""), time.monotonic(), time.process_time()
        flow: Callable[[TrainRequest], Any] = train.fn if plain else train
        asyncio.run(flow(request))
        return time.monotonic() - wall, time.process_time() - cpu


def resident_mib(pid: int) -> float:
    """Memory of a process, MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def seen_seconds(made: Console, ledger: Ledger, number: int) -> float:
    """From a line of the ledger's history until the server shows its event."""
    began = time.monotonic()
    said, now = f"benchmark {number}", time.time()
    ledger.open_finding(FindingRecord(said, "local", "benchmark", said, "", said, "none: it is one", now, now))
    wanted = {"filter": {"event": {"name": ["primus.finding.opened"]}}, "limit": 50}

    def shown_there() -> bool:
        found = made.post("/events/filter", wanted)["events"]
        return any(said in str(one["payload"]) for one in found)

    until("the event is shown", shown_there, made.told)
    return time.monotonic() - began


def up_seconds(made: Console) -> tuple[float, list[float]]:
    """Of `primus up` in a new home, and later; it stays up."""
    began = time.monotonic()
    made.up()
    first, later = time.monotonic() - began, list[float]()
    for _ in range(3):
        made.primus("down")
        began = time.monotonic()
        made.up()
        later.append(time.monotonic() - began)
    return first, later


def first_line_seconds(made: Console, number: int) -> float:
    """From the call of `primus train` to the first line that it prints."""
    words = ("train", str(PROFILE), "--name", f"line-{number}", "--set", "steps=1")
    command, began = [sys.executable, "-m", "deployments.cli.main", *words], time.monotonic()
    with subprocess.Popen(command, env=made.environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        process.stderr.readline()
        seconds = time.monotonic() - began
        process.communicate()
    return seconds


def import_seconds() -> float:
    """Of the libraries that every command with a ledger imports, in a process of their own."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-c", "import sqlalchemy, pydantic, typer"], check=True)
    return time.monotonic() - began


def tell_cost_of_prefect(api_url: str) -> None:
    """Of driving a run, beside the same without Prefect."""
    with temporary_settings({PREFECT_API_URL: api_url, PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}):
        on = [driven(api_url, number, plain=False) for number in range(REPEATS)]
        off = [driven(api_url, number, plain=True) for number in range(REPEATS)]
    for index, what in enumerate(("wall", "processor")):
        there, gone = (statistics.median(pair[index] for pair in pairs) for pairs in (on, off))
        print(
            f"one attempt of 5 steps, {what}: {there:.2f} s with Prefect, {gone:.2f} s without: "
            f"{there - gone:+.2f} s, {there / gone:.2f} x"
        )


def main() -> int:
    """Print each figure beside its goal; 1 where one was missed."""
    folders = tempfile.TemporaryDirectory(prefix="primus-bench-", ignore_cleanup_errors=True)
    with folders as folder, console(Path(folder)) as made:
        first, later = up_seconds(made)
        print(f"primus up in a new home: {first:.1f} s; goal <= {UP_FIRST_GOAL_SECONDS:g} s")
        print(f"primus up later: {shown(later)}; goal <= {UP_GOAL_SECONDS:g} s")
        lines = [first_line_seconds(made, number) for number in range(REPEATS)]
        limit = statistics.median(import_seconds() for _ in range(REPEATS))
        print(
            f"primus train -> its first line: {shown(lines)}; goal <= {FIRST_LINE_GOAL_SECONDS:g} s; "
            f"{statistics.median(lines) / limit:.1f} times the import of its libraries ({limit:.2f} s)"
        )
        tell_cost_of_prefect(made.up()["api"])
        pids = {service: made.pid(service) for service in ("server", "runner", "monitor")}
        print("resident: " + ", ".join(f"{name} {resident_mib(pid):.0f} MiB" for name, pid in pids.items() if pid))
        ledger = Ledger(f"sqlite:///{folder}/ledger.sqlite")
        seen = [seen_seconds(made, ledger, number) for number in range(10)]
        print(f"ledger -> event on the server: {shown(seen)}; goal <= {SEEN_GOAL_SECONDS:g} s")
        ledger.close()
    missed = first > UP_FIRST_GOAL_SECONDS or statistics.median(later) > UP_GOAL_SECONDS
    missed = missed or statistics.median(lines) > FIRST_LINE_GOAL_SECONDS
    return 1 if missed or statistics.median(seen) > SEEN_GOAL_SECONDS else 0


if __name__ == "__main__":
    raise SystemExit(main())
