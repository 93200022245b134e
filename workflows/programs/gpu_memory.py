"""Memory of one GPU, and copies to and from it: how fast, and whether what was written comes back.

Standard library only, Python 3.9.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Sequence

from workflows.programs.gpu_device import Array, Clock, Device, UnavailableError, median

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
ROUNDS, WARM_ROUNDS = 10, 2
OTHER_BYTES = "other bytes came"


def memory(device: Device, share: float, seconds: float) -> Dict[str, Any]:
    """Fill `share` of the free memory with a pattern and its complement until `seconds` are over, once at least.

    Returns:
        `rate` of a copy inside of the memory in GB/s, read and written; `wrong` bytes.
    """
    free, total = device.free_bytes()
    rate = _bandwidth(device, free)
    blocks = _blocks(device, int(free * share) // (BLOCK_WORDS * WORD_BYTES), free, share)
    clock, wrong, passes = Clock.of(seconds), 0, 0
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
    taken = [device.seconds(lambda: device.copy(target, source), 1) for _ in range(WARM_ROUNDS + ROUNDS)]
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
class Copied:
    """Copies of one kind."""

    name: str
    """`to host`, `from host`, `gpu 0 -> gpu 1`."""
    rate: float = 0.0
    """GB/s; 0: not measured."""
    why: str = ""
    """Why the rate is none: other bytes came, or nothing at all."""


def copies(
    device: Device, index: int, peers: Sequence[int], words: int, about: Callable[[str], None]
) -> Iterator[Copied]:
    """Copies host to GPU, GPU to host, and to each of the other GPUs, one after the other.

    Args:
        device: the GPU, opened so that it sees the others.
        index: its number.
        peers: numbers of the others.
        words: of 64 bits in one copy.
        about: gets the name of what is measured now.
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
    yield from (Copied(name, value, why) for name, value in rates.items())
    for peer in peers:
        name = f"gpu {index} -> gpu {peer}"
        try:
            far = device.peer_block(peer, words)
            value = rate(name, far, here)
            second[...] = 0
            device.copy(second, far)
            device.wait()
            yield Copied(name, value, OTHER_BYTES if wrong_bytes(device, second, here) else "")
        except Exception as error:  # of one link: the others may be sound
            yield Copied(name, why=f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
