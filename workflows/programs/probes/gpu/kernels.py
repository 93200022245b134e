"""Work of one GPU: matrix products, memory, copies, and its queue: how fast it is, and is every result right?

The factors of products are small whole numbers, so that every sum is exact in 32 bits in any order. So a product can be
compared with a second one that adds up in another order, and each later one with the first, bit by bit.

The queue shows what no product or copy by itself does: the time to queue one kernel, and whether the GPU computes while
data move, which a slow processor, its wrong power state, or a GPU that serialises work all spoil.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from workflows.programs.probes.gpu.device import Array, Device, MeasuringDeadline, UnavailableError, median

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
    clock = MeasuringDeadline.of(seconds)
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
    clock, products = MeasuringDeadline.of(seconds), 0
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


WORD_BYTES = 8
BLOCK_WORDS = 8 << 20
"""64 MiB, so that what is compared with it needs little room beside it."""
SPREAD = -7046029254386353131
"""An odd number (2**64 divided by the golden ratio, as signed): each address gets a word of its own, and a word that
lands at another address is a wrong one there."""
FLIPS = (0, -1)
"""Every bit is written as it is and as its complement."""
COPY_WORDS = 128 << 20
"""1 GiB: four times the largest cache in front of a GPU's memory (256 MiB)."""
MEMORY_ROUNDS, WARM_ROUNDS = 10, 2
OTHER_BYTES = "other bytes came"


