"""The GPU's memory ran out: allocators of frameworks and libraries, on every vendor's devices."""

from __future__ import annotations

from flows.decisions.rules import Rule
from profiles.vocabulary import FaultClass

F = FaultClass
SMALLER = "smaller micro batch, activation checkpointing, or more sharding"

RULES: tuple[Rule, ...] = (
    Rule("bfc-no-failure", r"ran out of memory trying to allocate .{0,80}The caller indicates that this is not a failure|"
         r"^\d{4}.{0,60}bfc_allocator\.cc:\d+\] (?:[*_x]{10}|Bin \(|Chunk|InUse|Free at|Next region|Stats|Limit|Sum Total)",
         F.NONE, 1.0, "nobody",
         "W tensorflow/core/common_runtime/bfc_allocator.cc:245] Allocator (GPU_0_bfc) ran out of memory trying to allocate "
         "2.0GiB. The caller indicates that this is not a failure, but may mean that there could be performance gains",
         "Allocator (GPU_0_bfc) ran out of memory trying to allocate 12.00GiB (rounded to 12884901888)",
         "TensorFlow and XLA: only slower", literals=("bfc_allocator.cc:", "the caller indicat")),
    Rule("cuda-out-of-memory",
         r"(?:CUDA|HIP|XPU|NPU|MPS|CUDNN|MUSA|MLU|HPU)(?: backend)? out of memory|torch\.(?:cuda\.)?OutOfMemoryError|"
         r"(?:CUDA|HIP|Cuda|cuda|hip)(?: runtime| driver)? ?[Ee]rror(?: code)?[ :=]{0,3}\(?2?\)?[ :,]{0,3}['(]?out of memory|"
         r"[Cc]uda failure (?:2 )?'out of memory'|hipErrorOutOfMemory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|"
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
         literals=("cuda backend out o", "cuda failure 'out ", "cuda failure 2 'ou", "cuda_error_out_of_", "cudaerrormemoryall", "cudnn backend out ", "cudnn out of memor", "failed to cuda cal", "hip backend out of", "hiperroroutofmemor", "hpu backend out of", "mlu backend out of", "mps backend out of", "musa backend out o", "npu backend out of", "nvml_error_memory", "out of memory", "out_of_memory: cud", "out_of_memory: rmm", "outofmemoryerror", "rmm::out_of_memory", "thcudacheck fail", "torch.cuda.outofme", "torch.outofmemorye", "tried to allocate", "xpu backend out of"),
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
         "TensorFlow, XLA, JAX",
         literals=(") ran out of memor", "esource exhausted", "esource_exhausted", "esourceexhausted", "failed to allocate", "oom when allocatin", "out of memory"),
         supersedes=("python-exception", "user_code", "cuda-out-of-memory"), advice=SMALLER),
    Rule("no-room-for-cache",
         r"No available memory for the cache blocks|Free memory on device \(?.{0,60}is less than desired GPU memory utilization|"
         r"Not enough memory\. Please try to increase --mem-fraction-static|"
         r"KV cache.{0,80}larger than the (?:available|maximum).{0,40}KV cache|"
         r"(?:not enough|insufficient|no free) (?:GPU|CUDA|HBM|VRAM|device|video) memory|(?i:\bVRAM (?:is )?exhausted|out of VRAM)",
         F.GPU_OOM, 0.8, "code",
         "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
         "initializing the engine.",
         "Available KV cache memory: 12.31 GiB",
         "vLLM, SGLang: engines that sample beside the training",
         literals=("free memory on dev", "insufficient cuda ", "insufficient devic", "insufficient gpu m", "insufficient hbm m", "insufficient video", "insufficient vram ", "larger than the av", "larger than the ma", "no available memor", "no free cuda memor", "no free device mem", "no free gpu memory", "no free hbm memory", "no free video memo", "no free vram memor", "not enough cuda me", "not enough device ", "not enough gpu mem", "not enough hbm mem", "not enough memory.", "not enough video m", "not enough vram me", "out of vram", "vram exhausted", "vram is exhausted"),
         supersedes=("python-exception", "user_code"), advice="leave the engine less memory, or the trainer"),
    Rule("cublas-alloc-failed",
         r"CU(?:BLAS|DNN|SOLVER|SPARSE)_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED|(?:HIPBLAS|ROCBLAS|MIOPEN)_STATUS_ALLOC_FAILED|"
         r"miopenStatusAllocFailed|rocblas_status_memory_error|ncclCommInitRank.{0,60}out of memory", F.GPU_OOM, 0.75,
         "code",
         "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
         "CUBLAS_STATUS_NOT_INITIALIZED",
         "status codes of cuBLAS, cuDNN and their like",
         literals=("cublas_status_allo", "cudnn_status_alloc", "cufft_alloc_failed", "cusolver_status_al", "cusparse_status_al", "hipblas_status_all", "miopen_status_allo", "miopenstatusallocf", "ncclcomminitrank", "rocblas_status_all", "rocblas_status_mem"), supersedes=("python-exception",),
         advice=SMALLER),
    Rule("cublas-not-initialized", r"CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED", F.GPU_OOM, 0.5, "code",
         "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
         "CUBLAS_STATUS_SUCCESS",
         "status codes of cuBLAS and cuDNN: mostly no memory was left for the handle, else an index error before",
         literals=("cublas_status_not_", "cudnn_status_not_i"), advice=SMALLER),
    Rule("hsa-no-resources",
         r"HSA_STATUS_ERROR_OUT_OF_RESOURCES.{0,300}Available Free mem ?: ?\d{1,3} ?MB|"
         r"hipMalloc.{0,40}failed|Failed to allocate .{0,60}(?:VRAM|GTT)|amdgpu.{0,60}[Nn]ot enough memory for command submission",
         F.GPU_OOM, 0.7, "code",
         "Callback: Queue 0x7f4e98400000 aborting with error : HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to "
         "allocate the necessary resources. code: 0x1008 Available Free mem : 0 MB",
         "HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources",
         "ROCr, amdgpu", literals=("failed to allocate", "hipmalloc", "hsa_status_error_o", "not enough memory "),
         supersedes=("hsa-queue-error",), vendor="amd", advice=SMALLER),
)  # fmt: skip
