"""What makes two incidents one: a fingerprint of the fact, the same for whoever sees it. Pure."""

from __future__ import annotations

import hashlib
import json

from workflows.evidence import LIVING, Signal

END = "end"
"""An attempt ends once: whoever sees a pod fail, its JobSet fail or its pods gone sees the same."""


def fact_of(
    run: str,
    attempt: int,
    signal: str,
    *,
    incarnation: int | None = None,
    number: int | None = None,
    who: tuple[str, int | None] | None = None,
    step: int | None = None,
) -> str:
    """The name of a fact: SHA-256 over what belongs to it, and nothing that depends on who looks or when.

    Args:
        run: its name.
        attempt: of the run.
        signal: what was seen; every signal that ends an attempt counts as its end.
        incarnation: of the ranks, where the same may happen once in each.
        number: of a restart in place within the attempt: replica groups have incarnations of their own.
        who: node and rank that it is about; None: nobody belongs to it.
        step: where the same at another step is another fact.
    """
    ends = signal in tuple(Signal) and signal not in (*LIVING, Signal.RANK_FAILED)
    parts = [run, attempt, END if ends else str(signal), incarnation, number, who, step]
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()
