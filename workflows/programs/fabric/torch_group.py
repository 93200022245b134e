"""A group's collectives between GPUs: one process a GPU by torch and the vendor's library, one group a rail.

Rail r is made of GPU r of every node: its NIC carries what they say to each other, and all rails are busy at the same
time. Each result is compared with sums that are known exactly. ROCm's torch says "cuda" and "nccl", too.

torch is imported only in the processes of GPUs.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, List, Sequence, Tuple

from workflows.programs.fabric.report import GPUS, GangReport
from workflows.programs.runtime import flags

if TYPE_CHECKING:
    from workflows.programs.fabric.meeting import Options as Asked


WARM_UPS = 3
GRACE_SECONDS = 2.0
EXACT = 13
"""Values begin below this, so that sums over thousands of nodes are whole numbers that float32 holds."""
LAST_CHARACTERS = 200

_children: List["subprocess.Popen[bytes]"] = []


@dataclass(frozen=True)
class Options(flags.Flags):
    """One process, for one GPU."""

    node_rank: int
    nodes: int
    gpu: int
    gpus: int
    address: str
    port: int
    all_reduce_bytes: int
    all_to_all_bytes: int
    iterations: int
    seconds: float
    """For a collective to end."""
    backend: str = "nccl"
    """`gloo`: without GPUs, to try this program out; its figures are no GPU's and are marked so."""


def is_usable(gpus: int, devices: str = "/dev") -> bool:
    """Whether torch and so many GPUs seem to be there; torch is not imported for it."""
    if not gpus or importlib.util.find_spec("torch") is None:
        return False
    with contextlib.suppress(OSError):
        names = os.listdir(devices)
        nvidia = [name for name in names if name.startswith("nvidia") and name[len("nvidia") :].isdigit()]
        return len(nvidia) >= gpus or "kfd" in names
    return False


def free_port(host: str) -> int:
    """A port on which nothing listens now."""
    with socket.create_server((host, 0)) as server:
        return int(server.getsockname()[1])


def measure(settings: "Asked", report: GangReport, address: Tuple[str, int], deadline: float) -> GangReport:
    """The report with the bus bandwidth of each rail; unknown where one GPU gives no answer.

    `address` is the rendezvous at rank 0; at `deadline` (monotonic clock) the processes are killed.
    """
    left = max(1.0, deadline - time.monotonic() - GRACE_SECONDS)
    for gpu in range(settings.gpus):
        own = Options(
            node_rank=settings.rank,
            nodes=settings.ranks,
            gpu=gpu,
            gpus=settings.gpus,
            address=address[0],
            port=address[1],
            all_reduce_bytes=settings.all_reduce_bytes,
            all_to_all_bytes=settings.all_to_all_bytes,
            iterations=settings.iterations,
            seconds=left,
        )
        _children.append(_start_process(own))
    results = [_answer(child, deadline - GRACE_SECONDS) for child in _children]
    end_children()
    return merge_reports(report, results)


def merge_reports(report: GangReport, results: Sequence[Dict[str, Any]]) -> GangReport:
    """The answers of all GPUs, in their order, as the node's report."""
    silent = [f"GPU {gpu}: {one['unknown']}" for gpu, one in enumerate(results) if "unknown" in one]
    if silent:
        return replace(report, by=GPUS, rails=None, why="; ".join(silent))
    try:
        return replace(
            report,
            by=GPUS,
            rails=tuple(float(one["all_reduce"]) for one in results),
            all_reduce=sum(float(one["all_reduce"]) for one in results),
            all_to_all=sum(float(one["all_to_all"]) for one in results) or None,
            wrong=sum(int(one["wrong"]) for one in results),
            why="",
        )
    except (KeyError, TypeError, ValueError) as error:
        return replace(report, by=GPUS, rails=None, why=f"a GPU's answer cannot be read: {error}")


def end_children() -> None:
    """End the processes of the GPUs, with whatever they started."""
    while _children:
        child = _children.pop()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE_SECONDS)
        if child.stdout is not None:
            child.stdout.close()


