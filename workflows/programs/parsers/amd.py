"""Reads amd-smi (`static`, `metric`, `bad-pages` as JSON or text, the table of `ras --cper`) and rocm-smi.

amd-smi: JSON and text contain the same tree, so both become paths (`ecc/total_correctable_count`) of one table. Newer
versions put the list of GPUs under `gpu_data`. Formats: ROCm 6.0 to 7.2.

rocm-smi: `--json`, the lines of `--show…`, and the overview table without arguments. Lines (`GPU[0] : key: value`) and
JSON (`"card0": {key: value}`) use the same keys, so one table serves both. Formats: ROCm 4.3 to 7.0.
"""

from __future__ import annotations

import re
from typing import Any, Iterator, List, Mapping, Tuple

from workflows.programs.parsers.text import (
    ParsedOutput,
    ToolReadings,
    amount,
    as_list,
    as_mapping,
    as_string,
    close_readings,
    document,
    looks_like_json,
    measure,
    no_document,
    number,
    whole_lines,
)

AMD_SMI = "amd-smi"

AMD_SMI_FIGURES: Mapping[str, Tuple[str, str]] = {
    "power/socket_power": ("power", ""),
    "power/current_socket_power": ("power", ""),
    "power/average_socket_power": ("power", ""),
    "limit/max_power": ("power_limit", ""),
    "limit/power_limit": ("power_limit", ""),
    "limit/socket_power": ("power_limit", ""),
    "temperature/edge": ("gpu_temperature", " edge"),
    "temperature/hotspot": ("gpu_temperature", " hotspot"),
    "temperature/mem": ("gpu_memory_temperature", ""),
    "clock/gfx_0/clk": ("gpu_clock", ""),
    "clock/mem_0/clk": ("memory_clock", ""),
    "clock/gfx_0/max_clk": ("gpu_clock_max", ""),
    "clock/mem_0/max_clk": ("memory_clock_max", ""),
    "pcie/width": ("pcie_link_width", ""),
    "pcie/speed": ("pcie_link_speed", ""),
    "pcie/replay_count": ("pcie_replays", ""),
    "bus/max_pcie_width": ("pcie_link_width_max", ""),
    "bus/max_pcie_speed": ("pcie_link_speed_max", ""),
    "ecc/total_correctable_count": ("ecc_correctable", ""),
    "ecc/total_uncorrectable_count": ("ecc_uncorrectable", ""),
    "ecc/total_deferred_count": ("ecc_deferred", ""),
    "usage/gfx_activity": ("gpu_utilization", ""),
    "mem_usage/total_vram": ("gpu_memory_total", ""),
    "mem_usage/used_vram": ("gpu_memory_used", ""),
    "vram/size": ("gpu_memory_total", ""),
}
"""A path -> (quantity, what is added to the subject)."""
AMD_SMI_WORDS: Mapping[str, str] = {
    "asic/market_name": "product_name",
    "bdf": "bus_address",
    "bus/bdf": "bus_address",
    "driver/version": "driver_version",
    "vbios/version": "vbios_version",
    "ifwi/version": "vbios_version",
    "partition/compute_partition": "compute_partition",
    "partition/accelerator_partition": "compute_partition",
    "partition/memory_partition": "memory_partition",
    "power/throttle_status": "throttle_status",
}
PAGES: Mapping[str, str] = {
    "retired": "bad_pages_retired",
    "pending": "bad_pages_pending",
    "un_res": "bad_pages_unreservable",
}
_BLOCK = re.compile(r"ecc_blocks/(\w{1,20})/(correctable|uncorrectable|deferred)_count")
_VIOLATION = re.compile(r"throttle/(\w{1,40})_violation_status")
_CPER = re.compile(
    r"[0-9]{4}/[0-9]{2}/[0-9]{2} [0-9:]{8}\s+([0-9]{1,4})\s+([A-Z][A-Z_-]{3,40})(?:\s+\S{1,80}\s*(.{0,80}))?"
)
_XGMI = re.compile(r"GPU([0-9]{1,4})\s{1,12}[0-9a-f:.]{7,16}((?:\s{1,8}[UDX]){1,64})")
_CPER_HEADER = re.compile(r"timestamp\s+gpu_id\s+severity")
_INDEX = re.compile(r" {0,4}[0-9]{1,4} {0,4}")
DEPTH = 12
"""amd-smi nests five deep."""


def parse_amd_smi(text: str) -> ParsedOutput:
    """Readings by `gpu <index>`; ECC counters of a block have it in the subject (`gpu 0 umc`)."""
    if looks_like_json(text):
        return _parse_amd_smi_json(text)
    lines, cut = whole_lines(text)
    results = ToolReadings()
    listed = next((at for at, line in enumerate(lines[:50]) if _CPER_HEADER.match(line)), None)
    if listed is None:
        _tree(results, lines)
    else:
        for line in lines[listed + 1 :]:
            _event(results, line.strip(), line)
        if not results.readings:
            results.note("the table of hardware events is empty")
    return close_readings(results, AMD_SMI, text, cut)


