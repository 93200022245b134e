"""AMD: amdgpu and KFD kernel messages, RAS; ROCm's user space: HIP and HSA by text and by name, rocm-smi, amd-smi."""

from __future__ import annotations

from flows.decisions.diagnosis.clues import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass

AMD_RULES: tuple[Rule, ...] = (
    Rule("amdgpu-uncorrectable",
         r"amdgpu.{0,80}(?:\b[1-9]\d* (?:new )?uncorrectable hardware errors? .{0,20}detected|"
         r"uncorrectable hardware error\()|RAS event of type ERREVENT_ATHUB_INTERRUPT|"
         r"RAS (?:controller|err_event_athub) interrupt triggered by NBIF error", F.GPU_HARDWARE, 0.96, "node",
         "amdgpu 0000:1c:00.0: {1}uncorrectable hardware error(ERREVENT_ATHUB_INTERRUPT) detected!",
         "amdgpu 0000:c3:00.0: amdgpu: no uncorrectable hardware errors detected in umc block",
         "amdgpu RAS; ROCm issue 4021 (MI300X); some drivers report multiples of 1048560 falsely",
         supersedes=GPU_CONSEQUENCES, vendor="amd"),
    Rule("amdgpu-deferred", r"amdgpu.{0,80}\b[1-9]\d* (?:new )?deferred hardware errors? .{0,20}detected", F.GPU_HARDWARE, 0.7,
         "node",
         "amdgpu 0000:c3:00.0: amdgpu: 2 new deferred hardware errors detected in umc block",
         "amdgpu 0000:c3:00.0: amdgpu: 0 deferred hardware errors detected in umc block",
         "amdgpu RAS: an uncorrectable error nobody has read yet", vendor="amd"),
    Rule("amdgpu-poison", r"(?:RAS poison consumption, fall ?back to gpu reset|amdgpu.{0,80}(?:poison is consumed|"
         r"RAS poison consumption|[Pp]oison is created|consumption of poison))(?!.{0,40}unmap queue flow succeeded)", F.GPU_HARDWARE, 0.85,
         "node",
         "amdgpu 0000:63:00.0: amdgpu: RAS poison consumption, fall back to gpu reset flow: client id 27",
         "amdgpu 0000:63:00.0: amdgpu: RAS poison consumption, unmap queue flow succeeded: client id 27",
         "amdgpu kernel driver, poison handling", supersedes=GPU_CONSEQUENCES, vendor="amd"),
    Rule("amdgpu-bad-pages", r"amdgpu.{0,80}(?:RAS records?:\d+ (?:exceed|reach)|bad page(?:s)? (?:exceed|threshold)|"
         r"reached bad page threshold|exceeds? (?:the )?bad page threshold|[Ss]aved bad pages \d+ reaches threshold)", F.GPU_HARDWARE, 0.93, "node",
         "amdgpu 0000:83:00.0: amdgpu: RAS records:258 exceed threshold:256, GPU will not be initialized. "
         "Replace this GPU",
         "amdgpu 0000:83:00.0: amdgpu: RAS records:2",
         "amdgpu_ras_eeprom", supersedes=GPU_CONSEQUENCES, vendor="amd"),
    Rule("amdgpu-boot-failed",
         r"amdgpu.{0,120}(?:(?:memory|link|cp) training failed|memtest.{0,10}failed|HBM (?:BIST|memory) test failed|data abort exception|"
         r"firmware load failed, at boot)", F.GPU_HARDWARE, 0.88, "node",
         "amdgpu 0000:05:00.0: amdgpu: socket: 2, aid: 1, hbm: 3, fw_status: 0x41000000, memory training failed",
         "amdgpu 0000:05:00.0: amdgpu: memory training completed",
         "amdgpu boot status", supersedes=GPU_CONSEQUENCES, vendor="amd"),
    Rule("amdgpu-reset-failed", r"amdgpu.{0,60}(?:GPU reset end with ret = -|GPU Recovery Failed|ASIC reset failed|"
         r"GPU reset\(\d+\) failed|[Mm]ode-?\d reset failed|HW reset failed|GPU reset failed)", F.GPU_HARDWARE, 0.85, "node",
         "amdgpu 0000:63:00.0: amdgpu: GPU reset end with ret = -22",
         "amdgpu 0000:33:00.0: amdgpu: GPU reset succeeded, trying to resume",
         "amdgpu_device_gpu_recover", supersedes=GPU_CONSEQUENCES, vendor="amd"),
    Rule("amdgpu-gone",
         r"amdgpu.{0,60}(?:device lost from bus|GPU has been removed|Unable to access the PCI config|"
         r"pci_power_lost|PCI error: detected callback|PCIe error recovery failed)", F.GPU_HARDWARE, 0.96, "node",
         "amdgpu 0000:c6:00.0: amdgpu: device lost from bus!",
         "amdgpu 0000:c6:00.0: amdgpu: SMU is resumed successfully!",
         "amdgpu_device", supersedes=GPU_CONSEQUENCES, vendor="amd"),
    Rule("aca-fatal", r"\[Hardware Error\].{0,80}(?:severity: (?:fatal|recoverable)|Uncorrected, software containable error|type: fatal)|"
         r"aca entry\[\d{1,3}\]\.STATUS=0x[abef][0-9a-f]{15}\b",
         F.GPU_HARDWARE, 0.85, "node",
         "{2}[Hardware Error]: event severity: fatal",
         "{2}[Hardware Error]: event severity: corrected",
         "Linux APEI, AMD ACA: bit 61 of the status means uncorrected"),
    Rule("aca-logged", r"Accelerator Check Architecture events logged", F.GPU_HARDWARE, 0.4, "node",
         "amdgpu 0000:4e:00.0: {1}[Hardware Error]: Accelerator Check Architecture events logged",
         "amdgpu 0000:4e:00.0: ACA is supported",
         "AMD ACA: corrected ones too", vendor="amd"),
    Rule("amdgpu-afid-fatal", r"CPER_SEVERITY_(?:FATAL|NON_FATAL_UNCORRECTED)|AFID.{0,20}\bFATAL\b|"
         r"gpu_(?:ecc_uncorrect|ecc_deferred)\w{0,20}\{[^}]{0,900}\} [1-9]", F.GPU_HARDWARE, 0.75, "node",
         "gpu_afid_errors severity=CPER_SEVERITY_FATAL afid_index=30",
         "CPER_SEVERITY_NON_FATAL_CORRECTED",
         "AMD device metrics exporter; one driver release reported it falsely", vendor="amd"),
    Rule("amdgpu-xgmi", r"amdgpu.{0,80}(?:XGMI|xgmi|wafl).{0,100}(?:[Ee]rror|[Ff]ailed|fatal|down\b)", F.GPU_HARDWARE, 0.75,
         "node",
         "amdgpu 0000:05:00.0: amdgpu: XGMI: Failed to update topology information, device 1, hive 2, ret "
         "-110",
         "amdgpu 0000:05:00.0: amdgpu: XGMI: Add node 1, hive 0x2",
         "amdgpu xgmi", vendor="amd"),
    Rule("amdgpu-gpu-reset", r"amdgpu.{0,60}(?:GPU reset begin|VRAM is lost due to GPU reset|GPU recovery disabled|soft recovered)", F.GPU_DRIVER,
         0.7, "node",
         "amdgpu 0000:28:00.0: amdgpu: GPU reset begin!. Source:  1",
         "amdgpu 0000:03:00.0: amdgpu: RAP: optional rap ta ucode is not available",
         "amdgpu_device_gpu_recover", supersedes=("hip-launch-failure", "hip-unknown-error", "hsa-queue-error", "process_killed"),
         vendor="amd"),
    Rule("amdgpu-ring-timeout",
         r"\*ERROR\* ring \w{1,30} timeout|amdgpu.{0,40} ring [\w.]{1,30} timeout, signaled seq|"
         r"amdgpu.{0,80}(?:IB test failed on|ring \S{1,20} test failed|Fence fallback timer expired|Illegal register access|"
         r"[Ww]aiting for fences timed out|job timeout|ring reset failed)|\[drm\] GPU HANG", F.GPU_DRIVER,
         0.7, "node",
         "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring sdma0 timeout, signaled seq=121570, emitted "
         "seq=121572",
         "amdgpu 0000:33:00.0: amdgpu: ring gfx_0.0.0 uses VM inv eng 0 on hub 0",
         "amdgpu_job_timedout", vendor="amd"),
    Rule("amdgpu-mes", r"MES(?:\(\d\))? (?:ring buffer is full|failed to respon[ds]|might be in unrecoverable state)|failed to (?:remove|add|map|unmap) "
         r"(?:legacy |hardware )?queues? (?:from|to) MES", F.GPU_DRIVER, 0.7, "node",
         "amdgpu 0000:08:00.0: amdgpu: MES(1) failed to respond to msg=REMOVE_QUEUE",
         "MES firmware loaded",
         "amdgpu mes", vendor="amd"),
    Rule("kfd-eviction", r"(?:qcm fence wait loop timeout expired|Failed to evict (?:process )?queues?|"
         r"The cp might be in an unrecoverable state|[Qq]ueue preemption (?:failed|time ?out)|Failed to quiesce KFD|Failed to suspend process 0x|Failed to restore process queues)",
         F.GPU_DRIVER, 0.7, "node",
         "amdgpu: The cp might be in an unrecoverable state due to an unsuccessful queues preemption",
         "amdgpu: queue evicted",
         "KFD device queue manager", vendor="amd"),
    Rule("amdgpu-page-fault", r"amdgpu.{0,60}\[(?:gfxhub|mmhub)\d*\].{0,20}(?:(?:no-)?retry )?page fault|"
         r"VM_L2_PROTECTION_FAULT_STATUS|sq_intr: error", F.USER_CODE, 0.4, "code",
         "amdgpu 0000:63:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32770, "
         "for process python pid 4121 thread python pid 4121)",
         "amdgpu 0000:63:00.0: amdgpu: GART: num cpu pages 131072",
         "amdgpu gmc; like an illegal access: the user's kernel or the hardware", vendor="amd"),
    Rule("amdgpu-io-page-fault", r"IO_PAGE_FAULT", F.GPU_DRIVER, 0.5, "node",
         "amdgpu 0000:2f:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x001a address=0xfe2dc000 flags=0x0000]",
         "AMD-Vi: Interrupt remapping enabled",
         "AMD's IOMMU: a device reached for memory that it was not given", vendor="amd"),
    Rule("amdgpu-smu-stuck", r"SMU: I'm not done with your previous command|SMU is in hanged state|SMU: response:0xFFFFFFFF|"
         r"amdgpu.{0,80}(?:[Ff]ailed to (?:setup smc hw|enable requested dpm|send (?:smu )?message|export SMU metrics)|SMC? firmware.{0,20}failed|smu_cmn_\w{1,40} failed)",
         F.GPU_DRIVER, 0.65, "node",
         "amdgpu 0000:0d:00.0: amdgpu: SMU: I'm not done with your previous command: "
         "SMN_C2PMSG_66:0x00000012 SMN_C2PMSG_82:0x00000005",
         "amdgpu 0000:0d:00.0: amdgpu: SMU is initialized successfully!",
         "amdgpu swsmu", vendor="amd"),
    Rule("amdgpu-init-failed",
         r"amdgpu.{0,60}(?:PSP load \w{1,20} failed|[Ff]ailed to load ucode|psp firmware loading failed|"
         r"Fatal error during GPU init|(?:hw|sw)_init of IP block .{0,30}failed|amdgpu_device_ip_(?:init|resume) failed|"
         r"[Ff]ailed to terminate (?:tmr|ras ta)|suspend of IP block .{0,30}failed|failed to initialize (?:GPU|vcn|psp|gfx))|"
         r"amdgpu: probe of [\w:.]{4,20} failed|amdgpu [\w:.]{4,20}: probe with driver amdgpu failed", F.GPU_DRIVER, 0.68,
         "node",
         "amdgpu 0000:c1:00.0: amdgpu: Fatal error during GPU init",
         "amdgpu 0000:c1:00.0: amdgpu: Will use PSP to load VCN firmware",
         "amdgpu: the driver does not get the card up; firmware, driver or card",
         supersedes=("user_code", "unknown", "hip-no-device"), vendor="amd"),
)  # fmt: skip


