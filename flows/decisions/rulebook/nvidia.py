"""NVIDIA's kernel driver and NVSwitch: what they say in words beside their Xid numbers (those stand in `xids`)."""

from __future__ import annotations

from flows.decisions.rules import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass

RULES: tuple[Rule, ...] = (
    Rule("nvlink-inactive", r"Unable to retrieve NVLink information as all links are (?i:inactive)", F.GPU_HARDWARE, 0.6, "node",
         "NVML: Unable to retrieve NVLink information as all links are inActive",
         "NVML: Unable to retrieve NVLink information as NVLink is not supported",
         "nvidia-smi nvlink: an NVLink GPU without one link", literals=("unable to retrieve nvlink",), vendor="nvidia"),
    Rule("gpu-off-the-bus",
         r"(?i)\bfallen off the (?:pcie? )?bus\b(?!\?)|GPUFellOffTheBus|\bgpu.{0,40}\bfell off (?:of )?the (?:pcie? )?bus",
         F.GPU_HARDWARE, 0.95, "node",
         "NVRM: fallen off the bus and is not responding to commands.",
         "NVRM: loading NVIDIA UNIX Open Kernel Module",
         "NVIDIA driver with and without a number (NVSentinel issue 155), clouds' agents",
         literals=("fallen off the bus", "fallen off the pci", "fell off of the bu", "fell off of the pc", "fell off the bus", "fell off the pci b", "fell off the pcie ", "gpufelloffthebus"), supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("gpu-double-bit",
         r"(?i)uncorrectable double[- ]bit error|\b[1-9]\d{0,9} (?:volatile )?double[- ]bit ecc error|"
         r"double-bit ecc error has occured|\bNvidiaDoubleBitError\b|\bdbe\(s\) (?:detected|occurred)",
         F.GPU_HARDWARE, 0.95, "node",
         "Detected 1 volatile double-bit ECC error(s) in GPU 3. Drain the GPU and reset it or reboot the node.",
         "Detected 0 volatile double-bit ECC error(s) in GPU 3.",
         "DCGM health, driver, EKS node monitoring agent",
         literals=("dbe(s) detected", "dbe(s) occurred", "double bit ecc err", "double-bit ecc err", "nvidiadoublebiterr", "uncorrectable doub", "volatile double bi", "volatile double-bi"), supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("gpu-remap-failed",
         r"(?i)\bRow Remapper Error\b|row remapping failed|\bRemapping Failure Occurred\s{0,30}: Yes|"
         r"row[- ]remap(?:ping)? failure[s]?(?: detected| occurred|: (?:yes|true|[1-9]))|"
         r"DCGM_FI_DEV_ROW_REMAP_FAILURE\{[^}]{0,900}\} [1-9]",
         F.GPU_HARDWARE, 0.95, "node",
         "GPU 5 had uncorrectable memory errors and row remapping failed. Run a field diagnostic on the GPU.",
         "Remapping Failure Occurred       : No",
         "DCGM health, nvidia-smi -q, DCGM exporter",
         literals=("dcgm_fi_dev_row_re", "remapping failure ", "row remap failure", "row remapper error", "row remapping fail", "row-remap failure", "row-remapping fail"),
         supersedes=(*GPU_CONSEQUENCES, "dcgm-memory"), vendor="nvidia"),
    Rule("gpu-remap-pending",
         r"(?i)row remappings? (?:is|are) pending|pending row remap|rows? (?:were |was )?remapped|"
         r"^\s{2,40}Pending(?: Page Blacklist)?\s{1,40}: Yes$|pending (?:retired page|page retirement)|pages? (?:are|is) pending retirement|row[_ ]remap(?:per)?[_ ]pending\W{1,4}(?:yes|true|1)\b",
         F.GPU_HARDWARE, 0.65, "node",
         "GPU 2 had memory errors and row remappings are pending. Reset GPU. Restart DCGM. Rerun diagnostics.",
         "Pending : No",
         "DCGM health: uncorrectable errors in memory that a reset will replace",
         literals=("pending", "row remapped", "row remapper pendi", "row remapper_pendi", "row remapping are ", "row remapping is p", "row remappings are", "row remappings is ", "row was remapped", "row were remapped", "row_remapper pendi", "row_remapper_pendi", "rows remapped", "rows was remapped", "rows were remapped"), supersedes=("user_code", "unknown"), vendor="nvidia",
         advice="reset the GPU so that the row is replaced, then test its memory"),
    Rule("nvlink-fatal",
         r"(?i)NVLink: fatal error detected on link \d|NVLink\W.{0,60}\bfatal (?:error|link)|"
         r"\bfatal errors? on NvSwitch \d|fatal NvSwitch SXID|\bNvidiaNVLinkError\b|"
         r"uncorrectable NVLink error", F.GPU_HARDWARE, 0.88, "node",
         "NVRM: Xid (PCI:0000:b9:00): 71, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6(0x10000)",
         "nonfatal errors on NvSwitch 3 link 12",
         "NVIDIA driver, DCGM health, agents", literals=("fatal error", "fatal link", "fatal nvswitch sxi", "nvidianvlinkerror", "nvlink: fatal erro", "uncorrectable nvli"), supersedes=GPU_CONSEQUENCES,
         vendor="nvidia"),
    Rule("nvlink-down", r"(?i)NvLink (?:link|port) \d{1,3} is (?:currently )?down|NvSwitch.{0,40}NvLink.{0,12} is (?:currently )?down|"
         r"Only \d{1,2} NvLinks are up out of|\bNVLinkStatusInactive\b(?!\W{1,4}False)|"
         r"Link \d{1,2}: <?inactive>?|^ {4,12}D D D D (?:D ){0,16}D?$", F.GPU_HARDWARE, 0.6, "node",
         "GPU 4's NvLink link 7 is currently down. Check DCGM and system logs for errors.",
         "Link 7: 26.562 GB/s",
         "DCGM health, node problem detector, nvidia-smi nvlink --status", literals=(": <inactive", ": inactive", "d d d d", "nvlink link", "nvlink port", "nvlinks are up out", "nvlinkstatusinacti", "nvswitch"), vendor="nvidia"),
    Rule("sxid-fatal",
         r"SXid \([^)]{1,40}\): (?:\d{5}, (?:Severity 1 |Fatal)|(?:12020|22003|22011|230(?:0\d|1[0-7]))\b)|"
         r"\bSXID?s?(?: errors?)?[ :=#]{1,3}(?:12020|22003|22011|230(?:0\d|1[0-7]))\b|"
         r"ErrorCode:(?:12020|22003|22011|230(?:0\d|1[0-7]))\b", F.GPU_HARDWARE, 0.93, "node",
         "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 22011, Fatal, Link 32 ingress invalid command",
         "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Non-fatal, LTSSM Fault Up",
         "gpud SXid table: these are fatal to the fabric always", literals=("errorcode:", "sxi"),
         supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("sxid-other",
         r"\bSXid \([^)]{1,40}\): (?!20001|20009|20012|22013|12030|1000\d)\d{5}\b", F.GPU_HARDWARE, 0.5, "node",
         "nvidia-nvswitch0: SXid (PCI:0000:06:00.0): 20034, Non-fatal, Link 30 LTSSM Fault Up",
         "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20009, Non-fatal, Link 32 RX Short Error Rate",
         "gpud SXid table: 20034 comes with Xid 74 or 79", literals=("sxid (",), vendor="nvidia", fallback=True),
    Rule("nvrm-init-failed", r"NVRM: .{0,40}RmInitAdapter failed!|rm_init_adapter failed", F.GPU_HARDWARE, 0.75,
         "node",
         "NVRM: GPU 0000:00:03.0: RmInitAdapter failed! (0x22:0x65:884)",
         "NVRM: GPU 0000:00:03.0: adapter ready",
         "NVIDIA kernel driver", literals=("rm_init_adapter fa", "rminitadapter fail"), supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("nvrm-bar", r"NVRM: (?:This PCI I/O region assigned to your NVIDIA device is invalid|BAR\d is \d{1,3}M|"
         r".{0,60}failed to copy vbios to system memory)", F.GPU_HARDWARE, 0.55, "node",
         "NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:",
         "NVRM: loading NVIDIA UNIX x86_64 Kernel Module",
         "NVIDIA kernel driver: the card does not answer, or the firmware gave it no room", literals=("nvrm:",),
         vendor="nvidia"),
    Rule("nvrm-crash-dump", r"NVRM: A GPU crash dump has been created|NVRM: .{0,60}GPU is probably locked", F.GPU_DRIVER,
         0.5, "node",
         "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
         "NVRM: RC watchdog started",
         "NVIDIA kernel driver", literals=("a gpu crash dump h", "gpu is probably lo"), supersedes=("process_killed", "collective_timeout"), vendor="nvidia"),
    Rule("gsp-timeout",
         r"NVRM: .{0,80}(?:GSP RM heartbeat timed out|LibOS heartbeat timed out|Heartbeat timed out|"
         r"Timeout (?:after \d+s of )?waiting for RPC|Cannot initialize GSP firmware|kgsp\w{1,60}: .{0,80}(?:failed|[Tt]imeout)|"
         r"GSP (?:has )?crash|RmInitAdapter: Cannot initialize GSP)|GSP ?task .{0,40}(?:crashed|exception)", F.GPU_DRIVER, 0.85,
         "node",
         "NVRM: _kgspRpcRecvPoll: GSP RM heartbeat timed out",
         "NVRM: GPU0 GSP firmware loaded",
         "NVIDIA driver with GSP firmware", literals=("cannot initialize ", "failed", "gsp crash", "gsp has crash", "gsp rm heartbeat t", "gsp task", "gsptask", "heartbeat timed ou", "libos heartbeat ti", "rminitadapter: can", "timeout", "waiting for rpc"),
         supersedes=("process_killed", "collective_timeout", "user_code", "unknown", "nvrm-init-failed"), vendor="nvidia",
         advice="reset the GPU; if it comes again, update the driver or switch its GSP firmware off"),
    Rule("nvrm-version-mismatch", r"NVRM: API mismatch: |NVRM: .{0,60}(?:is not supported by the NVIDIA|"
         r"not supported by (?:open|this)).{0,80}|NVRM: No NVIDIA (?:GPU found|devices probed)|"
         r"NVRM: The NVIDIA probe routine failed", F.GPU_DRIVER, 0.75, "node",
         "NVRM: API mismatch: the client has the version 550.54.15, but this kernel module has the version 535.161.08.",
         "NVRM: API ready",
         "NVIDIA kernel driver", literals=("api mismatch:", "is not supported b", "no nvidia devices ", "no nvidia gpu foun", "not supported by o", "not supported by t", "the nvidia probe r"), supersedes=("user_code", "unknown"), vendor="nvidia"),
    Rule("nvidia-module",
         r"modprobe: (?:FATAL|ERROR): .{0,80}\bnvidia\b|Unable to load the (?:kernel module 'nvidia|'nvidia)|"
         r"nvidia: probe of [\w:.]{4,20} failed with error|nvidia [\w:.]{4,20}: probe with driver nvidia failed|"
         r"[Cc]ould not (?:un)?load NVIDIA driver kernel modules|nvidia: Unknown symbol|"
         r"nvidia-uvm: .{0,80}[Ff]atal error|uvm encountered a global fatal error|"
         r"RIP: [\w:]{2,12}:.{0,100}\[(?:nvidia|nvidia_uvm|amdgpu)\]", F.GPU_DRIVER, 0.8, "node",
         "modprobe: FATAL: Module nvidia not found in directory /lib/modules/5.15.0-1042",
         "nvidia-uvm: Loaded the UVM driver, major device number 511.",
         "kmod, NVIDIA installer, driver container; a fault inside the driver's own code",
         literals=(": probe with drive", "[amdgpu]", "[nvidia]", "[nvidia_uvm]", "could not load nvi", "could not unload n", "failed with error", "modprobe: error:", "modprobe: fatal:", "nvidia-uvm:", "nvidia: unknown sy", "unable to load the", "uvm encountered a "), vendor="nvidia"),
    Rule("pci-device-inaccessible",
         r"(?:nvidia|amdgpu|vfio-pci|pcieport) [\w:.]{4,20}: .{0,60}(?:device inaccessible|config space inaccessible)|"
         r"pcie(?:port|hp).{0,60}Slot\(\d{1,5}(?:-\d{1,3})?\): (?:Card not present|Link Down)|"
         r"DPC: containment event|pciehp: .{0,40}Link Down", F.GPU_HARDWARE, 0.65, "node",
         "nvidia 0000:b3:00.0: Unable to change power state from D3cold to D0, device inaccessible",
         "pcieport 0000:00:01.1: pciehp: Slot #1 AttnBtn- PwrCtrl- MRL-",
         "Linux PCI: a device is gone from its slot", literals=("): card not presen", "config space inacc", "device inaccessibl", "dpc: containment e", "link down"),
         supersedes=GPU_CONSEQUENCES),
    Rule("gpu-lost-status",
         r"NVRM: .{0,200}(?:\bNV_ERR_GPU_IS_LOST\b|GPU lost from the bus)", F.GPU_HARDWARE, 0.85, "node",
         "NVRM: nvAssertOkFailedNoLog: Assertion failed: GPU lost from the bus [NV_ERR_GPU_IS_LOST] (0x0000000F) returned "
         "from status @ kernel_graphics.c:1101",
         "NVRM: nvAssertOkFailedNoLog: Assertion failed: Call not supported [NV_ERR_NOT_SUPPORTED] (0x00000056)",
         "NVIDIA open kernel modules, nvstatuscodes.h", literals=("nv_err_gpu_is_lost", "gpu lost from the "),
         supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
)  # fmt: skip
