"""A collective over all GPUs of a node, and a small model trained on each: how fast, and is every result right?

The collective's values are whole numbers whose sums are exact, so any other value is wrong. The model has fixed weights
and inputs, so every GPU must get the same loss, bit by bit: blocks of two products with a residual, gradients by hand,
32-bit weights beside 16-bit ones: the shape of a training step, in operations whose order does not vary between calls.
"""

from __future__ import annotations

import hashlib
import math
import struct
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Tuple

from workflows.programs.probes.gpu.device import Array, Device, DeviceGroup, UnavailableError, median

WARM_ITERATIONS = 5
PART = 32 << 20
"""Values that are made or looked at together: what they need beside them stays small."""
MODULUS = 251
"""A prime: neighbours in memory, and parts of a power of two, never hold the same values."""
VALUE_BYTES = 4


def collective(device: Device, group: DeviceGroup, operation: str, size_bytes: int, iterations: int) -> Dict[str, Any]:
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


def _all_reduce(device: Device, group: DeviceGroup, count: int) -> _Run:
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


def _all_to_all(device: Device, group: DeviceGroup, count: int) -> _Run:
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


WEIGHT_MOST = 127
LOW, HIGH = "bf16", "fp32"
WARM_STEPS = 3
"""Not timed: clocks rise, and libraries choose."""


@dataclass(frozen=True)
class Model:
    """A model's shape."""

    blocks: int
    width: int
    hidden: int
    tokens: int
    """Rows of one step's input."""
    rate: float
    """Learning rate: below a tenth of the one at which the loss grows, as tried."""

    @property
    def step_flops(self) -> float:
        """Forward two products a block, backward four; each 2 * tokens * width * hidden."""
        return 12.0 * self.blocks * self.tokens * self.width * self.hidden


MODELS: Mapping[str, Model] = {
    "small": Model(blocks=4, width=2048, hidden=8192, tokens=8192, rate=0.0005),
    "tiny": Model(blocks=2, width=64, hidden=128, tokens=64, rate=0.05),
}
"""By name; `small` has 134 million weights and takes 2 GiB, `tiny` shows on any machine that everything is there."""


def train(device: Device, name: str, steps: int) -> Dict[str, Any]:
    """Train the model twice.

    Returns:
        `losses` (bits of each step's loss as hexadecimal words) and `weights` (of both runs' ends) of the first run,
        `unlike`: steps at which the second one differs, `not_finite` losses of both, `step_seconds` (median).
    """
    model = MODELS[name]
    first, seconds = _run(device, model, steps)
    second, _ = _run(device, model, steps)
    words = [_bits(loss) for loss in first[0]]
    again = [_bits(loss) for loss in second[0]]
    return {
        "losses": words,
        "weights": first[1],
        "unlike": max(unlike(words, again), int(first[1] != second[1])),
        "not_finite": sum(not math.isfinite(loss) for loss in (*first[0], *second[0])),
        "step_seconds": median(seconds[min(WARM_STEPS, len(seconds) - 1) :]),
        "line": f"{device.title}: model {name}, {steps} steps, loss {first[0][0]:.4g} to {first[0][-1]:.4g}",
    }


def unlike(one: List[str], other: List[str]) -> int:
    """Steps at which two runs' losses differ; steps that one of them lacks count."""
    return sum(left != right for left, right in zip(one, other)) + abs(len(one) - len(other))  # noqa: B905  (3.9)


def digest(losses: List[str], weights: int) -> str:
    """One word for a run: of equal ones the same, of unlike ones another."""
    return hashlib.sha256(f"{' '.join(losses)} {weights}".encode("ascii")).hexdigest()[:16]


def _bits(loss: float) -> str:
    return struct.pack(">f", loss).hex() if math.isfinite(loss) else str(loss)


def _run(device: Device, model: Model, steps: int) -> Tuple[Tuple[List[float], int], List[float]]:
    """(loss of each step, checksum of the weights in the end), seconds of each step."""
    net = _Net(device, model)
    losses: List[Array] = []
    seconds = [device.seconds(lambda: losses.append(net.step()), 1) for _ in range(steps)]
    checks = sum(device.checksum(weights) for pair in net.weights for weights in pair)
    return ([float(loss) for loss in losses], checks), seconds


class _Net:
    """The model while it trains."""

    def __init__(self, device: Device, model: Model) -> None:
        self._device, self._model = device, model
        sides = (model.width, model.hidden), (model.hidden, model.width)
        self.weights: List[List[Array]] = [
            [
                self._spread(rows, columns, (10 + 2 * block + side), 2.0 ** -round(math.log2(rows) / 2.0))
                for side, (rows, columns) in enumerate(sides)
            ]
            for block in range(model.blocks)
        ]
        self._input = device.cast(self._spread(model.tokens, model.width, 3, 1.0), LOW)
        self._target = self._spread(model.tokens, model.width, 4, 1.0)

    def _spread(self, rows: int, columns: int, seed: int, most: float) -> Array:
        """Values between `-most` and `most`; a division by a power of two makes them the same everywhere."""
        return self._device.whole(rows, columns, WEIGHT_MOST, seed, HIGH) * (most / 128.0)

    def step(self) -> Array:
        """One step of gradient descent; its loss before it, still on the device."""
        low = [[self._device.cast(one, LOW) for one in pair] for pair in self.weights]
        inputs: List[Array] = []
        hidden: List[Array] = []
        flowing = self._input
        for up, down in low:
            inputs.append(flowing)
            middle = self._device.multiply(flowing, up)
            middle = middle * (middle > 0)
            hidden.append(middle)
            flowing = flowing + self._device.multiply(middle, down)
        error = self._device.cast(flowing, HIGH) - self._target
        loss = self._device.mean(error * error)
        back = self._device.cast(error, LOW)
        for block in range(len(low) - 1, -1, -1):
            back = self._back(block, low[block], inputs[block], hidden[block], back)
        return loss

    def _back(self, block: int, low: List[Array], before: Array, middle: Array, back: Array) -> Array:
        """Gradients of one block, taken off its weights; what flows on to the block before."""
        rate = self._model.rate / self._model.tokens
        inner = self._device.multiply(back, low[1].T) * (middle > 0)
        for side, gradient in enumerate(
            (self._device.multiply(before.T, inner), self._device.multiply(middle.T, back))
        ):
            self.weights[block][side] = self.weights[block][side] - self._device.cast(gradient, HIGH) * rate
        return back + self._device.multiply(inner, low[0].T)
