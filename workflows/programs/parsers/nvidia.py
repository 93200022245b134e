"""Reads nvidia-smi: the full query as text (`-q`, also `-d` parts) and XML (`-q -x`), CSV queries, and `nvlink`.

Text and XML contain the same sections, so both become paths (`ecc_errors/volatile/dram_correctable`) of one table. XML
is read line by line, as the tool prints it, so that a truncated document still gives what is above the break. Formats:
drivers 430 to 580, from the samples and NVIDIA's own description of the fields.

`--query-gpu=… --format=csv` is read with or without `nounits`, but never without its header line. `nvlink` is read by
the module of that name. N/A is a reading where the GPU's model has no such thing (`gpu_models`), else it is none.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Optional, Tuple

from workflows.programs.parsers.gpu_models import lacks
from workflows.programs.parsers.nvlink import is_nvlink, parse_nvlink
from workflows.programs.parsers.text import (
    ParsedOutput,
    ToolReadings,
    amount,
    close_readings,
    is_no_figure,
    measure,
    whole_lines,
)

CSV_FIGURES: Mapping[str, str] = {
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
CSV_WORDS: Mapping[str, str] = {
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
CSV_SET_CLOCKS: Mapping[str, str] = {
    "clocks.applications.graphics": "gpu_clock_set",
    "clocks.applications.gr": "gpu_clock_set",
}
"""What a person wants applications to run at: words, since newer drivers and desktop cards have no such wish."""
CSV_FLAGS: Mapping[str, str] = {
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
_CSV_ECC = re.compile(r"ecc\.errors\.(un)?corrected\.(volatile|aggregate)\.(\w{2,20})")
_THROTTLE = re.compile(r"clocks_(?:event|throttle)_reasons\.(hw_\w{4,24}|sw_thermal_slowdown|sw_power_cap)")
_ON = {"yes": True, "active": True, "1": True, "no": False, "not active": False, "0": False}


def _columns(line: str) -> List[Tuple[str, str]]:
    """(field, unit) of a header line; empty where it is none."""
    columns: List[Tuple[str, str]] = []
    for cell in line.split(","):
        name, _, unit = cell.strip().partition(" [")
        columns.append((name, unit.rstrip("]")))
    names = (*CSV_FIGURES, *CSV_WORDS, *CSV_SET_CLOCKS, *CSV_FLAGS, *SUBJECTS)
    known = sum(1 for name, _ in columns if name in names)
    other = sum(1 for name, _ in columns if _CSV_ECC.fullmatch(name) or _THROTTLE.fullmatch(name))
    return columns if len(columns) > 1 and known + other >= 2 else []


def clock_word(text: str) -> str:
    """`1980 MHz` of that or of `1980`; `no wish` where the driver knows no wished clock; "" for anything else."""
    clock = amount(text.replace("MHz", "").strip())
    if clock is not None:
        return f"{clock:g} MHz"
    return NO_WISH if is_no_figure(text.strip("[]")) else ""


def is_csv(lines: List[str]) -> bool:
    """Whether one of the first lines is a header of known fields."""
    return any(_columns(line) for line in lines[:20] if "," in line)


def parse_csv(lines: List[str], text: str, cut: bool) -> ParsedOutput:
    """Readings of each row. How many rows there should be is known only where `count` was asked for."""
    results = ToolReadings()
    columns: List[Tuple[str, str]] = []
    header = ""
    for line in lines:
        if not columns:
            columns, header = _columns(line) if "," in line else [], line
            continue
        if line == header or _lost(results, line):
            continue
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == len(columns):
            _row(results, columns, cells, line)
        elif line.strip():
            results.note("a row has not as many cells as the header")
    return close_readings(results, "nvidia-smi --query-gpu", text, cut)


def _row(results: ToolReadings, columns: List[Tuple[str, str]], cells: List[str], line: str) -> None:
    by_name: Dict[str, str] = {name: cell for (name, _), cell in zip(columns, cells)}  # noqa: B905  (3.9)
    subject = next((f"gpu {by_name[name].lower()}" for name in SUBJECTS if by_name.get(name)), "")
    model = next((cell for name, cell in by_name.items() if CSV_WORDS.get(name) == "product_name"), "")
    for (name, unit), cell in zip(columns, cells):  # noqa: B905  (3.9)
        if is_no_figure(cell):
            _nothing(results, name, model, subject, line)
        if name in CSV_WORDS:
            results.word(CSV_WORDS[name], cell, "" if name == "driver_version" else subject, line)
            if name == "mig.mode.current" and cell == "Enabled":
                results.note(f"{subject} is split into MIG devices: its figures are not those of a whole GPU")
        elif name in CSV_SET_CLOCKS:
            results.word(CSV_SET_CLOCKS[name], clock_word(cell), subject, line)
        elif name in ("gpu_recovery_action", "recovery_action"):
            results.flag("gpu_recovery_needed", cell != "None", cell, subject, line)
        elif not is_no_figure(cell):
            _figure(results, name, unit, cell, subject, line)


def _nothing(results: ToolReadings, name: str, model: str, subject: str, line: str) -> None:
    """A field without a figure: the model has no such thing, or nothing is known."""
    quantity, more = _quantity(name)
    quantity = quantity or CSV_WORDS.get(name) or CSV_FLAGS.get(name)
    if quantity is not None and lacks(model, quantity):
        results.absent(quantity, subject + more, line)


def _figure(results: ToolReadings, name: str, unit: str, cell: str, subject: str, line: str) -> None:
    quantity, more = _quantity(name)
    throttle = _THROTTLE.fullmatch(name)
    flag = CSV_FLAGS.get(name) or (f"throttle_{throttle.group(1)}" if throttle else None)
    if flag is not None and cell.lower() in _ON:
        results.flag(flag, _ON[cell.lower()], cell, subject, line)
    elif quantity is not None:
        measured = measure(cell, unit or UNITS_OF.get(quantity, ""))
        if measured is None:
            results.note(f"{subject}: {name} reads {cell[:40]}")
            return
        results.figure(quantity, measured[0], measured[1], "" if name == "count" else subject + more, line)


def _quantity(name: str) -> Tuple[Optional[str], str]:
    ecc = _CSV_ECC.fullmatch(name)
    if ecc is None:
        return CSV_FIGURES.get(name), ""
    quantity = "ecc_uncorrectable" if ecc.group(1) else "ecc_correctable"
    part = ecc.group(3)
    return quantity + ("_lifetime" if ecc.group(2) == "aggregate" else ""), "" if part == "total" else f" {part}"


TOOL = "nvidia-smi"

NVIDIA_SMI_FIGURES: Mapping[str, Tuple[str, str]] = {
    "temperature/gpu_current_temp": ("gpu_temperature", ""),
    "temperature/gpu_temp": ("gpu_temperature", ""),
    "temperature/gpu_tlimit_temp": ("gpu_temperature_margin", ""),
    "temperature/gpu_temp_tlimit": ("gpu_temperature_margin", ""),
    "temperature/memory_current_temp": ("gpu_memory_temperature", ""),
    "temperature/memory_temp": ("gpu_memory_temperature", ""),
    "gpu_power_readings/power_draw": ("power", ""),
    "gpu_power_readings/average_power_draw": ("power", ""),
    "gpu_power_readings/instantaneous_power_draw": ("power", " instant"),
    "gpu_power_readings/instant_power_draw": ("power", " instant"),
    "power_readings/power_draw": ("power", ""),
    "gpu_power_readings/current_power_limit": ("power_limit", ""),
    "power_readings/power_limit": ("power_limit", ""),
    "clocks/sm": ("gpu_clock", ""),
    "clocks/sm_clock": ("gpu_clock", ""),
    "clocks/memory": ("memory_clock", ""),
    "clocks/mem_clock": ("memory_clock", ""),
    "max_clocks/sm": ("gpu_clock_max", ""),
    "max_clocks/sm_clock": ("gpu_clock_max", ""),
    "max_clocks/memory": ("memory_clock_max", ""),
    "max_clocks/mem_clock": ("memory_clock_max", ""),
    "pcie_generation/current": ("pcie_generation", ""),
    "pcie_gen/current_link_gen": ("pcie_generation", ""),
    "pcie_generation/max": ("pcie_generation_max", ""),
    "pcie_gen/max_link_gen": ("pcie_generation_max", ""),
    "link_width/current": ("pcie_link_width", ""),
    "link_widths/current_link_width": ("pcie_link_width", ""),
    "link_width/max": ("pcie_link_width_max", ""),
    "link_widths/max_link_width": ("pcie_link_width_max", ""),
    "pci/replays_since_reset": ("pcie_replays", ""),
    "pci/replay_counter": ("pcie_replays", ""),
    "fb_memory_usage/total": ("gpu_memory_total", ""),
    "fb_memory_usage/used": ("gpu_memory_used", ""),
    "utilization/gpu": ("gpu_utilization", ""),
    "utilization/gpu_util": ("gpu_utilization", ""),
    "remapped_rows/correctable_error": ("rows_remapped_correctable", ""),
    "remapped_rows/remapped_row_corr": ("rows_remapped_correctable", ""),
    "remapped_rows/uncorrectable_error": ("rows_remapped_uncorrectable", ""),
    "remapped_rows/remapped_row_unc": ("rows_remapped_uncorrectable", ""),
    "retired_pages/single_bit_ecc": ("pages_retired", " single bit"),
    "retired_pages/double_bit_ecc": ("pages_retired", " double bit"),
    "multiple_single_bit_retirement/retired_count": ("pages_retired", " single bit"),
    "double_bit_retirement/retired_count": ("pages_retired", " double bit"),
}
"""`section/field` -> (quantity, what is added to the subject)."""

NVIDIA_SMI_WORDS: Mapping[str, str] = {
    "product_name": "product_name",
    "minor_number": "minor_number",
    "vbios_version": "vbios_version",
    "persistence_mode": "persistence_mode",
    "ecc_mode/current": "ecc_mode",
    "ecc_mode/current_ecc": "ecc_mode",
    "mig_mode/current": "mig_mode",
    "mig_mode/current_mig": "mig_mode",
    "fabric/state": "fabric_state",
    "fabric/status": "fabric_status",
}
NVIDIA_SMI_SET_CLOCKS: Mapping[str, str] = {
    "applications_clocks/graphics": "gpu_clock_set",
    "applications_clocks/graphics_clock": "gpu_clock_set",
}
"""What a person wants applications to run at, as a word."""
NVIDIA_SMI_FLAGS: Mapping[str, str] = {
    "remapped_rows/pending": "row_remap_pending",
    "remapped_rows/remapped_row_pending": "row_remap_pending",
    "remapped_rows/remapping_failure_occurred": "row_remap_failure",
    "remapped_rows/remapped_row_failure": "row_remap_failure",
    "retired_pages/pending_page_blacklist": "page_retirement_pending",
    "retired_pages/pending_retirement": "page_retirement_pending",
    "gpu_reset_status/reset_required": "gpu_reset_required",
    "gpu_reset_status/drain_and_reset_recommended": "gpu_drain_recommended",
    "aggregate/sram_threshold_exceeded": "sram_threshold_exceeded",
}
"""Yes or No."""
MEANS: Mapping[str, Tuple[str, str]] = {
    "gpu_reset_status/reset_required": ("gpu_recovery_needed", " reset"),
    "gpu_reset_status/drain_and_reset_recommended": ("gpu_recovery_needed", " drain"),
    "ecc_errors/channel_repair_pending": ("gpu_recovery_needed", " channel repair"),
    "ecc_errors/tpc_repair_pending": ("gpu_recovery_needed", " processor repair"),
    "remapped_rows/remapping_failure_occurred": ("gpu_replacement_needed", " rows"),
    "remapped_rows/remapped_row_failure": ("gpu_replacement_needed", " rows"),
    "aggregate/sram_threshold_exceeded": ("gpu_replacement_needed", " sram"),
    "ecc_errors/unrepairable_memory": ("gpu_replacement_needed", " memory"),
}
"""Yes or No that come to the same; each driver tells some of them: (what it comes to, what is added to the subject)."""
_MEANINGS: Tuple[Tuple[str, Tuple[str, str], str], ...] = (
    *((key, means, means[0]) for key, means in NVIDIA_SMI_FIGURES.items()),
    *((key, (quantity, ""), quantity) for key, quantity in (*NVIDIA_SMI_WORDS.items(), *NVIDIA_SMI_FLAGS.items())),
    *((key, means, NVIDIA_SMI_FLAGS.get(key, means[0])) for key, means in MEANS.items()),
)
"""`section/field`, what it comes to, and the quantity by which is known whether a model has it."""
THROTTLES = frozenset(
    ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown", "sw_power_cap")
)
"""Reasons why clocks are held down that a test may want to know; idle and wished clocks are none."""
_ECC = re.compile(r"(sram|dram|device_memory|total)_?(un)?(?:correctable|corrected)(?:_(parity|sec-ded|secded))?")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_NO_HANDLE = re.compile(
    r"[Uu]nable to determine the device handle for (?:GPU|gpu) ?(?:[0-9]{1,4}: ?)?"
    r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])"
)
_XML = re.compile(r"<(/?)([A-Za-z_][\w.-]{0,60})((?: [^<>]{0,200})?)>(?:([^<>]*)</([A-Za-z_][\w.-]{0,60})>)?")
_LIFETIME: Mapping[str, str] = {"volatile": "", "aggregate": "_lifetime"}


def _lose(results: ToolReadings, gpu: str, line: str) -> None:
    """The driver no longer reaches that GPU; told once."""
    if not any((one.quantity, one.subject) == ("gpu_lost", gpu) for one in results.readings):
        results.flag("gpu_lost", True, "GPU is lost", gpu, line)


def _lost(results: ToolReadings, line: str) -> bool:
    """Whether the line says that a GPU is lost, which is kept then."""
    hit = _NO_HANDLE.search(line)
    if hit is not None:
        _lose(results, f"gpu {hit.group(1).lower()}", line)
    return hit is not None


class _Query:
    """What is known while the lines go by."""

    def __init__(self) -> None:
        self.results = ToolReadings()
        self.gpu = ""
        self.model = ""
        self.expected = 0
        self.lines_of: Dict[str, int] = {}

    def field(self, path: List[str], name: str, value: str, line: str) -> None:
        """One field at a path of sections."""
        if not self.gpu:
            self._of_node(name, value, line)
            return
        if any(section.startswith("mig_device") for section in path):
            return
        before = len(self.results.readings)
        self._field_of_gpu(path, name, value, line)
        if name not in ("process_id", "pid"):
            self.lines_of[self.gpu] += len(self.results.readings) - before
        if value in ("Unknown Error", "GPU is lost", "ERR!", "[Unknown Error]", "GPU requires reset"):
            self.results.note(f"{self.gpu}: a field reads {value}")
            if value == "GPU is lost":
                _lose(self.results, self.gpu, line)

    def _field_of_gpu(self, path: List[str], name: str, value: str, line: str) -> None:
        section = path[-1] if path else ""
        key = f"{section}/{name}" if section else name
        if key in MEANS and value in ("Yes", "No"):
            quantity, more = MEANS[key]
            self.results.flag(quantity, value == "Yes", value, self.gpu + more, line)
        if not self._known(key, section, name, value, line):
            self._special(path, name, value, line)
        if is_no_figure(value):
            self._nothing(path, key, name, line)

    def _nothing(self, path: List[str], key: str, name: str, line: str) -> None:
        """A field or a whole section without figures: the model has no such thing, or nothing is known."""
        span = next((part for part in path[-2:] if part in _LIFETIME), None)
        hit = _ECC.fullmatch(name) if span is not None and "ecc_errors" in path else None
        if hit is not None and span is not None:
            quantity = ("ecc_uncorrectable" if hit.group(2) else "ecc_correctable") + _LIFETIME[span]
            part = " ".join(word for word in (hit.group(1), hit.group(3)) if word)
            found = {(quantity, f" {part}"): quantity}
        else:
            found = {means: quantity for one, means, quantity in _MEANINGS if one == key or one.startswith(f"{name}/")}
        for (quantity, more), witness in found.items():
            if lacks(self.model, witness) or lacks(self.model, quantity):
                self.results.absent(quantity, self.gpu + more, line)

    def _of_node(self, name: str, value: str, line: str) -> None:
        if name == "driver_version":
            self.results.version = value[:40]
            self.results.word("driver_version", value, "", line)
        elif name == "cuda_version":
            self.results.word("cuda_version", value, "", line)
        elif name == "attached_gpus":
            count = amount(value)
            if self.results.figure("gpu_count", count, "count", "", line):
                self.expected = int(count or 0)

    def begin(self, bus: str) -> None:
        """A GPU's part begins."""
        self.gpu, self.model = f"gpu {bus.lower()}", ""
        self.lines_of.setdefault(self.gpu, 0)

    def _known(self, key: str, section: str, name: str, value: str, line: str) -> bool:
        if key in NVIDIA_SMI_FIGURES:
            quantity, more = NVIDIA_SMI_FIGURES[key]
            measured = measure(value)
            if measured is not None:
                self.results.figure(quantity, measured[0], measured[1], self.gpu + more, line)
        elif key in NVIDIA_SMI_WORDS:
            self.model = value if key == "product_name" else self.model
            self.results.word(NVIDIA_SMI_WORDS[key], value, self.gpu, line)
            if NVIDIA_SMI_WORDS[key] == "mig_mode" and value == "Enabled":
                self.results.note(f"{self.gpu} is split into MIG devices: its figures are not those of a whole GPU")
        elif key in NVIDIA_SMI_FLAGS:
            if value in ("Yes", "No"):
                self.results.flag(NVIDIA_SMI_FLAGS[key], value == "Yes", value, self.gpu, line)
        elif key not in MEANS:
            return self._throttle(section, name, value, line)
        return True

    def _throttle(self, section: str, name: str, value: str, line: str) -> bool:
        if section not in ("clocks_event_reasons", "clocks_throttle_reasons"):
            return False
        reason = name.replace("clocks_event_reason_", "").replace("clocks_throttle_reason_", "")
        if reason in THROTTLES and value in ("Active", "Not Active"):
            self.results.flag(f"throttle_{reason}", value == "Active", value, self.gpu, line)
        return True

    def _special(self, path: List[str], name: str, value: str, line: str) -> None:
        span = next((part for part in path[-2:] if part in _LIFETIME), None)
        if span is not None and "ecc_errors" in path:
            self._ecc(path[-1], span, name, value, line)
        elif name in ("gpu_recovery_action", "recovery_action"):
            self.results.flag("gpu_recovery_needed", value != "None", value, self.gpu, line)
        elif "/".join((*path[-1:], name)) in NVIDIA_SMI_SET_CLOCKS:
            self.results.word(NVIDIA_SMI_SET_CLOCKS[f"{path[-1]}/{name}"], clock_word(value), self.gpu, line)
        elif name in ("process_id", "pid") and amount(value) is not None:
            self.results.word("gpu_process", value, self.gpu, line)

    def _ecc(self, section: str, span: str, name: str, value: str, line: str) -> None:
        old = {"single_bit": "ecc_correctable", "double_bit": "ecc_uncorrectable"}.get(section)
        if old is not None:
            if name == "total":
                self.results.figure(old + _LIFETIME[span], amount(value), "count", self.gpu, line)
            return
        hit = _ECC.fullmatch(name)
        if hit:
            quantity = "ecc_uncorrectable" if hit.group(2) else "ecc_correctable"
            part = " ".join(word for word in (hit.group(1), hit.group(3)) if word)
            self.results.figure(quantity + _LIFETIME[span], amount(value), "count", f"{self.gpu} {part}", line)

    def missing(self, ended: bool) -> str:
        """What should have been told and was not."""
        if not ended:
            return "the end of the document is missing"
        if len(self.lines_of) < self.expected:
            return f"only {len(self.lines_of)} of {self.expected} GPUs are told of"
        if self.lines_of and min(self.lines_of.values()) < max(self.lines_of.values()):
            self.results.note("less is told of one GPU than of another")
        return ""


