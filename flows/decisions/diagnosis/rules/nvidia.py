"""NVIDIA: the kernel driver and NVSwitch, Xid numbers, user-space tools, and agents that watch GPUs.

Agents are the device plugin, DCGM, node problem detectors, NVSentinel, gpud and exporters with one label a number. Xids
are sorted as in the published catalog; where tools disagree, a note says which one we follow.
"""

from __future__ import annotations

from flows.decisions.diagnosis.clues import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass

NVIDIA_RULES: tuple[Rule, ...] = (
    Rule("nvlink-inactive", r"Unable to retrieve NVLink information as all links are (?i:inactive)", F.GPU_HARDWARE, 0.6, "node",
         "NVML: Unable to retrieve NVLink information as all links are inActive",
         "NVML: Unable to retrieve NVLink information as NVLink is not supported",
         "nvidia-smi nvlink: an NVLink GPU without one link", vendor="nvidia"),
    Rule("gpu-off-the-bus",
         r"(?i)\bfallen off the (?:pcie? )?bus\b(?!\?)|GPUFellOffTheBus|\bgpu.{0,40}\bfell off (?:of )?the (?:pcie? )?bus",
         F.GPU_HARDWARE, 0.95, "node",
         "NVRM: fallen off the bus and is not responding to commands.",
         "NVRM: loading NVIDIA UNIX Open Kernel Module",
         "NVIDIA driver with and without a number (NVSentinel issue 155), clouds' agents", supersedes=GPU_CONSEQUENCES,
         vendor="nvidia"),
    Rule("gpu-double-bit",
         r"(?i)uncorrectable double[- ]bit error|\b[1-9]\d{0,9} (?:volatile )?double[- ]bit ecc error|"
         r"double-bit ecc error has occured|\bNvidiaDoubleBitError\b|\bdbe\(s\) (?:detected|occurred)",
         F.GPU_HARDWARE, 0.95, "node",
         "Detected 1 volatile double-bit ECC error(s) in GPU 3. Drain the GPU and reset it or reboot the node.",
         "Detected 0 volatile double-bit ECC error(s) in GPU 3.",
         "DCGM health, driver, EKS node monitoring agent", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("gpu-remap-failed",
         r"(?i)\bRow Remapper Error\b|row remapping failed|\bRemapping Failure Occurred\s{0,30}: Yes|"
         r"row[- ]remap(?:ping)? failure[s]?(?: detected| occurred|: (?:yes|true|[1-9]))|"
         r"DCGM_FI_DEV_ROW_REMAP_FAILURE\{[^}]{0,900}\} [1-9]",
         F.GPU_HARDWARE, 0.95, "node",
         "GPU 5 had uncorrectable memory errors and row remapping failed. Run a field diagnostic on the GPU.",
         "Remapping Failure Occurred       : No",
         "DCGM health, nvidia-smi -q, DCGM exporter", supersedes=(*GPU_CONSEQUENCES, "dcgm-memory"), vendor="nvidia"),
    Rule("gpu-remap-pending",
         r"(?i)row remappings? (?:is|are) pending|pending row remap|rows? (?:were |was )?remapped|"
         r"^\s{2,40}Pending(?: Page Blacklist)?\s{1,40}: Yes$|pending (?:retired page|page retirement)|pages? (?:are|is) pending retirement|row[_ ]remap(?:per)?[_ ]pending\W{1,4}(?:yes|true|1)\b",
         F.GPU_HARDWARE, 0.65, "node",
         "GPU 2 had memory errors and row remappings are pending. Reset GPU. Restart DCGM. Rerun diagnostics.",
         "Pending : No",
         "DCGM health: uncorrectable errors in memory that a reset will replace", supersedes=("user_code", "unknown"),
         vendor="nvidia", advice="reset the GPU so that the row is replaced, then test its memory"),
    Rule("nvlink-fatal",
         r"(?i)NVLink: fatal error detected on link \d|NVLink\W.{0,60}\bfatal (?:error|link)|"
         r"\bfatal errors? on NvSwitch \d|fatal NvSwitch SXID|\bNvidiaNVLinkError\b|"
         r"uncorrectable NVLink error", F.GPU_HARDWARE, 0.88, "node",
         "NVRM: Xid (PCI:0000:b9:00): 71, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6(0x10000)",
         "nonfatal errors on NvSwitch 3 link 12",
         "NVIDIA driver, DCGM health, agents", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("nvlink-down", r"(?i)NvLink (?:link|port) \d{1,3} is (?:currently )?down|NvSwitch.{0,40}NvLink.{0,12} is (?:currently )?down|"
         r"Only \d{1,2} NvLinks are up out of|\bNVLinkStatusInactive\b(?!\W{1,4}False)|"
         r"Link \d{1,2}: <?inactive>?|^ {4,12}D D D D (?:D ){0,16}D?$", F.GPU_HARDWARE, 0.6, "node",
         "GPU 4's NvLink link 7 is currently down. Check DCGM and system logs for errors.",
         "Link 7: 26.562 GB/s",
         "DCGM health, node problem detector, nvidia-smi nvlink --status", vendor="nvidia"),
    Rule("sxid-fatal",
         r"SXid \([^)]{1,40}\): (?:\d{5}, (?:Severity 1 |Fatal)|(?:12020|22003|22011|230(?:0\d|1[0-7]))\b)|"
         r"\bSXID?s?(?: errors?)?[ :=#]{1,3}(?:12020|22003|22011|230(?:0\d|1[0-7]))\b|"
         r"ErrorCode:(?:12020|22003|22011|230(?:0\d|1[0-7]))\b", F.GPU_HARDWARE, 0.93, "node",
         "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22011, Fatal, Link 32 ingress invalid command",
         "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Non-fatal, LTSSM Fault Up",
         "gpud SXid table: these are fatal to the fabric always", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("sxid-other",
         r"\bSXid \([^)]{1,40}\): (?!20001|20009|20012|22013|12030|1000\d)\d{5}\b", F.GPU_HARDWARE, 0.5, "node",
         "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Non-fatal, Link 30 LTSSM Fault Up",
         "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, Link 32 RX Short Error Rate",
         "gpud SXid table: 20034 comes with Xid 74 or 79", vendor="nvidia", fallback=True),
    Rule("nvrm-init-failed", r"NVRM: .{0,40}RmInitAdapter failed!|rm_init_adapter failed", F.GPU_HARDWARE, 0.75,
         "node",
         "NVRM: GPU 0000:00:03.0: RmInitAdapter failed! (0x22:0x65:884)",
         "NVRM: GPU 0000:00:03.0: adapter ready",
         "NVIDIA kernel driver", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("nvrm-bar", r"NVRM: (?:This PCI I/O region assigned to your NVIDIA device is invalid|BAR\d is \d{1,3}M|"
         r".{0,60}failed to copy vbios to system memory)", F.GPU_HARDWARE, 0.55, "node",
         "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
         "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
         "NVIDIA kernel driver: the card does not answer, or the firmware gave it no room", vendor="nvidia"),
    Rule("nvrm-crash-dump", r"NVRM: A GPU crash dump has been created|NVRM: .{0,60}GPU is probably locked", F.GPU_DRIVER,
         0.5, "node",
         "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
         "NVRM: RC watchdog started",
         "NVIDIA kernel driver", supersedes=("process_killed", "collective_timeout"), vendor="nvidia"),
    Rule("gsp-timeout",
         r"NVRM: .{0,80}(?:GSP RM heartbeat timed out|LibOS heartbeat timed out|Heartbeat timed out|"
         r"Timeout (?:after \d+s of )?waiting for RPC|Cannot initialize GSP firmware|kgsp\w{1,60}: .{0,80}(?:failed|[Tt]imeout)|"
         r"GSP (?:has )?crash|RmInitAdapter: Cannot initialize GSP)|GSP ?task .{0,40}(?:crashed|exception)", F.GPU_DRIVER, 0.85,
         "node",
         "NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out",
         "NVRM: GPU0 GSP firmware loaded",
         "NVIDIA driver with GSP firmware",
         supersedes=("process_killed", "collective_timeout", "user_code", "unknown", "nvrm-init-failed"),
         vendor="nvidia", advice="reset the GPU; if it comes again, update the driver or switch its GSP firmware off"),
    Rule("nvrm-version-mismatch", r"NVRM: API mismatch: |NVRM: .{0,60}(?:is not supported by the NVIDIA|"
         r"not supported by (?:open|this)).{0,80}|NVRM: No NVIDIA (?:GPU found|devices probed)|"
         r"NVRM: The NVIDIA probe routine failed", F.GPU_DRIVER, 0.75, "node",
         "NVRM: API mismatch: the client has the version 550.54.15, but this kernel module has the version 535.161.08.",
         "NVRM: API ready",
         "NVIDIA kernel driver", supersedes=("user_code", "unknown"), vendor="nvidia"),
    Rule("nvidia-module",
         r"modprobe: (?:FATAL|ERROR): .{0,80}\bnvidia\b|Unable to load the (?:kernel module 'nvidia|'nvidia)|"
         r"nvidia: probe of [\w:.]{4,20} failed with error|nvidia [\w:.]{4,20}: probe with driver nvidia failed|"
         r"[Cc]ould not (?:un)?load NVIDIA driver kernel modules|nvidia: Unknown symbol|"
         r"nvidia-uvm: .{0,80}[Ff]atal error|uvm encountered a global fatal error", F.GPU_DRIVER, 0.8, "node",
         "modprobe: FATAL: Module nvidia not found in directory /lib/modules/5.15.0-1042",
         "nvidia-uvm: Loaded the UVM driver, major device number 511.",
         "kmod, NVIDIA installer, driver container", vendor="nvidia"),
    Rule("gpu-driver-fell", r"RIP: [\w:]{2,12}:.{0,100}\[(?:nvidia(?:_\w{2,10})?|amdgpu|amdkfd|xe|i915)\]", F.GPU_DRIVER, 0.8, "node",
         "RIP: 0010:amdgpu_ttm_tt_populate+0x20/0x90 [amdgpu]",
         "RIP: 0010:ext4_writepages+0x20/0x90 [ext4]",
         "Linux: the kernel fell in the code of a GPU's driver, whoever made it"),
    Rule("pci-device-inaccessible",
         r"(?:nvidia|amdgpu|vfio-pci|pcieport) [\w:.]{4,20}: .{0,60}(?:device inaccessible|config space inaccessible)|"
         r"pcie(?:port|hp).{0,60}Slot\(\d{1,5}(?:-\d{1,3})?\): (?:Card not present|Link Down)|"
         r"DPC: containment event|pciehp: .{0,40}Link Down", F.GPU_HARDWARE, 0.65, "node",
         "nvidia 0000:b3:00.0: Unable to change power state from D3cold to D0, device inaccessible",
         "pcieport 0000:00:01.1: pciehp: Slot #1 AttnBtn- PwrCtrl- MRL-",
         "Linux PCI: a device is gone from its slot", supersedes=GPU_CONSEQUENCES),
    Rule("gpu-lost-status",
         r"NVRM: .{0,200}(?:\bNV_ERR_GPU_IS_LOST\b|GPU lost from the bus)", F.GPU_HARDWARE, 0.85, "node",
         "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned "
         "from status @ kernel_graphics.c:1101",
         "NVRM: nvAssertOkFailedNoLog: Assertion failed: Call not supported [NV_ERR_NOT_SUPPORTED] (0x00000056)",
         "NVIDIA open kernel modules, nvstatuscodes.h", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
)  # fmt: skip


_SAID = (
    r"(?:\bXid \([^)]{1,40}\): |"
    r"(?:(?<![A-Za-z])|(?<=[Nn]vidia)|(?<=NVIDIA))(?i:xid)"
    r"(?i:[ _-]?(?:critical ?)?(?:errors?|codes?|events?|number)(?: detected| codes?)?)?[\"']?[ =:#\[(]{0,4}[\"']?|"
    r"ErrorCode:|\"errorCode\": ?\[?\"|err_code=\")"
)


def xid(numbers: str) -> str:
    """The pattern of lines that report one of these Xid numbers (`48|171`)."""
    return rf"{_SAID}(?:{numbers})(?![0-9a-z])(?![.:]\d)"


XID_RULES: tuple[Rule, ...] = (
    Rule("xid-off-the-bus", xid("79"), F.GPU_HARDWARE, 0.98, "node",
         "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
         "NVRM: Xid (PCI:0000:44:00): 43, pid=79, name=python, Ch 00000008",
         "NVIDIA Xid catalog: 79 reboot, again: replace", supersedes=(*GPU_CONSEQUENCES, "gpu-off-the-bus"),
         vendor="nvidia"),
    Rule("xid-double-bit", xid("48|171|172"), F.GPU_HARDWARE, 0.97, "node",
         "NVRM: Xid (PCI:0000:4f:00): 48, pid=31337, name=python, An uncorrectable double bit error (DBE) "
         "has been detected on GPU in the framebuffer at partition 5, subpartition 0.",
         "NVRM: Xid (PCI:0000:48:00): 31, pid=31337, name=python, Ch 00000008",
         "NVIDIA Xid catalog: 48 reset, drain; 171 and 172 say where", supersedes=(*GPU_CONSEQUENCES, "gpu-double-bit"),
         vendor="nvidia"),
    Rule("xid-remap-failure", xid("64"), F.GPU_HARDWARE, 0.97, "node",
         "NVRM: Xid (PCI:0000:07:00): 64, pid='<unknown>', name=<unknown>, Row Remapper Error: Could not "
         "remap row",
         "NVRM: Xid (PCI:0000:07:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for "
         "remapping",
         "NVIDIA Xid catalog: 64 reset; the AWS kit returns it to the vendor",
         supersedes=(*GPU_CONSEQUENCES, "gpu-remap-failed"), vendor="nvidia"),
    Rule("xid-row-remap", xid("63"), F.GPU_HARDWARE, 0.6, "node",
         "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
         "NVRM: Xid (PCI:0000:63:00): 43, pid=1896, name=python, Ch 00000008",
         "recorded for later in the catalog, fatal in Azure's list: where nothing else is wrong, a cell of this GPU is",
         vendor="nvidia", advice="reset the GPU so that the row is replaced, then test its memory"),
    Rule("xid-uncontained", xid("95|140"), F.GPU_HARDWARE, 0.97, "node",
         "NVRM: Xid (PCI:0000:90:00): 95, pid=14881, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: "
         "Yes, D-RST: No",
         "NVRM: Xid (PCI:0000:95:00): 94, pid=14881, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
         "NVIDIA Xid catalog: reset", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("xid-contained", xid("94"), F.GPU_HARDWARE, 0.75, "rank",
         "NVRM: Xid (PCI:0000:90:00): 94, pid=14881, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
         "NVRM: Xid (PCI:0000:94:00): 45, pid=14881, name=python3, Ch 00000008",
         "NVIDIA Xid catalog: restart the application, keep the node, count it", supersedes=GPU_CONSEQUENCES,
         vendor="nvidia"),
    Rule("xid-gsp", xid("119|120"), F.GPU_DRIVER, 0.8, "node",
         "NVRM: Xid (PCI:0000:18:00): 119, pid=2512, name=nvidia-smi, Timeout after 6s of waiting for RPC "
         "response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080 0x4).",
         "NVRM: GPU at PCI:0000:18:00: GPU-119d0c1e",
         "NVIDIA Xid catalog: reset; several driver releases had it as a defect of their firmware",
         supersedes=("gsp-timeout", "process_killed", "collective_timeout", "user_code", "unknown"), vendor="nvidia",
         advice="reset the GPU; if it comes again, update the driver or switch its GSP firmware off"),
    Rule("xid-context-switch", xid("109"), F.GPU_DRIVER, 0.6, "node",
         "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH "
         "TIMEOUT, Info 0x58005",
         "NVRM: Xid (PCI:0000:10:00): 31, pid=109, name=pt_main_thread",
         "NVIDIA Xid catalog: reset; driver, application or hardware", vendor="nvidia"),
    Rule("xid-reset-needed", xid("46|62|110|136|143|155|156|158|16[017]|169"), F.GPU_HARDWARE, 0.75, "node",
         "NVRM: Xid (PCI:0000:d8:00): 62, pid='<unknown>', name=<unknown>, 2a31(3110) 00000000 00000000",
         "NVRM: Xid (PCI:0000:62:00): 31, pid=9, name=python, Ch 00000062",
         "NVIDIA Xid catalog: reset the GPU", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("xid-nvlink", xid("74|14[4-9]|150"), F.GPU_HARDWARE, 0.85, "node",
         "NVRM: Xid (PCI:0000:87:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on "
         "link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
         "NVRM: Xid (PCI:0000:74:00): 13, pid=14, name=python",
         "NVIDIA Xid catalog: NVLink workflow; same link twice = hardware",
         supersedes=(*GPU_CONSEQUENCES, "nvlink-fatal"), vendor="nvidia"),
    Rule("xid-memory-wear", xid("56|57|58|8[01]|92|12[2-5]|168"), F.GPU_HARDWARE, 0.5, "node",
         "NVRM: Xid (PCI:0000:3d:00): 92, pid='<unknown>', name=<unknown>, High single-bit ECC error rate",
         "NVRM: Xid (PCI:0000:92:00): 43, pid=58, name=python",
         "NVIDIA Xid catalog: interfaces of the memory, corrupt transfers, many single-bit errors, lost capacity",
         vendor="nvidia"),
    Rule("xid-power-connector", xid("54"), F.THERMAL_POWER, 0.9, "node",
         "NVRM: Xid (PCI:0000:17:00): 54, pid='<unknown>', name=<unknown>, Auxiliary power is not connected",
         "NVRM: Xid (PCI:0000:54:00): 31, pid=1, name=python",
         "NVIDIA Xid catalog: 54 power connector, seating", supersedes=("gpu_driver", "gpu_hardware", "dcgm-power"),
         vendor="nvidia"),
    Rule("xid-power-smoothing", xid("16[345]"), F.THERMAL_POWER, 0.45, "node",
         "NVRM: Xid (PCI:0000:0a:00): 165, Power smoothing HW circuitry has zero lifetime remaining",
         "NVRM: Xid (PCI:0000:0a:00): 162, Power smoothing HW circuitry capability re-engaged",
         "NVIDIA Xid catalog: the power smoothing circuit wears out", vendor="nvidia"),
    Rule("xid-version", xid("38|6[67]|78|151|166|170"), F.GPU_DRIVER, 0.65, "node",
         "NVRM: Xid (PCI:0000:17:00): 78, pid='<unknown>', name=<unknown>, vGPU start-up error",
         "NVRM: Xid (PCI:0000:78:00): 43, pid=1, name=python",
         "NVIDIA Xid catalog: software, firmware, illegal access by the driver", vendor="nvidia"),
    Rule("xid-application", xid("13|31"), F.USER_CODE, 0.4, "code",
         "NVRM: Xid (PCI:0000:cb:00): 31, pid=12345, name=python, Ch 00000010, intr 00000000. MMU Fault: ENGINE "
         "GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1b_63000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
         "NVRM: Xid (PCI:0000:31:00): 79, pid=13, name=<unknown>, GPU has fallen off the bus.",
         "NVIDIA Xid catalog: check the application; the same GPU again: test it", vendor="nvidia"),
    Rule("xid-application-stopped", xid("43"), F.USER_CODE, 0.3, "code",
         "NVRM: Xid (PCI:0000:3b:00): 43, pid=12345, name=python, Ch 00000010",
         "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
         "NVIDIA Xid catalog: the application's fault, the GPU stays good", vendor="nvidia", echo=True),
    Rule("xid-preemptive-cleanup", xid("45"), F.GPU_DRIVER, 0.32, "nobody",
         "NVRM: Xid (PCI:0000:3b:00): 45, pid=2178, name=python, Ch 00000008",
         "NVRM: Xid (PCI:0000:45:00): 31, pid=45, name=python",
         "NVIDIA Xid catalog: what is torn down when a process or another Xid ended it", vendor="nvidia", echo=True),
    Rule("xid-other",
         xid("8|9|1[12]|16|18|19|25|32|39|4[0-27]|59|6[0158-9]|7[0-37]|7[56]|8[2-9]|9[016-9]|10[0-5]|11[1-8]|"
             r"12[6-9]|13[0-589]|142|154|159"),
         F.GPU_DRIVER, 0.45, "nobody",
         "NVRM: Xid (PCI:0000:3b:00): 32, pid=2178, name=python, Channel ID 00000008 intr0 00040000",
         "NVRM: Xid (PCI:0000:3b:00): 31, pid=45, name=python",
         "NVIDIA Xid catalog: restart the application", vendor="nvidia", fallback=True),
    Rule("xid-metric-hardware",
         r"DCGM_FI_DEV_XID_ERRORS\{[^}]{0,900}\} (?:48|63|64|74|79|92|94|95|140|14[4-9]|150|17[12])(?:\.0)?\b",
         F.GPU_HARDWARE, 0.75, "node",
         'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-604ac76c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3"} 79',
         'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-604ac76c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3"} 0',
         "DCGM exporter: the last Xid of a GPU, never cleared", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("xid-metric-driver", r"DCGM_FI_DEV_XID_ERRORS\{[^}]{0,900}\} (?:46|62|109|11[09]|120|143|158)(?:\.0)?\b",
         F.GPU_DRIVER, 0.6, "node",
         'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-604ac76c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3"} 119',
         'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-604ac76c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3"} 13',
         "DCGM exporter: the last Xid of a GPU, never cleared", vendor="nvidia"),
)  # fmt: skip


NVIDIA_TOOL_RULES: tuple[Rule, ...] = (
    Rule("cuda-device-lost",
         r"\bGPU is lost\b|Unable to determine the device handle for (?:GPU|gpu)\s?[\w:.]{0,40}: (?:GPU is lost|"
         r"Unknown Error|Not Found|No data)|NVMLError_GpuIsLost|NVML_ERROR_GPU_IS_LOST|\bgpu_lost\b", F.GPU_HARDWARE, 0.9,
         "node",
         "Unable to determine the device handle for GPU0000:44:00.0: GPU is lost.  Reboot the system to "
         "recover this GPU",
         "GPU is low on memory",
         "nvidia-smi, NVML", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("nvidia-smi-err", r"^\|.{0,100}\bERR!.{0,100}\||\[GPU requires reset\]|\bGPU requires reset\b|"
         r"GPU Recovery Action\s{0,40}: (?:GPU )?(?:Reset|Reboot|Node Reboot|Drain)", F.GPU_HARDWARE, 0.75, "node",
         "|ERR!   ERR! ERR!    ERR! / 250W |      8MiB / 81559MiB |    ERR!      Default |",
         "| N/A   34C    P0    61W / 300W |      0MiB / 32510MiB |      0%      Default |",
         "nvidia-smi: fields that the card no longer answers", supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("nvidia-smi-unknown-error", r"^\s{2,40}[A-Z][\w ./]{2,40}\s{1,30}: (?:Unknown Error|GPU is lost)$|"
         r"\[Unknown Error\]", F.GPU_HARDWARE, 0.6, "node",
         "    GPU Current Temp                  : Unknown Error",
         "    GPU Current Temp                  : N/A",
         "nvidia-smi -q", supersedes=("cuda-device-lost",), vendor="nvidia"),
    Rule("nvidia-smi-ecc",
         r"^\s{2,40}(?:(?:SRAM|DRAM) Uncorrectable(?: Parity| SEC-DED)?|Double Bit ECC|Uncorrectable Error)\s{1,30}: [1-9]\d{0,9}$|"
         r"(?i:\b(?:uncorrect(?:able|ed)|volatile uncorr\.?) ecc (?:errors?|count)(?: \(?(?:count|total)\)?)?[ :=]{1,4}[1-9]\d{0,9}\b)",
         F.GPU_HARDWARE, 0.75, "node",
         "            DRAM Uncorrectable            : 4",
         "            DRAM Uncorrectable            : 0",
         "nvidia-smi -q -d ECC, health checks", vendor="nvidia"),
    Rule("nvidia-smi-no-devices",
         r"^(?:\S{1,40}(?:: |\): ?))?No devices were found(?: for NVML)?\.?$|nvidia-smi.{0,80}No devices were found|"
         r"No supported GPUs were found", F.GPU_DRIVER, 0.65, "node",
         "No devices were found",
         "No devices were found in the list of brokers",
         "nvidia-smi: the driver answers, no card does", vendor="nvidia"),
    Rule("nvml-unknown",
         r"Failed to initialize NVML: (?:Unknown Error|GPU access blocked|Driver Not Loaded|could not load NVML|N/A)|"
         r"NVMLError_(?:Unknown|DriverNotLoaded|LibRmVersionMismatch|Uninitialized)|NVML(?:Error)?: (?:Driver Not Loaded|Unknown Error)|"
         r"could not load NVML library|error (?:calling|creating) nvml\.(?!.{0,60}GPU is lost)|nvml: (?:driver not loaded|unknown error)|ERROR_LIB_RM_VERSION_MISMATCH|ERROR_DRIVER_NOT_LOADED",
         F.GPU_DRIVER, 0.78, "node",
         "Failed to initialize NVML: Unknown Error",
         "Failed to initialize NVML: Insufficient Permissions",
         "containers that lost their GPUs after a daemon reload; a driver that is not loaded",
         supersedes=("python-exception",), vendor="nvidia"),
    Rule("nvidia-smi-failed",
         r"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver|"
         r"NVIDIA-SMI couldn't find libNVIDIA-ml|nvidia-smi failed with return code (?!0)\d+|"
         r"kernel driver does not appear to be running on this host|/dev/nvidia\d? does not exist|"
         r"nvidia-smi.{0,30}(?:timed out|hang|did not return)", F.GPU_DRIVER, 0.8, "node",
         "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the "
         "latest NVIDIA driver is installed and running.",
         "NVIDIA-SMI 550.54.15",
         "nvidia-smi, TensorFlow", vendor="nvidia"),
    Rule("nvidia-container-driver",
         r"nvidia-container-cli: (?:initialization error|detection error|device error|mount error|ldcache error)|"
         r"could not select device driver .{0,20} with capabilities: \[\[gpu|unresolvable CDI devices|"
         r"failed to inject CDI devices|no NVIDIA GPU device is present|"
         r"Auto-detected mode as .{0,20}(?:invalid|error)", F.GPU_DRIVER, 0.8, "node",
         "nvidia-container-cli: initialization error: driver rpc error: timed out: unknown",
         "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4",
         "NVIDIA container toolkit, Docker",
         supersedes=("container-config", "container-refused", "cuda-driver-version"), vendor="nvidia"),
    Rule("nvidia-container-requirement", r"nvidia-container-cli: requirement error", F.CONFIG, 0.88, "code",
         "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.4, please update your "
         "driver to a newer version",
         "nvidia-container-cli: initialization error: nvml error",
         "NVIDIA container toolkit", supersedes=("container-config",), vendor="nvidia",
         advice="use an image for the driver that is installed"),
    Rule("fabric-manager",
         r"system not yet initialized|cudaErrorSystemNotReady|CUDA_ERROR_SYSTEM_NOT_READY|"
         r"(?i:fabric ?manager).{0,100}(?:not running|failed|never reported|(?:doesn't|don't|does not|do not) match|version mismatch|is not initialized|exited)|"
         r"nvidia-fabricmanager.{0,60}(?:Failed|failed|inactive)|"
         r"request to query NVSwitch device information from NVSwitch driver failed|\bError 802\b", F.GPU_DRIVER, 0.85, "node",
         "RuntimeError: CUDA error: system not yet initialized",
         "fabric manager started",
         "CUDA runtime error 802: the fabric manager does not run",
         supersedes=("user_code", "cuda-no-device", "python-exception"), vendor="nvidia",
         advice="start the fabric manager, in the version of the driver"),
    Rule("smi-uncorrected",
         r"^\| .{1,60}\| [0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f] (?:Off|On) \| {1,30}[1-9]\d{0,8} \||"
         r"(?i:\buncorrectable (?:ecc )?errors? (?:count[ :=(]{1,3}[1-9]|(?:on|in) (?:the )?gpu))", F.GPU_HARDWARE, 0.72, "node",
         "|   1  Tesla V100S-PCI...  Off  | 00000000:00:08.0 Off |                   17 |",
         "|   0  Tesla V100S-PCI...  Off  | 00000000:00:07.0 Off |                    0 |",
         "nvidia-smi: the column of volatile uncorrected ECC errors; health checks", vendor="nvidia"),
    Rule("pcie-width-lost", r"\bLnkSta:.{0,60}\bWidth x\d{1,2} \(downgraded\)", F.GPU_HARDWARE, 0.5, "node",
         "LnkSta: Speed 16GT/s, Width x4 (downgraded)",
         "LnkSta: Speed 2.5GT/s (downgraded), Width x16",
         "lspci -vv: lanes are lost; a lower speed alone is how idle devices save power"),
    Rule("pod-out-of-gpus", r"\bOutOf(?:nvidia|amd)\.com/gpu\b", F.GPU_DRIVER, 0.6, "nobody",
         "gpu-replicaset-bxbc2   0/1   OutOfnvidia.com/gpu   0   2h   <none>   controller-2   <none>",
         "gpu-replicaset-bxbc2   1/1   Running   0   2h   10.2.2.9   controller-2   <none>",
         "kubelet: a pod came to a node whose device plugin had not registered the GPUs"),
    Rule("driver-container",
         r"(?i)driver (?:validation|daemonset).{0,60}(?:failed|error|not ready)|failed to validate (?:the )?driver|"
         r"nvidia-(?:driver|device-plugin)-daemonset.{0,80}(?:CrashLoopBackOff|Error|OOMKilled)|"
         r"could not resolve linux kernel version|Incompatible (?:platform|strategy) detected|"
         r"No devices found\. Waiting indefinitely", F.GPU_DRIVER, 0.7, "node",
         "No devices found. Waiting indefinitely.",
         "driver validation succeeded",
         "GPU operator, device plugin", vendor="nvidia"),
)  # fmt: skip


DCGM_RULES: tuple[Rule, ...] = (
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
         supersedes=(*GPU_CONSEQUENCES, "silent-corruption", "gpu-double-bit"), vendor="nvidia"),
    Rule("dcgm-link",
         r"(?i)NvLink errors on GPU \d{1,2}'s NVLink|NvLink errors found occur|running at PCI link (?:generation|width) \d|"
         r"more than \d+ PCIe replays per minute for GPU|host-side PCIe replay violation|unsuccessfully (?:written|wrote)\b.{0,40}peer-to-peer|"
         r"\bDCGM_FR_(?:NVLINK_(?:DOWN|ERROR_CRITICAL|CRC_ERROR_THRESHOLD)|NVSWITCH_\w{1,40}|SXID_ERROR|PCIE_\w{1,40}|PCI_REPLAY_RATE|"
         r"GPU_EXPECTED_NVLINKS_UP|BROKEN_P2P_\w{1,30})", F.GPU_HARDWARE, 0.65, "node",
         "Detected more than 8 PCIe replays per minute for GPU 5 : 211",
         "PCIe replays per minute for GPU 5: 0",
         "DCGM health watches and diagnostics", supersedes=("collective_timeout",), vendor="nvidia"),
    Rule("dcgm-inforom",
         r"corrupt InfoROM|infoROM is corrupted|DCGM_FR_CORRUPT_INFOROM", F.GPU_HARDWARE, 0.7, "node",
         "WARNING: infoROM is corrupted at gpu 0000:65:00.0",
         "InfoROM version 2.1",
         "DCGM health, nvidia-smi", vendor="nvidia"),
    Rule("dcgm-diag-failed",
         r"^\|.{1,60}\|\s{0,4}Fail - (?:All|GPUs?: [\d, ]{1,40})\s{0,60}\||"
         r"\bdcgmi? ?diag.{0,120}(?:\bfail(?:ed|ure)?\b|\bexit(?:ed)? (?:with )?(?:code )?226)|DCGMDiagnosticFailure|"
         r"DcgmDiagnostic\w{3,30}\".{0,40}\"isFatal\": ?true|Detected a FAILURE in health system", F.GPU_HARDWARE, 0.6, "node",
         "| GPU Memory                | Fail - GPU: 3                                  |",
         "| GPU Memory                | Pass - All                                     |",
         "dcgmi diag, NVSentinel, EKS", vendor="nvidia"),
    Rule("dcgm-diag-row", r"^\|\s{0,30}\| Fail - (?:All|GPUs?: [\d, ]{1,40})\s{0,60}\|", F.GPU_HARDWARE, 0.45, "node",
         "|                           | Fail - GPU: 0                                  |",
         "|                           | Skip - GPU: 0                                  |",
         "dcgmi diag: further rows of a test", supersedes=("dcgm-diag-failed",), vendor="nvidia"),
    Rule("gpu-health-fatal",
         r"\"componentClass\": ?\"GPU\".{0,600}\"isFatal\": ?true|\"isFatal\": ?true.{0,600}\"componentClass\": ?\"GPU\"|"
         r"\bGpu\w{3,30}Watch (?:is )?(?:unhealthy|failed)|type=Gpu\w{3,30} status=\"?True|"
         r"(?:GpuMemWatch|GpuNvlinkWatch|GpuPcieWatch|GpuInforomWatch|GpuSmWatch|GpuMcuWatch|GpuPmuWatch|GpuNvswitchFatalWatch)IsNotHealthy", F.GPU_HARDWARE, 0.7, "node",
         '{"agent":"gpu-health-monitor","componentClass":"GPU","checkName":"GpuPcieWatch","isFatal":true,"message":"link"}',
         '{"agent":"gpu-health-monitor","componentClass":"GPU","checkName":"GpuPcieWatch","isFatal":false,"isHealthy":true}',
         "NVSentinel health events and node conditions", vendor="nvidia", fallback=True),
    Rule("gpu-imex", r"DCGM_FR_IMEX_UNHEALTHY|IMEX daemon status is -?\d+ \(not READY\)|DCGMHealthCode122\b", F.GPU_DRIVER, 0.45, "node",
         "ErrorCode:DCGM_FR_IMEX_UNHEALTHY GPU:0 IMEX daemon status is -3 (not READY)",
         "IMEX daemon status is 0 (READY)",
         "DCGM health: no IMEX daemon runs; nothing is wrong where no other node's memory is used", vendor="nvidia"),
    Rule("device-unhealthy",
         r"'?(?:nvidia|amd)\.com/\w{1,40}'? device marked unhealthy|marking device (?:\S{1,60} )?as unhealthy|"
         r"device.{0,80}will go unhealthy|XidCriticalError|metricsexporter\.amd\.com\.gpu\.\d{1,3}\.state[=:\" ]{1,4}unhealthy|"
         r"amd-gpu-unhealthy|\bgpu_health\{[^}]{0,900}\} 0(?:\.0)?$|cannot allocate unhealthy devices|"
         r"[Gg]pu(?:s)? (?:device )?(?:\S{1,60} )?(?:is|are|became|marked) unhealthy", F.GPU_HARDWARE, 0.5, "node",
         "'nvidia.com/gpu' device marked unhealthy: GPU-455e672a-1d2e-4a4b-9a0e-000000000000",
         "'nvidia.com/gpu' device marked healthy: GPU-455e672a-1d2e-4a4b-9a0e-000000000000",
         "device plugins of NVIDIA and AMD, AMD device metrics exporter", fallback=True),
    Rule("gpu-count",
         r"(?i)\bGPUMissing\b(?!\W{1,4}False)|Observed GPU count does not match|expected (?:to see )?\d{1,2} GPUs?,? (?:but )?(?:found|got|saw|only|detected) \d|"
         r"\bonly [0-7] (?:of|out of) \d{1,2} GPUs (?:are )?(?:visible|detected|found|available)|GPU count mismatch|NvidiaDeviceCountMismatch|"
         r"gres/gpu count reported lower than configured|GPU.{0,20} missing from nvidia-smi|"
         r"number of devices NVML returns is different", F.GPU_HARDWARE, 0.72, "node",
         "error: gres/gpu count reported lower than configured (7 < 8)",
         "expected 8 GPUs and all of them answer",
         "Slurm, AKS and EKS node problem detectors, HyperPod, DCGM",
         supersedes=("rendezvous", "process_killed", "collective_timeout")),
    Rule("gpu-node-condition",
         r"\b(?:NvidiaError(?:Terminate|Reboot)|XidHardwareFailure|NvidiaPageRetirement|NvidiaXID(?:Errors?|Code)|XIDErrors|GpuXidErrors?|"
         r"NebiusGPUError|NodeHasNvidiaXidError\w{0,20}|GpuEccHasIssues|GpuRowRemapHasIssues|GpuBusHasIssues|AMDGPU(?:Xgmi|Hbm|Ecc|Ras)\w{0,20}|"
         r"GPUHardwareFailure|DCGMHealthCode\d{1,3}|DCGMFieldError\w{0,6}|GPUUnhealthy|GpuUnhealthy|GPUFailure)\b(?!\W{1,40}(?:is now: )?[\"']?(?:False|false|No))", F.GPU_HARDWARE, 0.75,
         "node",
         "Node condition NvidiaErrorReboot is now: True, reason: XidHardwareFailure",
         "Node condition NvidiaErrorReboot is now: False, reason: NoNvidiaError",
         "node problem detectors of AWS, Azure, Alibaba, Nebius, Oracle, AMD",
         supersedes=("collective_timeout", "process_killed", "unknown"), fallback=True),
    Rule("neuron-hardware", r"\bNRT_EXEC_HW_ERR\w{0,40}|NEURON_HW_ERR|Neuron(?:DMAError|HBMUncorrectableError|NCUncorrectableError|SRAMUncorrectableError)|"
         r"neuron:?.{0,60}(?:uncorrectable|hardware error)", F.GPU_HARDWARE, 0.85, "node",
         "2025-Mar-01 10:00:00.1 4121:5012 ERROR NRT:nrt_infodump NRT_EXEC_HW_ERR_NC_UE on nd3 nc1",
         "neuron: 16 devices found",
         "AWS Neuron runtime, node problem detector", supersedes=GPU_CONSEQUENCES),
    Rule("nhc-gpu-check",
         r"nhc:? .{0,40}[Hh]ealth check failed:.{0,20}check_(?:gpu|nv|nvlink|cuda|xid)\w{0,30}|"
         r"\bautopilot\.ibm\.com/gpuhealth[=:\" ]{1,4}(?:ERR|EVICT)|Health Check FAIL(?:ED)?.{0,40}\bGPU|"
         r"GPU.{0,40}\b[Hh]ealth [Cc]heck (?:FAIL|[Ff]ailed)", F.GPU_HARDWARE, 0.65, "node",
         "ERROR:  nhc:  Health check failed:  check_gpu_ecc: GPU 00000000:3B:00.0 has 12 uncorrectable errors",
         "nhc: Node Health Check starting",
         "LBNL and Azure NHC, Autopilot", fallback=True),
)  # fmt: skip
