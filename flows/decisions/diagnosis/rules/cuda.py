"""The CUDA runtime by text, by name and by number, as frameworks quote it; and GPU memory that ran out.

Numbers are those of `cudaError_t` and `CUresult`; in brackets the ones that CUDA had before version 10.1, which PyTorch
printed as `cuda runtime error (77)`. The rules of memory know the allocators of frameworks and libraries on every
vendor's devices.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass


def said(words: str) -> str:
    """The pattern of lines that quote what the runtime says of an error: `CUDA error: …`, NCCL's `Cuda failure 1 '…'`."""
    return (
        r"(?i:\b(?:cuda|hip)(?: runtime| driver)? (?:error|failure)(?: code)?[ :=]{0,3}\(?\d{0,4}\)?[ :,]{0,3}['(]?)"
        rf"(?:{words})"
    )


def numbered(new: str, old: str = "") -> str:
    """The pattern of lines that name an error by number.

    `old`: numbers before CUDA 10.1; both as alternatives (`700|716`).
    """
    now = rf"(?i:cuda[ _]?(?:runtime |driver )?(?:error|failure)(?: code)?[ :=]{{0,3}}\(?)(?:{new})\b"
    return rf"{now}|(?i:cuda runtime error \()(?:{old})\)" if old else now


CUDA_RULES: tuple[Rule, ...] = (
    Rule("cuda-ecc",
         r"uncorrectable (?:ECC|NVLink) error (?:encountered|was detected)|"
         r"cudaErrorECCUncorrectable|cudaErrorNvlinkUncorrectable|CUDA_ERROR_(?:ECC_UNCORRECTABLE|NVLINK_UNCORRECTABLE)|"
         rf"{numbered('214|220|714', '39')}", F.GPU_HARDWARE, 0.95, "rank",
         "RuntimeError: CUDA error: uncorrectable ECC error encountered",
         "CUDA error: no kernel image is available",
         "CUDA runtime error 214 and 220", supersedes=(*GPU_CONSEQUENCES, "nvlink-fatal", "nccl-cuda-failure"),
         vendor="nvidia"),
    Rule("cuda-illegal-access",
         rf"an illegal memory access was encountered|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS|{numbered('700', '77')}",
         F.USER_CODE, 0.55, "rank",
         "[rank2]: RuntimeError: CUDA error: an illegal memory access was encountered",
         "Segmentation fault: illegal memory",
         "CUDA runtime error 700; census: 21 infrastructure, 41 user",
         supersedes=("nccl-cuda-failure", "python-exception"),
         advice="the same rank's node again: test it; other nodes: look at the newest kernel or index code"),
    Rule("cuda-kernel-fault",
         r"(?:CUDA|Cuda|HIP).{0,40}(?:misaligned address|an illegal instruction was encountered|invalid program counter|"
         r"operation not supported on global/shared address space|too many resources requested for launch|invalid configuration argument)|"
         r"cudaError(?:MisalignedAddress|IllegalInstruction|InvalidPc|InvalidAddressSpace|LaunchOutOfResources|InvalidConfiguration)|"
         rf"CUDA_ERROR_(?:MISALIGNED_ADDRESS|ILLEGAL_INSTRUCTION|INVALID_PC|INVALID_ADDRESS_SPACE)|{numbered('701|71[5-8]', '7|7[3-68]')}",
         F.USER_CODE, 0.55, "rank",
         "RuntimeError: CUDA error: misaligned address",
         "CUDA error: out of memory",
         "CUDA runtime errors 701, 715 to 718: a kernel that was called or written wrongly", vendor="nvidia"),
    Rule("cuda-launch-failure",
         r"(?:CUDA|Cuda|cuda|GPU).{0,60}(?:unspecified launch failure|the launch timed out and was terminated)|"
         r"(?<!HIP error: )unspecified launch failure|cudaErrorLaunch(?:Failure|Timeout)|CUDA_ERROR_LAUNCH_(?:FAILED|TIMEOUT)|"
         rf"{numbered('719|702', '[46]')}",
         F.USER_CODE, 0.5, "rank",
         "RuntimeError: CUDA error: unspecified launch failure",
         "CUDA error: out of memory",
         "CUDA runtime errors 719, 702: like an illegal access (three of three with a known cause were kernels)",
         supersedes=("nccl-cuda-failure", "python-exception"), vendor="nvidia",
         advice="the same rank's node again: test it; other nodes: look at the newest kernel or index code"),
    Rule("cuda-device-assert",
         r"device-side assert triggered|cudaErrorAssert\b|CUDA_ERROR_ASSERT\b|"
         rf"(?:block|thread): \[.{{1,80}}\] Assertion `(?!input_val).{{1,300}}`(?: failed|$)|[Dd]evice-side assertion `.{{1,300}}' failed|{numbered('710', '59')}", F.USER_CODE, 0.85, "code",
         "RuntimeError: CUDA error: device-side assert triggered",
         "assertion failed on the host",
         "CUDA runtime error 710: an index out of range in the user's tensors", supersedes=("nccl-cuda-failure",)),
    Rule("cuda-unknown-error",
         r"CUDA (?:error: unknown error|driver error: unknown error|unknown error - this may be due to)|"
         r"cudaErrorUnknown|CUDA_ERROR_UNKNOWN|CUDA_ERROR_NOT_INITIALIZED|"
         rf"{said('(?:initialization|unknown) error|driver shutting down|context is destroyed')}|"
         r"Unexpected error from cudaGetDeviceCount|"
         rf"{numbered('999|304|3', '30')}",
         F.GPU_DRIVER, 0.6, "node",
         "RuntimeError: CUDA unknown error - this may be due to an incorrectly set up environment, e.g. "
         "changing env variable CUDA_VISIBLE_DEVICES after program start.",
         "unknown error in config",
         "PyTorch CUDAFunctions, TensorFlow", supersedes=("python-exception",), vendor="nvidia"),
    Rule("cuda-no-device",
         r"(?:no CUDA-capable device is detected|No CUDA GPUs are available|"
         r"Found no NVIDIA driver on your system|cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|No GPUs were found available|"
         rf"No GPU.{{0,20}} (?:found|available).{{0,40}}(?:[Ee]xiting|but)|{numbered('100', '38')})", F.GPU_DRIVER, 0.72, "node",
         "RuntimeError: No CUDA GPUs are available",
         "No CUDA runtime is found, using CUDA_HOME",
         "CUDA runtime error 100", supersedes=("python-exception",), vendor="nvidia"),
    Rule("cuda-driver-version",
         r"CUDA driver version is insufficient for CUDA runtime version|[Dd]river/library version mismatch|"
         r"system has unsupported display driver / cuda driver combination|forward compatibility was attempted on non supported HW|"
         r"The NVIDIA driver on your system is too old|(?:provided )?PTX was compiled with an unsupported toolchain|"
         rf"{said('API call is not supported in the installed CUDA driver')}|"
         r"cudaError(?:InsufficientDriver|SystemDriverMismatch|CompatNotSupportedOnDevice|UnsupportedPtxVersion)|"
         rf"CUDA_ERROR_(?:SYSTEM_DRIVER_MISMATCH|COMPAT_NOT_SUPPORTED\w{{0,20}}|UNSUPPORTED_PTX_VERSION)|{numbered('803|804|222', '35')}",
         F.GPU_DRIVER, 0.85, "node",
         "Failed to initialize NVML: Driver/library version mismatch",
         "CUDA driver version 12.4",
         "CUDA runtime errors 35, 803, 804, NVML", supersedes=("python-exception", "cuda-unknown-error"),
         vendor="nvidia"),
    Rule("cuda-no-kernel-image",
         r"no kernel image is available for execution on the device|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU|"
         rf"{said('invalid device function|device kernel image is invalid|named symbol not found')}|cudaErrorInvalidDeviceFunction|"
         r"is not compatible with the current PyTorch installation\.$", F.CONFIG, 0.85,
         "code",
         "RuntimeError: CUDA error: no kernel image is available for execution on the device",
         "no kernel available",
         "CUDA runtime error 209: image built for another architecture", advice="use an image built for this GPU"),
    Rule("cuda-unhandled",
         r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_INTERNAL_ERROR|CUFFT_INTERNAL_ERROR", F.GPU_DRIVER, 0.45, "rank",
         "RuntimeError: cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
         "CUBLAS_STATUS_SUCCESS",
         "cuBLAS, cuDNN status codes", vendor="nvidia"),
    Rule("cuda-execution-failed",
         r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_(?:EXECUTION_FAILED|MAPPING_ERROR)|CUFFT_EXEC_FAILED", F.USER_CODE, 0.45, "rank",
         "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`",
         "CUBLAS_STATUS_SUCCESS",
         "cuBLAS, cuDNN: what an earlier kernel left behind, mostly an index out of range",
         supersedes=("nccl-cuda-failure", "python-exception"), vendor="nvidia",
         advice="the same rank's node again: test it; other nodes: look at the newest kernel or index code"),
    Rule("cuda-busy",
         r"CUDA-capable device(?:\(s\) is/are|s are) busy or unavailable|cudaErrorDevicesUnavailable|CUDA_ERROR_DEVICE_UNAVAILABLE|"
         rf"CUDA_ERROR_MPS_\w{{3,40}}|cudaErrorMps\w{{3,40}}|{numbered('46|80[5-9]')}", F.GPU_DRIVER, 0.65, "node",
         "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
         "all CUDA-capable devices are available",
         "CUDA runtime error 46: another process, exclusive mode, or a sick GPU", vendor="nvidia"),
    Rule("nccl-nvls", r"Failed to bind NVLink SHARP|nvls\.cc.{0,60}NCCL WARN (?:Cuda failure|CUDA error|Failed)", F.GPU_DRIVER, 0.65, "node",
         "gpu-7:420:437 [5] transport/nvls.cc:379 NCCL WARN Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152",
         "gpu-7:420:437 [5] NCCL INFO NVLS multicast support is available on dev 5",
         "NCCL: the fabric manager or NVSwitch does not serve multicast", supersedes=("nccl-cuda-failure",),
         vendor="nvidia",
         advice="restart the fabric manager and look at its log; NCCL_NVLS_ENABLE=0 goes on without it"),
    Rule("nccl-cuda-failure", r"NCCL WARN Failed to CUDA|(?i:\b(?:cuda|hip) failure)(?: \d{1,4})?:? ?'", F.GPU_DRIVER, 0.45, "rank",
         "dgx-17:4120:4511 [3] enqueue.cc:1025 NCCL WARN Cuda failure 'invalid resource handle'",
         "NCCL INFO Cuda driver version",
         "NCCL: any error of the runtime", fallback=True),
    Rule("torch-without-cuda", r"Torch not compiled with CUDA enabled", F.CONFIG, 0.95, "code",
         "AssertionError: Torch not compiled with CUDA enabled",
         "Torch compiled with CUDA 12.4",
         "PyTorch", advice="use an image whose framework was built for this GPU"),
    Rule("nvlink-fatal-runtime",
         r"CUDA error: NVLink error", F.GPU_HARDWARE,
         0.85, "node",
         "CUDA error: NVLink error detected during execution",
         "NVLink is active",
         "CUDA runtime", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("silent-corruption",
         r"(?i)silent data corruption|\bSDC (?:detected|suspected|found)|(?:memory|data) miscompare|"
         r"(?:GPU|device).{0,60}\bfaulty memory elements|A memory mismatch was detected on GPU|"
         r"rerun.{0,40}(?:different|inconsistent) result|Possible persistent (?:hardware )?error|Possible transient error",
         F.GPU_HARDWARE, 0.7, "rank",
         "WARNING: possible silent data corruption: gradients of two runs of one step differ on rank 12",
         "checks against silent data loss are on",
         "DCGM memory test, Megatron-LM rerun machine, checks of trainers",
         supersedes=("numeric", "loss-nan", "loss-spike")),
)  # fmt: skip


SMALLER = "smaller micro batch, activation checkpointing, or more sharding"

GPU_MEMORY_RULES: tuple[Rule, ...] = (
    Rule("bfc-no-failure", r"ran out of memory trying to allocate .{0,80}The caller indicates that this is not a failure|"
         r"^\d{4}.{0,60}bfc_allocator\.cc:\d+\] (?:[*_x]{10}|Bin \(|Chunk|InUse|Free at|Next region|Stats|Limit|Sum Total)",
         F.NONE, 1.0, "nobody",
         "W tensorflow/core/common_runtime/bfc_allocator.cc:245] Allocator (GPU_0_bfc) ran out of memory trying to allocate "
         "2.0GiB. The caller indicates that this is not a failure, but may mean that there could be performance gains",
         "Allocator (GPU_0_bfc) ran out of memory trying to allocate 12.00GiB (rounded to 12884901888)",
         "TensorFlow and XLA: only slower"),
    Rule("cuda-out-of-memory",
         r"(?:CUDA|HIP|XPU|NPU|MPS|CUDNN|MUSA|MLU|HPU)(?: backend)? out of memory|torch\.(?:cuda\.)?OutOfMemoryError|"
         r"(?:CUDA|HIP|Cuda|cuda|hip)(?: runtime| driver)? ?[Ee]rror(?: code)?[ :=]{0,3}\(?2?\)?[ :,]{0,3}['(]?out of memory|"
         r"(?:[Cc]uda|HIP) failure:? (?:2 )?'out of memory'|hipErrorOutOfMemory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|"
         r"(?:hip|cuda)(?:Malloc|MemAlloc)\w{0,12}(?: retry)?(?: failed|\(.{0,60}\) failed).{0,60}out of memory|"
         r"THCudaCheck FAIL .{0,200}error=2 : out of memory|"
         r"Tried to allocate [\d.]{1,10} ?[KMGT]i?B[ .(]{1,3}(?:GPU|\(GPU|Device|NPU)|"
         r"OutOfMemoryError: Out of memory allocating [\d,]{1,30} bytes|cupy\S{0,40}OutOfMemoryError|"
         r"out_of_memory: (?:CUDA|RMM)|rmm::out_of_memory|Failed to CUDA calloc|"
         r"Out of memory error on GPU \d|NVML_ERROR_MEMORY", F.GPU_OOM,
         0.95, "code",
         "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
         "capacity of 79.10 GiB of which 1.06 GiB is free.",
         "Out of memory: Killed process 15784 (python3)",
         "PyTorch, NCCL, RMM, CuPy, Paddle, MXNet",
         supersedes=("nccl-cuda-failure", "host-out-of-memory-errno", "python-memory-error", "python-exception"),
         advice=SMALLER),
    Rule("tensor-out-of-memory",
         r"OOM when allocating tensor with shape.{0,200}(?:GPU|gpu|TPU|tpu|XLA)|"
         r"(?:RESOURCE_EXHAUSTED|ResourceExhausted\w{0,10}|Resource exhausted): {1,2}(?:Out of memory|.{0,80}(?:ran out of memory|"
         r"[Aa]ttempting to (?:allocate|reserve)|exceeds? (?:the )?(?:available|HBM|limit)|Failed to allocate request))|"
         r"Ran out of memory in memory space (?:hbm|vmem)|\bRan out of memory trying to allocate [\d.]{1,10}[KMGT]?i?B|Allocator \((?:GPU|gpu|mklcuda)\w{0,12}\) ran out of memory|"
         r"\bResourceExhaustedError: ?(?:$|failed to allocate|Graph execution error)|XLA:GPU.{0,60}out of memory|Out of memory while trying to allocate [\d,]{1,30} bytes|"
         r"failed to allocate [\d.]{1,10}[KMGT]?i?B? .{0,60}from device: (?!CUDA_ERROR)", F.GPU_OOM, 0.93, "code",
         "tensorflow.python.framework.errors_impl.ResourceExhaustedError: OOM when allocating tensor with "
         "shape[8,509,3072] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc",
         "ResourceExhaustedError: OOM when allocating tensor with shape[8,509] on /device:CPU:0 by allocator cpu",
         "TensorFlow, XLA, JAX", supersedes=("python-exception", "user_code", "cuda-out-of-memory"), advice=SMALLER),
    Rule("no-room-for-cache",
         r"No available memory for the cache blocks|Free memory on device \(?.{0,60}is less than desired GPU memory utilization|"
         r"Not enough memory\. Please try to increase --mem-fraction-static|"
         r"KV cache.{0,80}larger than the (?:available|maximum).{0,40}KV cache|"
         r"(?:not enough|insufficient|no free) (?:GPU|CUDA|HBM|VRAM|device|video) memory|(?i:\bVRAM (?:is )?exhausted|out of VRAM)",
         F.GPU_OOM, 0.8, "code",
         "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
         "initializing the engine.",
         "Available KV cache memory: 12.31 GiB",
         "vLLM, SGLang: engines that sample beside the training", supersedes=("python-exception", "user_code"),
         advice="leave the engine less memory, or the trainer"),
    Rule("cublas-alloc-failed",
         r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED|(?:HIPBLAS|ROCBLAS|MIOPEN)_STATUS_ALLOC_FAILED|"
         r"miopenStatusAllocFailed|rocblas_status_memory_error|ncclCommInitRank.{0,60}out of memory", F.GPU_OOM, 0.75,
         "code",
         "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
         "CUBLAS_STATUS_NOT_INITIALIZED",
         "status codes of cuBLAS, cuDNN and their like", supersedes=("python-exception",), advice=SMALLER),
    Rule("cublas-not-initialized", r"CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED", F.GPU_OOM, 0.5, "code",
         "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
         "CUBLAS_STATUS_SUCCESS",
         "status codes of cuBLAS and cuDNN: mostly no memory was left for the handle, else an index error before",
         advice=SMALLER),
    Rule("hsa-no-resources",
         r"HSA_STATUS_ERROR_OUT_OF_RESOURCES.{0,300}Available Free mem ?: ?\d{1,3} ?MB|"
         r"hipMalloc.{0,40}failed|Failed to allocate .{0,60}(?:VRAM|GTT)|amdgpu.{0,60}[Nn]ot enough memory for command submission",
         F.GPU_OOM, 0.7, "code",
         "Callback: Queue 0x7f4e98400000 aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to "
         "allocate the necessary resources. code: 0x1008 Available Free mem : 0 MB",
         "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources",
         "ROCr, amdgpu", supersedes=("hsa-queue-error",), vendor="amd", advice=SMALLER),
)  # fmt: skip
