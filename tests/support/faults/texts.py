"""What tools print on nodes of eight GPUs, healthy and with one thing changed.

Made from the samples under `samples/tools`: the part of one GPU stands once for each, with its own address, and figures
of another product are those of its data sheet. A fault is one figure or state as the tool prints it in that fault.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from tests.support.cases.tool_samples import printed

Changes = Mapping[int, Sequence[tuple[str, str]]]
"""Index of a GPU -> (what is printed on a healthy one, what is printed instead)."""

XML = {
    "a100": ("535-xml-a100-mig.txt", "NVIDIA A100-SXM4-80GB"),
    "h100": ("555-xml-l4.txt", "NVIDIA H100 80GB HBM3"),
    "h200": ("590-xml-rtx-pro.txt", "NVIDIA H200"),
    "b200": ("590-xml-rtx-pro.txt", "NVIDIA B200"),
    "gb200": ("590-xml-rtx-pro.txt", "NVIDIA GB200"),
}
"""Hardware -> the sample whose driver it runs, and its name."""
HEALTHY: Sequence[tuple[str, str]] = (
    ("<current_mig>Enabled</current_mig>", "<current_mig>Disabled</current_mig>"),
    ("<current_ecc>Disabled</current_ecc>", "<current_ecc>Enabled</current_ecc>"),
    ("<state>N/A</state>", "<state>Completed</state>"),
    ("<status>N/A</status>", "<status>Success</status>"),
    ("<unrepairable_memory>N/A<", "<unrepairable_memory>No<"),
    ("<sram_threshold_exceeded>N/A<", "<sram_threshold_exceeded>No<"),
)
"""Where a sample's own machine was set otherwise than a node for training."""
REMAPPED = """<remapped_rows>
            <remapped_row_corr>0</remapped_row_corr>
            <remapped_row_unc>0</remapped_row_unc>
            <remapped_row_pending>No</remapped_row_pending>
            <remapped_row_failure>No</remapped_row_failure>
        </remapped_rows>"""
"""An A100 that is split into MIG devices has none; one that is whole has."""
CLOCKS = {"a100": (1410, 1593), "h100": (1980, 2619), "h200": (1980, 3201), "b200": (1965, 3996), "gb200": (2062, 3996)}
"""Most MHz of the processors and of the memory."""
NO_WISHES = "Requested functionality has been deprecated"
"""What newer drivers print instead of application clocks."""
MI300X_CLOCKS = {"gfx_0": (500, 2100), "mem_0": (900, 1300)}
"""Least and most MHz."""
ECC = re.compile(r"<([sd]ram_(?:un)?correctable\w*)>N/A<")
MIG = re.compile(r"<mig_devices>.*?</mig_devices>", re.DOTALL)
BLOCKS = ("UMC", "SDMA", "GFX", "MMHUB", "PCIE_BIF", "HDP", "XGMI_WAFL")
LINKS = {"a100": 12, "h100": 18, "h200": 18, "b200": 18, "gb200": 18}


@cache
def _part(hardware: str) -> tuple[str, str, str]:
    """What stands before the GPU's part, that part, and what stands after."""
    sample, product = XML[hardware]
    text = printed("nvidia-smi", sample)
    begin, end = text.index("<gpu id="), text.index("</gpu>") + len("</gpu>\n")
    head, part, tail = text[:begin], text[begin:end], text[end:]
    part = re.sub(r"<product_name>.*?<", f"<product_name>{product}<", part)
    part = ECC.sub(r"<\1>0<", MIG.sub("<mig_devices>\n            None\n        </mig_devices>", part))
    part = part.replace("<remapped_rows>N/A</remapped_rows>", REMAPPED)
    part = part.replace("</clocks>\n", f"</clocks>\n{_most_clocks(hardware)}", 1)
    for is_there, wanted in HEALTHY if hardware != "a100" else HEALTHY[:1]:
        part = part.replace(is_there, wanted)
    return head, part, tail


