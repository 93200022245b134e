"""How the ranks of one pod are started, in the first incarnation and in each further one. Pure."""

from __future__ import annotations

from typing import List, Mapping, NamedTuple, Optional

from workflows.programs import ranks
from workflows.programs.launch_options import (
    Options,
    Place,
    Rendezvous,
    command_of,
    counting,
    working_directory,
)
from workflows.programs.progress import Reader
from workflows.programs.progress_formats import Framework
from workflows.programs.rank_environment import rank_environment


class RankStart(NamedTuple):
    """One rank to be started, and who reads what it prints."""

    start: ranks.Start
    reader: Reader


def starts(
    options: Options,
    place: Place,
    environment: Mapping[str, str],
    meeting: Rendezvous,
    framework: Optional[Framework],
    at: float,
) -> List[RankStart]:
    """Every rank of this pod.

    Args:
        options: of the launcher.
        place: with what is resumed now.
        environment: what ranks get beside torchrun's names.
        meeting: of this incarnation.
        framework: what the program prints; None: its lines say nothing.
        at: Unix time in seconds.
    """
    argv, folder = command_of(options, place), working_directory(options, place)
    found: List[RankStart] = []
    for local_rank in range(options.processes_per_node):
        rank = meeting.first_rank + local_rank
        own = rank_environment(environment, options, place, meeting, local_rank)
        reader = Reader(framework, counting(options, place), rank, at, meeting.incarnation)
        start = ranks.Start(rank, local_rank, argv, own, folder, options.pseudo_terminal)
        found.append(RankStart(start, reader))
    return found


def beginning(place: Place, meeting: Rendezvous) -> str:
    """What a further incarnation begins with, in words."""
    resumed = "from scratch" if place.resume_step is None else f"after step {place.resume_step}"
    return f"incarnation {meeting.incarnation} begins {resumed}"
