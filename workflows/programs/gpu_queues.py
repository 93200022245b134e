"""How one GPU takes what is queued for it: the time to queue one kernel, and whether it computes while data move.

Standard library only, Python 3.9. A slow processor, a wrong power state of it, or a GPU that does one thing after the
other shows here, and in no product or copy by itself.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Tuple

from workflows.programs.gpu_arithmetic import factors
from workflows.programs.gpu_device import Array, Device, median
from workflows.programs.gpu_memory import pattern, wrong_bytes

BATCHES = 10
"""Of launches that are timed together; the first one only warms up."""
BOTH_SECONDS = 0.2
"""So long compute and transfer last, each by itself: long against a clock's step, and the same, so that one could hide
behind the other whole."""
ROUNDS = 5
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
    """bf16 products of `size` and a transfer, by themselves and side by side.

    Args:
        device: the GPU.
        size: rows and columns of the products.
        transfer: queues one transfer.
        agree: makes one number of those of all GPUs, where they transfer together: all must do as many.

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
    shares = [_hidden(device, computing, moving) for _ in range(ROUNDS + 1)][1:]
    line = f"{size} x {size}, {computing[1]} products beside {moving[1]} transfers, {ROUNDS} rounds, median"
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
