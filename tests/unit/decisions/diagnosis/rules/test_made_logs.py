"""Logs of all classes as machines print them: `made_logs.txt`, each with what an expert would say of it.

`#### name | class, others that are as good | ranks=1,2 | nodes=a` begins a log, `@@ name` a file of it. `ranks=` alone
means that nobody is to blame; where neither stands, nobody knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from flows.decisions.diagnosis.diagnose import diagnose
from flows.decisions.diagnosis.selection import evidence_of
from profiles.vocabulary import FaultClass


@dataclass
class Made:
    """One log."""

    name: str
    classes: list[FaultClass]
    ranks: set[int] | None = None
    nodes: set[str] | None = None
    files: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def read() -> list[Made]:
    found: list[Made] = []
    name = ""
    for line in (Path(__file__).parent / "made_logs.txt").read_text(encoding="utf-8").split("\n")[:-1]:
        if line.startswith("#### "):
            found.append(_head([part.strip() for part in line[5:].split("|")]))
            name = "train.log"
        elif line.startswith("@@ "):
            name = line[3:]
        else:
            found[-1].files.setdefault(name, []).append(line)
    return found


def _head(parts: list[str]) -> Made:
    made = Made(parts[0], [FaultClass(word) for word in parts[1].split(",")])
    for part in parts[2:]:
        key, _, value = part.partition("=")
        words = {word for word in value.split(",") if word}
        if key == "ranks":
            made.ranks = {int(word) for word in words}
        else:
            made.nodes = words
    return made


LOGS = {made.name: made for made in read()}


def test_there_are_logs_of_every_class() -> None:
    assert {kind for made in LOGS.values() for kind in made.classes} == set(FaultClass)
    assert len(LOGS) == len(read()) >= 200


@pytest.mark.parametrize("name", LOGS)
def test_a_log_is_diagnosed_as_an_expert_would(name: str) -> None:
    made = LOGS[name]
    found = diagnose(evidence_of(made.files.items()))
    assert found.fault_class in made.classes
    ranks = {rank for _, rank in found.culprits if rank is not None}
    nodes = {node for node, _ in found.culprits if node}
    assert made.nodes is None or nodes == made.nodes
    assert made.ranks is None or ranks == made.ranks
