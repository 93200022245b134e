"""All parsers of tools' output, by the name that a check of a suite gives.

Each is total and takes time in proportion to the text: whatever it is, the answer is a `Parsed`, and what could not
be read is said in its `unknown`. Figures are in GB/s (10**9 bytes), Gb/s of links, TFLOP/s, W, degC, MHz, GiB of
memory, GT/s, %, s, ms, us, 1/s or count; a state that is yes or no is 1 or 0 beside the tool's word. Pass the text as
it was printed, with its last line end: a last line without one counts as broken off. A broken-off text tells fewer
readings than the whole one, never other ones.
"""

from __future__ import annotations

from typing import Callable, Mapping

from workflows.programs import (
    tool_agfhc,
    tool_amd_smi,
    tool_clock,
    tool_collectives,
    tool_dcgm,
    tool_ethtool,
    tool_fio,
    tool_gpu_kernels,
    tool_iperf3,
    tool_kernel_log,
    tool_lspci,
    tool_nvbandwidth,
    tool_nvidia_smi,
    tool_parallel_files,
    tool_perftest,
    tool_ping,
    tool_rdma_ports,
    tool_rocm_smi,
    tool_rvs,
    tool_sysfs,
    tool_transferbench,
)
from workflows.programs.readings import Parsed

Parse = Callable[[str], Parsed]

PARSERS: Mapping[str, Parse] = {
    "nvidia-smi": tool_nvidia_smi.parse,
    "rocm-smi": tool_rocm_smi.parse,
    "amd-smi": tool_amd_smi.parse,
    "dcgm-diag": tool_dcgm.parse,
    "nccl-tests": tool_collectives.parse,
    "ib-write-bw": tool_perftest.parse,
    "ib-write-lat": tool_perftest.parse,
    "nvbandwidth": tool_nvbandwidth.parse,
    "rvs": tool_rvs.parse,
    "transferbench": tool_transferbench.parse,
    "rocblas-bench": tool_gpu_kernels.parse_gemm,
    "babelstream": tool_gpu_kernels.parse_stream,
    "agfhc": tool_agfhc.parse,
    "iperf3": tool_iperf3.parse,
    "fio": tool_fio.parse,
    "ior": tool_parallel_files.parse_ior,
    "mdtest": tool_parallel_files.parse_mdtest,
    "ibstat": tool_rdma_ports.parse_ibstat,
    "ibv-devinfo": tool_rdma_ports.parse_devinfo,
    "rdma-link": tool_rdma_ports.parse_rdma_link,
    "ethtool": tool_ethtool.parse,
    "lspci": tool_lspci.parse,
    "ping": tool_ping.parse,
    "chrony": tool_clock.parse_chrony,
    "timedatectl": tool_clock.parse_timedatectl,
    "kernel-log": tool_kernel_log.parse,
    "sysfs": tool_sysfs.parse,
}
"""Name -> parser. `nvidia-smi` reads its query as text, XML and tables, and `nvlink`; `nccl-tests` also rccl-tests."""
