"""Cases of NVIDIA's tools: nvidia-smi of three drivers, its links, DCGM, nvbandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from profiles.hardware import HardwareProfile
from tests.support.cases.tool_samples import printed
from tests.support.faults.cases import (
    DRIVER,
    GPU,
    PASSES,
    PASSES_QUIETLY,
    SLOW_GPU,
    UNKNOWN,
    UNKNOWN_WARNING,
    WARNED_OF,
    Case,
    Expect,
    Make,
)
from tests.support.faults.node import Said, VirtualNode
from tests.support.faults.texts import Changes, bandwidths, dcgm, nvlink, smi_xml
from tests.support.faults.trees import nvidia_tools

ALL, NEW = ("a100", "h100", "h200", "b200", "gb200"), ("h200", "b200")


def smi(answers: dict[str, Said]) -> Make:
    """A node whose nvidia-smi answers so."""
    return lambda node, hardware: nvidia_tools(node, hardware, answers)


def _xml(hardware: str, changes: Changes | None = None, gpus: int | None = None, code: int = 0) -> Make:
    def make(node: VirtualNode, kind: HardwareProfile) -> None:
        count = kind.gpus_per_node if gpus is None else gpus
        nvidia_tools(node, kind, {"-q -x": Said(smi_xml(hardware, count, changes), code)})

    return make


def query(
    name: str, check: str, expect: Expect, changes: Sequence[tuple[str, str]], kinds: Sequence[str] = ("h100",)
) -> list[Case]:
    """`nvidia-smi -q -x` with fields of one GPU changed, on nodes of these kinds."""
    told = "; ".join(f"{old} is {new}" for old, new in changes)
    return [Case(f"{name} ({kind})", kind, check, expect, _xml(kind, {3: changes}), told) for kind in kinds]


def field(name: str, healthy: str, bad: str) -> tuple[str, str]:
    """One field of the document with another value."""
    return f"<{name}>{healthy}<", f"<{name}>{bad}<"


LIFETIME = (
    field("dram_uncorrectable", "0", "now"),
    field("dram_uncorrectable", "0", "4"),
    field("dram_uncorrectable", "now", "0"),
)
OFF = tuple(
    field(name, "0", "N/A") for name in ("sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
)
MEMORY: list[Case] = [
    *query("a healthy GPU's memory", "ecc-nvidia", PASSES, (), ALL),
    *query("an uncorrectable error of the memory", "ecc-nvidia", GPU, (field("dram_uncorrectable", "0", "1"),), ALL),
    *query(
        "an uncorrectable error of the caches", "ecc-nvidia", GPU, (field("sram_uncorrectable", "0", "2"),), ("a100",)
    ),
    *query(
        "a parity error of the caches",
        "ecc-nvidia",
        GPU,
        (field("sram_uncorrectable_parity", "0", "1"),),
        ("h100", *NEW),
    ),
    *query(
        "a double error of the caches",
        "ecc-nvidia",
        GPU,
        (field("sram_uncorrectable_secded", "0", "1"),),
        ("h100", *NEW),
    ),
    *query("an error of an earlier life is history", "ecc-nvidia", PASSES, LIFETIME, ("a100", "h100")),
    *query(
        "177 corrected errors are ordinary",
        "ecc-corrected-nvidia",
        PASSES_QUIETLY,
        (field("dram_correctable", "0", "177"),),
        ("a100", "h100"),
    ),
    *query(
        "sixty million corrected errors",
        "ecc-corrected-nvidia",
        WARNED_OF,
        (field("dram_correctable", "0", "60000000"),),
        ("a100", "h100"),
    ),
    *query(
        "a remap that waits for a reset",
        "remapped-rows-pending",
        GPU,
        (field("remapped_row_pending", "No", "Yes"),),
        ALL,
    ),
    *query("a remap that failed", "remapped-rows-failed", GPU, (field("remapped_row_failure", "No", "Yes"),), ALL),
    *query(
        "five rows remapped",
        "remapped-rows-uncorrectable",
        PASSES,
        (field("remapped_row_unc", "0", "5"),),
        ("a100", "h100"),
    ),
    *query("512 rows remapped", "remapped-rows-uncorrectable", PASSES, (field("remapped_row_unc", "0", "512"),)),
    *query(
        "513 rows remapped",
        "remapped-rows-uncorrectable",
        GPU,
        (field("remapped_row_unc", "0", "513"),),
        ("h100", "h200"),
    ),
    *query(
        "a row remapped for a corrected error",
        "remapped-rows-pending",
        PASSES,
        (field("remapped_row_corr", "0", "1"),),
        ALL[:3],
    ),
    *query(
        "caches beyond their threshold",
        "memory-worn-nvidia",
        GPU,
        (field("sram_threshold_exceeded", "No", "Yes"),),
        ("h100", *NEW),
    ),
    *query(
        "memory that cannot be repaired", "memory-worn-nvidia", GPU, (field("unrepairable_memory", "No", "Yes"),), NEW
    ),
    *query("counters that are switched off", "ecc-nvidia", UNKNOWN, OFF),
    *query("a counter that reads ERR!", "ecc-nvidia", UNKNOWN, (field("dram_uncorrectable", "0", "ERR!"),)),
    *query("a field that reads Unknown Error", "ecc-nvidia", UNKNOWN, (field("gpu_temp", "45 C", "Unknown Error"),)),
    *query(
        "a GPU split into MIG devices", "ecc-nvidia", UNKNOWN, (field("current_mig", "Disabled", "Enabled"),), ("a100",)
    ),
]
STATES: list[Case] = [
    *query("the driver asks for nothing", "recovery-nvidia", PASSES, (), ("h100", *NEW, "gb200")),
    *query("a reset is required", "recovery-nvidia", GPU, (field("reset_required", "No", "Yes"),)),
    *query("a drain is recommended", "recovery-nvidia", GPU, (field("drain_and_reset_recommended", "N/A", "Yes"),)),
    *(
        case
        for action in ("Reset", "Reboot", "Drain P2P", "Drain and Reset")
        for case in query(
            f"the driver asks for {action}",
            "recovery-nvidia",
            GPU,
            (field("gpu_recovery_action", "None", action),),
            NEW,
        )
    ),
    *query("a channel's repair waits", "recovery-nvidia", GPU, (field("channel_repair_pending", "No", "Yes"),), NEW),
    *query("a processor's repair waits", "recovery-nvidia", GPU, (field("tpc_repair_pending", "No", "Yes"),), NEW),
    *query("the fabric is set up", "nvlink-fabric", PASSES, (), ("h100", "gb200")),
    *query(
        "the fabric is still being set up",
        "nvlink-fabric",
        DRIVER,
        (field("state", "Completed", "In Progress"), field("status", "Success", "N/A")),
        ("h100", "h200", "gb200"),
    ),
    *query(
        "the fabric could not be set up",
        "nvlink-fabric-status",
        DRIVER,
        (field("status", "Success", "Insufficient Resources"),),
        ("h100", "b200"),
    ),
    *query("nothing throttles", "throttle-nvidia", PASSES_QUIETLY, (), ("a100", "h100", "h200")),
    *query(
        "the hardware slows a GPU down",
        "throttle-nvidia",
        WARNED_OF,
        (field("clocks_event_reason_hw_slowdown", "Not Active", "Active"),),
        ("a100", "h100", "h200"),
    ),
    *query(
        "a power cap is no fault",
        "throttle-nvidia",
        PASSES_QUIETLY,
        (field("clocks_event_reason_sw_power_cap", "Not Active", "Active"),),
    ),
    *query("room below the heat limit", "thermal-margin-nvidia", PASSES_QUIETLY, (), ("h100", "h200")),
    *query(
        "a GPU beyond its heat limit", "thermal-margin-nvidia", WARNED_OF, (field("gpu_temp_tlimit", "39 C", "-4 C"),)
    ),
    *query(
        "an H200 beyond its heat limit",
        "thermal-margin-nvidia",
        WARNED_OF,
        (field("gpu_temp_tlimit", "68 C", "-3 C"),),
        ("h200",),
    ),
    *query(
        "a B200 at its heat limit",
        "thermal-margin-nvidia",
        PASSES_QUIETLY,
        (field("gpu_temp_tlimit", "68 C", "-3 C"),),
        ("b200",),
    ),
]


def refused(name: str, text: str, code: int) -> Case:
    """nvidia-smi that says that it cannot."""
    return Case(name, "h100", "ecc-nvidia", UNKNOWN, smi({"-q -x": Said(text, code)}), "nothing else is printed")


SILENT = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest NVIDIA "
    "driver is installed and running.\n\n"
)
LOST = (
    "Unable to determine the device handle for GPU0000:14:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
)
REFUSALS: list[Case] = [
    refused(
        "the driver does not answer",
        SILENT,
        9,
    ),
    refused(
        "driver and library differ",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n",
        18,
    ),
    refused("no devices", "No devices were found\n", 6),
    refused("a GPU is lost", LOST, 15),
    refused("a container lost its devices", "Failed to initialize NVML: Unknown Error\n", 255),
    refused("no permission", "Failed to initialize NVML: Insufficient Permissions\n", 4),
    Case(
        "seven of eight GPUs are listed", "h100", "ecc-nvidia", UNKNOWN, _xml("h100", gpus=7), "seven GPUs are attached"
    ),
    Case(
        "a good document and exit code 14",
        "h100",
        "ecc-nvidia",
        UNKNOWN,
        _xml("h100", code=14),
        "the InfoROM is corrupt",
    ),
    Case(
        "errors count whatever the exit code",
        "h100",
        "ecc-nvidia",
        GPU,
        _xml("h100", {2: (field("dram_uncorrectable", "0", "1"),)}, code=14),
        "one error, exit code 14",
    ),
    Case(
        "errors of a list that broke off count",
        "h100",
        "ecc-nvidia",
        GPU,
        smi({"-q -x": Said(smi_xml("h100", 8, {0: (field("dram_uncorrectable", "0", "9"),)})[:30_000])}),
        "nine errors, cut in the middle",
    ),
]


def links(
    name: str,
    check: str,
    what: str,
    expect: Expect,
    changes: Sequence[tuple[str, str]],
    kinds: Sequence[str] = ("h100",),
) -> list[Case]:
    """`nvidia-smi nvlink` with one line of a GPU changed."""
    told = "; ".join(f"{old.strip()} is {new.strip() or 'missing'}" for old, new in changes)
    return [
        Case(
            f"{name} ({kind})", kind, check, expect, smi_links(kind, what, {5 if kind != "gb200" else 2: changes}), told
        )
        for kind in kinds
    ]


def smi_links(kind: str, what: str, changes: Changes, gpus: int | None = None) -> Make:
    """A node whose links say so."""

    def make(node: VirtualNode, hardware: HardwareProfile) -> None:
        count = hardware.gpus_per_node if gpus is None else gpus
        nvidia_tools(node, hardware, {f"nvlink {what}": Said(nvlink(kind, what, changes, count))})

    return make


NVLINK: list[Case] = [
    *links("all links are active", "nvlink-state", "-s", PASSES, (), ALL),
    *links("an inactive link", "nvlink-state", "-s", GPU, (("Link 7: 26.562 GB/s", "Link 7: <inactive>"),), ALL[1:]),
    *links("an inactive link", "nvlink-state", "-s", GPU, (("Link 7: 25 GB/s", "Link 7: <inactive>"),), ALL[:1]),
    *links("a link that is not told of", "nvlink-state", "-s", UNKNOWN, (("\t Link 11: 26.562 GB/s\n", ""),)),
    Case(
        "seven GPUs tell of links", "h100", "nvlink-state", UNKNOWN, smi_links("h100", "-s", {}, 7), "GPU 7 is missing"
    ),
    Case(
        "links of a PCIe card",
        "h100",
        "nvlink-state",
        GPU,
        smi({"nvlink -s": Said(printed("nvidia-smi", "545-nvlink-status-h100-pcie.txt"))}),
    ),
    *links("links without errors", "nvlink-errors", "-e", PASSES_QUIETLY, (), ALL[:4]),
    *(
        case
        for kind in ("Replay", "Recovery", "CRC")
        for case in links(
            f"{kind} errors of a link",
            "nvlink-errors",
            "-e",
            WARNED_OF,
            ((f"Link 3: {kind} Errors: 0", f"Link 3: {kind} Errors: 12"),),
        )
    ),
    Case(
        "the sample of one GPU's counters",
        "h100",
        "nvlink-errors",
        UNKNOWN_WARNING,
        smi({"nvlink -e": Said(printed("nvidia-smi", "550-nvlink-errors.txt"))}),
        "one GPU of eight",
    ),
]


def diag(name: str, expect: Expect, text: str, code: int = 0, changed: str = "") -> Case:
    """`dcgmi diag`."""
    return Case(
        name,
        "h100",
        "dcgm-diag",
        expect,
        lambda node, _: node.tool("dcgmi", {"diag -r 3 -j": Said(text, code)}),
        changed,
    )


NO_ENGINE = (
    "Error: unable to establish a connection to the specified host: localhost\n"
    "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
)
ISOLATE, TRIAGE = 2, 4
"""DCGM 4's `error_severity`."""
DCGM: list[Case] = [
    diag("DCGM 4 passes all", PASSES, dcgm()),
    diag("DCGM 3 passes all", PASSES, dcgm(old=True)),
    *(
        diag(f"DCGM fails {test}", GPU, dcgm({test: ("Fail", severity, why)}), 226, f"{test} of GPU 3: Fail")
        for test, severity, why in (
            ("memory", ISOLATE, "GPU 3 had uncorrectable memory errors and the memory test failed"),
            ("pcie", ISOLATE, "Bandwidth of GPU 3 in direction from device is below the required minimum"),
            ("targeted_power", 4, "Max power of 611.2 did not reach desired power minimum 630.0 for GPU 3"),
            ("targeted_stress", 4, "Stress level of 21.1 did not reach desired minimum 29.3 for GPU 3"),
            ("diagnostic", ISOLATE, "Detected 12 miscompares in the memory of GPU 3"),
            ("nvbandwidth", 4, "NVBandwidth of GPU 3 failed"),
        )
    ),
    diag(
        "DCGM 3 fails the memory",
        GPU,
        dcgm({"memory": ("FAIL", ISOLATE, "memory test failed")}, old=True),
        226,
        "memory of GPU 3: FAIL",
    ),
    diag("DCGM names a setting", GPU, printed("dcgm-diag", "4.2.3-level1-gb10.json"), 226),
    diag("DCGM skipped its tests", UNKNOWN, printed("dcgm-diag", "3.1-level3-skipped.json")),
    diag("DCGM skipped one test", UNKNOWN, dcgm({"pcie": ("Skip", 0, "")}), 0, "pcie of GPU 3: Skip"),
    diag("DCGM warns of one test", UNKNOWN, dcgm({"pcie": ("Warn", 1, "GPU 3 is in use")}), 0, "pcie of GPU 3: Warn"),
    diag(
        "DCGM's host engine is away",
        UNKNOWN,
        NO_ENGINE,
        255,
    ),
    diag(
        "DCGM ended early",
        UNKNOWN,
        '{\n  "DCGM Diagnostic": {\n    "runtime_error": "Detected unsupported Cuda version"\n  }\n}\n',
        226,
    ),
]


