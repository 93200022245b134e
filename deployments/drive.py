"""What every driver does once it has a run, however its process came to be."""

from __future__ import annotations

import asyncio


def drive_here(run: str) -> int:
    """Drive the run in this process until its flow ends; the exit code."""
    from flows.train import train
    from profiles.request import TrainRequest

    asyncio.run(train(TrainRequest(name=run, profile="")))  # pyright: ignore[reportArgumentType]
    return 0
