"""GPUs by torch, of either vendor (its ROCm build calls them `cuda`, too), or for its own tests the processor.

Standard library only, Python 3.9; torch is imported where it is used. Importing it opens no GPU, so that a process may
be forked for each of them afterwards.
"""

from __future__ import annotations

import datetime
import importlib
import os
import time
from typing import Any, Callable, List, Sequence, Tuple

from workflows.programs.probes.gpu.device import Array, Device, DeviceGroup, UnavailableError

JOIN_SECONDS = 60.0
"""Within which all processes of a group must have come."""
VISIBLE = {True: ("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"), False: ("CUDA_VISIBLE_DEVICES",)}
"""Variables that choose GPUs, of torch for ROCm (it knows both) and of torch for CUDA."""
KINDS = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "fp64": "float64", "int64": "int64"}


class TorchPlatform:
    """torch with the GPUs that this process may see; `device="cpu"`: as many processors as `fake_count` says."""

    def __init__(self, torch: Any, device: str = "cuda", fake_count: int = 1) -> None:
        self._torch, self._device, self._fake_count = torch, device, fake_count
        self._hip = bool(torch.version.hip)
        built = f"ROCm {torch.version.hip}" if self._hip else f"CUDA {torch.version.cuda}"
        self.version = f"torch {torch.__version__}"
        self.missing = (
            f"{self.version} sees no GPU: give the pod GPUs and the vendor's devices and libraries, and an image whose "
            f"torch is built for them (this one is built for {built if self._hip or torch.version.cuda else 'none'})"
        )

    def count(self) -> int:
        """GPUs that torch sees."""
        return self._fake_count if self._device == "cpu" else int(self._torch.cuda.device_count())

    def open(self, index: int, alone: bool) -> Device:
        """Open a GPU; what fails is raised as torch says it."""
        if self._device == "cpu":
            return TorchDevice(self._torch, "cpu", index)
        # Without it a product's parts may be added up in another order from one call to the next.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        if alone:
            self._see_only(index)
        place = 0 if alone else index
        self._torch.cuda.set_device(place)
        return TorchDevice(self._torch, f"cuda:{place}", index)

    def _see_only(self, index: int) -> None:
        names = VISIBLE[self._hip]
        chosen = next((os.environ[name] for name in names if os.environ.get(name)), "")
        listed = [word.strip() for word in chosen.split(",") if word.strip()]
        os.environ[names[0]] = listed[index] if index < len(listed) else str(index)

    def join(self, device: Device, rank: int, size: int, folder: str) -> DeviceGroup:
        """Meet by a file in the folder."""
        group = self._torch.distributed
        group.init_process_group(
            "gloo" if self._device == "cpu" else "nccl",
            init_method=f"file://{os.path.join(folder, 'meeting')}",
            rank=rank,
            world_size=size,
            timeout=datetime.timedelta(seconds=JOIN_SECONDS),
        )
        return TorchGroup(self._torch, group, device, rank, size)


def torch_platform(device: str = "cuda", fake_count: int = 1) -> TorchPlatform:
    """The torch of this image.

    Raises:
        UnavailableError: there is none.
    """
    # By the bus, as the vendors' tools number them: otherwise `gpu 3` would be another one there.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    try:
        # By its name: programs stand on the standard library, and what an image may lack is no import of ours.
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise UnavailableError(
            f"this image has no torch that can be used ({error}): test GPUs with the image of the training"
        ) from error
    return TorchPlatform(torch, device, fake_count)


