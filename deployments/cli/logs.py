"""`primus logs`: the ranks' output from the run's folder, which outlives pods and nodes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from deployments.cli.app import MOST, Run, app
from deployments.exit_codes import GOOD, out, say
from flows.decisions.text import timestamp
from profiles.errors import NotFound, ProfileError
from profiles.vocabulary import Action
from tasks.ledger.ledger import Ledger
from tasks.runs.open import resolved_of, run_folder
from tasks.settings import Settings
from workflows.model.records import Story
from workflows.programs.launcher.output import printable_text
from workflows.programs.runtime.files import GENERATIONS

LOOK_SECONDS = 0.2
_BEGINS = re.compile(r"^\S+ launcher: incarnation (\d+) begins ")
"""What a launcher writes into its own log and those of its ranks when they begin again; at first it does not."""


@app.command("logs")
def show_logs(
    run: Run,
    attempt: Annotated[
        int, typer.Option("--attempt", min=0, max=MOST, help="Number of the attempt; 0: the newest.")
    ] = 0,
    rank: Annotated[int, typer.Option("--rank", min=-1, max=MOST, help="One rank's output; -1: the launchers'.")] = -1,
    incarnation: Annotated[
        int,
        typer.Option(
            "--incarnation", min=0, max=MOST, help="Only what ranks printed since they began for the Nth time; 0: all."
        ),
    ] = 0,
    *,
    first_failing: Annotated[bool, typer.Option("--first-failing", help="The rank that failed first.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the attempt ends.")] = False,
) -> int:
    """What the processes of a run printed, also after their node is gone.

    Example: primus logs demo-1 --attempt 1 --first-failing
    """
    if first_failing and rank >= 0:
        raise ProfileError("--rank", "leave it out: --first-failing finds the rank by itself")
    settings = Settings.from_environment(os.environ)
    ledger = Ledger(settings.ledger_url)
    story = ledger.story(run)
    number = attempt or (story.attempt.number if story.attempt else 0)
    folder = run_folder(resolved_of(story.run), run) / f"a{number}"
    if first_failing:
        rank = _first_failing(folder)
    for line in incarnations(story, number):
        say(line)
    paths = _paths(folder, rank)
    printed = [_print(path, incarnation, titled=len(paths) > 1) for path in paths]
    if incarnation and not any(printed):
        there = sorted({found for path in paths for found, _ in numbered(lines_of(path), _whole(path))})
        said = ", ".join(str(found) if found else "lines of which nobody knows" for found in there)
        raise NotFound(f"no line there is of incarnation {incarnation}; there: {said or 'nothing'}")
    if follow and paths:
        _follow(paths[0], lambda: _is_over(ledger, run, number), incarnation)
    return GOOD


def numbered(lines: Iterable[str], whole: bool = True) -> Iterator[tuple[int, str]]:
    """The lines of a log, each with the incarnation in which it was written.

    Args:
        lines: in order.
        whole: the log begins where the first incarnation did. Of one whose beginning was rotated away, the lines before
            the first that says so are of the incarnation before it; where none says so nobody knows, and it is 0.
    """
    number, unknown = (1, []) if whole else (0, list[str]())
    for line in lines:
        begins = _BEGINS.match(line)
        if begins is not None:
            yield from ((int(begins[1]) - 1, before) for before in unknown)
            number, unknown = int(begins[1]), []
        if number:
            yield number, line
        else:
            unknown.append(line)
    yield from ((0, line) for line in unknown)


def _print(path: Path, incarnation: int, *, titled: bool) -> int:
    """Print one log, or one incarnation of it; returns the number of lines."""
    if titled:
        out(f"==> {path.parent.name}/{path.name} <==")
    printed = 0
    lines = lines_of(path)
    for number, line in numbered(lines, _whole(path)) if incarnation else ((0, line) for line in lines):
        if number == incarnation:
            out(line)
            printed += 1
    return printed


def _whole(path: Path) -> bool:
    """Whether the log still has its beginning: rotation has not dropped its oldest part."""
    return not path.with_name(f"{path.name}.{GENERATIONS}").exists()


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
    """The rank that ended first among those that were not asked to end."""
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


def lines_of(path: Path) -> Iterator[str]:
    """A log from its oldest generation on, as a terminal may see it."""
    for part in [*sorted(path.parent.glob(f"{path.name}.*"), reverse=True), path]:
        with part.open("rb") as log:
            for line in log:
                yield printable_text(line.rstrip(b"\n"))


def _is_over(ledger: Ledger, run: str, number: int) -> bool:
    return any(item.number == number and item.ended_at is not None for item in ledger.story(run).attempts)


def _follow(path: Path, is_over: Callable[[], bool], incarnation: int = 0) -> None:
    with path.open("rb") as log:
        log.seek(0, os.SEEK_END)
        while True:
            over = is_over()
            for line in log:
                text = printable_text(line.rstrip(b"\n"))
                begins = _BEGINS.match(text)
                if incarnation and begins is not None and int(begins[1]) > incarnation:
                    return
                out(text)
            if over:
                return
            time.sleep(LOOK_SECONDS)