def numbered(numbers: str) -> str:
    """The pattern of lines that name a HIP error by one of these numbers."""
    return rf"(?i:hip[ _]?(?:runtime )?(?:error|failure)(?: code)?[ :=]{{0,3}}\(?)(?:{numbers})\b"


ROCM_RULES: tuple[Rule, ...] = (
    Rule("hsa-memory-fault", r"Memory access fault by GPU node-\d{1,3}|HSA_STATUS_ERROR_MEMORY_FAULT", F.USER_CODE, 0.5, "rank",
         "Memory access fault by GPU node-2 (Agent handle: 0x5640a8bb1980) on address 0x7feea09c5000. "
         "Reason: Page not present or supervisor privilege.",
         "Memory access by GPU node-2",
         "ROCr; like an illegal access: the user's kernel or the hardware", vendor="amd"),
    Rule("hsa-queue-error",
         r"HSA_STATUS_ERROR(?:_(?:EXCEPTION|OUT_OF_RESOURCES|MEMORY_APERTURE_VIOLATION|FATAL|ILLEGAL_INSTRUCTION))?(?!_|\w)|"
         r"HW Exception by GPU node-|GPU Hang\b", F.GPU_DRIVER, 0.62, "rank",
         "HW Exception by GPU node-3 (Agent handle: 0x55c1) reason :GPU Hang",
         "HSA_STATUS_SUCCESS",
         "ROCr; ROCm issue 4021", vendor="amd"),
    Rule("hip-illegal-access", rf"HIP error: an illegal memory access was encountered|hipErrorIllegalAddress|{numbered('700')}",
         F.USER_CODE, 0.5, "rank",
         "RuntimeError: HIP error: an illegal memory access was encountered",
         "HIP error: out of memory",
         "HIP runtime error 700", supersedes=("cuda-illegal-access",), vendor="amd"),
    Rule("hip-launch-failure",
         r"HIP (?:error|warning): (?:unspecified launch failure|the launch timed out)|hipErrorLaunch(?:Failure|TimeOut)|"
         rf"{numbered('719|702')}", F.USER_CODE, 0.5, "rank",
         "RuntimeError: HIP error: unspecified launch failure",
         "HIP error: invalid device ordinal",
         "HIP runtime errors 719, 702: like an illegal access", supersedes=("cuda-launch-failure", "python-exception"),
         vendor="amd", advice="the same rank's node again: test it; other nodes: look at the newest kernel or index code"),
    Rule("hip-unknown-error",
         r"HIP error: (?:unknown error|the operation cannot be performed|initialization error|context is destroyed)|"
         rf"hipError(?:Unknown|NotInitialized|Deinitialized)|{numbered('999|3')}", F.GPU_DRIVER, 0.55, "rank",
         "RuntimeError: HIP error: initialization error",
         "HIP error: unspecified launch failure",
         "HIP runtime errors 999, 3", supersedes=("cuda-unknown-error", "python-exception"), vendor="amd"),
    Rule("hip-ecc", rf"hipErrorECCNotCorrectable|HIP error: uncorrectable ECC error|{numbered('214')}", F.GPU_HARDWARE, 0.95, "rank",
         "RuntimeError: HIP error: uncorrectable ECC error encountered",
         "HIP error: invalid argument",
         "HIP runtime error 214", supersedes=(*GPU_CONSEQUENCES, "cuda-ecc"), vendor="amd"),
    Rule("hip-no-device", r"(?:No HIP GPUs are available|hipErrorNoDevice|no ROCm-capable device is detected|"
         r"No AMD GPUs? (?:detected|found|specified)|[Nn]o GPU agents? (?:found|detected)|hsa_init.{0,40}[Ff]ailed|"
         rf"{numbered('100')})",
         F.GPU_DRIVER, 0.75, "node",
         "RuntimeError: No HIP GPUs are available",
         "HIP GPUs: 8",
         "HIP runtime error 100", vendor="amd"),
    Rule("rocm-driver-absent", r"driver not initialized \(amdgpu not found|\bRSMI_STATUS_INIT_ERROR\b|\bAMDSMI_STATUS_(?:DRIVER_NOT_LOADED|NOT_INIT)\b",
         F.GPU_DRIVER, 0.85, "node",
         "rocm_smi: driver not initialized (amdgpu not found in modules)",
         "rocm_smi: driver initialized",
         "rocm-smi, amd-smi", vendor="amd"),
    Rule("amd-smi-uncorrected", r"\bUNCORRECTABLE_COUNT: {1,8}[1-9]", F.GPU_HARDWARE, 0.72, "node",
         "        UNCORRECTABLE_COUNT: 5",
         "        UNCORRECTABLE_COUNT: 0",
         "amd-smi metric --ecc", vendor="amd"),
    Rule("hip-no-binary",
         r"hipErrorNoBinaryForGpu|hipErrorInvalidDeviceFunction|HIP error: (?:no kernel image is available|invalid device function|"
         r"device kernel image is invalid)|HSA_STATUS_ERROR_INVALID_ISA|Cannot read \S{1,200}TensileLibrary|"
         r"rocBLAS error: .{0,80}(?:Could not load|Cannot read).{0,40}[Tt]ensile",
         F.CONFIG, 0.85, "code",
         "RuntimeError: HIP error: invalid device function",
         "HIP error: invalid argument",
         "HIP runtime error 209: image built for another architecture", supersedes=("cuda-no-kernel-image",),
         vendor="amd", advice="use an image built for this GPU (gfx version)"),
    Rule("kfd-permission", r"Unable to open /dev/kfd read-write|/dev/kfd.{0,40}Permission denied", F.CONFIG, 0.85,
         "code",
         "Unable to open /dev/kfd read-write: Permission denied",
         "opened /dev/kfd",
         "ROCr: the pod's group may not use the device", supersedes=("permission-denied",), vendor="amd",
         advice="add the render group to the pod"),
    Rule("rocm-driver-missing",
         r"Driver not initialized \(amdgpu not found in modules\)|amdgpu version file missing|"
         r"ROCk module is NOT loaded|rsmi_init\(\) failed|AMDSMI_STATUS_(?:DRIVER_NOT_LOADED|DRM_ERROR|INIT_ERROR|NOT_INIT|NO_DRV)|"
         r"(?:rocm|amd)-smi.{0,40}(?:timed out|hang|returned non-zero)|"
         r"modprobe: (?:FATAL|ERROR): .{0,80}\bamdgpu\b|AMD driver not (?:loaded|found)", F.GPU_DRIVER, 0.85, "node",
         "ERROR:root:Driver not initialized (amdgpu not found in modules)",
         "amdgpu is loaded",
         "rocm-smi, amd-smi, rocminfo", vendor="amd"),
)  # fmt: skip