def _most_clocks(hardware: str) -> str:
    """Application and most clocks, of which the samples are shortened."""
    most, memory = CLOCKS[hardware]
    wished = NO_WISHES if "590" in XML[hardware][0] else f"{most} MHz"
    return f"""        <applications_clocks>
            <graphics_clock>{wished}</graphics_clock>
        </applications_clocks>
        <max_clocks>
            <graphics_clock>{most} MHz</graphics_clock>
            <sm_clock>{most} MHz</sm_clock>
            <mem_clock>{memory} MHz</mem_clock>
        </max_clocks>
"""


def smi_xml(hardware: str, gpus: int = 8, changes: Changes | None = None) -> str:
    """`nvidia-smi -q -x`."""
    head, part, tail = _part(hardware)
    head = re.sub(r"<attached_gpus>\d+<", f"<attached_gpus>{gpus}<", head)
    parts: list[str] = []
    for index in range(gpus):
        own = re.sub(r'<gpu id="[^"]*">', f'<gpu id="00000000:{0x11 + index:02X}:00.0">', part)
        parts.append(_changed(own, (changes or {}).get(index, ())))
    return head + "    ".join(parts) + tail


def _changed(text: str, changes: Sequence[tuple[str, str]]) -> str:
    for healthy, bad in changes:
        assert healthy in text, f"nothing prints {healthy}"
        text = text.replace(healthy, bad, 1)
    return text


def nvlink(hardware: str, what: str, changes: Changes | None = None, gpus: int = 8) -> str:
    """`nvidia-smi nvlink -s` or `-e`."""
    name = XML[hardware][1]
    speed = "25 GB/s" if hardware == "a100" else "26.562 GB/s"
    parts: list[str] = []
    for index in range(gpus):
        lines = [f"GPU {index}: {name} (UUID: GPU-6968dfc2-d444-d92c-c36b-6abe53445c{index:02d})"]
        for link in range(LINKS[hardware]):
            if what == "-s":
                lines.append(f"\t Link {link}: {speed}")
            else:
                lines += [f"\t Link {link}: {kind} Errors: 0" for kind in ("Replay", "Recovery", "CRC")]
        parts.append(_changed("\n".join([*lines, ""]), (changes or {}).get(index, ())))
    return "".join(parts)


def amd_metric(part: str, changes: Mapping[int, Any] | None = None, gpus: int = 8, release: int = 7) -> str:
    """`amd-smi metric --ecc|--ecc-blocks|--violation|--clock --json` of ROCm 6 or 7.

    Args:
        part: `ecc`, `ecc_blocks`, `throttle` or `clock`.
        changes: index of a GPU -> fields that are told otherwise.
        gpus: how many there are.
        release: of ROCm; before 7 the list stands by itself.
    """
    sample = json.loads(printed("amd-smi", "7.0-metric-radeon.json"))["gpu_data"][0]
    own: dict[str, Any] = dict(sample[part])
    if part == "ecc_blocks":
        own = {block: dict(own["UMC"]) for block in BLOCKS}
    if part == "clock":
        own = {
            engine: own["gfx_0"]
            | {name: {"value": value, "unit": "MHz"} for name, value in zip(("min_clk", "max_clk"), ends, strict=True)}
            for engine, ends in MI300X_CLOCKS.items()
        }
    if part == "throttle":
        told = {"status": "NOT ACTIVE", "accumulated": 0, "counter": 16_438_221}
        own = {name: told.get(name.rpartition("_")[2], {"value": 0, "unit": "%"}) for name in own}
    listed: list[Any] = []
    for index in range(gpus):
        wanted = (changes or {}).get(index, {})
        listed.append({"gpu": index, part: wanted if isinstance(wanted, str) else own | wanted})
    return json.dumps({"gpu_data": listed} if release >= 7 else listed, indent=4) + "\n"


