"""The plain script as torchft wants it: every rank a replica whose manager votes for steps and lends its state."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torchft
from plain_ddp import batch, digest, model, options, record, restore, save
from torch import nn

REPLICAS = 2
BUDGET = timedelta(seconds=float(os.environ["HANG_SECONDS"]))


def main() -> None:
    told = options()
    network = model()
    inner = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)

    def lend() -> dict[str, object]:
        return {"model": network.state_dict(), "optimizer": inner.state_dict()}

    def borrow(state: dict[str, dict[str, object]]) -> None:
        network.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = torchft.Manager(
        pg=torchft.ProcessGroupGloo(timeout=BUDGET), load_state_dict=borrow, state_dict=lend, min_replica_size=1,
        replica_id=f"replica-{os.environ['REPLICA']}", timeout=BUDGET,
    )  # fmt: skip
    done = restore(told.checkpoints, network, inner)
    if not done:
        start_together(told.record.parent)
    manager.load_state_dict({"step": done, "batches_committed": done * 2})
    parallel = torchft.DistributedDataParallel(manager, network)
    optimizer = torchft.Optimizer(manager, inner)
    while manager.current_step() < told.steps:
        one_step(told, manager, parallel, optimizer, lend)
    record(told.record, rank=int(os.environ["REPLICA"]), weights=digest(network))
    manager.shutdown()


def start_together(folder: Path) -> None:
    """A replica that is up first would begin alone, with half of the batch: at the start they wait for one another."""
    (folder / f"replica-{os.environ['REPLICA']}").touch()
    while len(list(folder.glob("replica-?"))) < REPLICAS:
        time.sleep(0.01)


def one_step(told, manager, parallel, optimizer, lend) -> None:
    began = time.time()
    optimizer.zero_grad()
    time.sleep(told.step_seconds)
    step = manager.current_step() + 1
    rank = manager.participating_rank() or 0
    features, classes = batch(step, rank)
    loss = nn.functional.cross_entropy(parallel(features), classes)
    loss.backward()
    optimizer.step()
    if manager.current_step() < step:
        return  # the step was voted down
    step = manager.current_step()
    record(told.record, rank=int(os.environ["REPLICA"]), world=manager.num_participants(), step=step, began=began)
    print(f"{time.time():.3f} step {step}/{told.steps} | loss {loss.item():.4f}", flush=True)
    if rank == 0 and (step % told.save_every == 0 or step == told.steps):
        save(told.checkpoints, {"step": step, **lend()})


if __name__ == "__main__":
    main()
