"""A round of a test between nodes as the ledger keeps it: asked first, then with what every pod reported. Pure."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


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
