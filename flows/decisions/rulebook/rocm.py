"""ROCm's user space: HIP and HSA by text and by name, rocm-smi, amd-smi."""

from __future__ import annotations

from flows.decisions.rules import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass


def numbered(numbers: str) -> str:
    """The pattern of lines that name a HIP error by one of these numbers."""
    return rf"(?i:hip[ _]?(?:runtime )?(?:error|failure)(?: code)?[ :=]{{0,3}}\(?)(?:{numbers})\b"


RULES: tuple[Rule, ...] = (
    Rule("hsa-memory-fault", r"Memory access fault by GPU node-\d{1,3}|HSA_STATUS_ERROR_MEMORY_FAULT", F.GPU_DRIVER, 0.5, "rank",
         "Memory access fault by GPU node-2 (Agent handle: 0x5640a8bb1980) on address 0x7feea09c5000. "
         "Reason: Page not present or supervisor privilege.",
         "Memory access by GPU node-2",
         "ROCr; like an illegal access: the user's kernel or the hardware", literals=("hsa_status_error_m", "memory access faul"),
         vendor="amd"),
    Rule("hsa-queue-error",
         r"HSA_STATUS_ERROR(?:_(?:EXCEPTION|OUT_OF_RESOURCES|MEMORY_APERTURE_VIOLATION|FATAL|ILLEGAL_INSTRUCTION))?(?!_|\w)|"
         r"HW Exception by GPU node-|GPU Hang\b", F.GPU_DRIVER, 0.62, "rank",
         "HW Exception by GPU node-3 (Agent handle: 0x55c1) reason :GPU Hang",
         "HSA_STATUS_SUCCESS",
         "ROCr; ROCm issue 4021", literals=("gpu hang", "hsa_status_error", "hw exception by gp"), vendor="amd"),
    Rule("hip-illegal-access", rf"HIP error: an illegal memory access was encountered|hipErrorIllegalAddress|{numbered('700')}",
         F.USER_CODE, 0.5, "rank",
         "RuntimeError: HIP error: an illegal memory access was encountered",
         "HIP error: out of memory",
         "HIP runtime error 700", literals=("hip error", "hip failure", "hip runtime error", "hip runtime failur", "hip_error", "hip_failure", "hip_runtime error", "hip_runtime failur", "hiperror", "hipfailure", "hipruntime error", "hipruntime failure"), supersedes=("cuda-illegal-access",), vendor="amd"),
    Rule("hip-launch-failure",
         r"HIP error: (?:unspecified launch failure|unknown error|the operation cannot be performed|the launch timed out|"
         r"initialization error|context is destroyed)|hipError(?:LaunchFailure|LaunchTimeOut|Unknown|NotInitialized|Deinitialized)|"
         rf"{numbered('719|702|999|3')}", F.GPU_DRIVER, 0.55, "rank",
         "RuntimeError: HIP error: unspecified launch failure",
         "HIP error: invalid device ordinal",
         "HIP runtime errors 719, 702, 999, 3", literals=("hip error", "hip failure", "hip runtime error", "hip runtime failur", "hip_error", "hip_failure", "hip_runtime error", "hip_runtime failur", "hiperror", "hipfailure", "hipruntime error", "hipruntime failure"), supersedes=("cuda-launch-failure",), vendor="amd"),
    Rule("hip-ecc", rf"hipErrorECCNotCorrectable|HIP error: uncorrectable ECC error|{numbered('214')}", F.GPU_HARDWARE, 0.95, "rank",
         "RuntimeError: HIP error: uncorrectable ECC error encountered",
         "HIP error: invalid argument",
         "HIP runtime error 214", literals=("hip error", "hip failure", "hip runtime error", "hip runtime failur", "hip_error", "hip_failure", "hip_runtime error", "hip_runtime failur", "hiperror", "hipfailure", "hipruntime error", "hipruntime failure"), supersedes=(*GPU_CONSEQUENCES, "cuda-ecc"), vendor="amd"),
    Rule("hip-no-device", r"(?:No HIP GPUs are available|hipErrorNoDevice|no ROCm-capable device is detected|"
         r"No AMD GPUs? (?:detected|found|specified)|[Nn]o GPU agents? (?:found|detected)|hsa_init.{0,40}[Ff]ailed|"
         rf"{numbered('100')})",
         F.GPU_DRIVER, 0.75, "node",
         "RuntimeError: No HIP GPUs are available",
         "HIP GPUs: 8",
         "HIP runtime error 100", literals=("hip error", "hip failure", "hip runtime error", "hip runtime failur", "hip_error", "hip_failure", "hip_runtime error", "hip_runtime failur", "hiperror", "hipfailure", "hipruntime error", "hipruntime failure", "hsa_init", "no amd gpu detecte", "no amd gpu found", "no amd gpu specifi", "no amd gpus detect", "no amd gpus found", "no amd gpus specif", "no gpu agent detec", "no gpu agent found", "no gpu agents dete", "no gpu agents foun", "no hip gpus are av", "no rocm-capable de"), vendor="amd"),
    Rule("rocm-driver-absent", r"driver not initialized \(amdgpu not found|\bRSMI_STATUS_INIT_ERROR\b|\bAMDSMI_STATUS_(?:DRIVER_NOT_LOADED|NOT_INIT)\b",
         F.GPU_DRIVER, 0.85, "node",
         "rocm_smi: driver not initialized (amdgpu not found in modules)",
         "rocm_smi: driver initialized",
         "rocm-smi, amd-smi", literals=("driver not initiali", "rsmi_status_init_er", "amdsmi_status_drive", "amdsmi_status_not_i"), vendor="amd"),
    Rule("amd-smi-uncorrected", r"\bUNCORRECTABLE_COUNT: {1,8}[1-9]", F.GPU_HARDWARE, 0.72, "node",
         "        UNCORRECTABLE_COUNT: 5",
         "        UNCORRECTABLE_COUNT: 0",
         "amd-smi metric --ecc", literals=("uncorrectable_count",), vendor="amd"),
    Rule("hip-no-binary",
         r"hipErrorNoBinaryForGpu|hipErrorInvalidDeviceFunction|HIP error: (?:no kernel image is available|invalid device function|"
         r"device kernel image is invalid)|HSA_STATUS_ERROR_INVALID_ISA|Cannot read \S{1,200}TensileLibrary|"
         r"rocBLAS error: .{0,80}(?:Could not load|Cannot read).{0,40}[Tt]ensile",
         F.CONFIG, 0.85, "code",
         "RuntimeError: HIP error: invalid device function",
         "HIP error: invalid argument",
         "HIP runtime error 209: image built for another architecture",
         literals=("hip error: device ", "hip error: invalid", "hip error: no kern", "hiperrorinvaliddev", "hiperrornobinaryfo", "hsa_status_error_i", "rocblas error:", "tensilelibrary"), supersedes=("cuda-no-kernel-image",), vendor="amd",
         advice="use an image built for this GPU (gfx version)"),
    Rule("kfd-permission", r"Unable to open /dev/kfd read-write|/dev/kfd.{0,40}Permission denied", F.CONFIG, 0.85,
         "code",
         "Unable to open /dev/kfd read-write: Permission denied",
         "opened /dev/kfd",
         "ROCr: the pod's group may not use the device", literals=("permission denied", "unable to open /de"),
         supersedes=("permission-denied",), vendor="amd", advice="add the render group to the pod"),
    Rule("rocm-driver-missing",
         r"Driver not initialized \(amdgpu not found in modules\)|amdgpu version file missing|"
         r"ROCk module is NOT loaded|rsmi_init\(\) failed|AMDSMI_STATUS_(?:DRIVER_NOT_LOADED|DRM_ERROR|INIT_ERROR|NOT_INIT|NO_DRV)|"
         r"(?:rocm|amd)-smi.{0,40}(?:timed out|hang|returned non-zero)|"
         r"modprobe: (?:FATAL|ERROR): .{0,80}\bamdgpu\b|AMD driver not (?:loaded|found)", F.GPU_DRIVER, 0.85, "node",
         "ERROR:root:Driver not initialized (amdgpu not found in modules)",
         "amdgpu is loaded",
         "rocm-smi, amd-smi, rocminfo", literals=("amd driver not fou", "amd driver not loa", "amd-smi", "amdgpu version fil", "amdsmi_status_driv", "amdsmi_status_drm_", "amdsmi_status_init", "amdsmi_status_no_d", "amdsmi_status_not_", "driver not initial", "modprobe: error:", "modprobe: fatal:", "rock module is not", "rocm-smi", "rsmi_init() failed"), vendor="amd"),
)  # fmt: skip