def _start_process(options: Options) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, os.path.abspath(sys.argv[0]), "gang-gpu", *options.argv()],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def _answer(child: "subprocess.Popen[bytes]", until: float) -> Dict[str, Any]:
    try:
        text = child.communicate(timeout=max(0.1, until - time.monotonic()))[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        return {"unknown": "did not answer in time"}
    for line in reversed(text.splitlines()):
        if line.startswith('{"gang_gpu"'):
            with contextlib.suppress(ValueError, TypeError, KeyError):
                return dict(json.loads(line)["gang_gpu"])
    return {"unknown": f"ended with {child.returncode}: {' '.join(text.split())[-LAST_CHARACTERS:] or 'no word'}"}


def _collectives(options: Options) -> Dict[str, Any]:
    """Join the group and measure; runs in a process of its own.

    Raises:
        RuntimeError, ValueError, ImportError: of torch.
    """
    from datetime import timedelta

    torch: Any = importlib.import_module("torch")
    group: Any = importlib.import_module("torch.distributed")
    on_gpu = options.backend == "nccl"
    device = torch.device("cuda", options.gpu) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    group.init_process_group(
        options.backend,
        init_method=f"tcp://{options.address}:{options.port}",
        rank=options.node_rank * options.gpus + options.gpu,
        world_size=options.nodes * options.gpus,
        timeout=timedelta(seconds=options.seconds),
    )
    # All members must make all groups, in the same order.
    rails: List[Any] = [
        group.new_group([node * options.gpus + gpu for node in range(options.nodes)]) for gpu in range(options.gpus)
    ]
    results = _Rail(options, torch, group, rails[options.gpu], device).tell()
    group.barrier()
    return results


class _Rail:
    """Our process's part of one rail; torch comes in from outside, for it is imported in this process alone."""

    def __init__(self, options: Options, torch: Any, group: Any, rail: Any, device: Any) -> None:
        self._options, self._torch, self._group, self._rail, self._device = options, torch, group, rail, device

    def tell(self) -> Dict[str, Any]:
        """Bus bandwidths in GB/s, and how many values were wrong."""
        options, nodes = self._options, self._options.nodes
        count = max(nodes, options.all_reduce_bytes // 4 // nodes * nodes)
        data = self._pattern(count)
        self._group.all_reduce(data, group=self._rail)
        wanted = self._numbers(count) * nodes + nodes * (nodes - 1) // 2
        wrong = int((data != wanted).sum().item())
        seconds = self._timed(lambda: self._group.all_reduce(data, group=self._rail))
        results: Dict[str, Any] = {
            "all_reduce": 2.0 * (nodes - 1) / nodes * count * 4 / seconds / 1e9,
            "all_to_all": 0.0,
        }
        if options.all_to_all_bytes:
            count = max(nodes, options.all_to_all_bytes // 4 // nodes * nodes)
            given, got = self._pattern(count), self._torch.empty(count, device=self._device)
            self._group.all_to_all_single(got, given, group=self._rail)
            part = count // nodes
            own = self._numbers(count)[options.node_rank * part : (options.node_rank + 1) * part]
            for node in range(nodes):
                wrong += int((got[node * part : (node + 1) * part] != own + node).sum().item())
            seconds = self._timed(lambda: self._group.all_to_all_single(got, given, group=self._rail))
            results["all_to_all"] = (nodes - 1) / nodes * count * 4 / seconds / 1e9
        results["wrong"] = wrong
        return results

    def _numbers(self, count: int) -> Any:
        return (self._torch.arange(count, device=self._device) % EXACT).to(self._torch.float32)

    def _pattern(self, count: int) -> Any:
        """What this node begins with."""
        return self._numbers(count) + float(self._options.node_rank)

    def _timed(self, collective: Any) -> float:
        """Seconds of one collective: all iterations together, once the devices are done."""
        for _ in range(WARM_UPS):
            collective()
        self._done()
        self._group.barrier()
        began = time.perf_counter()
        for _ in range(self._options.iterations):
            collective()
        self._done()
        return (time.perf_counter() - began) / self._options.iterations

    def _done(self) -> None:
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()


@flags.program("gang-gpu")
def main(argv: List[str]) -> int:
    """One GPU's process: measure and print one line."""
    try:
        results = _collectives(flags.from_argv(Options, argv))
    except flags.UsageError:
        raise
    except Exception as error:  # torch raises whatever its libraries say
        results = {"unknown": f"{type(error).__name__}: {' '.join(str(error).split())[:LAST_CHARACTERS]}"}
    print(json.dumps({"gang_gpu": results}), flush=True)
    return 0
