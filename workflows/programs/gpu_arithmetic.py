"""Matrix products of one GPU: how fast they are, and whether they are right.

Standard library only, Python 3.9. The factors are small whole numbers, so that every sum is exact in 32 bits whatever
the order in which it is added up. So a product can be held against a second one that adds up in another order, and each
later one against the first, bit by bit, without calling another order of adding an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

from workflows.programs.gpu_device import Array, Clock, Device, median

LEFT_SEED, RIGHT_SEED = 1, 2
CHUNKS = 8
"""Parts in which the second computation adds up, the last one first."""
BATCH_SECONDS = 0.1
"""Of products that are timed together: long against a clock's step, short against a heat-up."""
MOST_BATCH, FEWEST_BATCHES = 200, 3


@dataclass(frozen=True)
class Kind:
    """How products of one kind of numbers are made and judged."""

    most: int
    """Largest whole number in a factor."""
    wide: str
    """Kind of the second computation; it holds every sum exactly."""
    step: float
    """Share by which rounding to the result's kind may differ, 0: not at all."""
    size: int = 8192
    """Rows and columns where nobody says otherwise."""


KINDS: Mapping[str, Kind] = {
    # 8 * 8 * 8192 < 2**24: exact in 32 bits. Of fp16 six standard deviations of a sum are 13,000, its largest 65,504.
    "bf16": Kind(8, "fp32", 2.0**-7),
    "fp16": Kind(8, "fp32", 2.0**-10),
    # Some chips add these up with 14 bits: six standard deviations of a sum are 1,100 of 8,192.
    "fp8": Kind(2, "fp32", 2.0**-7),
    "fp32": Kind(8, "fp32", 0.0),
    "fp64": Kind(8, "fp64", 0.0, 4096),
}


def gemm(device: Device, kind: str, size: int, seconds: float) -> Dict[str, Any]:
    """Multiply for `seconds`: `rate` in TFLOP/s (median of batches) and how many values were `wrong`.

    Raises:
        UnavailableError: the library has no such products.
    """
    left, right = factors(device, kind, size)
    kept: List[Array] = [device.multiply(left, right)]
    first = kept[0]
    wrong = wrong_values(device, first, left, right, kind)

    def work() -> None:
        kept[0] = device.multiply(left, right)

    once = max(1e-7, device.seconds(work, 2))
    batch = max(1, min(MOST_BATCH, int(BATCH_SECONDS / once)))
    clock = Clock.of(seconds)
    taken: List[float] = []
    while len(taken) < FEWEST_BATCHES or not clock.is_up:
        taken.append(device.seconds(work, batch))
        wrong += device.count(kept[0] != first)
    rate = 2.0 * size**3 / median(taken) / 1e12
    line = f"{device.title}: {size} x {size}, {len(taken)} batches of {batch}, median; last of each compared"
    return {"rate": rate, "wrong": wrong, "line": line}


def smoke(device: Device, size: int) -> Dict[str, Any]:
    """One product of finite numbers: how many values are `not_finite`, and how many finite ones are `wrong`."""
    left, right = factors(device, "bf16", size)
    product = device.multiply(left, right)
    lost = device.count(~device.finite(product))
    wrong = wrong_values(device, product, left, right, "bf16") - lost
    return {"not_finite": lost, "wrong": wrong, "line": f"{device.title}: {size} x {size}, bf16"}


def burn(device: Device, kind: str, size: int, seconds: float) -> Dict[str, Any]:
    """Multiply without a pause for `seconds`."""
    left, right = factors(device, kind, size)
    clock, products = Clock.of(seconds), 0
    once = max(1e-7, device.seconds(lambda: device.multiply(left, right), 2))
    batch = max(1, min(MOST_BATCH, int(BATCH_SECONDS / once)))
    while not clock.is_up:
        device.seconds(lambda: device.multiply(left, right), batch)
        products += batch
    return {"products": products, "line": device.title}


def factors(device: Device, kind: str, size: int) -> Tuple[Array, Array]:
    """Both factors; the same ones on every GPU."""
    most = KINDS[kind].most
    right = device.whole(size, size, most, RIGHT_SEED, kind)
    return device.whole(size, size, most, LEFT_SEED, kind), device.for_right(right)


def wrong_values(device: Device, product: Array, left: Array, right: Array, kind: str) -> int:
    """How many values of a product are not those of a second computation; one that is no number is wrong."""
    wanted, own = KINDS[kind], device.cast(product, KINDS[kind].wide)
    total = _added_backwards(device, left, right, wanted.wide)
    return device.count(~(abs(own - total) <= abs(total) * wanted.step))


def _added_backwards(device: Device, left: Array, right: Array, wide: str) -> Array:
    """The product in wider numbers, in parts along the inner side, the last part first."""
    inner = int(left.shape[1])
    part = max(1, -(-inner // CHUNKS))
    total: Any = None
    for begin in range((inner - 1) // part * part, -1, -part):
        one = device.multiply(
            device.cast(left[:, begin : begin + part], wide), device.cast(right[begin : begin + part, :], wide)
        )
        total = one if total is None else total + one
    return total
