"""Reads `nvidia-smi --query-gpu=… --format=csv`, with or without `nounits`; never a table without its header line."""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, measure, no_figure

FIGURES: Mapping[str, str] = {
    "temperature.gpu": "gpu_temperature",
    "temperature.memory": "gpu_memory_temperature",
    "power.draw": "power",
    "power.draw.average": "power",
    "enforced.power.limit": "power_limit",
    "power.limit": "power_limit",
    "clocks.sm": "gpu_clock",
    "clocks.current.sm": "gpu_clock",
    "clocks.mem": "memory_clock",
    "clocks.current.memory": "memory_clock",
    "clocks.max.sm": "gpu_clock_max",
    "clocks.max.mem": "memory_clock_max",
    "clocks.max.memory": "memory_clock_max",
    "pcie.link.gen.current": "pcie_generation",
    "pcie.link.gen.gpucurrent": "pcie_generation",
    "pcie.link.gen.max": "pcie_generation_max",
    "pcie.link.width.current": "pcie_link_width",
    "pcie.link.width.max": "pcie_link_width_max",
    "memory.total": "gpu_memory_total",
    "memory.used": "gpu_memory_used",
    "utilization.gpu": "gpu_utilization",
    "remapped_rows.correctable": "rows_remapped_correctable",
    "remapped_rows.uncorrectable": "rows_remapped_uncorrectable",
    "retired_pages.double_bit.count": "pages_retired",
    "retired_pages.single_bit_ecc.count": "pages_retired",
    "count": "gpu_count",
}
WORDS: Mapping[str, str] = {
    "name": "product_name",
    "gpu_name": "product_name",
    "driver_version": "driver_version",
    "vbios_version": "vbios_version",
    "persistence_mode": "persistence_mode",
    "ecc.mode.current": "ecc_mode",
    "mig.mode.current": "mig_mode",
    "fabric.state": "fabric_state",
    "fabric.status": "fabric_status",
}
SET_CLOCKS: Mapping[str, str] = {
    "clocks.applications.graphics": "gpu_clock_set",
    "clocks.applications.gr": "gpu_clock_set",
}
"""What a person wants applications to run at: words, since newer drivers and desktop cards have no such wish."""
FLAGS: Mapping[str, str] = {
    "remapped_rows.pending": "row_remap_pending",
    "remapped_rows.failure": "row_remap_failure",
    "retired_pages.pending": "page_retirement_pending",
    "reset_status.reset_required": "gpu_reset_required",
}
NO_WISH = "no wish"
"""The word of a GPU of which nobody may wish a clock."""
UNITS_OF: Mapping[str, str] = {"gpu_temperature": "C", "gpu_memory_temperature": "C"}
"""Units that the header does not print."""
SUBJECTS = ("index", "pci.bus_id", "gpu_bus_id", "uuid", "gpu_uuid")
"""Fields that say which GPU a row is about; the first of them that the table has is used."""
_ECC = re.compile(r"ecc\.errors\.(un)?corrected\.(volatile|aggregate)\.(\w{2,20})")
_THROTTLE = re.compile(r"clocks_(?:event|throttle)_reasons\.(hw_\w{4,24}|sw_thermal_slowdown|sw_power_cap)")
_ON = {"yes": True, "active": True, "1": True, "no": False, "not active": False, "0": False}


def _columns(line: str) -> List[Tuple[str, str]]:
    """(field, unit) of a header line; empty where it is none."""
    columns: List[Tuple[str, str]] = []
    for cell in line.split(","):
        name, _, unit = cell.strip().partition(" [")
        columns.append((name, unit.rstrip("]")))
    names = (*FIGURES, *WORDS, *SET_CLOCKS, *FLAGS, *SUBJECTS)
    known = sum(1 for name, _ in columns if name in names)
    other = sum(1 for name, _ in columns if _ECC.fullmatch(name) or _THROTTLE.fullmatch(name))
    return columns if len(columns) > 1 and known + other >= 2 else []


def clock_word(text: str) -> str:
    """`1980 MHz` of that or of `1980`; `no wish` where the driver knows no wished clock; "" for anything else."""
    clock = amount(text.replace("MHz", "").strip())
    if clock is not None:
        return f"{clock:g} MHz"
    return NO_WISH if no_figure(text.strip("[]")) else ""


def is_csv(lines: List[str]) -> bool:
    """Whether one of the first lines is a header of known fields."""
    return any(_columns(line) for line in lines[:20] if "," in line)


def parse_csv(lines: List[str], text: str, cut: bool) -> Parsed:
    """Readings of each row. How many rows there should be is known only where `count` was asked for."""
    told = Told()
    columns: List[Tuple[str, str]] = []
    header = ""
    for line in lines:
        if not columns:
            columns, header = _columns(line) if "," in line else [], line
            continue
        if line == header:
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(columns):
            _row(told, columns, cells, line)
        elif line.strip():
            told.note("a row has not as many cells as the header")
    return close(told, "nvidia-smi --query-gpu", text, cut)


def _row(told: Told, columns: List[Tuple[str, str]], cells: List[str], line: str) -> None:
    by_name: Dict[str, str] = {name: cell for (name, _), cell in zip(columns, cells)}  # noqa: B905  (3.9)
    subject = next((f"gpu {by_name[name].lower()}" for name in SUBJECTS if by_name.get(name)), "")
    for (name, unit), cell in zip(columns, cells):  # noqa: B905  (3.9)
        if name in WORDS:
            told.word(WORDS[name], cell, "" if name == "driver_version" else subject, line)
            if name == "mig.mode.current" and cell == "Enabled":
                told.note(f"{subject} is split into MIG devices: its figures are not those of a whole GPU")
        elif name in SET_CLOCKS:
            told.word(SET_CLOCKS[name], clock_word(cell), subject, line)
        elif name in ("gpu_recovery_action", "recovery_action"):
            told.flag("gpu_recovery_needed", cell != "None", cell, subject, line)
        elif not no_figure(cell):
            _figure(told, name, unit, cell, subject, line)


def _figure(told: Told, name: str, unit: str, cell: str, subject: str, line: str) -> None:
    quantity, more = _quantity(name)
    throttle = _THROTTLE.fullmatch(name)
    flag = FLAGS.get(name) or (f"throttle_{throttle.group(1)}" if throttle else None)
    if flag is not None and cell.lower() in _ON:
        told.flag(flag, _ON[cell.lower()], cell, subject, line)
    elif quantity is not None:
        measured = measure(cell, unit or UNITS_OF.get(quantity, ""))
        if measured is None:
            told.note(f"{subject}: {name} reads {cell[:40]}")
            return
        told.figure(quantity, measured[0], measured[1], "" if name == "count" else subject + more, line)


def _quantity(name: str) -> Tuple[Optional[str], str]:
    ecc = _ECC.fullmatch(name)
    if ecc is None:
        return FIGURES.get(name), ""
    quantity = "ecc_uncorrectable" if ecc.group(1) else "ecc_correctable"
    part = ecc.group(3)
    return quantity + ("_lifetime" if ecc.group(2) == "aggregate" else ""), "" if part == "total" else f" {part}"
