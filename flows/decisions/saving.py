"""How often to save: the checkpoint interval that loses least, by four formulas. Times in seconds.

Source of each: fault tolerance notes, 6.3, and the papers named there. d is the stall of one save, M the mean time to
failure of the whole gang, R the time of a restart, t the training between two saves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from workflows.programs import checkpoint_interval

# The coordinator advises by the same ones, and has the standard library alone to do so.
young_interval_seconds = checkpoint_interval.young_seconds
daly_interval_seconds = checkpoint_interval.daly_seconds
optimal_interval_seconds = checkpoint_interval.optimal_seconds
asynchronous_interval_seconds = checkpoint_interval.asynchronous_seconds


def expected_wall_seconds(
    work_seconds: float, interval_seconds: float, stall_seconds: float, restart_seconds: float, mttf_seconds: float
) -> float:
    """Expected wall time of `work_seconds` of training (Daly): M e^(R/M) (e^((t+d)/M) - 1) Ts / t."""
    grown = math.expm1((interval_seconds + stall_seconds) / mttf_seconds)
    return mttf_seconds * math.exp(restart_seconds / mttf_seconds) * grown * work_seconds / interval_seconds


def availability_interval_seconds(
    save_seconds: float, mttf_seconds: float, restart_seconds: float, detection_seconds: float = 0.0
) -> float:
    """From one save's begin to the next one's, the save included, at the best availability: Ts + sqrt(2(Tf+Tr)Ts+Ts^2).

    Where a fault shows late (silent corruption), a shorter interval would only keep poisoned checkpoints: then the
    interval is the time of detection, and checkpoints older than that must be kept.
    """
    best = save_seconds + math.sqrt(2 * (mttf_seconds + restart_seconds) * save_seconds + save_seconds**2)
    return max(best, detection_seconds)


@dataclass(frozen=True)
class TwoLevels:
    """Saves in memory often, on storage rarely."""

    memory_seconds: float
    """Between two saves in memory."""
    storage_seconds: float
    """Between two saves on storage: a whole number of those in memory."""


def two_level_intervals(
    memory_stall_seconds: float, memory_mttf_seconds: float, storage_stall_seconds: float, storage_mttf_seconds: float
) -> TwoLevels:
    """Each level by its own failures: memory survives a process or one node, storage the loss of several or a rack.

    Args:
        memory_stall_seconds: of one save in memory.
        memory_mttf_seconds: between failures that memory survives.
        storage_stall_seconds: of one save on storage.
        storage_mttf_seconds: between failures that only storage survives.
    """
    memory = optimal_interval_seconds(memory_stall_seconds, memory_mttf_seconds)
    storage = optimal_interval_seconds(storage_stall_seconds, storage_mttf_seconds)
    return TwoLevels(memory, memory * max(1, round(storage / memory)) if memory > 0 else storage)