def parse(text: str) -> ParsedOutput:
    """Readings of `nvidia-smi -q`, `-q -x`, `--query-gpu=… --format=csv`, `nvlink -s` or `nvlink -e`.

    Subjects: `gpu <bus id>`, of ECC counters with the memory (`gpu 00000000:10:1c.0 dram`), of tables `gpu <index>`.
    """
    lines, cut = whole_lines(text)
    if is_csv(lines):
        return parse_csv(lines, text, cut)
    if is_nvlink(lines):
        return parse_nvlink(lines, text, cut)
    if any("<nvidia_smi_log" in line for line in lines[:20]):
        return _parse_xml(lines, text, cut)
    return _parse_text(lines, text, cut)


def _name(text: str) -> str:
    return text.strip().lower().replace(" ", "_").replace(".", "")


def _parse_text(lines: List[str], text: str, cut: bool) -> ParsedOutput:
    query = _Query()
    sections: List[Tuple[int, str]] = []
    for line in lines:
        if _lost(query.results, line):
            continue
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        header = _GPU.fullmatch(stripped) if depth == 0 else None
        if header:
            query.begin(header.group(1))
            sections = []
            continue
        while sections and sections[-1][0] >= depth:
            sections.pop()
        name, colon, value = stripped.partition(" : ")
        if colon:
            query.field([section for _, section in sections], _name(name), value.strip(), line)
        elif stripped:
            sections = [*sections[:7], (depth, _name(stripped))]
    return close_readings(query.results, TOOL, text, cut, query.missing(ended=True))


def _parse_xml(lines: List[str], text: str, cut: bool) -> ParsedOutput:
    query = _Query()
    path: List[str] = []
    ended = False
    for line in lines:
        hit = _XML.fullmatch(line.strip())
        if hit is None:
            _lost(query.results, line)
            continue
        closing, tag, attributes, value, end = hit.groups()
        if closing:
            ended = ended or tag == "nvidia_smi_log"
            del path[-1:]
        elif end is not None:
            query.field(path[2:], tag.lower(), value.strip(), line)
        else:
            path = [*path[:15], tag.lower()]
            bus = re.search(r'id="([0-9A-Fa-f:.]{7,20})"', attributes)
            if tag == "gpu" and bus:
                query.begin(bus.group(1))
    return close_readings(query.results, TOOL, text, cut, query.missing(ended))
