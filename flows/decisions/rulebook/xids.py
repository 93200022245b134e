"""NVIDIA's Xid numbers, as the kernel prints them and as agents repeat them.

Agents are the device plugin, DCGM, node problem detectors, NVSentinel, gpud and exporters with one label a number. Buckets
are those of the published catalog; where tools disagree the note says whom we follow. SXid numbers stand in `nvswitch`.
"""

from __future__ import annotations

from flows.decisions.rules import GPU_CONSEQUENCES, Rule
from profiles.vocabulary import FaultClass

F = FaultClass
LITERALS = ("xid", "errorcode", "err_code")
_SAID = (
    r"(?:\bXid \([^)]{1,40}\): |"
    r"(?:(?<![A-Za-z])|(?<=[Nn]vidia)|(?<=NVIDIA))(?i:xid)"
    r"(?i:[ _-]?(?:critical ?)?(?:errors?|codes?|events?|number)(?: detected| codes?)?)?[\"']?[ =:#\[(]{0,4}[\"']?|"
    r"ErrorCode:|\"errorCode\": ?\[?\"|err_code=\")"
)


def xid(numbers: str) -> str:
    """The pattern of lines that report one of these Xid numbers (`48|171`)."""
    return rf"{_SAID}(?:{numbers})(?![0-9a-z])(?![.:]\d)"