def memory(device: Device, share: float, seconds: float) -> Dict[str, Any]:
    """Fill `share` of the free memory with a pattern and its complement until `seconds` are over, once at least.

    Returns:
        `rate` of a copy inside of the memory in GB/s, read and written; `wrong` bytes.
    """
    free, total = device.free_bytes()
    rate = _bandwidth(device, free)
    blocks = _blocks(device, int(free * share) // (BLOCK_WORDS * WORD_BYTES), free, share)
    clock, wrong, passes = MeasuringDeadline.of(seconds), 0, 0
    while not passes or not clock.is_up:
        for flip in FLIPS:
            wrong += _pass(device, blocks, flip, passes)
        passes += 1
    held = sum(int(block.shape[0]) for block in blocks) * WORD_BYTES
    line = (
        f"{device.title}: {held / 2**30:.1f} of {total / 2**30:.1f} GiB, "
        f"{passes} passes of pattern and complement; copies of {min(COPY_WORDS, _fitting(free)) * WORD_BYTES >> 20} MiB"
    )
    return {"rate": rate, "wrong": wrong, "line": line}


def _fitting(free: int) -> int:
    """Words of one of the two blocks that are copied, where memory is small."""
    return max(1, free // WORD_BYTES // 8)


def _bandwidth(device: Device, free: int) -> float:
    words = min(COPY_WORDS, _fitting(free))
    source, target = device.zeros(words, "int64"), device.zeros(words, "int64")
    return 2.0 * words * WORD_BYTES / timed_copy(device, target, source) / 1e9


def timed_copy(device: Device, target: Array, source: Array) -> float:
    """Seconds of one copy, median of some after the first ones."""
    taken = [device.seconds(lambda: device.copy(target, source), 1) for _ in range(WARM_ROUNDS + MEMORY_ROUNDS)]
    return max(1e-9, median(taken[WARM_ROUNDS:]))


def _blocks(device: Device, wanted: int, free: int, share: float) -> List[Array]:
    """As many blocks as were asked for, or as many as fit; a small memory is one smaller block."""
    if not wanted:
        return [device.zeros(max(1, int(free * share) // WORD_BYTES), "int64")]
    blocks: List[Array] = []
    try:
        for _ in range(wanted):
            blocks.append(device.zeros(BLOCK_WORDS, "int64"))
    except MemoryError:
        del blocks[-4:]  # what is compared with them needs room, too
    if not blocks:
        raise UnavailableError("its memory cannot be had: another process holds it")
    return blocks


def pattern(device: Device, block: int, words: int, flip: int, turn: int) -> Array:
    """What a block holds: of each address, and of each pass, another word."""
    return (device.ramp(block * BLOCK_WORDS + turn, words) * SPREAD) ^ flip


def _pass(device: Device, blocks: Sequence[Array], flip: int, turn: int) -> int:
    """Write all of the memory, then read all of it: bytes that are not what was written."""
    for number, block in enumerate(blocks):
        block[...] = pattern(device, number, int(block.shape[0]), flip, turn)
    device.wait()
    return sum(
        wrong_bytes(device, block, pattern(device, number, int(block.shape[0]), flip, turn))
        for number, block in enumerate(blocks)
    )


def wrong_bytes(device: Device, found: Array, wanted: Array) -> int:
    """Bytes in which two arrays of 64-bit words differ."""
    if not device.count(found != wanted):
        return 0
    differ = found ^ wanted
    return sum(device.count(((differ >> shift) & 255) != 0) for shift in range(0, 64, 8))


@dataclass(frozen=True)
class CopyRate:
    """Copies of one kind."""

    name: str
    """`to host`, `from host`, `gpu 0 -> gpu 1`."""
    rate: float = 0.0
    """GB/s; 0: not measured."""
    why: str = ""
    """Why the rate is none: other bytes came, or nothing at all."""


def copies(
    device: Device, index: int, peers: Sequence[int], words: int, about: Callable[[str], None]
) -> Iterator[CopyRate]:
    """Copies of `words` 64-bit words from host to GPU, back, and to each other GPU (`peers`), one after the other.

    `about` gets the name of each measurement as it begins.
    """
    host, here, second = device.host_block(words), device.zeros(words, "int64"), device.zeros(words, "int64")
    here[...] = pattern(device, index, words, 0, 0)

    def rate(name: str, target: Array, source: Array) -> float:
        about(name)
        taken = timed_copy(device, target, source)
        device.wait()
        return words * WORD_BYTES / taken / 1e9

    rates = {"to host": rate("to host", host, here), "from host": rate("from host", second, host)}
    why = OTHER_BYTES if wrong_bytes(device, second, here) else ""
    yield from (CopyRate(name, value, why) for name, value in rates.items())
    for peer in peers:
        name = f"gpu {index} -> gpu {peer}"
        try:
            far = device.peer_block(peer, words)
            value = rate(name, far, here)
            second[...] = 0
            device.copy(second, far)
            device.wait()
            yield CopyRate(name, value, OTHER_BYTES if wrong_bytes(device, second, here) else "")
        except Exception as error:  # of one link: the others may be sound
            yield CopyRate(name, why=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")


BATCHES = 10
"""Of launches that are timed together; the first one only warms up."""
BOTH_SECONDS = 0.2
"""So long compute and transfer last, each by itself: long against a clock's step, and the same, so that one could hide
behind the other whole."""
QUEUE_ROUNDS = 5
MOST_REPEATS = 200
"""A queue holds about a thousand kernels: whoever queues more waits, and what is to run beside comes too late."""

Work = Callable[[], Any]


def launch(device: Device, launches: int) -> Dict[str, Any]:
    """Queue the smallest kernel `launches` times: `microseconds` of one by the host's clock, and how many were `lost`.

    Median of batches, each from its first kernel's queuing until the GPU is idle.
    """
    each = max(1, launches // BATCHES)
    counter = device.zeros(1, "int64")
    taken = [_queue(device, counter, each) for _ in range(BATCHES + 1)]
    lost = (BATCHES + 1) * each - int(counter[0])
    line = f"{device.title}: {BATCHES} batches of {each} kernels, median of the time for one"
    return {"microseconds": median(taken[1:]) * 1e6, "lost": lost, "line": line}


def _queue(device: Device, counter: Array, times: int) -> float:
    device.wait()
    began = time.perf_counter()
    for _ in range(times):
        counter += 1
    device.wait()
    return (time.perf_counter() - began) / times


def beside_copies(device: Device, size: int, words: int) -> Dict[str, Any]:
    """Products of `size` while `words` of 64 bits come from the host again and again; see `overlap`."""
    host, here = device.host_block(words), device.zeros(words, "int64")
    sent = pattern(device, 0, words, 0, 0)
    device.copy(host, sent)
    device.wait()
    found = overlap(device, size, lambda: device.copy(here, host))
    wrong = wrong_bytes(device, here, sent)
    line = f"{device.title}: {found['line']}; copies of {words * 8 >> 20} MiB from the host"
    return {**found, "wrong": int(found["wrong"]) + wrong, "line": line}


def overlap(device: Device, size: int, transfer: Work, agree: Callable[[float], float] = float) -> Dict[str, Any]:
    """bf16 products of `size` rows and columns and a transfer, each alone and both at the same time.

    `transfer` queues one transfer; `agree` makes one number of those of all GPUs, which must all do as many transfers.

    Returns:
        `share`: of the shorter one's time that the other one hid, from 0 to 1, the median of some rounds; `wrong`
        values of the last product beside a transfer.
    """
    left, right = factors(device, "bf16", size)
    first = device.multiply(left, right)
    kept: List[Array] = [first]

    def compute() -> None:
        kept[0] = device.multiply(left, right)

    computing = _repeated(device, compute, agree)
    moving = _repeated(device, transfer, agree)
    shares = [_hidden(device, computing, moving) for _ in range(QUEUE_ROUNDS + 1)][1:]
    line = f"{size} x {size}, {computing[1]} products beside {moving[1]} transfers, {QUEUE_ROUNDS} rounds, median"
    return {"share": median(shares), "wrong": device.count(kept[0] != first), "line": line}


def _repeated(device: Device, work: Work, agree: Callable[[float], float]) -> Tuple[Work, int]:
    """The work as often as lasts `BOTH_SECONDS`, and how often that is."""
    device.together([work])
    once = agree(max(1e-7, device.together([lambda: _times(work, 3)]) / 3))
    times = max(1, min(MOST_REPEATS, int(BOTH_SECONDS / once)))
    return lambda: _times(work, times), times


def _times(work: Work, times: int) -> None:
    for _ in range(times):
        work()


def _hidden(device: Device, computing: Tuple[Work, int], moving: Tuple[Work, int]) -> float:
    alone = [device.together([work]) for work, _ in (computing, moving)]
    both = device.together([computing[0], moving[0]])
    return max(0.0, min(1.0, (sum(alone) - both) / max(1e-9, min(alone))))
