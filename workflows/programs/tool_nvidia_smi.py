"""Reads nvidia-smi: the full query as text (`-q`, also `-d` parts) and as XML (`-q -x`), and hands tables on.

Text and XML tell the same sections, so both become paths (`ecc_errors/volatile/dram_correctable`) of one table. XML
is read line by line, as the tool prints it, so that a broken-off document still tells what stood above the break.
Formats: drivers 430 to 580, from the samples and NVIDIA's own description of the fields.
"""

from __future__ import annotations

import re
from typing import Dict, List, Mapping, Tuple

from workflows.programs.readings import Parsed
from workflows.programs.tool_nvidia_csv import clock_word, is_csv, parse_csv
from workflows.programs.tool_nvlink import is_nvlink, parse_nvlink
from workflows.programs.tool_text import Told, amount, close, measure, whole_lines

TOOL = "nvidia-smi"

FIGURES: Mapping[str, Tuple[str, str]] = {
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

WORDS: Mapping[str, str] = {
    "product_name": "product_name",
    "vbios_version": "vbios_version",
    "persistence_mode": "persistence_mode",
    "ecc_mode/current": "ecc_mode",
    "ecc_mode/current_ecc": "ecc_mode",
    "mig_mode/current": "mig_mode",
    "mig_mode/current_mig": "mig_mode",
    "fabric/state": "fabric_state",
    "fabric/status": "fabric_status",
}
SET_CLOCKS: Mapping[str, str] = {
    "applications_clocks/graphics": "gpu_clock_set",
    "applications_clocks/graphics_clock": "gpu_clock_set",
}
"""What a person wants applications to run at, as a word."""
FLAGS: Mapping[str, str] = {
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
THROTTLES = frozenset(
    ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown", "sw_power_cap")
)
"""Reasons why clocks are held down that a test may want to know; idle and wished clocks are none."""
_ECC = re.compile(r"(sram|dram|device_memory|total)_?(un)?(?:correctable|corrected)(?:_(parity|sec-ded|secded))?")
_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_XML = re.compile(r"<(/?)([A-Za-z_][\w.-]{0,60})((?: [^<>]{0,200})?)>(?:([^<>]*)</([A-Za-z_][\w.-]{0,60})>)?")
_LIFETIME: Mapping[str, str] = {"volatile": "", "aggregate": "_lifetime"}


class _Query:
    """What is known while the lines go by."""

    def __init__(self) -> None:
        self.told = Told()
        self.gpu = ""
        self.expected = 0
        self.lines_of: Dict[str, int] = {}

    def field(self, path: List[str], name: str, value: str, line: str) -> None:
        """One field at a path of sections."""
        if not self.gpu:
            self._of_node(name, value, line)
            return
        if any(section.startswith("mig_device") for section in path):
            return
        before = len(self.told.readings)
        section = path[-1] if path else ""
        key = f"{section}/{name}" if section else name
        if key in MEANS and value in ("Yes", "No"):
            quantity, more = MEANS[key]
            self.told.flag(quantity, value == "Yes", value, self.gpu + more, line)
        if not self._known(key, section, name, value, line):
            self._special(path, name, value, line)
        if name not in ("process_id", "pid"):
            self.lines_of[self.gpu] += len(self.told.readings) - before
        if value in ("Unknown Error", "GPU is lost", "ERR!", "[Unknown Error]", "GPU requires reset"):
            self.told.note(f"{self.gpu}: a field reads {value}")

    def _of_node(self, name: str, value: str, line: str) -> None:
        if name == "driver_version":
            self.told.version = value[:40]
            self.told.word("driver_version", value, "", line)
        elif name == "cuda_version":
            self.told.word("cuda_version", value, "", line)
        elif name == "attached_gpus":
            count = amount(value)
            if self.told.figure("gpu_count", count, "count", "", line):
                self.expected = int(count or 0)

    def begin(self, bus: str) -> None:
        """A GPU's part begins."""
        self.gpu = f"gpu {bus.lower()}"
        self.lines_of.setdefault(self.gpu, 0)

    def _known(self, key: str, section: str, name: str, value: str, line: str) -> bool:
        if key in FIGURES:
            quantity, more = FIGURES[key]
            measured = measure(value)
            if measured is not None:
                self.told.figure(quantity, measured[0], measured[1], self.gpu + more, line)
        elif key in WORDS:
            self.told.word(WORDS[key], value, self.gpu, line)
            if WORDS[key] == "mig_mode" and value == "Enabled":
                self.told.note(f"{self.gpu} is split into MIG devices: its figures are not those of a whole GPU")
        elif key in FLAGS:
            if value in ("Yes", "No"):
                self.told.flag(FLAGS[key], value == "Yes", value, self.gpu, line)
        elif key not in MEANS:
            return self._throttle(section, name, value, line)
        return True

    def _throttle(self, section: str, name: str, value: str, line: str) -> bool:
        if section not in ("clocks_event_reasons", "clocks_throttle_reasons"):
            return False
        reason = name.replace("clocks_event_reason_", "").replace("clocks_throttle_reason_", "")
        if reason in THROTTLES and value in ("Active", "Not Active"):
            self.told.flag(f"throttle_{reason}", value == "Active", value, self.gpu, line)
        return True

    def _special(self, path: List[str], name: str, value: str, line: str) -> None:
        span = next((part for part in path[-2:] if part in _LIFETIME), None)
        if span is not None and "ecc_errors" in path:
            self._ecc(path[-1], span, name, value, line)
        elif name in ("gpu_recovery_action", "recovery_action"):
            self.told.flag("gpu_recovery_needed", value != "None", value, self.gpu, line)
        elif "/".join((*path[-1:], name)) in SET_CLOCKS:
            self.told.word(SET_CLOCKS[f"{path[-1]}/{name}"], clock_word(value), self.gpu, line)
        elif name in ("process_id", "pid") and amount(value) is not None:
            self.told.word("gpu_process", value, self.gpu, line)

    def _ecc(self, section: str, span: str, name: str, value: str, line: str) -> None:
        old = {"single_bit": "ecc_correctable", "double_bit": "ecc_uncorrectable"}.get(section)
        if old is not None:
            if name == "total":
                self.told.figure(old + _LIFETIME[span], amount(value), "count", self.gpu, line)
            return
        hit = _ECC.fullmatch(name)
        if hit:
            quantity = "ecc_uncorrectable" if hit.group(2) else "ecc_correctable"
            part = " ".join(word for word in (hit.group(1), hit.group(3)) if word)
            self.told.figure(quantity + _LIFETIME[span], amount(value), "count", f"{self.gpu} {part}", line)

    def missing(self, ended: bool) -> str:
        """What should have been told and was not."""
        if not ended:
            return "the end of the document is missing"
        if len(self.lines_of) < self.expected:
            return f"only {len(self.lines_of)} of {self.expected} GPUs are told of"
        if self.lines_of and min(self.lines_of.values()) < max(self.lines_of.values()):
            self.told.note("less is told of one GPU than of another")
        return ""


def parse(text: str) -> Parsed:
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


def _parse_text(lines: List[str], text: str, cut: bool) -> Parsed:
    query = _Query()
    sections: List[Tuple[int, str]] = []
    for line in lines:
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
    return close(query.told, TOOL, text, cut, query.missing(ended=True))


def _parse_xml(lines: List[str], text: str, cut: bool) -> Parsed:
    query = _Query()
    path: List[str] = []
    ended = False
    for line in lines:
        hit = _XML.fullmatch(line.strip())
        if hit is None:
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
    return close(query.told, TOOL, text, cut, query.missing(ended))
