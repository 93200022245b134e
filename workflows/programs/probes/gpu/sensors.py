"""Power, heat, clocks and throttling of all GPUs while they work, as the vendor's tool tells them.

Standard library only, Python 3.9. The tool is asked again and again; its output is read by the parsers of all suites.
"""

from __future__ import annotations

import shutil
from typing import Callable, Dict, List, Sequence, Tuple

from workflows.programs.parsers import amd, nvidia
from workflows.programs.parsers.text import ParsedOutput, Reading
from workflows.programs.probes.gpu.device import median
from workflows.programs.runtime.bounded import run_program

ANSWER_SECONDS = 8.0
NVIDIA_FIELDS = (
    *("index", "power.draw", "temperature.gpu", "clocks.sm", "clocks_throttle_reasons.hw_slowdown"),
    *("clocks_throttle_reasons.hw_thermal_slowdown", "clocks_throttle_reasons.hw_power_brake_slowdown"),
    "clocks_throttle_reasons.sw_thermal_slowdown",
)
Parse = Callable[[str], ParsedOutput]
TOOLS: Tuple[Tuple[Tuple[str, ...], Parse], ...] = (
    (("nvidia-smi", f"--query-gpu={','.join(NVIDIA_FIELDS)}", "--format=csv"), nvidia.parse),
    (("amd-smi", "metric", "--power", "--temperature", "--clock", "--violation", "--json"), amd.parse_amd_smi),
    (("rocm-smi", "--showpower", "--showtemp", "--json"), amd.parse_rocm_smi),
)
"""The first that is installed is asked."""
FIGURES = ("power", "gpu_temperature", "gpu_clock")
POWER_LIMITED = ("throttle_sw_power_cap", "throttle_ppt", "throttle_power", "throttle_gfx_clk_below_host_limit_power")
"""Held down by the limit of its power, which a GPU under full load always is: not called throttled."""
SETTLING_SHARE = 0.25
"""Of the looks, the first ones: power and heat still rise."""
FEWEST = 2
SHOWN = 4


class Sensors:
    """Looks at the GPUs while they work."""

    def __init__(self, tools: Sequence[Tuple[Tuple[str, ...], Parse]] = TOOLS) -> None:
        self._tool = next((one for one in tools if shutil.which(one[0][0])), None)
        self._names = ", ".join(one[0][0] for one in tools)
        self.looks: List[ParsedOutput] = []

    def sample(self) -> None:
        """Ask once; what cannot be read is kept with its reason."""
        if self._tool is None:
            self.looks.append(ParsedOutput(unknown=f"none of {self._names} is here to tell power, heat and clocks"))
            return
        command, parse = self._tool
        ended = run_program(command, ANSWER_SECONDS)
        if ended.code is None:
            self.looks.append(ParsedOutput(unknown=ended.problem))
            return
        samples = parse(ended.output)
        if not samples.readings:
            why = f"{command[0]} ended with {ended.code}: {samples.unknown}; it said: {ended.last_words}"
            samples = ParsedOutput(unknown=why)
        self.looks.append(samples)

    def to_parsed(self) -> ParsedOutput:
        """What all looks say together: median power and clock, highest heat, and who was throttled."""
        settled = self.looks[int(len(self.looks) * SETTLING_SHARE) :]
        good = [one for one in settled if one.readings]
        why = next((one.unknown for one in self.looks if one.unknown), "")
        if len(good) < FEWEST:
            return ParsedOutput(unknown=why or f"only {len(good)} looks at the GPUs under load: give it more seconds")
        readings = [reading for one in good for reading in one.readings]
        found = _figures(readings) + _throttled(readings)
        return ParsedOutput(tuple(found), why or _missing(found))


def _figures(readings: Sequence[Reading]) -> List[Reading]:
    series: Dict[Tuple[str, str], List[Reading]] = {}
    for one in readings:
        if one.quantity in FIGURES and one.value is not None:
            series.setdefault((one.quantity, one.subject), []).append(one)
    found: List[Reading] = []
    for (quantity, subject), own in sorted(series.items()):
        values = [one.value for one in own if one.value is not None]
        figure = max(values) if quantity == "gpu_temperature" else median(values)
        line = f"{len(values)} looks under load, {min(values):g} to {max(values):g}; {own[-1].line}"
        found.append(Reading(quantity, figure, own[-1].unit, subject, line=line))
    return found


def _throttled(readings: Sequence[Reading]) -> List[Reading]:
    """How many GPUs were held down by anything but the limit of their power; none where no tool tells it."""
    flags = [one for one in readings if one.quantity.startswith("throttle_") and one.value is not None]
    own = [one for one in flags if one.quantity not in POWER_LIMITED]
    if not own:
        return []
    held = sorted({f"{one.subject}: {one.quantity[len('throttle_') :]}" for one in own if one.value})
    count = len({one.subject for one in own if one.value})
    line = "; ".join(held[:SHOWN]) or f"none of {len({one.subject for one in own})} GPUs"
    return [Reading("gpus_throttled", float(count), "count", line=line)]


def _missing(found: Sequence[Reading]) -> str:
    samples = {one.quantity for one in found}
    lacking = [name for name in (*FIGURES, "gpus_throttled") if name not in samples]
    return f"the tool does not tell {', '.join(lacking)}" if lacking else ""