def _tree(results: ToolReadings, lines: List[str]) -> None:
    gpu = ""
    headings: List[Tuple[int, str]] = []
    for line in lines:
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        while headings and headings[-1][0] >= depth:
            headings.pop()
        name, colon, value = stripped.partition(":")
        links = _XGMI.fullmatch(stripped) if stripped.startswith("GPU") else None
        if links:
            _links(results, f"gpu {int(links.group(1))}", links.group(2).split(), line)
        elif depth == 0 and name == "GPU" and _INDEX.fullmatch(value):
            gpu, headings = f"gpu {int(value)}", []
        elif gpu and colon and value.strip():
            path = "/".join([*(heading for _, heading in headings), name.strip().lower()])
            _text_field(results, gpu, path, value.strip(), line)
        elif gpu and colon:
            headings = [*headings[:DEPTH], (depth, name.strip().lower())]


def _event(results: ToolReadings, stripped: str, line: str) -> None:
    row = _CPER.fullmatch(stripped)
    if row:
        word = f"{row.group(2)} {row.group(3) or ''}".strip()
        results.word("ras_event", word, f"gpu {int(row.group(1))}", line)


def _links(results: ToolReadings, gpu: str, states: List[Any], line: str) -> None:
    """Links to other GPUs by their letters: up, down, or disabled, which is none of this board's links."""
    results.figure("xgmi_links_down", float(states.count("D")), "count", gpu, line)
    results.figure("xgmi_links_up", float(states.count("U")), "count", gpu, line)


def _text_field(results: ToolReadings, gpu: str, path: str, value: str, line: str) -> None:
    if path in PAGES:
        if value.lower().startswith("no bad pages"):
            results.figure(PAGES[path], 0.0, "count", gpu, line)
    elif path.rpartition("/")[2] == "page_address":
        results.word("bad_page", value, gpu, line)
    else:
        _amd_smi_field(results, gpu, path, value, line)


def _parse_amd_smi_json(text: str) -> ParsedOutput:
    data = document(text)
    gpus = [as_mapping(one) for one in as_list(data) or as_list(as_mapping(data).get("gpu_data"))]
    gpus = [one for one in gpus if number(one.get("gpu")) is not None]
    if not gpus:
        return no_document(AMD_SMI, text)
    results = ToolReadings()
    results.figure("gpu_count", float(len(gpus)), "count", "", f"{len(gpus)} GPUs")
    for one in gpus:
        gpu = f"gpu {int(number(one['gpu']) or 0)}"
        for key, quantity in PAGES.items():
            _pages(results, gpu, quantity, one.get(key))
        states = as_list(one.get("link_status"))
        if states and all(state in ("U", "D", "X") for state in states):
            _links(results, gpu, states, f"{gpu}: link_status {' '.join(states)}")
        for path, value in _leaves(one, "", 0):
            _amd_smi_field(results, gpu, path, value, f"{gpu}: {path}: {value}")
    return results.to_parsed()


def _pages(results: ToolReadings, gpu: str, quantity: str, pages: Any) -> None:
    if isinstance(pages, str) and pages.lower().startswith("no bad pages"):
        results.figure(quantity, 0.0, "count", gpu, f"{gpu}: {pages}")
    elif isinstance(pages, list):
        results.figure(quantity, float(len(as_list(pages))), "count", gpu, f"{gpu}: {len(as_list(pages))} pages")


def _leaves(node: Any, path: str, depth: int) -> Iterator[Tuple[str, str]]:
    """(path, printed value) of every leaf; a value with its unit is one leaf."""
    fields = as_mapping(node)
    if set(fields) == {"value", "unit"}:
        value = number(fields["value"])
        yield path, f"{fields['value']} {fields['unit']}" if value is not None else "N/A"
    elif fields and depth < DEPTH:
        for key, value in fields.items():
            yield from _leaves(value, f"{path}/{key.lower()}" if path else key.lower(), depth + 1)
    elif isinstance(node, (str, int, float)) and not isinstance(node, bool):
        yield path, str(node)[:200]


def _amd_smi_field(results: ToolReadings, gpu: str, path: str, value: str, line: str) -> None:
    block = _BLOCK.fullmatch(path)
    violation = _VIOLATION.fullmatch(path)
    if path in AMD_SMI_FIGURES:
        quantity, more = AMD_SMI_FIGURES[path]
        measured = measure(value, "GT/s" if quantity.startswith("pcie_link_speed") else "")
        if measured is not None:
            results.figure(quantity, measured[0], measured[1], gpu + more, line)
    elif block:
        results.figure(f"ecc_{block.group(2)}", amount(value), "count", f"{gpu} {block.group(1)}", line)
    elif violation and value in ("ACTIVE", "NOT ACTIVE"):
        results.flag(f"throttle_{violation.group(1)}", value == "ACTIVE", value, gpu, line)
    elif path == "ras/bad_page_threshold_exceeded" and value.lower() in ("true", "false"):
        results.flag("bad_page_threshold_exceeded", value.lower() == "true", value, gpu, line)
    elif path in AMD_SMI_WORDS:
        results.word(AMD_SMI_WORDS[path], value, "" if AMD_SMI_WORDS[path] == "driver_version" else gpu, line)
        if AMD_SMI_WORDS[path] == "compute_partition" and value not in ("SPX", "N/A"):
            results.note(f"{gpu} is split ({value[:20]}): its figures are not those of a whole GPU")