class TorchDevice:
    """One GPU of torch."""

    def __init__(self, torch: Any, place: str, index: int) -> None:
        self._torch, self._place, self._index = torch, place, index
        self._streams: List[Any] = []
        self._gpu = place != "cpu"
        torch.set_grad_enabled(False)
        torch.use_deterministic_algorithms(True)
        if hasattr(torch.utils, "deterministic"):
            # It would write into all memory before a product does, and know nothing of small floats.
            torch.utils.deterministic.fill_uninitialized_memory = False
        if self._gpu:
            matmul = torch.backends.cuda.matmul
            matmul.allow_tf32 = False
            matmul.allow_bf16_reduced_precision_reduction = False
            matmul.allow_fp16_reduced_precision_reduction = False
        facts = torch.cuda.get_device_properties(place) if self._gpu else None
        self.title = str(torch.cuda.get_device_name(place)) if self._gpu else "processor"
        self.identity = str(getattr(facts, "uuid", "")) if facts else f"cpu {index}"
        self._chip = str(getattr(facts, "gcnArchName", "")) if facts else ""

    def free_bytes(self) -> Tuple[int, int]:
        """Free and all bytes; of a processor 1 GiB, so that a test stays small."""
        if not self._gpu:
            return 1 << 30, 1 << 30
        free, total = self._torch.cuda.mem_get_info(self._place)
        return int(free), int(total)

    def _kind(self, kind: str) -> Any:
        name = KINDS.get(kind, "")
        if kind == "fp8":
            # The first chips of AMD with these numbers read their bits in another way.
            name = "float8_e4m3fnuz" if self._chip.startswith("gfx94") else "float8_e4m3fn"
        found = getattr(self._torch, name, None) if name else None
        if found is None or (kind == "fp8" and not hasattr(self._torch, "_scaled_mm")):
            raise UnavailableError(f"torch {self._torch.__version__} has no products of {kind}: use a newer one")
        return found

    def whole(self, rows: int, columns: int, most: int, seed: int, kind: str) -> Array:
        """Drawn on the processor, so that every GPU gets the same ones."""
        drawn = self._torch.Generator().manual_seed(seed)
        made = self._torch.randint(-most, most + 1, (rows, columns), generator=drawn, dtype=self._torch.int8)
        return made.to(self._place).to(self._torch.float32).to(self._kind(kind))

    def cast(self, values: Array, kind: str) -> Array:
        """The values as another kind."""
        return values.to(self._kind(kind))

    def for_right(self, values: Array) -> Array:
        """Small floats are multiplied only where the right factor lies column by column."""
        return values.t().contiguous().t() if values.element_size() == 1 else values

    def multiply(self, left: Array, right: Array) -> Array:
        """The product."""
        if left.element_size() > 1:
            return left @ right
        one = self._torch.ones((), device=self._place, dtype=self._torch.float32)
        made: Any = self._torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=self._torch.bfloat16)
        # Older ones give back the largest value, too.
        return made if hasattr(made, "dtype") else made[0]

    def ramp(self, begin: int, count: int) -> Array:
        """Whole numbers one after the other."""
        return self._torch.arange(begin, begin + count, dtype=self._torch.int64, device=self._place)

    def zeros(self, count: int, kind: str) -> Array:
        """Zeros."""
        try:
            return self._torch.zeros(count, dtype=self._kind(kind), device=self._place)
        except RuntimeError as error:
            if "memory" in str(error):
                raise MemoryError(str(error).splitlines()[0]) from error
            raise

    def count(self, truths: Array) -> int:
        """How many are true."""
        return int(self._torch.count_nonzero(truths))

    def finite(self, values: Array) -> Array:
        """Which are finite."""
        return self._torch.isfinite(values)

    def mean(self, values: Array) -> Array:
        """The mean."""
        return values.mean()

    def checksum(self, values: Array) -> int:
        """The sum of the bits, read as whole numbers."""
        return int(values.contiguous().view(self._torch.int32).sum(dtype=self._torch.int64))

    def seconds(self, work: Callable[[], Any], times: int) -> float:
        """By events of the GPU."""
        if not self._gpu:
            began = time.perf_counter()
            for _ in range(times):
                work()
            return (time.perf_counter() - began) / times
        begins, ends = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begins.record()
        for _ in range(times):
            work()
        ends.record()
        ends.synchronize()
        return float(begins.elapsed_time(ends)) / 1e3 / times

    def together(self, works: Sequence[Callable[[], Any]]) -> float:
        """Each in a stream of its own; the processor does them one after the other."""
        self.wait()
        began = time.perf_counter()
        for number, work in enumerate(works):
            if self._gpu:
                with self._torch.cuda.stream(self._stream(number)):
                    work()
            else:
                work()
        self.wait()
        return time.perf_counter() - began

    def _stream(self, number: int) -> Any:
        while len(self._streams) <= number:
            self._streams.append(self._torch.cuda.Stream(self._place))
        return self._streams[number]

    def host_block(self, count: int) -> Array:
        """Pinned memory."""
        return self._torch.zeros(count, dtype=self._torch.int64, pin_memory=self._gpu)

    def peer_block(self, peer: int, count: int) -> Array:
        """Memory of another GPU."""
        place = f"cuda:{peer}" if self._gpu else "cpu"
        return self._torch.zeros(count, dtype=self._torch.int64, device=place)

    def copy(self, target: Array, source: Array) -> None:
        """Queue a copy."""
        target.copy_(source, non_blocking=True)

    def wait(self) -> None:
        """Until the GPU is idle."""
        if self._gpu:
            self._torch.cuda.synchronize()


class TorchGroup:
    """GPUs that met by torch.distributed."""

    def __init__(self, torch: Any, group: Any, device: Device, rank: int, size: int) -> None:
        self._torch, self._group, self._device, self.rank, self.size = torch, group, device, rank, size

    def all_reduce(self, values: Array) -> None:
        """The sum, in place."""
        self._group.all_reduce(values)

    def all_to_all(self, target: Array, source: Array) -> None:
        """Parts in turn."""
        self._group.all_to_all_single(target, source)

    def slowest(self, seconds: float) -> float:
        """The largest of all."""
        value = self._device.zeros(1, "fp64") + seconds
        self._group.all_reduce(value, op=self._group.ReduceOp.MAX)
        self._device.wait()
        return float(value[0])
