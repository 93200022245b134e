"""The plain script, whose rank 1 waits for a kernel that does not end once somebody puts a file beside the record.

On a processor it spins instead.
"""

from __future__ import annotations

import argparse

import plain_ddp
import torch
import torch.distributed as dist

CYCLES = 10**14
"""Most of a day on a GPU of today."""
MARK = "get-stuck"
"""Name of the file; whoever gets stuck takes it away, so that the next incarnation does not."""


def get_stuck(told: argparse.Namespace) -> None:
    """Does not come back."""
    told.record.with_name(MARK).unlink()
    if told.device == "cpu":
        while True:
            pass
    torch.cuda._sleep(CYCLES)
    torch.cuda.synchronize()


def main() -> None:
    told = plain_ddp.options()
    dist.init_process_group("gloo")

    def after_step() -> None:
        if dist.get_rank() == 1 and told.record.with_name(MARK).exists():
            get_stuck(told)

    plain_ddp.train(told, after_step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
