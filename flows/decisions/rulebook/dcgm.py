"""What agents that watch GPUs say: DCGM health and diagnostics, device plugins, node problem detectors, health checks."""

from __future__ import annotations

from flows.decisions.rules import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("dcgm-memory",
         r"(?i)\b(?:CUDA APIs have indicated|had uncorrectable memory errors)\b|[1-9]\d{0,9} faulty memory elements|"
         r"\bmore retired pages have been detected in GPU|An excess of \d+ retired pages|"
         r"DCGM_FI_DEV_(?:ECC_DBE_VOL_TOTAL|UNCORRECTABLE_REMAPPED_ROWS)\{[^}]{0,900}\} [1-9]|"
         r"Detected [1-9]\d{0,9} (?:DCGM_FI_DEV_)?\w{0,20}(?:ecc_dbe|dbe_vol|dbe_agg|uncorrectable_remapped)\w{0,20} for GPU|"
         r"\bDCGM_FR_(?:VOLATILE_DBE_DETECTED|FAULTY_MEMORY|ROW_REMAP_FAILURE|UNCONTAINED_ERROR|DBE_\w{1,40}|UNCORRECTABLE_ROW_REMAP|"
         r"RETIRED_PAGES\w{0,20}|CUDA_DBE|MEMORY_MISMATCH|L1TAG_MISCOMPARE|NAN_VALUE)", F.GPU_HARDWARE, 0.9, "node",
         "Found 12 faulty memory elements on GPU 3. Run a field diagnostic on the GPU.",
         "No faulty memory elements on GPU 3",
         "DCGM health watches, diagnostics and exporter",
         literals=("cuda apis have ind", "dcgm_fi_dev_ecc_db", "dcgm_fi_dev_uncorr", "dcgm_fr_", "detected", "faulty memory elem", "had uncorrectable ", "retired pages"),
         supersedes=(*GPU_CONSEQUENCES, "silent-corruption", "gpu-double-bit"), vendor="nvidia"),
    Rule("dcgm-link",
         r"(?i)NvLink errors on GPU \d{1,2}'s NVLink|NvLink errors found occur|running at PCI link (?:generation|width) \d|"
         r"more than \d+ PCIe replays per minute for GPU|host-side PCIe replay violation|unsuccessfully (?:written|wrote)\b.{0,40}peer-to-peer|"
         r"\bDCGM_FR_(?:NVLINK_(?:DOWN|ERROR_CRITICAL|CRC_ERROR_THRESHOLD)|NVSWITCH_\w{1,40}|SXID_ERROR|PCIE_\w{1,40}|PCI_REPLAY_RATE|"
         r"GPU_EXPECTED_NVLINKS_UP|BROKEN_P2P_\w{1,30})", F.GPU_HARDWARE, 0.65, "node",
         "Detected more than 8 PCIe replays per minute for GPU 5 : 211",
         "PCIe replays per minute for GPU 5: 0",
         "DCGM health watches and diagnostics",
         literals=("dcgm_fr_", "host-side pcie rep", "nvlink errors foun", "nvlink errors on g", "pcie replays per m", "peer-to-peer", "running at pci lin"), supersedes=("collective_timeout",),
         vendor="nvidia"),
    Rule("dcgm-inforom",
         r"corrupt InfoROM|infoROM is corrupted|DCGM_FR_CORRUPT_INFOROM", F.GPU_HARDWARE, 0.7, "node",
         "WARNING: infoROM is corrupted at gpu 0000:65:00.0",
         "InfoROM version 2.1",
         "DCGM health, nvidia-smi", literals=("corrupt inforom", "dcgm_fr_corrupt_in", "inforom is corrupt"), vendor="nvidia"),
    Rule("dcgm-diag-failed",
         r"^\|.{1,60}\|\s{0,4}Fail - (?:All|GPUs?: [\d, ]{1,40})\s{0,60}\||"
         r"\bdcgmi? ?diag.{0,120}(?:\bfail(?:ed|ure)?\b|\bexit(?:ed)? (?:with )?(?:code )?226)|DCGMDiagnosticFailure|"
         r"DcgmDiagnostic\w{3,30}\".{0,40}\"isFatal\": ?true|Detected a FAILURE in health system", F.GPU_HARDWARE, 0.6, "node",
         "| GPU Memory                | Fail - GPU: 3                                  |",
         "| GPU Memory                | Pass - All                                     |",
         "dcgmi diag, NVSentinel, EKS", literals=("dcgm diag", "dcgmdiag", "dcgmi diag", "dcgmidiag", "detected a failure", "fail -"), vendor="nvidia"),
    Rule("dcgm-diag-row", r"^\|\s{0,30}\| Fail - (?:All|GPUs?: [\d, ]{1,40})\s{0,60}\|", F.GPU_HARDWARE, 0.45, "node",
         "|                           | Fail - GPU: 0                                  |",
         "|                           | Skip - GPU: 0                                  |",
         "dcgmi diag: further rows of a test", literals=("| fail -",), supersedes=("dcgm-diag-failed",), vendor="nvidia"),
    Rule("gpu-health-fatal",
         r"\"componentClass\": ?\"GPU\".{0,600}\"isFatal\": ?true|\"isFatal\": ?true.{0,600}\"componentClass\": ?\"GPU\"|"
         r"\bGpu\w{3,30}Watch (?:is )?(?:unhealthy|failed)|type=Gpu\w{3,30} status=\"?True|"
         r"(?:GpuMemWatch|GpuNvlinkWatch|GpuPcieWatch|GpuInforomWatch|GpuSmWatch)IsNotHealthy", F.GPU_HARDWARE, 0.7, "node",
         '{"agent":"gpu-health-monitor","componentClass":"GPU","checkName":"GpuPcieWatch","isFatal":true,"message":"link"}',
         '{"agent":"gpu-health-monitor","componentClass":"GPU","checkName":"GpuPcieWatch","isFatal":false,"isHealthy":true}',
         "NVSentinel health events and node conditions", literals=("\"componentclass\": ", "\"componentclass\":\"", "gpuinforomwatchisn", "gpumemwatchisnothe", "gpunvlinkwatchisno", "gpupciewatchisnoth", "gpusmwatchisnothea", "status=\"true", "status=true", "watch failed", "watch is failed", "watch is unhealthy", "watch unhealthy"), vendor="nvidia", fallback=True),
    Rule("gpu-imex", r"DCGM_FR_IMEX_UNHEALTHY|IMEX daemon status is -?\d+ \(not READY\)|DCGMHealthCode122\b", F.GPU_DRIVER, 0.45, "node",
         "ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 IMEX daemon status is -3 (not READY)",
         "IMEX daemon status is 0 (READY)",
         "DCGM health: no IMEX daemon runs; nothing is wrong where no other node's memory is used", literals=("dcgm_fr_imex_unhea", "dcgmhealthcode122", "imex daemon status"), vendor="nvidia"),
    Rule("device-unhealthy",
         r"'?(?:nvidia|amd)\.com/\w{1,40}'? device marked unhealthy|marking device (?:\S{1,60} )?as unhealthy|"
         r"device.{0,80}will go unhealthy|XidCriticalError|metricsexporter\.amd\.com\.gpu\.\d{1,3}\.state[=:\" ]{1,4}unhealthy|"
         r"amd-gpu-unhealthy|\bgpu_health\{[^}]{0,900}\} 0(?:\.0)?$|cannot allocate unhealthy devices|"
         r"[Gg]pu(?:s)? (?:device )?(?:\S{1,60} )?(?:is|are|became|marked) unhealthy", F.GPU_HARDWARE, 0.5, "node",
         "'nvidia.com/gpu' device marked unhealthy: GPU-455e672a-1d2e-4a4b-9a0e-000000000000",
         "'nvidia.com/gpu' device marked healthy: GPU-455e672a-1d2e-4a4b-9a0e-000000000000",
         "device plugins of NVIDIA and AMD, AMD device metrics exporter",
         literals=("' device marked un", "amd-gpu-unhealthy", "are unhealthy", "became unhealthy", "cannot allocate un", "device marked unhe", "gpu_health{", "is unhealthy", "marked unhealthy", "marking device", "metricsexporter.am", "will go unhealthy", "xidcriticalerror"), fallback=True),
    Rule("gpu-count",
         r"(?i)\bGPUMissing\b(?!\W{1,4}False)|Observed GPU count does not match|expected (?:to see )?\d{1,2} GPUs?,? (?:but )?(?:found|got|saw|only|detected) \d|"
         r"\bonly [0-7] (?:of|out of) \d{1,2} GPUs (?:are )?(?:visible|detected|found|available)|GPU count mismatch|NvidiaDeviceCountMismatch|"
         r"gres/gpu count reported lower than configured|GPU.{0,20} missing from nvidia-smi|"
         r"number of devices NVML returns is different", F.GPU_HARDWARE, 0.72, "node",
         "error: gres/gpu count reported lower than configured (7 < 8)",
         "expected 8 GPUs and all of them answer",
         "Slurm, AKS and EKS node problem detectors, HyperPod, DCGM", literals=("expected", "gpu count mismatch", "gpumissing", "gpus are available", "gpus are detected", "gpus are found", "gpus are visible", "gpus available", "gpus detected", "gpus found", "gpus visible", "gres/gpu count rep", "missing from nvidi", "number of devices ", "nvidiadevicecountm", "observed gpu count"),
         supersedes=("rendezvous", "process_killed", "collective_timeout")),
    Rule("gpu-node-condition",
         r"\b(?:NvidiaError(?:Terminate|Reboot)|XidHardwareFailure|NvidiaPageRetirement|NvidiaXID(?:Errors?|Code)|XIDErrors|GpuXidErrors?|"
         r"NebiusGPUError|NodeHasNvidiaXidError\w{0,20}|GpuEccHasIssues|GpuRowRemapHasIssues|GpuBusHasIssues|AMDGPU(?:Xgmi|Hbm|Ecc|Ras)\w{0,20}|"
         r"GPUHardwareFailure|DCGMHealthCode\d{1,3}|DCGMFieldError\w{0,6}|GPUUnhealthy|GpuUnhealthy|GPUFailure)\b(?!\W{1,40}(?:is now: )?[\"']?(?:False|false|No))", F.GPU_HARDWARE, 0.75,
         "node",
         "Node condition NvidiaErrorReboot is now: True, reason: XidHardwareFailure",
         "Node condition NvidiaErrorReboot is now: False, reason: NoNvidiaError",
         "node problem detectors of AWS, Azure, Alibaba, Nebius, Oracle, AMD",
         literals=("amdgpuecc", "amdgpuhbm", "amdgpuras", "amdgpuxgmi", "dcgmfielderror", "dcgmhealthcode", "gpubushasissues", "gpuecchasissues", "gpufailure", "gpuhardwarefailure", "gpurowremaphasissu", "gpuunhealthy", "gpuxiderror", "nebiusgpuerror", "nodehasnvidiaxider", "nvidiaerrorreboot", "nvidiaerrortermina", "nvidiapageretireme", "nvidiaxidcode", "nvidiaxiderror", "xiderrors", "xidhardwarefailure"), supersedes=("collective_timeout", "process_killed", "unknown"), fallback=True),
    Rule("neuron-hardware", r"\bNRT_EXEC_HW_ERR\w{0,40}|NEURON_HW_ERR|Neuron(?:DMAError|HBMUncorrectableError|NCUncorrectableError|SRAMUncorrectableError)|"
         r"neuron:?.{0,60}(?:uncorrectable|hardware error)", F.GPU_HARDWARE, 0.85, "node",
         "2025-Mar-01 10:00:00.1 4121:5012 ERROR NRT:nrt_infodump NRT_EXEC_HW_ERR_NC_UE on nd3 nc1",
         "neuron: 16 devices found",
         "AWS Neuron runtime, node problem detector", literals=("hardware error", "neuron_hw_err", "neurondmaerror", "neuronhbmuncorrect", "neuronncuncorrecta", "neuronsramuncorrec", "nrt_exec_hw_err", "uncorrectable"), supersedes=GPU_CONSEQUENCES),
    Rule("nhc-gpu-check",
         r"nhc:? .{0,40}[Hh]ealth check failed:.{0,20}check_(?:gpu|nv|nvlink|cuda|xid)\w{0,30}|"
         r"\bautopilot\.ibm\.com/gpuhealth[=:\" ]{1,4}(?:ERR|EVICT)|Health Check FAIL(?:ED)?.{0,40}\bGPU|"
         r"GPU.{0,40}\b[Hh]ealth [Cc]heck (?:FAIL|[Ff]ailed)", F.GPU_HARDWARE, 0.65, "node",
         "ERROR:  nhc:  Health check failed:  check_gpu_ecc: GPU 00000000:3B:00.0 has 12 uncorrectable errors",
         "nhc: Node Health Check starting",
         "LBNL and Azure NHC, Autopilot", literals=("autopilot.ibm.com/", "health check fail"), fallback=True),
)  # fmt: skip
