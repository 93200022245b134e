"""What a test of a GPU needs of it: one small protocol, so that the same test runs on any library and on a made-up GPU.

Standard library only, Python 3.9. Arrays are the library's own: they know `+ - * += ^ ~ != > <=`, `abs`, `.T` and
slices.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Protocol, Sequence, Tuple

from workflows.programs.probes.call import LIMIT_VARIABLE

Array = Any
KINDS = ("bf16", "fp16", "fp8", "fp32", "fp64")
"""Kinds of numbers that a suite may name."""
END_SECONDS = 1.0
"""Left for what is told when the limit comes near."""


class UnavailableError(Exception):
    """Nothing can be measured here; the message says why and what helps."""


class Device(Protocol):
    """One opened GPU."""

    title: str
    """Its model, for people."""
    identity: str
    """Tells it from every other one (bus address, serial number); "": the library does not say."""

    def free_bytes(self) -> Tuple[int, int]:
        """Bytes of its memory that are free, and all of them."""
        ...

    def whole(self, rows: int, columns: int, most: int, seed: int, kind: str) -> Array:
        """[rows, columns] whole numbers from `-most` to `most`; the same ones for a seed on every device.

        Raises:
            UnavailableError: the library has no such kind of numbers here.
        """
        ...

    def cast(self, values: Array, kind: str) -> Array:
        """The values as another kind of numbers."""
        ...

    def for_right(self, values: Array) -> Array:
        """The same values, laid out as the right factor of a product."""
        ...

    def multiply(self, left: Array, right: Array) -> Array:
        """The product of two matrices; of `fp8` ones as `bf16`, else of their own kind."""
        ...

    def ramp(self, begin: int, count: int) -> Array:
        """[count] whole numbers of 64 bits from `begin` on."""
        ...

    def zeros(self, count: int, kind: str) -> Array:
        """[count] zeros; `int64` is a kind, too.

        Raises:
            MemoryError: they do not fit.
        """
        ...

    def count(self, truths: Array) -> int:
        """How many are true."""
        ...

    def finite(self, values: Array) -> Array:
        """Which are finite."""
        ...

    def mean(self, values: Array) -> Array:
        """Their mean, still on the device."""
        ...

    def checksum(self, values: Array) -> int:
        """A whole number of all bits of `fp32` values, whatever the order in which they are read."""
        ...

    def seconds(self, work: Callable[[], Any], times: int) -> float:
        """The device's own time for one of `times` calls, one after the other."""
        ...

    def together(self, works: Sequence[Callable[[], Any]]) -> float:
        """The host's seconds for all works, begun together, each in a queue of its own, until all are done."""
        ...

    def host_block(self, count: int) -> Array:
        """[count] of 64 bits in the host's memory, from which the device copies at full speed."""
        ...

    def peer_block(self, peer: int, count: int) -> Array:
        """[count] of 64 bits on another GPU.

        Raises:
            UnavailableError: that one cannot be reached.
        """
        ...

    def copy(self, target: Array, source: Array) -> None:
        """Copy between any two of them, without waiting for the end."""
        ...

    def wait(self) -> None:
        """Until everything is done."""
        ...


class DeviceGroup(Protocol):
    """All GPUs of a node together, as one of them sees it."""

    rank: int
    size: int

    def all_reduce(self, values: Array) -> None:
        """Put the sum over all GPUs into `values`."""
        ...

    def all_to_all(self, target: Array, source: Array) -> None:
        """Part i of `source` goes to GPU i; part j of `target` comes from GPU j."""
        ...

    def slowest(self, seconds: float) -> float:
        """The largest of what all GPUs give; it waits for all of them."""
        ...


class Platform(Protocol):
    """The library, before any GPU is opened."""

    version: str
    """`torch 2.3.1+cu121`."""
    missing: str
    """What to do where it sees no GPU."""

    def count(self) -> int:
        """GPUs that it sees."""
        ...

    def open(self, index: int, alone: bool) -> Device:
        """Open a GPU; `alone`: this process is to see no other one."""
        ...

    def join(self, device: Device, rank: int, size: int, folder: str) -> DeviceGroup:
        """Meet the other processes by an empty folder that all of them see."""
        ...


@dataclass(frozen=True)
class MeasuringDeadline:
    """Until when a measurement goes on."""

    ends: float
    """By the monotonic clock."""

    @staticmethod
    def of(seconds: float) -> MeasuringDeadline:
        """One that begins now."""
        return MeasuringDeadline(time.monotonic() + seconds)

    @property
    def is_up(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self.ends


def own_limit(seconds: float, process_began: Optional[float] = None) -> float:
    """The monotonic time at which a probe of `seconds` gives up by itself, before its parent would kill it.

    `process_began` is the monotonic start of the process; None: now.
    """
    now = time.monotonic()
    try:
        granted = float(os.environ.get(LIMIT_VARIABLE, ""))
    except ValueError:
        return now + seconds
    began = now if process_began is None else process_began
    return min(now + seconds, began + max(0.5, granted - END_SECONDS))


def median(figures: Sequence[float]) -> float:
    """The middle one; of an even number the lower of the two."""
    ordered: List[float] = sorted(figures)
    return ordered[(len(ordered) - 1) // 2]
