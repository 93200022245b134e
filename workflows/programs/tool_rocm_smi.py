"""Reads rocm-smi: `--json`, the lines of `--show…`, and the overview table that it prints without arguments.

Lines (`GPU[0] : key: value`) and JSON (`"card0": {key: value}`) use the same keys, so one table serves both.
Formats: ROCm 4.3 to 7.0.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, Tuple

from workflows.programs.readings import Parsed
from workflows.programs.tool_json import document, looks_like_json, mapping, no_document, string
from workflows.programs.tool_text import Told, amount, close, measure, whole_lines

TOOL = "rocm-smi"

FIGURES: Mapping[str, Tuple[str, str, str]] = {
    "average graphics package power (w)": ("power", "W", ""),
    "current socket graphics package power (w)": ("power", "W", ""),
    "max graphics package power (w)": ("power_limit", "W", ""),
    "gpu use (%)": ("gpu_utilization", "%", ""),
    "vram total memory (b)": ("gpu_memory_total", "B", ""),
    "vram total used memory (b)": ("gpu_memory_used", "B", ""),
    "pcie replay count": ("pcie_replays", "", ""),
    "temperature_edge (c)": ("gpu_temperature", "C", " edge"),
    "temperature_hotspot (c)": ("gpu_temperature", "C", " junction"),
    "temperature_mem (c)": ("gpu_memory_temperature", "C", ""),
    "average_socket_power (w)": ("power", "W", ""),
    "current_socket_power (w)": ("power", "W", ""),
    "pcie_link_width (lanes)": ("pcie_link_width", "", ""),
}
"""A key in lower case -> (quantity, printed unit, what is added to the subject)."""
WORDS: Mapping[str, str] = {
    "vbios version": "vbios_version",
    "driver version": "driver_version",
    "card series": "product_name",
    "device name": "product_name",
    "memory partition": "memory_partition",
    "compute partition": "compute_partition",
}
_LINE = re.compile(r"GPU\[([0-9]{1,4})\]\s{0,8}: {0,8}\s{0,8}(.{1,300})")
_TEMPERATURE = re.compile(r"temperature \(sensor (\w{1,20})\) \(c\)")
_LINK = re.compile(r"([0-9.]{1,8}) ?GT/s x([0-9]{1,3})")
_CARD = re.compile(r"card([0-9]{1,4})")
_RAS = re.compile(r"([A-Z][A-Z0-9_]{1,20})\s+(ENABLED|DISABLED)\s+([0-9]{1,18})\s+([0-9]{1,18})")
_OVERVIEW = re.compile(
    r"([0-9]{1,4})\s.{0,60}?\s([0-9]{1,3}\.[0-9])\u00b0C\s{1,20}([0-9]{1,5}\.[0-9])W\s{1,20}"
    r"(?:(NPS[0-9]), ([A-Z]{3}), [0-9]{1,3})?"
)
END = "End of ROCm SMI Log"


def parse(text: str) -> Parsed:
    """Readings by `gpu <index>`; ECC counters by block (`gpu 0 umc`); facts of the node without a subject."""
    if looks_like_json(text):
        return _parse_json(text)
    lines, cut = whole_lines(text)
    told = Told()
    gpu = ""
    ended = False
    for line in lines:
        stripped = line.strip()
        hit = _LINE.match(stripped)
        if hit:
            gpu = f"gpu {int(hit.group(1))}"
            key, _, value = hit.group(2).strip().partition(": ")
            _field(told, gpu, key.rstrip(":"), value.strip(), line)
        elif stripped.startswith("GPU["):
            gpu = f"gpu {stripped[4:].partition(']')[0]}" if stripped[4:].partition("]")[0].isdigit() else gpu
        elif "Driver version:" in stripped[:40]:
            told.word("driver_version", stripped.partition(":")[2], "", line)
        else:
            ended = ended or END in stripped
            _table(told, gpu, stripped, line)
    return close(told, TOOL, text, cut, "" if ended else "the closing line of its log is missing")


def _table(told: Told, gpu: str, stripped: str, line: str) -> None:
    ras = _RAS.fullmatch(stripped) if gpu else None
    if ras:
        block = f"{gpu} {ras.group(1).lower()}"
        told.figure("ecc_correctable", amount(ras.group(3)), "count", block, line)
        told.figure("ecc_uncorrectable", amount(ras.group(4)), "count", block, line)
        return
    row = _OVERVIEW.match(stripped)
    if row:
        one = f"gpu {int(row.group(1))}"
        told.figure("gpu_temperature", amount(row.group(2)), "degC", one, line)
        told.figure("power", amount(row.group(3)), "W", one, line)
        _partition(told, "memory_partition", row.group(4) or "", one, line)
        _partition(told, "compute_partition", row.group(5) or "", one, line)


def _parse_json(text: str) -> Parsed:
    data = mapping(document(text))
    cards = {key: mapping(value) for key, value in data.items() if _CARD.fullmatch(key)}
    if not cards:
        return no_document(TOOL, text)
    told = Told()
    told.figure("gpu_count", float(len(cards)), "count", "", ", ".join(cards))
    for card, fields in cards.items():
        for key, value in fields.items():
            shown = _shown(value)
            _field(told, f"gpu {int(card[4:])}", key.rstrip(":"), shown, f"{card}: {key}: {shown}")
    for key, value in mapping(data.get("system")).items():
        if key.lower() == "driver version":
            told.word("driver_version", string(value), "", f"system: {key}: {string(value)}")
    return told.parsed()


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:100]


def _field(told: Told, gpu: str, key: str, value: str, line: str) -> None:
    lowered = key.lower()
    sensor = _TEMPERATURE.fullmatch(lowered)
    if sensor:
        memory = sensor.group(1) in ("memory", "mem") or sensor.group(1).startswith("hbm")
        quantity = "gpu_memory_temperature" if memory else "gpu_temperature"
        told.figure(quantity, amount(value), "degC", gpu if memory else f"{gpu} {sensor.group(1)}", line)
    elif lowered in FIGURES:
        quantity, unit, more = FIGURES[lowered]
        measured = measure(value, unit)
        if measured is not None:
            told.figure(quantity, measured[0], measured[1], gpu + more, line)
    elif lowered in WORDS:
        _partition(told, WORDS[lowered], value, "" if WORDS[lowered] == "driver_version" else gpu, line)
    elif lowered == "pcie clock level":
        link = _LINK.search(value[:60])
        if link:
            told.figure("pcie_link_speed", amount(link.group(1)), "GT/s", gpu, line)
            told.figure("pcie_link_width", amount(link.group(2)), "count", gpu, line)


def _partition(told: Told, quantity: str, value: str, gpu: str, line: str) -> None:
    told.word(quantity, value, gpu, line)
    if quantity == "compute_partition" and value not in ("", "SPX", "N/A"):
        told.note(f"{gpu} is split ({value}): its figures are not those of a whole GPU")
