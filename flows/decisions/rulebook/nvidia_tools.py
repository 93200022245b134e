"""NVIDIA's user-space tools: nvidia-smi, NVML, the container toolkit, the fabric manager, the driver's container."""

from __future__ import annotations

from flows.decisions.rules import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("cuda-device-lost",
         r"\bGPU is lost\b|Unable to determine the device handle for (?:GPU|gpu)\s?[\w:.]{0,40}: (?:GPU is lost|"
         r"Unknown Error|Not Found|No data)|NVMLError_GpuIsLost|NVML_ERROR_GPU_IS_LOST|\bgpu_lost\b", F.GPU_HARDWARE, 0.9,
         "node",
         "Unable to determine the device handle for GPU0000:44:00.0: GPU is lost.  Reboot the system to "
         "recover this GPU",
         "GPU is low on memory",
         "nvidia-smi, NVML", literals=("gpu is lost", "gpu_lost", "nvml_error_gpu_is_", "nvmlerror_gpuislos", "unable to determin"),
         supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("nvidia-smi-err", r"^\|.{0,100}\bERR!.{0,100}\||\[GPU requires reset\]|\bGPU requires reset\b|"
         r"GPU Recovery Action\s{0,40}: (?:GPU )?(?:Reset|Reboot|Node Reboot|Drain)", F.GPU_HARDWARE, 0.75, "node",
         "|ERR!   ERR! ERR!    ERR! / 250W |      8MiB / 81559MiB |    ERR!      Default |",
         "| N/A   34C    P0    61W / 300W |      0MiB / 32510MiB |      0%      Default |",
         "nvidia-smi: fields that the card no longer answers", literals=("[gpu requires rese", "err!", "gpu recovery actio", "gpu requires reset"),
         supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("nvidia-smi-unknown-error", r"^\s{2,40}[A-Z][\w ./]{2,40}\s{1,30}: (?:Unknown Error|GPU is lost)$|"
         r"\[Unknown Error\]", F.GPU_HARDWARE, 0.6, "node",
         "    GPU Current Temp                  : Unknown Error",
         "    GPU Current Temp                  : N/A",
         "nvidia-smi -q", literals=(": gpu is lost", ": unknown error", "[unknown error]"), supersedes=("cuda-device-lost",), vendor="nvidia"),
    Rule("nvidia-smi-ecc",
         r"^\s{2,40}(?:(?:SRAM|DRAM) Uncorrectable(?: Parity| SEC-DED)?|Double Bit ECC|Uncorrectable Error)\s{1,30}: [1-9]\d{0,9}$|"
         r"(?i:\b(?:uncorrect(?:able|ed)|volatile uncorr\.?) ecc (?:errors?|count)(?: \(?(?:count|total)\)?)?[ :=]{1,4}[1-9]\d{0,9}\b)",
         F.GPU_HARDWARE, 0.75, "node",
         "            DRAM Uncorrectable            : 4",
         "            DRAM Uncorrectable            : 0",
         "nvidia-smi -q -d ECC, health checks", literals=("double bit ecc", "dram uncorrectable", "sram uncorrectable", "uncorrectable ecc ", "uncorrectable erro", "uncorrected ecc co", "uncorrected ecc er", "volatile uncorr ec", "volatile uncorr. e"), vendor="nvidia"),
    Rule("nvidia-smi-no-devices",
         r"^(?:\S{1,40}(?:: |\): ?))?No devices were found(?: for NVML)?\.?$|nvidia-smi.{0,80}No devices were found|"
         r"No supported GPUs were found", F.GPU_DRIVER, 0.65, "node",
         "No devices were found",
         "No devices were found in the list of brokers",
         "nvidia-smi: the driver answers, no card does", literals=("no devices were fo", "no supported gpus "), vendor="nvidia"),
    Rule("nvml-unknown",
         r"Failed to initialize NVML: (?:Unknown Error|GPU access blocked|Driver Not Loaded|could not load NVML|N/A)|"
         r"NVMLError_(?:Unknown|DriverNotLoaded|LibRmVersionMismatch|Uninitialized)|NVML(?:Error)?: (?:Driver Not Loaded|Unknown Error)|"
         r"could not load NVML library|error (?:calling|creating) nvml\.(?!.{0,60}GPU is lost)|nvml: (?:driver not loaded|unknown error)|ERROR_LIB_RM_VERSION_MISMATCH|ERROR_DRIVER_NOT_LOADED",
         F.GPU_DRIVER, 0.78, "node",
         "Failed to initialize NVML: Unknown Error",
         "Failed to initialize NVML: Insufficient Permissions",
         "containers that lost their GPUs after a daemon reload; a driver that is not loaded",
         literals=("could not load nvm", "error calling nvml", "error creating nvm", "error_driver_not_l", "error_lib_rm_versi", "failed to initiali", "nvml: driver not l", "nvml: unknown erro", "nvmlerror: driver ", "nvmlerror: unknown", "nvmlerror_driverno", "nvmlerror_librmver", "nvmlerror_uninitia", "nvmlerror_unknown"), supersedes=("python-exception",), vendor="nvidia"),
    Rule("nvidia-smi-failed",
         r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver|"
         r"NVIDIA-SMI couldn't find libNVIDIA-ml|nvidia-smi failed with return code (?!0)\d+|"
         r"kernel driver does not appear to be running on this host|/dev/nvidia\d? does not exist|"
         r"nvidia-smi.{0,30}(?:timed out|hang|did not return)", F.GPU_DRIVER, 0.8, "node",
         "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
         "latest NVIDIA driver is installed and running.",
         "NVIDIA-SMI 550.54.15",
         "nvidia-smi, TensorFlow", literals=("does not exist", "kernel driver does", "nvidia-smi"), vendor="nvidia"),
    Rule("nvidia-container-driver",
         r"nvidia-container-cli: (?:initialization error|detection error|device error|mount error|ldcache error)|"
         r"could not select device driver .{0,20} with capabilities: \[\[gpu|unresolvable CDI devices|"
         r"failed to inject CDI devices|no NVIDIA GPU device is present|"
         r"Auto-detected mode as .{0,20}(?:invalid|error)", F.GPU_DRIVER, 0.8, "node",
         "nvidia-container-cli: initialization error: driver rpc error: timed out: unknown",
         "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4",
         "NVIDIA container toolkit, Docker",
         literals=("auto-detected mode", "failed to inject c", "no nvidia gpu devi", "nvidia-container-c", "unresolvable cdi d", "with capabilities:"),
         supersedes=("container-config", "container-refused", "cuda-driver-version"), vendor="nvidia"),
    Rule("nvidia-container-requirement", r"nvidia-container-cli: requirement error", F.CONFIG, 0.88, "code",
         "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your "
         "driver to a newer version",
         "nvidia-container-cli: initialization error: nvml error",
         "NVIDIA container toolkit", literals=("nvidia-container-c",), supersedes=("container-config",), vendor="nvidia",
         advice="use an image for the driver that is installed"),
    Rule("fabric-manager",
         r"system not yet initialized|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY|"
         r"(?i:fabric ?manager).{0,100}(?:not running|failed|never reported|(?:doesn't|don't|does not|do not) match|version mismatch|is not initialized|exited)|"
         r"nvidia-fabricmanager.{0,60}(?:Failed|failed|inactive)|"
         r"request to query NVSwitch device information from NVSwitch driver failed|\bError 802\b", F.GPU_DRIVER, 0.85, "node",
         "RuntimeError: CUDA error: system not yet initialized",
         "fabric manager started",
         "CUDA runtime error 802: the fabric manager does not run",
         literals=("cuda_error_system_", "cudaerrorsystemnot", "error 802", "fabric manager", "fabricmanager", "nvidia-fabricmanag", "request to query n", "system not yet ini"),
         supersedes=("user_code", "cuda-no-device", "python-exception"), vendor="nvidia",
         advice="start the fabric manager, in the version of the driver"),
    Rule("smi-uncorrected",
         r"^\| .{1,60}\| [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f] (?:Off|On) \| {1,30}[1-9]\d{0,8} \||"
         r"(?i:\buncorrectable (?:ecc )?errors? (?:count[ :=(]{1,3}[1-9]|(?:on|in) (?:the )?gpu))", F.GPU_HARDWARE, 0.72, "node",
         "|   1  Tesla V100S-PCI...  Off  | 00000000:00:08.0 Off |                   17 |",
         "|   0  Tesla V100S-PCI...  Off  | 00000000:00:07.0 Off |                    0 |",
         "nvidia-smi: the column of volatile uncorrected ECC errors; health checks", literals=(" off |", " on |", "uncorrectable "), vendor="nvidia"),
    Rule("pcie-width-lost", r"\bLnkSta:.{0,60}\bWidth x\d{1,2} \(downgraded\)", F.GPU_HARDWARE, 0.5, "node",
         "LnkSta: Speed 16GT/s, Width x4 (downgraded)",
         "LnkSta: Speed 2.5GT/s (downgraded), Width x16",
         "lspci -vv: lanes are lost; a lower speed alone is how idle devices save power", literals=("lnksta:",)),
    Rule("pod-out-of-gpus", r"\bOutOf(?:nvidia|amd)\.com/gpu\b", F.GPU_DRIVER, 0.6, "nobody",
         "gpu-replicaset-bxbc2   0/1   OutOfnvidia.com/gpu   0   2h   <none>   controller-2   <none>",
         "gpu-replicaset-bxbc2   1/1   Running   0   2h   10.2.2.9   controller-2   <none>",
         "kubelet: a pod came to a node whose device plugin had not registered the GPUs", literals=("outofnvidia.com/gp", "outofamd.com/gpu")),
    Rule("driver-container",
         r"(?i)driver (?:validation|daemonset).{0,60}(?:failed|error|not ready)|failed to validate (?:the )?driver|"
         r"nvidia-(?:driver|device-plugin)-daemonset.{0,80}(?:CrashLoopBackOff|Error|OOMKilled)|"
         r"could not resolve linux kernel version|Incompatible (?:platform|strategy) detected|"
         r"No devices found\. Waiting indefinitely", F.GPU_DRIVER, 0.7, "node",
         "No devices found. Waiting indefinitely.",
         "driver validation succeeded",
         "GPU operator, device plugin",
         literals=("could not resolve ", "driver daemonset", "driver validation", "failed to validate", "incompatible platf", "incompatible strat", "no devices found. ", "nvidia-device-plug", "nvidia-driver-daem"),
         vendor="nvidia"),
)  # fmt: skip