def copies(name: str, kind: str, expect: Expect, figures: Sequence[float], changed: str) -> Case:
    """`nvbandwidth`."""
    arguments = "-j -t host_to_device_memcpy_ce"
    return Case(
        name,
        kind,
        "nvbandwidth-host-to-gpu",
        expect,
        lambda node, _: node.tool("nvbandwidth", {arguments: Said(bandwidths(figures))}),
        changed,
    )


BANDWIDTH: list[Case] = [
    copies("copies to an H100", "h100", PASSES, [55.2] * 8, ""),
    copies("copies to an A100", "a100", PASSES, [24.6] * 8, ""),
    copies("one H100 with half a link", "h100", SLOW_GPU, [55.2] * 5 + [27.4] + [55.2] * 2, "GPU 5: 27.40"),
    copies("one H200 just below", "h200", SLOW_GPU, [55.2] * 7 + [47.9], "GPU 7: 47.90"),
    copies("one A100 with half a link", "a100", SLOW_GPU, [12.3] + [24.6] * 7, "GPU 0: 12.30"),
    Case(
        "copies were waived",
        "h100",
        "nvbandwidth-host-to-gpu",
        UNKNOWN,
        lambda node, _: node.tool("nvbandwidth", {"*": Said(bandwidths([], "Waived"))}),
        "status: Waived",
    ),
]
CASES: tuple[Case, ...] = (*MEMORY, *STATES, *REFUSALS, *NVLINK, *DCGM, *BANDWIDTH)
