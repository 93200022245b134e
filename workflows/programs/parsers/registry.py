"""All parsers of tools' output, by the name that a check of a suite gives.

Each accepts any text, in time proportional to its length; the result is a `ParsedOutput`, and what could not be read is
in its `unknown`. Figures are in GB/s (10**9 bytes), Gb/s of links, TFLOP/s, W, degC, MHz, GiB of memory, GT/s, %, s,
ms, us, 1/s or count; a state of yes or no is 1 or 0 beside the tool's word. Pass the text as it was printed, with its
last line end: a last line without one counts as truncated. A truncated text gives fewer readings than the whole one,
never other ones.
"""

from __future__ import annotations

from typing import Callable, Mapping

from workflows.programs.parsers import (
    amd,
    collectives,
    diagnostics,
    gpu_bandwidth,
    host,
    network,
    nvidia,
    rdma,
    storage,
)
from workflows.programs.parsers.text import ParsedOutput

Parse = Callable[[str], ParsedOutput]

PARSERS: Mapping[str, Parse] = {
    "nvidia-smi": nvidia.parse,
    "rocm-smi": amd.parse_rocm_smi,
    "amd-smi": amd.parse_amd_smi,
    "dcgm-diag": diagnostics.parse_dcgm,
    "nccl-tests": collectives.parse,
    "ib-write-bw": rdma.parse,
    "ib-write-lat": rdma.parse,
    "nvbandwidth": gpu_bandwidth.parse_nvbandwidth,
    "rvs": diagnostics.parse_rvs,
    "transferbench": gpu_bandwidth.parse_transferbench,
    "rocblas-bench": gpu_bandwidth.parse_gemm,
    "babelstream": gpu_bandwidth.parse_stream,
    "agfhc": diagnostics.parse_agfhc,
    "iperf3": network.parse_iperf3,
    "fio": storage.parse,
    "ior": storage.parse_ior,
    "mdtest": storage.parse_mdtest,
    "ibstat": rdma.parse_ibstat,
    "ibv-devinfo": rdma.parse_devinfo,
    "rdma-link": rdma.parse_rdma_link,
    "ethtool": network.parse_ethtool,
    "lspci": host.parse_lspci,
    "ping": network.parse_ping,
    "chrony": host.parse_chrony,
    "timedatectl": host.parse_timedatectl,
    "kernel-log": host.parse_kernel_log,
    "sysfs": host.parse_sysfs,
}
"""Name -> parser. `nvidia-smi` reads its query as text, XML and tables, and `nvlink`; `nccl-tests` also rccl-tests."""
