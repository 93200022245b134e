"""A short trial of a run: how much of it is seen, and how fast it must be."""

from __future__ import annotations

from pydantic import Field, model_validator

from profiles.values import Count, Value, wrong


class TrialPolicy(Value):
    """What `primus preflight --trial` looks at: the run's own program for a few steps, with checkpoints of its own."""

    steps: int = Field(default=20, ge=2)
    """Steps that must be seen; more where the program tells only every so many of them."""
    skip_steps: Count = 5
    """First steps that do not count for the rate: compilers, caches and clocks warm up in them."""
    deadline_seconds: float = Field(default=1200.0, gt=0, le=4 * 3600)
    """From its beginning to the last of these steps, with images, imports and loading of data."""
    at_least_steps_per_second: float | None = Field(default=None, gt=0)
    """A slower gang does not pass; none: only other gangs and the nodes' own past say what is slow."""

    @model_validator(mode="after")
    def _some_steps_are_measured(self) -> TrialPolicy:
        if self.skip_steps > self.steps - 1:
            raise wrong("skip_steps", f"must be less than steps ({self.steps}), got {self.skip_steps}")
        return self
