"""Reads `nvidia-smi nvlink`: `-s` gives state and speed of each link, `-e` its error counters.

Formats: drivers 450 to 580; the counters of fifth-generation links have other names than the earlier ones. A GPU
without NVLink has a line of its own and none below it.
"""

from __future__ import annotations

import re
from typing import List

from workflows.programs.parsers.gpu_models import lacks
from workflows.programs.parsers.text import ParsedOutput, ToolReadings, amount, close_readings, figure

NVLINK = ("nvlink_state", "nvlink_speed", "nvlink_errors")
_NVLINK_GPU = re.compile(r"GPU ([0-9]{1,4}): (.{1,200}?)(?: \(UUID: ([^)]{1,80})\))?")
_STATE = re.compile(r"Link ([0-9]{1,3}): (?:([0-9.]{1,12}) GB/s|<inactive>|(inactive))")
_ERRORS = re.compile(r"Link ([0-9]{1,3}): ([A-Za-z][\w ./()-]{2,80}?)(?: Count)?: (\S{1,40})")


def is_nvlink(lines: List[str]) -> bool:
    """Whether these are GPUs with links below them, or GPUs that have none."""
    heads = [line.strip() for line in lines[:40]]
    found = [header.group(2) for header in map(_NVLINK_GPU.fullmatch, heads) if header]
    linkless = any(lacks(model, "nvlink_state") for model in found)
    return bool(found) and (linkless or any(line.startswith("Link ") for line in heads))


def parse_nvlink(lines: List[str], text: str, cut: bool) -> ParsedOutput:
    """Readings: `nvlink_state` (1: active) and `nvlink_speed` in GB/s a link, or `nvlink_errors` by counter.

    Nothing at the end says that this was all; a GPU with fewer lines than another is noted.
    """
    results = ToolReadings()
    gpu = ""
    counts: List[int] = []
    for line in lines:
        stripped = line.strip()
        header = _NVLINK_GPU.fullmatch(stripped) if stripped.startswith("GPU ") else None
        if header:
            gpu = f"gpu {int(header.group(1))}"
            results.word("product_name", header.group(2), gpu, line)
            counts.append(0)
            for quantity in NVLINK:
                if lacks(header.group(2), quantity):
                    results.absent(quantity, gpu, line)
        elif gpu and stripped.startswith("Link ") and _link(results, gpu, stripped, line):
            counts[-1] += 1
    if counts and min(counts) < max(counts):
        results.note("fewer links are told of one GPU than of another")
    return close_readings(results, "nvidia-smi nvlink", text, cut)


def _link(results: ToolReadings, gpu: str, stripped: str, line: str) -> bool:
    state = _STATE.fullmatch(stripped)
    if state:
        link = f"{gpu} link {int(state.group(1))}"
        speed = figure(state.group(2) or "")
        results.flag("nvlink_state", speed is not None and speed > 0, "active" if speed else "inactive", link, line)
        results.figure("nvlink_speed", speed, "GB/s", link, line)
        return True
    errors = _ERRORS.fullmatch(stripped)
    if errors is None:
        return False
    name = errors.group(2).lower().replace(" errors", "").replace(" error", "")
    return results.figure(
        "nvlink_errors", amount(errors.group(3)), "count", f"{gpu} link {errors.group(1)} {name}", line
    )
