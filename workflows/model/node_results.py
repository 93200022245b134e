"""What tests left: a node's answers, and a round between nodes as the ledger keeps it.

A round is written down when it is asked for, and again with what every pod left.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from workflows.programs.parsers.text import ParsedOutput


@dataclass(frozen=True)
class NodeResult:
    """What one node reported."""

    node: str
    at: float = 0.0
    """Unix seconds by the node's clock; 0: it told nothing."""
    seconds: float = 0.0
    answers: Mapping[int, Sequence[ParsedOutput]] = field(default_factory=dict[int, Sequence[ParsedOutput]])
    """Number of a call -> what each attempt told."""
    why: str = ""
    """Why there is no answer."""


@dataclass(frozen=True)
class PodTold:
    """What the pod of one member left."""

    text: str
    """Its report; `{}` where it left none."""
    ended: str
    """How it ended, for people."""


@dataclass(frozen=True)
class RoundRecord:
    """One round of a test, written down before it is submitted and again when all its pods have ended."""

    cluster: str
    test: int
    """Number of the test."""
    step: int
    """Its place among all rounds of the test, from 1."""
    number: int
    """Of the round's workflows and folder."""
    asked: str
    """What is measured, as one word (`asked_of`): a newer program may ask for something else in the same place."""
    at: float
    """Unix seconds when this was written."""
    told: bytes = b""
    """What the pods told (`pack`); empty: not known yet."""


def asked_of(groups: Sequence[Sequence[str]], demand: object) -> str:
    """The same for the same groups that measure the same; `demand` is any frozen value."""
    asked = json.dumps([[list(group) for group in groups], repr(demand)])
    return hashlib.sha256(asked.encode()).hexdigest()[:16]


def pack(told: Mapping[str, PodTold]) -> bytes:
    """What pods reported, by node, in few bytes: 4,096 nodes in about 0.1 MB."""
    return zlib.compress(json.dumps({node: [one.text, one.ended] for node, one in told.items()}).encode())


def unpack(packed: bytes) -> dict[str, PodTold]:
    """What was packed."""
    found: dict[str, list[str]] = json.loads(zlib.decompress(packed))
    return {node: PodTold(text, ended) for node, (text, ended) in found.items()}