def amd_pages(changes: Mapping[int, Mapping[str, int]] | None = None, gpus: int = 8) -> str:
    """`amd-smi bad-pages --json`; changes are numbers of pages by kind."""
    listed: list[Any] = []
    for index in range(gpus):
        own: dict[str, Any] = {kind: "No bad pages found." for kind in ("retired", "pending", "un_res")}
        for kind, count in (changes or {}).get(index, {}).items():
            page = {"page_size": 4096, "status": {"retired": "RETIRED", "pending": "PENDING"}.get(kind, "UN_RES")}
            own[kind] = [{"page_address": f"0x{0xA1B2C000 + 4096 * at:016x}", **page} for at in range(count)]
        listed.append({"gpu": index, **own})
    return json.dumps(listed, indent=4) + "\n"


def amd_links(changes: Mapping[int, Mapping[int, str]] | None = None, gpus: int = 8, release: int = 7) -> str:
    """`amd-smi xgmi --link-status --json`; changes are letters by link."""
    listed: list[Any] = []
    for index in range(gpus):
        states = ["X" if link == index else "U" for link in range(gpus)]
        for link, letter in (changes or {}).get(index, {}).items():
            states[link] = letter
        listed.append({"gpu": index, "bdf": f"0000:{0x11 + index:02x}:00.0", "link_status": states})
    return json.dumps({"xgmi_metric": listed} if release == 0 else listed, indent=4) + "\n"


def dcgm(fails: Mapping[str, tuple[str, int, str]] | None = None, old: bool = False, gpus: int = 8) -> str:
    """`dcgmi diag -r 3 -j` of DCGM 4, or 3 (`old`).

    Args:
        fails: test -> (status, severity, warning) of GPU 3.
        old: DCGM 3.
        gpus: how many there are.
    """
    tests = ("software", "memory", "diagnostic", "pcie", "targeted_stress", "targeted_power", "nvbandwidth")
    found: list[Any] = []
    for name in tests:
        results: list[Any] = []
        for index in range(gpus):
            status, severity, warning = (fails or {}).get(name, ("Pass", 0, "")) if index == 3 else ("Pass", 0, "")
            told = {"error_id": 29, "error_severity": severity, "warning": warning}
            one: dict[str, Any] = {"gpu_id": str(index)} if old else {"entity_group": "GPU", "entity_id": index}
            results.append({**one, "status": status, **({"warnings": [told]} if warning else {})})
        found.append({"name": name, "results": results})
    root = "DCGM GPU Diagnostic" if old else "DCGM Diagnostic"
    body = {"test_categories": [{"category": "Hardware", "tests": found}]}
    return json.dumps({root: body, "metadata": {"version": "3.3.5" if old else "4.2.3"}}, indent=2) + "\n"


def bandwidths(figures: Sequence[float], status: str = "Passed") -> str:
    """`nvbandwidth -j -t host_to_device_memcpy_ce`, a figure a GPU."""
    case: dict[str, Any] = {"name": "host_to_device_memcpy_ce", "status": status}
    if status == "Passed":
        case["bandwidth_description"] = "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)"
        case["bandwidth_matrix"] = [[f"{figure:.2f}" for figure in figures]]
        case["sum"] = sum(figures)
    own = json.loads(printed("nvbandwidth", "0.7-written.json"))["nvbandwidth"]
    return json.dumps({"nvbandwidth": {**own, "testcases": [case]}}, indent=2) + "\n"


def peer_copies(slow: Mapping[tuple[int, int], float], good: float, gpus: int = 8) -> str:
    """`TransferBench p2p`, its one-way matrix as an MI350X prints it."""
    heads = "".join(f"    GPU {index:02d}" for index in range(gpus))
    lines = ["Unidirectional copy peak bandwidth GB/s [Local read / Remote write] (GPU-Executor: GFX)"]
    lines.append(f" SRC+EXE\\DST{heads}")
    for row in range(gpus):
        cells = [slow.get((row, column), 2132.28 if row == column else good) for column in range(gpus)]
        lines.append(f"  GPU {row:02d}  ->" + "".join(f"{cell:10.2f}" for cell in cells))
    lines += [f"{'GPU->GPU':>35}", f"Averages (During UniDir):{good:10.2f}", ""]
    return "\n".join(lines)
