"""The CUDA runtime and what frameworks say in its words: by text, by name and by number.

Numbers are those of `cudaError_t` and `CUresult`; in brackets the ones that CUDA had before version 10.1, which PyTorch
printed as `cuda runtime error (77)`. Memory stands in `memory`.
"""

from __future__ import annotations

from flows.decisions.rules import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass


def numbered(new: str, old: str = "") -> str:
    """The pattern of lines that name an error by number.

    Args:
        new: numbers as alternatives (`700|716`).
        old: numbers before CUDA 10.1.
    """
    now = rf"(?i:cuda[ _]?(?:runtime |driver )?(?:error|failure)(?: code)?[ :=]{{0,3}}\(?)(?:{new})\b"
    return rf"{now}|(?i:cuda runtime error \()(?:{old})\)" if old else now


RULES: tuple[Rule, ...] = (
    Rule("cuda-ecc",
         r"uncorrectable (?:ECC|NVLink) error (?:encountered|was detected)|"
         r"cudaErrorECCUncorrectable|cudaErrorNvlinkUncorrectable|CUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE)|"
         rf"{numbered('214|220|714', '39')}", F.GPU_HARDWARE, 0.95, "rank",
         "RuntimeError: CUDA error: uncorrectable ECC error encountered",
         "CUDA error: no kernel image is available",
         "CUDA runtime error 214 and 220", literals=("cuda driver error", "cuda driver failur", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur", "uncorrectable ecc ", "uncorrectable nvli"),
         supersedes=(*GPU_CONSEQUENCES, "nvlink-fatal", "nccl-cuda-failure"), vendor="nvidia"),
    Rule("cuda-illegal-access",
         rf"an illegal memory access was encountered|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS|{numbered('700', '77')}",
         F.USER_CODE, 0.55, "rank",
         "[rank2]: RuntimeError: CUDA error: an illegal memory access was encountered",
         "Segmentation fault: illegal memory",
         "CUDA runtime error 700; census: 21 infrastructure, 41 user",
         literals=("an illegal memory ", "cuda driver error", "cuda driver failur", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur"),
         supersedes=("nccl-cuda-failure", "python-exception"),
         advice="the same rank's node again: test it; other nodes: look at the newest kernel or index code"),
    Rule("cuda-kernel-fault",
         r"(?:CUDA|Cuda).{0,40}(?:misaligned address|an illegal instruction was encountered|invalid program counter|"
         r"operation not supported on global/shared address space|too many resources requested for launch|invalid configuration argument)|"
         r"cudaError(?:MisalignedAddress|IllegalInstruction|InvalidPc|InvalidAddressSpace|LaunchOutOfResources|InvalidConfiguration)|"
         rf"CUDA_ERROR_(?:MISALIGNED_ADDRESS|ILLEGAL_INSTRUCTION|INVALID_PC|INVALID_ADDRESS_SPACE)|{numbered('701|71[5-8]', '7|7[3-68]')}",
         F.USER_CODE, 0.55, "rank",
         "RuntimeError: CUDA error: misaligned address",
         "CUDA error: out of memory",
         "CUDA runtime errors 701, 715 to 718: a kernel that was called or written wrongly", literals=("an illegal instruc", "cuda driver error", "cuda driver failur", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur", "invalid configurat", "invalid program co", "misaligned address", "operation not supp", "too many resources"),
         vendor="nvidia"),
    Rule("cuda-launch-failure",
         r"(?:CUDA|Cuda|cuda|GPU).{0,60}(?:unspecified launch failure|the launch timed out and was terminated)|"
         r"(?<!HIP error: )unspecified launch failure|cudaErrorLaunch(?:Failure|Timeout)|CUDA_ERROR_LAUNCH_(?:FAILED|TIMEOUT)|"
         rf"{numbered('719|702', '[46]')}",
         F.GPU_DRIVER, 0.5, "rank",
         "RuntimeError: CUDA error: unspecified launch failure",
         "CUDA error: out of memory",
         "CUDA runtime errors 719, 702", literals=("cuda driver error", "cuda driver failur", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur", "the launch timed o", "unspecified launch"),
         supersedes=("nccl-cuda-failure", "python-exception"), vendor="nvidia"),
    Rule("cuda-device-assert",
         r"device-side assert triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT\b|"
         rf"(?:block|thread): \[.{{1,80}}\] Assertion `(?!input_val).{{1,300}}`(?: failed|$)|[Dd]evice-side assertion `.{{1,300}}' failed|{numbered('710', '59')}", F.USER_CODE, 0.85, "code",
         "RuntimeError: CUDA error: device-side assert triggered",
         "assertion failed on the host",
         "CUDA runtime error 710: an index out of range in the user's tensors",
         literals=("] assertion `", "cuda driver error", "cuda driver failur", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur", "device-side assert"), supersedes=("nccl-cuda-failure",)),
    Rule("cuda-unknown-error",
         r"CUDA (?:error: unknown error|driver error: unknown error|unknown error - this may be due to)|"
         r"cudaErrorUnknown|CUDA_ERROR_UNKNOWN|CUDA_ERROR_NOT_INITIALIZED|CUDA error: initialization error|"
         r"Unexpected error from cudaGetDeviceCount|"
         rf"{numbered('999|304|3', '30')}",
         F.GPU_DRIVER, 0.6, "node",
         "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. "
         "changing env variable CUDA_VISIBLE_DEVICES after program start.",
         "unknown error in config",
         "PyTorch CUDAFunctions, TensorFlow", literals=("cuda driver error", "cuda driver failur", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda unknown error", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur", "unexpected error f"), supersedes=("python-exception",), vendor="nvidia"),
    Rule("cuda-no-device",
         r"(?:no CUDA-capable device is detected|No CUDA GPUs are available|"
         r"Found no NVIDIA driver on your system|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|No GPUs were found available|"
         rf"No GPU.{{0,20}} (?:found|available).{{0,40}}(?:[Ee]xiting|but)|{numbered('100', '38')})", F.GPU_DRIVER, 0.72, "node",
         "RuntimeError: No CUDA GPUs are available",
         "No CUDA runtime is found, using CUDA_HOME",
         "CUDA runtime error 100",
         literals=("cuda driver error", "cuda driver failur", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur", "found no nvidia dr", "no cuda gpus are a", "no cuda-capable de", "no gpu"),
         supersedes=("python-exception",), vendor="nvidia"),
    Rule("cuda-driver-version",
         r"CUDA driver version is insufficient for CUDA runtime version|[Dd]river/library version mismatch|"
         r"system has unsupported display driver / cuda driver combination|forward compatibility was attempted on non supported HW|"
         r"The NVIDIA driver on your system is too old|provided PTX was compiled with an unsupported toolchain|"
         r"cudaError(?:InsufficientDriver|SystemDriverMismatch|CompatNotSupportedOnDevice|UnsupportedPtxVersion)|"
         rf"CUDA_ERROR_(?:SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED\w{{0,20}}|UNSUPPORTED_PTX_VERSION)|{numbered('803|804|222', '35')}",
         F.GPU_DRIVER, 0.85, "node",
         "Failed to initialize NVML: Driver/library version mismatch",
         "CUDA driver version 12.4",
         "CUDA runtime errors 35, 803, 804, NVML",
         literals=("cuda driver error", "cuda driver failur", "cuda driver versio", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur", "driver/library ver", "forward compatibil", "provided ptx was c", "system has unsuppo", "the nvidia driver "),
         supersedes=("python-exception", "cuda-unknown-error"), vendor="nvidia"),
    Rule("cuda-no-kernel-image",
         r"no kernel image is available for execution on the device|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU|"
         r"(?:CUDA|Cuda) error: (?:invalid device function|device kernel image is invalid)|cudaErrorInvalidDeviceFunction|"
         r"is not compatible with the current PyTorch installation\.$", F.CONFIG, 0.85,
         "code",
         "RuntimeError: CUDA error: no kernel image is available for execution on the device",
         "no kernel available",
         "CUDA runtime error 209: image built for another architecture",
         literals=("cuda error: device", "cuda error: invali", "cuda_error_no_bina", "cudaerrorinvalidde", "cudaerrornokerneli", "is not compatible ", "no kernel image is"),
         advice="use an image built for this GPU"),
    Rule("cuda-unhandled",
         r"CUBLAS_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)|CUDNN_STATUS_(?:EXECUTION_FAILED|"
         r"INTERNAL_ERROR|MAPPING_ERROR)|CUSOLVER_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)|CUFFT_(?:EXEC_FAILED|INTERNAL_ERROR)|"
         r"CUSPARSE_STATUS_(?:EXECUTION_FAILED|INTERNAL_ERROR)", F.GPU_DRIVER, 0.45, "rank",
         "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
         "CUBLAS_STATUS_SUCCESS",
         "cuBLAS, cuDNN status codes", literals=("cublas_status_exec", "cublas_status_inte", "cudnn_status_execu", "cudnn_status_inter", "cudnn_status_mappi", "cufft_exec_failed", "cufft_internal_err", "cusolver_status_ex", "cusolver_status_in", "cusparse_status_ex", "cusparse_status_in"), vendor="nvidia"),
    Rule("cuda-busy",
         r"CUDA-capable device\(s\) is/are busy or unavailable|cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|"
         rf"CUDA_ERROR_MPS_\w{{3,40}}|cudaErrorMps\w{{3,40}}|{numbered('46|80[5-9]')}", F.GPU_DRIVER, 0.65, "node",
         "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
         "all CUDA-capable devices are available",
         "CUDA runtime error 46: another process, exclusive mode, or a sick GPU", literals=("cuda driver error", "cuda driver failur", "cuda error", "cuda failure", "cuda runtime error", "cuda runtime failu", "cuda-capable devic", "cuda_driver error", "cuda_driver failur", "cuda_error", "cuda_failure", "cuda_runtime error", "cuda_runtime failu", "cudadriver error", "cudadriver failure", "cudaerror", "cudafailure", "cudaruntime error", "cudaruntime failur"),
         vendor="nvidia"),
    Rule("nccl-nvls", r"Failed to bind NVLink SHARP|nvls\.cc.{0,60}NCCL WARN (?:Cuda failure|CUDA error|Failed)", F.GPU_DRIVER, 0.65, "node",
         "gpu-7:420:437 [5] transport/nvls.cc:379 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152",
         "gpu-7:420:437 [5] NCCL INFO NVLS multicast support is available on dev 5",
         "NCCL: the fabric manager or NVSwitch does not serve multicast", literals=("failed to bind nvl", "nccl warn cuda err", "nccl warn cuda fai", "nccl warn failed"), supersedes=("nccl-cuda-failure",),
         vendor="nvidia", advice="restart the fabric manager and look at its log; NCCL_NVLS_ENABLE=0 goes on without it"),
    Rule("nccl-cuda-failure", r"NCCL WARN (?:Failed to CUDA|Cuda failure)", F.GPU_DRIVER, 0.45, "rank",
         "dgx-17:4120:4511 [3] enqueue.cc:1025 NCCL WARN Cuda failure 'driver shutting down'",
         "NCCL INFO Cuda driver version",
         "NCCL: any error of the runtime", literals=("nccl warn cuda fai", "nccl warn failed t"), fallback=True),
    Rule("torch-without-cuda", r"Torch not compiled with CUDA enabled", F.CONFIG, 0.95, "code",
         "AssertionError: Torch not compiled with CUDA enabled",
         "Torch compiled with CUDA 12.4",
         "PyTorch", literals=("torch not compiled",), advice="use an image whose framework was built for this GPU"),
    Rule("nvlink-fatal-runtime",
         r"CUDA error: NVLink error", F.GPU_HARDWARE,
         0.85, "node",
         "CUDA error: NVLink error detected during execution",
         "NVLink is active",
         "CUDA runtime", literals=("cuda error: nvlink",), supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("silent-corruption",
         r"(?i)silent data corruption|\bSDC (?:detected|suspected|found)|(?:memory|data) miscompare|"
         r"(?:GPU|device).{0,60}\bfaulty memory elements|A memory mismatch was detected on GPU|"
         r"rerun.{0,40}(?:different|inconsistent) result|Possible persistent (?:hardware )?error|Possible transient error",
         F.GPU_HARDWARE, 0.7, "rank",
         "WARNING: possible silent data corruption: gradients of two runs of one step differ on rank 12",
         "checks against silent data loss are on",
         "DCGM memory test, Megatron-LM rerun machine, checks of trainers",
         literals=("a memory mismatch ", "data miscompare", "different result", "faulty memory elem", "inconsistent resul", "memory miscompare", "possible persisten", "possible transient", "sdc detected", "sdc found", "sdc suspected", "silent data corrup"),
         supersedes=("numeric", "loss-nan", "loss-spike")),
)  # fmt: skip
