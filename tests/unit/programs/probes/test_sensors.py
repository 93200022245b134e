"""What sensors of GPUs under load tell, by samples of the vendors' tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workflows.programs.parsers import amd as parsers_amd
from workflows.programs.parsers import nvidia as parsers_nvidia
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes.gpu.sensors import NVIDIA_FIELDS, TOOLS, Parse, Sensors

NVIDIA_HEAD = ", ".join(
    {"power.draw": "power.draw [W]", "clocks.sm": "clocks.sm [MHz]"}.get(name, name) for name in NVIDIA_FIELDS
)


def nvidia(*rows: str) -> str:
    return "\n".join([NVIDIA_HEAD, *rows]) + "\n"


def after(looks: list[str], parse: Parse, tmp_path: Path) -> ParsedOutput:
    """What the sensors tell after a tool printed these texts, one a look."""
    sensors = Sensors((((str(tmp_path / "tool"),), parse),))
    for number, text in enumerate(looks):
        (tmp_path / f"{number}.txt").write_text(text)
        (tmp_path / "tool").write_text(f"#!/bin/sh\ncat {tmp_path}/{number}.txt\n")
        (tmp_path / "tool").chmod(0o755)
        if not number:
            sensors = Sensors((((str(tmp_path / "tool"),), parse),))
        sensors.sample()
    return sensors.to_parsed()


def figures(parsed: ParsedOutput) -> dict[str, float | None]:
    return {f"{one.quantity} {one.subject}".strip(): one.value for one in parsed.readings}


COOL = "0, 71.00 W, 34, 345 MHz, Not Active, Not Active, Not Active, Not Active"
BUSY = "0, 690.00 W, 61, 1500 MHz, Not Active, Not Active, Not Active, Not Active"
HOT = "0, 400.00 W, 88, 900 MHz, Active, Active, Not Active, Active"


def test_power_and_clock_are_medians_and_heat_the_highest_once_the_load_has_settled(tmp_path: Path) -> None:
    looks = [nvidia(COOL.replace("34", "99")), nvidia(COOL), *[nvidia(BUSY)] * 5, nvidia(BUSY.replace("61", "64"))]
    found = after(looks, parsers_nvidia.parse, tmp_path)
    assert found.unknown == ""
    assert figures(found) == {"power gpu 0": 690.0, "gpu_clock gpu 0": 1500.0, "gpu_temperature gpu 0": 64.0} | {
        "gpus_throttled": 0.0
    }


def test_a_gpu_that_was_throttled_once_is_counted_once_with_every_reason(tmp_path: Path) -> None:
    other = BUSY.replace("0, 690", "1, 690")
    found = after([nvidia(BUSY, other)] * 4 + [nvidia(HOT, other)], parsers_nvidia.parse, tmp_path)
    [throttled] = [one for one in found.readings if one.quantity == "gpus_throttled"]
    assert throttled.value == 1.0
    assert throttled.line == "gpu 0: hw_slowdown; gpu 0: hw_thermal_slowdown; gpu 0: sw_thermal_slowdown"


def amd(violation: str, ppt: str = "NOT ACTIVE") -> str:
    one = {
        "gpu": 0,
        "power": {"socket_power": {"value": 740, "unit": "W"}},
        "temperature": {"hotspot": {"value": 80, "unit": "C"}},
        "clock": {"gfx_0": {"clk": {"value": 1900, "unit": "MHz"}}},
        "throttle": {"socket_thermal_violation_status": violation, "ppt_violation_status": ppt},
    }
    return json.dumps([one])


@pytest.mark.parametrize(
    ("violation", "ppt", "count"), [("NOT ACTIVE", "ACTIVE", 0.0), ("ACTIVE", "ACTIVE", 1.0), ("ACTIVE", "N/A", 1.0)]
)
def test_a_gpu_at_the_limit_of_its_power_is_not_throttled(
    violation: str, ppt: str, count: float, tmp_path: Path
) -> None:
    found = after([amd(violation, ppt)] * 3, parsers_amd.parse_amd_smi, tmp_path)
    assert figures(found) == {
        "power gpu 0": 740.0,
        "gpu_clock gpu 0": 1900.0,
        "gpu_temperature gpu 0 hotspot": 80.0,
        "gpus_throttled": count,
    }


def test_what_a_tool_does_not_tell_is_missing_and_said(tmp_path: Path) -> None:
    text = json.dumps({"card0": {"Average Graphics Package Power (W)": "300.0"}})
    found = after([text] * 3, parsers_amd.parse_rocm_smi, tmp_path)
    assert figures(found)["power gpu 0"] == 300.0
    assert found.unknown == "the tool does not tell gpu_temperature, gpu_clock, gpus_throttled"


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([""] * 3, "nothing was printed"),
        (["Failed to initialize NVML: Driver/library version mismatch\n"] * 3, "of different versions"),
        ([nvidia(BUSY)], "only 1 looks at the GPUs under load"),
    ],
)
def test_a_tool_that_tells_nothing_is_unknown(looks: list[str], said: str, tmp_path: Path) -> None:
    found = after(looks, parsers_nvidia.parse, tmp_path)
    assert found.readings == ()
    assert said in found.unknown


def test_one_look_that_failed_leaves_figures_and_says_so(tmp_path: Path) -> None:
    found = after([nvidia(BUSY), nvidia(BUSY), "", nvidia(BUSY)], parsers_nvidia.parse, tmp_path)
    assert figures(found)["power gpu 0"] == 690.0
    assert "nothing was printed" in found.unknown


def test_without_any_tool_nothing_is_known(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sensors = Sensors()
    sensors.sample()
    names = ", ".join(command[0] for command, _ in TOOLS)
    assert sensors.to_parsed() == ParsedOutput(unknown=f"none of {names} is here to tell power, heat and clocks")


def test_a_tool_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.programs.probes.gpu.sensors.ANSWER_SECONDS", 0.2)
    sensors = Sensors(((("sleep", "60"), parsers_nvidia.parse),))
    sensors.sample()
    assert sensors.to_parsed().unknown == "sleep did not end within 0.2 s"
