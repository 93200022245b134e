"""The plain script inside nvidia-resiliency-ext's in-process wrapper, with a store of its own for every round."""

import argparse
import os
from datetime import timedelta
from typing import Optional

import torch.distributed as dist
from nvidia_resiliency_ext import inprocess
from plain_ddp import options, train

BUDGET_SECONDS = float(os.environ["HANG_SECONDS"])
PORT = int(os.environ["MASTER_PORT"])


@inprocess.Wrapper(
    store_kwargs={"port": int(os.environ["STORE_PORT"])},
    soft_timeout=timedelta(seconds=BUDGET_SECONDS),
    hard_timeout=timedelta(seconds=BUDGET_SECONDS + 3),
    heartbeat_timeout=timedelta(seconds=BUDGET_SECONDS),
    monitor_thread_interval=timedelta(seconds=0.1),
    monitor_process_interval=timedelta(seconds=0.1),
    heartbeat_interval=timedelta(seconds=0.5),
    progress_watchdog_interval=timedelta(seconds=0.1),
    last_call_wait=timedelta(seconds=0.1),
)
def rounds(told: argparse.Namespace, call: Optional[inprocess.CallWrapper] = None) -> None:  # noqa: UP045
    assert call is not None
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    first = int(os.environ["FIRST_RANK"])
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], PORT, is_master=first == 0, multi_tenant=True, wait_for_workers=False
    )
    store = dist.PrefixStore(str(call.iteration), store)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    train(told, after_step=call.ping)
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["FIRST_RANK"] = os.environ["RANK"]
    rounds(options())
