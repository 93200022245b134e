"""Signals of what is only told: the training goes on, and nothing is to be done. Loads nothing, records know them."""

from __future__ import annotations

from enum import StrEnum


class Told(StrEnum):
    """What a coordinator finds beside hangs and losses that are no numbers."""

    LOSS_JUMP = "loss-jump"
    """Five times its recent median."""
    GRADIENT_NORM_JUMP = "gradient-norm-jump"
    GRADIENT_NORM_NOT_FINITE = "gradient-norm-not-finite"
    """Loss scalers of mixed precision skip such a step now and then: one alone is no harm."""
    SLOW_RANK = "slow-rank"
    """A rank lags. When waiting for its node has cost as much as leaving it, `Signal.STRAGGLER` comes as well."""
    SLOW_GANG = "slow-gang"
    """All ranks became slower together."""


TOLD: frozenset[str] = frozenset(Told)
LASTING: frozenset[str] = frozenset({Told.SLOW_RANK, Told.SLOW_GANG})
"""Those that are over at some time; the others are moments."""
