"""Made-up GPUs on numpy: sound ones, and ones that hang, crash, lie or are slow, for the probes that open GPUs."""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from workflows.programs.probes.gpu.collective import MODULUS
from workflows.programs.probes.gpu.device import UnavailableError

MEMORY_BYTES = 2 << 20
FOREVER_SECONDS = 3600.0
DTYPES = {"fp64": np.float64, "int64": np.int64}


class MadeDevice:
    """One GPU; `fault` says what is wrong with it."""

    def __init__(self, index: int, fault: str = "") -> None:
        self.title, self.identity, self.fault = "made-up", f"bus {index}", fault
        self._products, self._ends, self._far = 0, 0, list[Any]()

    def free_bytes(self) -> tuple[int, int]:
        return MEMORY_BYTES, 2 * MEMORY_BYTES

    def whole(self, rows: int, columns: int, most: int, seed: int, kind: str) -> Any:
        if self.fault == f"no {kind}":
            raise UnavailableError(f"it has no products of {kind}")
        drawn = np.random.default_rng(seed).integers(-most, most + 1, (rows, columns))
        return drawn.astype(DTYPES.get(kind, np.float32))

    def cast(self, values: Any, kind: str) -> Any:
        return values.astype(DTYPES.get(kind, np.float32))

    def for_right(self, values: Any) -> Any:
        return values

    def multiply(self, left: Any, right: Any) -> Any:
        product = left @ right
        self._products += 1
        if self.fault == "one wrong product" and self._products == 1:
            product[0, 0] += abs(product[0, 0]) + 1.0
        if self.fault == "a late wrong product" and self._products > 12:
            product[-1, -1] = -product[-1, -1] - 1.0
        if self.fault == "not finite":
            product[1, 1] = np.inf
        if self.fault == "trains otherwise":
            product = product * np.float32(1.0 + 2.0**-20)
        if self.fault == "wanders":
            product = product + np.float32(self._products * 1e-7)
        return product

    def ramp(self, begin: int, count: int) -> Any:
        return np.arange(begin, begin + count, dtype=np.int64)

    def zeros(self, count: int, kind: str) -> Any:
        if self.fault == "memory is taken" and kind == "int64" and count * 8 > MEMORY_BYTES // 4:
            raise MemoryError("out of memory")
        if self.fault.startswith("a bit stuck at") and kind == "int64":
            stuck = np.zeros(count, np.int64).view(StuckBit)
            stuck.at = int(self.fault[-1])
            return stuck
        if self.fault == "kernels are lost" and count == 1:
            return np.zeros(count, np.int64).view(LostKernels)
        return np.zeros(count, DTYPES.get(kind, np.float32))

    def count(self, truths: Any) -> int:
        return int(np.count_nonzero(truths))

    def finite(self, values: Any) -> Any:
        return np.isfinite(values)

    def mean(self, values: Any) -> Any:
        return values.mean()

    def checksum(self, values: Any) -> int:
        self._ends += self.fault == "ends otherwise"
        return int(np.ascontiguousarray(values).view(np.int32).sum(dtype=np.int64)) + self._ends

    def seconds(self, work: Callable[[], Any], times: int) -> float:
        for _ in range(times):
            work()
        return 1.0 if self.fault == "slow" else 0.001

    def together(self, works: Sequence[Callable[[], Any]]) -> float:
        for work in works:
            work()
        return float(len(works)) if self.fault == "one after the other" else 1.0

    def host_block(self, count: int) -> Any:
        return np.zeros(count, np.int64)

    def peer_block(self, peer: int, count: int) -> Any:
        if self.fault == f"gpu {peer} unreachable":
            raise UnavailableError(f"gpu {peer} cannot be reached")
        self._far.append(np.zeros(count, np.int64))
        return self._far[-1]

    def copy(self, target: Any, source: Any) -> None:
        hangs = self.fault == "gpu 1 hangs" and any(target is one for one in self._far)
        if hangs or self.fault == "hangs at a copy":
            time.sleep(FOREVER_SECONDS)
        if self.fault == "nothing comes back from peers" and any(source is one for one in self._far):
            return
        target[...] = source
        if self.fault == "a word lost on the way":
            target[-1] = 0

    def wait(self) -> None:
        pass


class StuckBit(np.ndarray[Any, Any]):
    """Memory in which one bit of one word always reads the same."""

    at = 0

    def __setitem__(self, where: Any, values: Any) -> None:
        super().__setitem__(where, values)
        if where is Ellipsis:
            plain = self.view(np.ndarray)
            plain[7] = plain[7] | 1 << 17 if self.at else plain[7] & ~(1 << 17)


class LostKernels(np.ndarray[Any, Any]):
    """What is added to it does not arrive."""

    def __iadd__(self, other: Any) -> LostKernels:  # type: ignore[override]
        return self


class MadeGroup:
    """The others answer at once, and rightly, unless the fault says otherwise."""

    def __init__(self, rank: int, size: int, fault: str) -> None:
        self.rank, self.size, self._fault, self._sums = rank, size, fault, 0

    def all_reduce(self, values: Any) -> None:
        values[...] = values / (self.rank + 1) * (self.size * (self.size + 1) // 2)
        self._sums += 1
        if self._fault == "a wrong sum" or (self._fault == "a wrong first sum" and self._sums == 1):
            values[5] += 1.0

    def all_to_all(self, target: Any, source: Any) -> None:
        part = len(source) // self.size
        own = source[:part] - MODULUS * (self.rank * self.size)
        for sender in range(self.size):
            target[sender * part : (sender + 1) * part] = own + MODULUS * (sender * self.size + self.rank)
        if self._fault == "parts swapped":
            target[:part], target[part : 2 * part] = target[part : 2 * part].copy(), target[:part].copy()

    def slowest(self, seconds: float) -> float:
        if self._fault == "hangs in the collective":
            time.sleep(FOREVER_SECONDS)
        return seconds


@dataclass
class MadePlatform:
    """A node with so many GPUs, some of them with a fault."""

    gpus: int = 2
    faults: Mapping[int, str] = field(default_factory=dict[int, str])
    version: str = "made-up 1.0"
    missing: str = "there is no GPU: give the pod some"
    counting: str = ""

    def count(self) -> int:
        if self.counting:
            raise RuntimeError(self.counting)
        return self.gpus

    def open(self, index: int, alone: bool) -> MadeDevice:
        fault = self.faults.get(index, "")
        np.seterr(all="ignore")  # in a process of its own: a GPU does not warn of figures that are not finite
        if fault == "hangs at opening":
            time.sleep(FOREVER_SECONDS)
        if fault == "refuses":
            raise RuntimeError("CUDA error: device not ready")
        if fault == "crashes":
            faulthandler.disable()  # the runner's own, which would print into its log
            os.write(2, b"Memory access fault by GPU node-1\n")
            os.abort()
        if fault == "ends silently":
            os._exit(0)
        device = MadeDevice(index, fault)
        if fault == "same as 0":
            device.identity = "bus 0"
        return device

    def join(self, device: Any, rank: int, size: int, folder: str) -> MadeGroup:
        assert os.path.isdir(folder)
        return MadeGroup(rank, size, device.fault)
