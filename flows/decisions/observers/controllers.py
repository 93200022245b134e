"""Slurm's controller: jobs that ended by a signal, and the one node that they ran on."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from flows.decisions.clues import Clue
from flows.decisions.cues import Cue
from profiles.vocabulary import FaultClass
from workflows.evidence import LogLine

_ALLOCATED = re.compile(r"\bJobId=(?P<job>\d{1,12})\S{0,12} NodeList=(?P<node>[\w.-]{1,100})(?=[\s,]|$)")
_KILLED = re.compile(r"\bJobId=(?P<job>\d{1,12})\S{0,12} WTERMSIG (?P<signal>9|11|7)\b")
_SAYS_JOB = Cue("nodelist=", "wtermsig", of=(_ALLOCATED, _KILLED))
KILLED_WEIGHT = 0.7
"""Nothing says why; the node is where to look."""


def killed(lines: Sequence[LogLine]) -> Iterator[Clue]:
    """Jobs that a signal ended, blamed on their node where they had one only."""
    nodes: dict[str, str] = {}
    for line in _SAYS_JOB.among(lines):
        allocated = _ALLOCATED.search(line.text) if "NodeList=" in line.text else None
        if allocated is not None:
            nodes[allocated["job"]] = allocated["node"]
        ended = _KILLED.search(line.text) if "WTERMSIG" in line.text else None
        if ended is not None and ended["job"] in nodes:
            node = nodes[ended["job"]]
            text = f"job {ended['job']} on {node}: ended by signal {ended['signal']}"
            yield Clue(
                FaultClass.PROCESS_KILLED, KILLED_WEIGHT, text, "slurm-job-killed", "node", node, None, line.at,
                file=line.file, line=line.line, supersedes=("killed-signal", "crashed-signal"),
            )  # fmt: skip
