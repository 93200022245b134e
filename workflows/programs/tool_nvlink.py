"""Reads `nvidia-smi nvlink -s` (state and speed of each link) and `nvlink -e` (its error counters).

Formats: drivers 450 to 580; the counters of fifth-generation links have other names than the earlier ones.
"""

from __future__ import annotations

import re
from typing import List

from workflows.programs.readings import Parsed
from workflows.programs.tool_text import Told, amount, close, figure

_GPU = re.compile(r"GPU ([0-9]{1,4}): (.{1,200}?)(?: \(UUID: ([^)]{1,80})\))?")
_STATE = re.compile(r"Link ([0-9]{1,3}): (?:([0-9.]{1,12}) GB/s|<inactive>|(inactive))")
_ERRORS = re.compile(r"Link ([0-9]{1,3}): ([A-Za-z][\w ./()-]{2,80}?)(?: Count)?: (\S{1,40})")


def is_nvlink(lines: List[str]) -> bool:
    """Whether these are GPUs with links below them."""
    heads = [line.strip() for line in lines[:40]]
    return any(_GPU.fullmatch(line) for line in heads) and any(line.startswith("Link ") for line in heads)


def parse_nvlink(lines: List[str], text: str, cut: bool) -> Parsed:
    """Readings: `nvlink_state` (1: active) and `nvlink_speed` in GB/s a link, or `nvlink_errors` by counter.

    Nothing at the end says that this was all; a GPU with fewer lines than another is noted.
    """
    told = Told()
    gpu = ""
    counts: List[int] = []
    for line in lines:
        stripped = line.strip()
        header = _GPU.fullmatch(stripped) if stripped.startswith("GPU ") else None
        if header:
            gpu = f"gpu {int(header.group(1))}"
            told.word("product_name", header.group(2), gpu, line)
            counts.append(0)
        elif gpu and stripped.startswith("Link ") and _link(told, gpu, stripped, line):
            counts[-1] += 1
    if counts and min(counts) < max(counts):
        told.note("fewer links are told of one GPU than of another")
    return close(told, "nvidia-smi nvlink", text, cut)


def _link(told: Told, gpu: str, stripped: str, line: str) -> bool:
    state = _STATE.fullmatch(stripped)
    if state:
        link = f"{gpu} link {int(state.group(1))}"
        speed = figure(state.group(2) or "")
        told.flag("nvlink_state", speed is not None and speed > 0, "active" if speed else "inactive", link, line)
        told.figure("nvlink_speed", speed, "GB/s", link, line)
        return True
    errors = _ERRORS.fullmatch(stripped)
    if errors is None:
        return False
    name = errors.group(2).lower().replace(" errors", "").replace(" error", "")
    return told.figure("nvlink_errors", amount(errors.group(3)), "count", f"{gpu} link {errors.group(1)} {name}", line)
