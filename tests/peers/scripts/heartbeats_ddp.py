"""The plain script with the lines that nvidia-resiliency-ext's ft_launcher asks for: a heartbeat after every step."""

from __future__ import annotations

import torch.distributed as dist
from nvidia_resiliency_ext import fault_tolerance
from plain_ddp import options, train


def main() -> None:
    told = options()
    dist.init_process_group("gloo")
    client = fault_tolerance.RankMonitorClient()
    client.init_workload_monitoring()
    train(told, after_step=client.send_heartbeat)
    client.shutdown_workload_monitoring()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
