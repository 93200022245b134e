"""A small DistributedDataParallel training that knows the environment which torchrun sets, and not who started it.

It resumes from the newest checkpoint in its folder and says every step on its output and, with the time, in a record
that all ranks append to. It needs torch and nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES, HIDDEN, CLASSES, BATCH = 32, 64, 10, 16


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--checkpoints", type=Path, required=True)
    parser.add_argument("--record", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--group-seconds", type=float, default=1800, help="a collective fails after so long")
    return parser.parse_args()


def model() -> nn.Module:
    """The same on every rank, in every start."""
    torch.set_num_threads(1)
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """What a rank learns from in a step: a matter of these two numbers alone."""
    chance = torch.Generator().manual_seed(step * 1000 + rank)
    return torch.randn(BATCH, FEATURES, generator=chance), torch.randint(CLASSES, (BATCH,), generator=chance)


def newest(folder: Path) -> Path | None:
    """The newest checkpoint."""
    named = {
        int(match[1]): path for path in folder.glob("*.pt") if (match := re.fullmatch(r"step-(\d+)\.pt", path.name))
    }
    return named[max(named)] if named else None


def save(folder: Path, state: dict[str, object]) -> None:
    """All of it or nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".step-{state['step']}.{os.getpid()}"
    with unfinished.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(folder / f"step-{state['step']}.pt")


def restore(folder: Path, network: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Steps that are done already."""
    found = newest(folder)
    if found is None:
        return 0
    state = torch.load(found, weights_only=True, map_location="cpu")
    network.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def digest(network: nn.Module) -> str:
    """Of all weights, bit by bit."""
    return hashlib.sha256(
        b"".join(value.detach().cpu().numpy().tobytes() for value in network.parameters())
    ).hexdigest()


def record(path: Path, **event: object) -> None:
    """One line, whole even where several ranks write at once."""
    line = json.dumps({"pid": os.getpid(), "at": time.time(), **event}) + "\n"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def train(told: argparse.Namespace, after_step: object = None) -> None:
    """From the newest checkpoint to the last step; the default process group stands already.

    Args:
        told: the options.
        after_step: called after every step, where somebody wants to be told.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    network = model().to(told.device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    done = restore(told.checkpoints, network, optimizer)
    group = dist.new_group(timeout=timedelta(seconds=told.group_seconds))
    parallel = DistributedDataParallel(network, process_group=group)
    for step in range(done + 1, told.steps + 1):
        began = time.time()
        features, classes = (each.to(told.device) for each in batch(step, rank))
        time.sleep(told.step_seconds)
        loss = nn.functional.cross_entropy(parallel(features), classes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        record(told.record, rank=rank, world=world, step=step, began=began)
        print(f"{time.time():.3f} step {step}/{told.steps} | loss {loss.item():.4f}", flush=True)
        if rank == 0 and (step % told.save_every == 0 or step == told.steps):
            state = {"step": step, "model": network.state_dict(), "optimizer": optimizer.state_dict()}
            save(told.checkpoints, state)
        if callable(after_step):
            after_step()
    record(told.record, rank=rank, world=world, weights=digest(network))
    dist.barrier(group)


def main() -> None:
    told = options()
    dist.init_process_group("gloo")
    train(told)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