RULES: tuple[Rule, ...] = (
    Rule("xid-off-the-bus", xid("79"), F.GPU_HARDWARE, 0.98, "node",
         "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
         "NVRM: Xid (PCI:0000:44:00): 43, pid=79, name=python, Ch 00000008",
         "NVIDIA Xid catalog: 79 reboot, again: replace", literals=LITERALS,
         supersedes=(*GPU_CONSEQUENCES, "gpu-off-the-bus"), vendor="nvidia"),
    Rule("xid-double-bit", xid("48|171|172"), F.GPU_HARDWARE, 0.97, "node",
         "NVRM: Xid (PCI:0000:4f:00): 48, pid=31337, name=python, An uncorrectable double bit error (DBE) "
         "has been detected on GPU in the framebuffer at partition 5, subpartition 0.",
         "NVRM: Xid (PCI:0000:48:00): 31, pid=31337, name=python, Ch 00000008",
         "NVIDIA Xid catalog: 48 reset, drain; 171 and 172 say where", literals=LITERALS,
         supersedes=(*GPU_CONSEQUENCES, "gpu-double-bit"), vendor="nvidia"),
    Rule("xid-remap-failure", xid("64"), F.GPU_HARDWARE, 0.97, "node",
         "NVRM: Xid (PCI:0000:07:00): 64, pid='<unknown>', name=<unknown>, Row Remapper Error: Could not "
         "remap row",
         "NVRM: Xid (PCI:0000:07:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row marked for "
         "remapping",
         "NVIDIA Xid catalog: 64 reset; the AWS kit returns it to the vendor", literals=LITERALS,
         supersedes=(*GPU_CONSEQUENCES, "gpu-remap-failed"), vendor="nvidia"),
    Rule("xid-row-remap", xid("63"), F.GPU_HARDWARE, 0.6, "node",
         "NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.",
         "NVRM: Xid (PCI:0000:63:00): 43, pid=1896, name=python, Ch 00000008",
         "recorded for later in the catalog, fatal in Azure's list: where nothing else is wrong, a cell of this GPU is",
         literals=LITERALS, vendor="nvidia", advice="reset the GPU so that the row is replaced, then test its memory"),
    Rule("xid-uncontained", xid("95|140"), F.GPU_HARDWARE, 0.97, "node",
         "NVRM: Xid (PCI:0000:90:00): 95, pid=14881, name=python3, Uncontained: LTC TAG (0x2,0x0). RST: "
         "Yes, D-RST: No",
         "NVRM: Xid (PCI:0000:95:00): 94, pid=14881, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
         "NVIDIA Xid catalog: reset", literals=LITERALS, supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("xid-contained", xid("94"), F.GPU_HARDWARE, 0.75, "rank",
         "NVRM: Xid (PCI:0000:90:00): 94, pid=14881, name=python3, Contained: SM (0x1). RST: No, D-RST: No",
         "NVRM: Xid (PCI:0000:94:00): 45, pid=14881, name=python3, Ch 00000008",
         "NVIDIA Xid catalog: restart the application, keep the node, count it", literals=LITERALS,
         supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("xid-gsp", xid("119|120"), F.GPU_DRIVER, 0.8, "node",
         "NVRM: Xid (PCI:0000:18:00): 119, pid=2512, name=nvidia-smi, Timeout after 6s of waiting for RPC "
         "response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080 0x4).",
         "NVRM: GPU at PCI:0000:18:00: GPU-119d0c1e",
         "NVIDIA Xid catalog: reset; several driver releases had it as a defect of their firmware", literals=LITERALS,
         supersedes=("gsp-timeout", "process_killed", "collective_timeout", "user_code", "unknown"), vendor="nvidia",
         advice="reset the GPU; if it comes again, update the driver or switch its GSP firmware off"),
    Rule("xid-context-switch", xid("109"), F.GPU_DRIVER, 0.6, "node",
         "NVRM: Xid (PCI:0000:cb:00): 109, pid=1797828, name=pt_main_thread, Ch 00000008, errorString CTX SWITCH "
         "TIMEOUT, Info 0x58005",
         "NVRM: Xid (PCI:0000:10:00): 31, pid=109, name=pt_main_thread",
         "NVIDIA Xid catalog: reset; driver, application or hardware", literals=LITERALS, vendor="nvidia"),
    Rule("xid-reset-needed", xid("46|62|110|136|143|155|156|158|16[017]|169"), F.GPU_HARDWARE, 0.75, "node",
         "NVRM: Xid (PCI:0000:d8:00): 62, pid='<unknown>', name=<unknown>, 2a31(3110) 00000000 00000000",
         "NVRM: Xid (PCI:0000:62:00): 31, pid=9, name=python, Ch 00000062",
         "NVIDIA Xid catalog: reset the GPU", literals=LITERALS, supersedes=GPU_CONSEQUENCES,
         vendor="nvidia"),
    Rule("xid-nvlink", xid("74|14[4-9]|150"), F.GPU_HARDWARE, 0.85, "node",
         "NVRM: Xid (PCI:0000:87:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on "
         "link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
         "NVRM: Xid (PCI:0000:74:00): 13, pid=14, name=python",
         "NVIDIA Xid catalog: NVLink workflow; same link twice = hardware", literals=LITERALS,
         supersedes=(*GPU_CONSEQUENCES, "nvlink-fatal"), vendor="nvidia"),
    Rule("xid-memory-wear", xid("56|57|58|8[01]|92|12[2-5]|168"), F.GPU_HARDWARE, 0.5, "node",
         "NVRM: Xid (PCI:0000:3d:00): 92, pid='<unknown>', name=<unknown>, High single-bit ECC error rate",
         "NVRM: Xid (PCI:0000:92:00): 43, pid=58, name=python",
         "NVIDIA Xid catalog: interfaces of the memory, corrupt transfers, many single-bit errors, lost capacity",
         literals=LITERALS, vendor="nvidia"),
    Rule("xid-power-connector", xid("54"), F.THERMAL_POWER, 0.9, "node",
         "NVRM: Xid (PCI:0000:17:00): 54, pid='<unknown>', name=<unknown>, Auxiliary power is not connected",
         "NVRM: Xid (PCI:0000:54:00): 31, pid=1, name=python",
         "NVIDIA Xid catalog: 54 power connector, seating", literals=LITERALS, supersedes=("gpu_driver", "gpu_hardware", "dcgm-power"),
         vendor="nvidia"),
    Rule("xid-power-smoothing", xid("16[345]"), F.THERMAL_POWER, 0.45, "node",
         "NVRM: Xid (PCI:0000:0a:00): 165, Power smoothing HW circuitry has zero lifetime remaining",
         "NVRM: Xid (PCI:0000:0a:00): 162, Power smoothing HW circuitry capability re-engaged",
         "NVIDIA Xid catalog: the power smoothing circuit wears out", literals=LITERALS, vendor="nvidia"),
    Rule("xid-version", xid("38|6[67]|78|151|166|170"), F.GPU_DRIVER, 0.65, "node",
         "NVRM: Xid (PCI:0000:17:00): 78, pid='<unknown>', name=<unknown>, vGPU start-up error",
         "NVRM: Xid (PCI:0000:78:00): 43, pid=1, name=python",
         "NVIDIA Xid catalog: software, firmware, illegal access by the driver", literals=LITERALS, vendor="nvidia"),
    Rule("xid-application", xid("13|31"), F.USER_CODE, 0.4, "code",
         "NVRM: Xid (PCI:0000:cb:00): 31, pid=12345, name=python, Ch 00000010, intr 00000000. MMU Fault: ENGINE "
         "GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f1b_63000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
         "NVRM: Xid (PCI:0000:31:00): 79, pid=13, name=<unknown>, GPU has fallen off the bus.",
         "NVIDIA Xid catalog: check the application; the same GPU again: test it", literals=LITERALS, vendor="nvidia"),
    Rule("xid-application-stopped", xid("43"), F.USER_CODE, 0.3, "code",
         "NVRM: Xid (PCI:0000:3b:00): 43, pid=12345, name=python, Ch 00000010",
         "NVRM: Xid (PCI:0000:43:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
         "NVIDIA Xid catalog: the application's fault, the GPU stays good", literals=LITERALS, vendor="nvidia", echo=True),
    Rule("xid-preemptive-cleanup", xid("45"), F.GPU_DRIVER, 0.32, "nobody",
         "NVRM: Xid (PCI:0000:3b:00): 45, pid=2178, name=python, Ch 00000008",
         "NVRM: Xid (PCI:0000:45:00): 31, pid=45, name=python",
         "NVIDIA Xid catalog: what is torn down when a process or another Xid ended it", literals=LITERALS,
         vendor="nvidia", echo=True),
    Rule("xid-other",
         xid("8|9|1[12]|16|18|19|25|32|39|4[0-27]|59|6[0158-9]|7[0-37]|7[56]|8[2-9]|9[016-9]|10[0-5]|11[1-8]|"
             r"12[6-9]|13[0-589]|142|154|159"),
         F.GPU_DRIVER, 0.45, "nobody",
         "NVRM: Xid (PCI:0000:3b:00): 32, pid=2178, name=python, Channel ID 00000008 intr0 00040000",
         "NVRM: Xid (PCI:0000:3b:00): 31, pid=45, name=python",
         "NVIDIA Xid catalog: restart the application", literals=LITERALS, vendor="nvidia", fallback=True),
    Rule("xid-metric-hardware",
         r"DCGM_FI_DEV_XID_ERRORS\{[^}]{0,900}\} (?:48|63|64|74|79|92|94|95|140|14[4-9]|150|17[12])(?:\.0)?\b",
         F.GPU_HARDWARE, 0.75, "node",
         'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-604ac76c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3"} 79',
         'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-604ac76c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3"} 0',
         "DCGM exporter: the last Xid of a GPU, never cleared", literals=("dcgm_fi_dev_xid_errors",),
         supersedes=GPU_CONSEQUENCES, vendor="nvidia"),
    Rule("xid-metric-driver", r"DCGM_FI_DEV_XID_ERRORS\{[^}]{0,900}\} (?:46|62|109|11[09]|120|143|158)(?:\.0)?\b",
         F.GPU_DRIVER, 0.6, "node",
         'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-604ac76c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3"} 119',
         'DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-604ac76c",device="nvidia3",modelName="NVIDIA H100 80GB HBM3"} 13',
         "DCGM exporter: the last Xid of a GPU, never cleared", literals=("dcgm_fi_dev_xid_errors",), vendor="nvidia"),
)  # fmt: skip
