"""A collective over all GPUs of a node: how fast it is, and whether every value of the result is right.

Standard library only, Python 3.9. Values are whole numbers whose sums are exact, so any other value is a wrong one.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping

from workflows.programs.gpu_device import Array, Device, Group, UnavailableError

WARM_ITERATIONS = 5
PART = 32 << 20
"""Values that are made or looked at together: what they need beside them stays small."""
MODULUS = 251
"""A prime: neighbours in memory, and parts of a power of two, never hold the same values."""
VALUE_BYTES = 4


def collective(device: Device, group: Group, operation: str, size_bytes: int, iterations: int) -> Dict[str, Any]:
    """Run it `iterations` times; `rate`: bus bandwidth in GB/s by the slowest GPU, `wrong` values of this GPU.

    Raises:
        UnavailableError: it does not fit into the memory.
    """
    count = max(1, size_bytes // VALUE_BYTES // group.size) * group.size
    buffers = 1 if operation == "all-reduce" else 2
    free, _ = device.free_bytes()
    needed = buffers * count * VALUE_BYTES + 6 * min(PART, count) * 8
    if needed > free:
        raise UnavailableError(f"{needed / 2**30:.1f} GiB are needed and {free / 2**30:.1f} free: ask for fewer bytes")
    run = {"all-reduce": _all_reduce, "all-to-all": _all_to_all}[operation](device, group, count)
    wrong = run.wrong()
    device.seconds(run.once, WARM_ITERATIONS)
    group.slowest(0.0)
    seconds = group.slowest(device.seconds(run.once, iterations))
    wrong += run.wrong()
    rate = SHARES[operation](group.size) * count * VALUE_BYTES / max(1e-9, seconds) / 1e9
    line = f"{device.title}: {operation} of {count * VALUE_BYTES >> 20} MiB over {group.size} GPUs, {iterations} times"
    return {"rate": rate, "wrong": wrong, "line": line}


SHARES: Mapping[str, Callable[[int], float]] = {
    "all-reduce": lambda size: 2.0 * (size - 1) / size,
    "all-to-all": lambda size: (size - 1) / size,
}
"""Bus bandwidth over bytes a second, as nccl-tests define it."""


class _Run:
    """A collective with the values that it starts from and those that must come out."""

    def __init__(self, once: Callable[[], None], wrong: Callable[[], int]) -> None:
        self.once, self.wrong = once, wrong


def _all_reduce(device: Device, group: Group, count: int) -> _Run:
    values = device.zeros(count, "fp32")
    ranks = group.size * (group.size + 1) // 2

    def once() -> None:
        group.all_reduce(values)

    def wrong() -> int:
        _fill(device, values, group.rank + 1, 0)
        group.all_reduce(values)
        bad = _unlike(device, values, ranks, 0)
        values[...] = 0  # what is summed again and again must not grow beyond all numbers
        return bad

    return _Run(once, wrong)


def _all_to_all(device: Device, group: Group, count: int) -> _Run:
    given, taken = device.zeros(count, "fp32"), device.zeros(count, "fp32")
    part = count // group.size

    def once() -> None:
        group.all_to_all(taken, given)

    def wrong() -> int:
        for other in range(group.size):
            _fill(device, given[other * part : (other + 1) * part], 1, _mark(group.rank, other, group.size))
        taken[...] = -1
        once()
        parts = [taken[other * part : (other + 1) * part] for other in range(group.size)]
        return sum(_unlike(device, one, 1, _mark(other, group.rank, group.size)) for other, one in enumerate(parts))

    return _Run(once, wrong)


def _mark(sender: int, receiver: int, size: int) -> int:
    """Tells the part that one GPU sends to another from all others."""
    return MODULUS * (sender * size + receiver)


def _values(device: Device, begin: int, count: int, times: int, more: int) -> Array:
    return device.cast((device.ramp(begin, count) % MODULUS) * times + more, "fp32")


def _fill(device: Device, values: Array, times: int, more: int) -> None:
    count = int(values.shape[0])
    for begin in range(0, count, PART):
        size = min(PART, count - begin)
        values[begin : begin + size] = _values(device, begin, size, times, more)


def _unlike(device: Device, values: Array, times: int, more: int) -> int:
    count, bad = int(values.shape[0]), 0
    for begin in range(0, count, PART):
        size = min(PART, count - begin)
        bad += device.count(values[begin : begin + size] != _values(device, begin, size, times, more))
    return bad