ROCM_SMI = "rocm-smi"

ROCM_SMI_FIGURES: Mapping[str, Tuple[str, str, str]] = {
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
ROCM_SMI_WORDS: Mapping[str, str] = {
    "vbios version": "vbios_version",
    "driver version": "driver_version",
    "card series": "product_name",
    "pci bus": "bus_address",
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


def parse_rocm_smi(text: str) -> ParsedOutput:
    """Readings by `gpu <index>`; ECC counters by block (`gpu 0 umc`); facts of the node without a subject."""
    if looks_like_json(text):
        return _parse_rocm_smi_json(text)
    lines, cut = whole_lines(text)
    results = ToolReadings()
    gpu = ""
    ended = False
    for line in lines:
        stripped = line.strip()
        hit = _LINE.match(stripped)
        if hit:
            gpu = f"gpu {int(hit.group(1))}"
            key, _, value = hit.group(2).strip().partition(": ")
            _rocm_smi_field(results, gpu, key.rstrip(":"), value.strip(), line)
        elif stripped.startswith("GPU["):
            gpu = f"gpu {stripped[4:].partition(']')[0]}" if stripped[4:].partition("]")[0].isdigit() else gpu
        elif "Driver version:" in stripped[:40]:
            results.word("driver_version", stripped.partition(":")[2], "", line)
        else:
            ended = ended or END in stripped
            _table(results, gpu, stripped, line)
    return close_readings(results, ROCM_SMI, text, cut, "" if ended else "the closing line of its log is missing")


def _table(results: ToolReadings, gpu: str, stripped: str, line: str) -> None:
    ras = _RAS.fullmatch(stripped) if gpu else None
    if ras:
        block = f"{gpu} {ras.group(1).lower()}"
        results.figure("ecc_correctable", amount(ras.group(3)), "count", block, line)
        results.figure("ecc_uncorrectable", amount(ras.group(4)), "count", block, line)
        return
    row = _OVERVIEW.match(stripped)
    if row:
        one = f"gpu {int(row.group(1))}"
        results.figure("gpu_temperature", amount(row.group(2)), "degC", one, line)
        results.figure("power", amount(row.group(3)), "W", one, line)
        _partition(results, "memory_partition", row.group(4) or "", one, line)
        _partition(results, "compute_partition", row.group(5) or "", one, line)


def _parse_rocm_smi_json(text: str) -> ParsedOutput:
    data = as_mapping(document(text))
    cards = {key: as_mapping(value) for key, value in data.items() if _CARD.fullmatch(key)}
    if not cards:
        return no_document(ROCM_SMI, text)
    results = ToolReadings()
    results.figure("gpu_count", float(len(cards)), "count", "", ", ".join(cards))
    for card, fields in cards.items():
        for key, value in fields.items():
            shown = _shown(value)
            _rocm_smi_field(results, f"gpu {int(card[4:])}", key.rstrip(":"), shown, f"{card}: {key}: {shown}")
    for key, value in as_mapping(data.get("system")).items():
        if key.lower() == "driver version":
            results.word("driver_version", as_string(value), "", f"system: {key}: {as_string(value)}")
    return results.to_parsed()


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else str(value)[:100]


def _rocm_smi_field(results: ToolReadings, gpu: str, key: str, value: str, line: str) -> None:
    lowered = key.lower()
    sensor = _TEMPERATURE.fullmatch(lowered)
    if sensor:
        memory = sensor.group(1) in ("memory", "mem") or sensor.group(1).startswith("hbm")
        quantity = "gpu_memory_temperature" if memory else "gpu_temperature"
        results.figure(quantity, amount(value), "degC", gpu if memory else f"{gpu} {sensor.group(1)}", line)
    elif lowered in ROCM_SMI_FIGURES:
        quantity, unit, more = ROCM_SMI_FIGURES[lowered]
        measured = measure(value, unit)
        if measured is not None:
            results.figure(quantity, measured[0], measured[1], gpu + more, line)
    elif lowered in ROCM_SMI_WORDS:
        _partition(
            results, ROCM_SMI_WORDS[lowered], value, "" if ROCM_SMI_WORDS[lowered] == "driver_version" else gpu, line
        )
    elif lowered == "pcie clock level":
        link = _LINK.search(value[:60])
        if link:
            results.figure("pcie_link_speed", amount(link.group(1)), "GT/s", gpu, line)
            results.figure("pcie_link_width", amount(link.group(2)), "count", gpu, line)


def _partition(results: ToolReadings, quantity: str, value: str, gpu: str, line: str) -> None:
    results.word(quantity, value, gpu, line)
    if quantity == "compute_partition" and value not in ("", "SPX", "N/A"):
        results.note(f"{gpu} is split ({value}): its figures are not those of a whole GPU")
