"""`primus logs`: the ranks' own output from the run's folder, which outlives pods and nodes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from deployments.edge import GOOD, out, say
from flows.decisions.spans import timestamp
from profiles.errors import NotFound
from profiles.resolve import Resolved
from profiles.vocabulary import Action
from tasks.ledger import Ledger
from tasks.opening import run_folder
from tasks.settings import Settings
from workflows.records import Story

LOOK_SECONDS = 0.2


def show_logs(run: str, attempt: int, rank: int, *, first_failing: bool, follow: bool) -> int:
    """Print the logs of one attempt: of one rank, of the rank that failed first, or of all launchers."""
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    story = ledger.story(run)
    number = attempt or (story.attempt.number if story.attempt else 0)
    folder = run_folder(Resolved.model_validate(story.run.resolved), run) / f"a{number}"
    if first_failing:
        rank = _first_failing(folder)
    for line in incarnations(story, number):
        say(line)
    paths = _paths(folder, rank)
    for path in paths:
        if len(paths) > 1:
            out(f"==> {path.parent.name}/{path.name} <==")
        for line in _lines(path):
            out(line)
    if follow and paths:
        _follow(paths[0], lambda: _is_over(ledger, run, number))
    return GOOD


def incarnations(story: Story, attempt: int) -> list[str]:
    """When the attempt's ranks began again in their pods: their logs go on in the same files."""
    return [
        f"{timestamp(item.detected_at)} {item.why}: {item.seen}"
        for item in story.incidents
        if item.attempt == attempt and item.action is Action.RESTART_IN_PLACE
    ]


def _paths(folder: Path, rank: int) -> list[Path]:
    pattern = "*/launcher.log" if rank < 0 else f"*/rank-{rank}.log"
    paths = sorted(folder.glob(pattern))
    if not paths:
        there = sorted({path.name for path in folder.glob("*/*.log")})
        raise NotFound(f"no such log in {folder}; there: {', '.join(there) or 'nothing (yet)'}")
    return paths


def _first_failing(folder: Path) -> int:
    """The rank whose end came first among those nobody had asked to end."""
    ends: list[tuple[float, int]] = []
    for path in folder.glob("*/termination.json"):
        try:
            record = json.loads(path.read_text())
        except (OSError, ValueError):
            continue
        first = record.get("first_failing_rank")
        ends += [(end["at"], end["rank"]) for end in record.get("ranks", []) if end.get("rank") == first]
    if not ends:
        raise NotFound(f"no rank of this attempt left a record of a failure in {folder}")
    rank = min(ends)[1]
    say(f"rank {rank} failed first")
    return rank


def _lines(path: Path) -> Iterator[str]:
    for part in [*sorted(path.parent.glob(f"{path.name}.*"), reverse=True), path]:
        with part.open(encoding="utf-8", errors="replace") as log:
            for line in log:
                yield line.rstrip("\n")


def _is_over(ledger: Ledger, run: str, number: int) -> bool:
    return any(item.number == number and item.ended_at is not None for item in ledger.story(run).attempts)


def _follow(path: Path, is_over: Callable[[], bool]) -> None:
    with path.open(encoding="utf-8", errors="replace") as log:
        log.seek(0, os.SEEK_END)
        while True:
            over = is_over()
            for line in log:
                out(line.rstrip("\n"))
            if over:
                return
            time.sleep(LOOK_SECONDS)
