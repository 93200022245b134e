"""GPUs that a node has lost, and what their models do not have: who is marked, by which number, as what."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.harness.health_daemons import H100, Made, Toolbox, diag, made, nvbandwidth, nvidia_smi
from workflows.programs.health import gpu_checks
from workflows.programs.health.query import Status
from workflows.programs.health.results import Result

EIGHT = [f"0000:{place:02x}:00.0" for place in range(16, 24)]
"""Places of the GPUs of `nvidia_smi(8)`."""
HANDLE = "Unable to determine the device handle for GPU 0000:13:00.0: Unknown Error\n"


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Toolbox:
    toolbox = Toolbox(tmp_path / "bin").healthy(8)
    monkeypatch.setenv("PATH", toolbox.path)
    return toolbox


def without(index: int, text: str, numbered: bool = False) -> str:
    """The query without one GPU; `numbered`: each has the number of its own device file."""
    head, *blocks = text.split("\nGPU 0000")
    if numbered:
        blocks = [block.replace("\n", f"\n    Minor Number : {at}\n", 1) for at, block in enumerate(blocks)]
    del blocks[index]
    return "\nGPU 0000".join([head.replace(": 8", ": 7"), *blocks])


def check(one: Made, name: str) -> Result:
    return one.daemon.check(name, Status())


def verdicts(result: Result) -> dict[str, str]:
    return {device.identity: device.verdict for device in result.devices}


def only(number: str) -> dict[str, str]:
    """GPU `number` of eight failed, the others passed."""
    return {str(at): "fail" if str(at) == number else "pass" for at in range(8)}


@pytest.mark.parametrize("how", ["on the bus", "seen before", "named by the tool", "by its device file"])
def test_the_gpu_that_fell_off_the_bus_is_marked_and_no_other(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    one = made(expected=8)
    if how == "seen before":
        assert check(one, "remapped").verdict == "pass"
    if how == "on the bus":
        monkeypatch.setattr(gpu_checks, "on_bus", lambda vendor: EIGHT if vendor == "nvidia" else [])
    text = without(3, nvidia_smi(8), numbered=how == "by its device file")
    box.prints("nvidia-smi", (HANDLE if how == "named by the tool" else "") + text)
    for name in ("remapped", "gpupower"):
        found = check(one, name)
        assert (found.verdict, verdicts(found)) == ("fail", only("3")), found.why
        assert found.why == "GPU 3 is lost: 7 of 8 are listed"
    assert [device.lost for device in found.devices] == [at == 3 for at in range(8)]
    assert one.text("/remapped").endswith("FAIL\n0 0 0 1 0 0 0 0\n")
    assert one.metrics("autopilot_health_checks")["health=remapped,deviceid=3"] == 1.0
    box.prints("nvbandwidth", nvbandwidth(*[55.3] * 7))
    figures = check(one, "pciebw")
    assert verdicts(figures) == only("3")
    assert [device.value for device in figures.devices] == [None if at == 3 else 55.3 for at in range(8)]


def test_a_lost_gpu_of_which_nobody_knows_the_place_is_a_failure_of_no_other(box: Toolbox) -> None:
    box.prints("nvidia-smi", without(3, nvidia_smi(8)))
    found = check(made(expected=8), "remapped")
    assert verdicts(found) == {**{str(at): "pass" for at in range(7)}, "lost": "fail"}
    assert found.why == "1 GPU of which nobody can tell the number is lost: 7 of 8 are listed"


def test_gpus_behind_the_end_of_a_list_that_broke_off_are_unknown_not_lost(box: Toolbox) -> None:
    text = nvidia_smi(8)
    box.prints("nvidia-smi", text[: text.index("GPU 00000000:15")])
    found = check(made(expected=8), "remapped")
    assert (found.verdict, list(verdicts(found).values())) == ("unknown", ["pass"] * 5 + ["unknown"] * 3)


def errors(deferred: int) -> dict[str, int]:
    return {"total_correctable_count": 0, "total_uncorrectable_count": 0, "total_deferred_count": deferred}


def amd(box: Toolbox, indices: list[int], places: list[str], model: str, violation: str = "NOT ACTIVE") -> None:
    """An AMD node whose tool numbers the GPUs that are left from 0 on."""
    throttle = {"socket_thermal_violation_status": violation}
    told = [{"gpu": index, "throttle": throttle, "ecc": errors(2 if index == 1 else 0)} for index in indices]
    listed = [{"gpu": index, "bdf": place} for index, place in zip(indices, places, strict=True)]
    asic = [{"gpu": index, "asic": {"market_name": model}} for index in indices]
    (box.folder / "list.json").write_text(json.dumps(listed))
    (box.folder / "asic.json").write_text(json.dumps(asic))
    cases = f'case "$1" in list) cat {box.folder}/list.json; exit 0;; static) cat {box.folder}/asic.json; exit 0;; esac'
    box.prints("amd-smi", json.dumps(told) + "\n", first=cases)
    for tool in ("nvidia-smi", "nvbandwidth", "dcgmi"):
        (box.folder / tool).unlink(missing_ok=True)


def test_amd_s_tool_numbers_what_is_left_and_the_lost_one_is_marked_by_its_place(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_checks, "on_bus", lambda vendor: EIGHT if vendor == "amd" else [])
    amd(box, list(range(7)), [place for place in EIGHT if place != EIGHT[3]], "AMD Instinct MI300X")
    found = check(made(), "gpupower")
    assert (found.verdict, verdicts(found)) == ("fail", only("3")), found.why
    amd(box, [0, 1, 2, 4, 5, 6, 7], [place for place in EIGHT if place != EIGHT[3]], "AMD Instinct MI300X")
    assert verdicts(check(made(), "gpupower")) == only("3"), "and where it does not number them anew"


def test_deferred_errors_fail_the_first_level_and_name_the_gpu(box: Toolbox) -> None:
    amd(box, [0, 1], EIGHT[:2], "AMD Instinct MI300X")
    found = check(made(expected=2), "dcgm")
    assert (found.verdict, found.failing) == ("fail", ("ecc.1",))
    assert found.why.startswith("GPU 1: ")
    assert "deferred" in found.why


@pytest.mark.parametrize(
    ("model", "verdict"), [("AMD Instinct MI300X", "unknown"), ("AMD Instinct MI210", "pass"), ("", "unknown")]
)
def test_what_an_older_amd_model_never_tells_is_no_doubt(box: Toolbox, model: str, verdict: str) -> None:
    amd(box, [0, 1], EIGHT[:2], model, violation="N/A")
    assert check(made(expected=2), "gpupower").verdict == verdict


@pytest.mark.parametrize(
    ("model", "verdict"),
    [
        *((one, "pass") for one in ("NVIDIA A10", "NVIDIA L4", "Tesla T4", "Tesla V100-SXM2-32GB", "NVIDIA L40S")),
        *((one, "unknown") for one in ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "NVIDIA B200", "")),
    ],
)
def test_rows_are_remapped_where_the_model_can_and_not_applicable_elsewhere(
    box: Toolbox, model: str, verdict: str
) -> None:
    rows, rest = H100.index("    Remapped Rows\n"), H100.index("    Temperature\n")
    text = H100[:rows] + "    Remapped Rows                         : N/A\n" + H100[rest:]
    box.prints("nvidia-smi", text.replace("NVIDIA H100 80GB HBM3", model))
    found = check(made(expected=1), "remapped")
    assert found.verdict == verdict, found.why


def test_what_a_diagnostic_says_of_settings_is_a_warning_and_of_hardware_none(box: Toolbox) -> None:
    told = json.loads(diag({"software": {0: "Warn", 1: "Pass"}}))
    warned = told["DCGM Diagnostic"]["test_categories"][0]["tests"][0]["results"][0]
    for severity, verdict in ((5, "pass"), (1, "pass"), (2, "unknown"), (6, "unknown")):
        warned["warnings"] = [{"warning": "Environment variable CUDA_PROFILE is set", "error_severity": severity}]
        box.prints("dcgmi", json.dumps(told) + "\n")
        found = check(made(expected=2), "dcgm")
        assert found.verdict == verdict, severity
        assert "gpu 0" in found.why.lower()
        assert "software: Warn; Environment variable CUDA_PROFILE is set" in found.why
    warned["warnings"] = [{"warning": "Environment variable CUDA_PROFILE is set", "error_severity": 5}]
    box.prints("dcgmi", json.dumps(told) + "\n")
    text = made(expected=2).text("/dcgm")
    assert "[[ DCGM ]] SUCCESS\nwarning: GPU 0: software: Warn" in text
    assert "Node Status: OK" in made(expected=2).text("/status?check=dcgm")


def test_the_text_of_a_deeper_level_names_the_gpus(box: Toolbox) -> None:
    box.prints("dcgmi", diag({"pcie": {0: "Pass", 3: "Fail"}, "memory": {5: "Fail"}}))
    one = made(expected=8)
    for level in (1, 2, 3):
        text = one.text(f"/dcgm?r={level}")
        assert "[[ DCGM ]] FAIL\nGPU 3: pcie: Fail; GPU 5: memory: Fail\n" in text
