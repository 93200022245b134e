from __future__ import annotations

import re

import pytest

from profiles.hardware import HardwareProfile
from profiles.loading import load
from profiles.run import RunProfile
from tests.support.cases.rows import rows
from workflows.attempt import placeholders
from workflows.programs.demo import train

LISTED = load.list_profiles()
RUNS = [item.name for item in LISTED if item.kind == "run"]
HARDWARE = {item.name: load.load_hardware(item.name) for item in LISTED if item.kind == "hardware"}
VALUES = {"steps": "240", "seed": "7", "checkpoint_dir": "/c", "interval_steps": "20", "run_dir": "/r", "data": "/d"}

# Limits that public health checks apply to healthy nodes, or targets they drive them to. No such figure can lie above
# what the hardware can do. (hardware, quantity, figure, unit, who)
# A limit that is in use and wrong: a copy of the MI355X's figure, above what an MI300X's memory can do.
IMPOSSIBLE = ("mi300x", "hbm_bandwidth", 5.525433, "TB/s")
KINDS = {
    "bf16_dense": "TFLOP/s",
    "fp16_dense": "TFLOP/s",
    "hbm_bandwidth": "TB/s",
    "gpu_to_gpu_bandwidth": "GB/s",
    "nic_bandwidth": "Gb/s",
    "power": "W",
}


def _peak(hardware: str, quantity: str) -> tuple[float, str]:
    return next((peak.value, peak.unit) for peak in HARDWARE[hardware].peaks if peak.quantity == quantity)


@rows("profiles/shipped")
def test_no_measured_limit_lies_above_the_peak(
    hardware: str, quantity: str, figure: float, unit: str, who: str
) -> None:
    value, peak_unit = _peak(hardware, quantity)
    assert peak_unit == unit
    assert figure <= value, f"{who} asks for more than {hardware} can do"
    assert figure >= value * 0.15, "so far below the peak: one of the two is in the wrong unit"


def test_the_peaks_expose_an_impossible_limit() -> None:
    hardware, quantity, figure, unit = IMPOSSIBLE
    assert _peak(hardware, quantity)[1] == unit
    assert figure > _peak(hardware, quantity)[0]


GPUS = [item for item in HARDWARE.values() if item.vendor != "none"]


@pytest.mark.parametrize("hardware", GPUS, ids=lambda item: item.name)
def test_gpu_hardware_is_physically_sane(hardware: HardwareProfile) -> None:
    peaks = {peak.quantity: peak for peak in hardware.peaks}
    assert {name: peaks[name].unit for name in KINDS} == KINDS
    assert peaks["nic_bandwidth"].value == hardware.nic_gbit_per_second
    assert peaks["bf16_dense"].value == peaks["fp16_dense"].value
    for narrow, wide in (("fp4_dense", "fp8_dense"), ("fp8_dense", "bf16_dense"), ("bf16_dense", "tf32_dense")):
        if narrow in peaks and wide in peaks:
            assert 1.9 <= peaks[narrow].value / peaks[wide].value <= 2.1
    assert peaks["fp64_dense"].value < peaks["bf16_dense"].value
    assert 0 < peaks["hbm_bandwidth"].value * 1000 / hardware.gpu_memory_gib < 60, "reads its memory in 16 ms or more"
    assert hardware.gpus_per_node in (4, 8, 16)
    assert all(peak.source for peak in hardware.peaks)


def test_all_hardware_of_the_first_release_is_there() -> None:
    wanted = {"mi250x", "mi300x", "mi325x", "mi355x", "a100", "h100", "h200", "b200", "gb200", "cpu"}
    assert wanted <= set(HARDWARE)
    assert HARDWARE["mi250x"].gpus_per_node == 16


@pytest.mark.parametrize("name", RUNS)
def test_every_run_fits_a_shipped_cluster_on_each_hardware_it_has_there(name: str) -> None:
    cluster = load.load_cluster("kubernetes-example")
    offered = {pool.hardware for pool in cluster.pools}
    for hardware in sorted(offered & set(load.load_run(name).hardware)):
        resolved = load.resolve(load.load_run(name, [f"hardware=[{hardware}]"]), cluster)
        assert resolved.hardware.name == hardware
        assert resolved.run.by_hardware == {}


@pytest.mark.parametrize("name", RUNS)
def test_every_run_says_whether_it_was_run_for_real(name: str) -> None:
    text = next(item.path for item in LISTED if item.kind == "run" and item.name == name).read_text()
    verified = re.search(r"^verified: true$", text, re.MULTILINE) is not None
    comments = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    assert ("Run for real" in comments) == verified
    assert ("Not run for real" in comments) == (not verified)
    assert load.load_run(name).verified == verified


@pytest.mark.parametrize("name", RUNS)
def test_every_run_uses_known_placeholders_only(name: str) -> None:
    run = load.load_run(name)
    commands = [role.command for role in run.roles]
    commands += [overlay.command for overlay in run.by_hardware.values() if overlay.command]
    known = {*VALUES, "run", "attempt", *placeholders.LEFT_TO_LAUNCHER}
    for texts in (*commands, run.checkpoint.resume_argument):
        for text in texts:
            assert set(re.findall(r"\{(\w+)\}", text)) <= known
            assert "{{" not in text
    assert run.checkpoint.directory.startswith("{run_dir}")
    assert run.steps > 0


def _command(run: RunProfile) -> list[str]:
    return [placeholders.fill(text, VALUES) for text in run.roles[0].command]


@pytest.mark.parametrize("name", ["demo", "demo-gpus"])
def test_the_demo_command_is_read_by_the_demo_trainer(name: str) -> None:
    run = load.load_run(name)
    resume = [text.replace("{resume_from}", "/c/step-20") for text in run.checkpoint.resume_argument]
    python, archive, program, *arguments = _command(run)
    assert (python, archive, program) == ("python3", "$(PRIMUS_FOLDER_PROGRAMS)/programs.pyz", "demo-train")
    options = train.parse([*arguments, *resume])
    assert (options.steps, options.seed, options.checkpoint_dir, options.save_every) == (240, 7, "/c", 20)
    assert options.resume == "/c/step-20"


def test_one_demo_profile_runs_on_two_vendors() -> None:
    run = load.load_run("demo-gpus")
    vendors = {
        hardware: load.resolve(run.model_copy(update={"hardware": (hardware,)}), load.load_cluster("local-gpus"))
        for hardware in ("mi300x", "h200")
    }
    assert [item.hardware.vendor for item in vendors.values()] == ["amd", "nvidia"]
    assert [item.run.roles[0].environment["DEMO_VENDOR"] for item in vendors.values()] == ["amd", "nvidia"]


def test_the_primus_overlay_differs_by_its_experiment_file_only() -> None:
    run = load.load_run("primus-mi300x")
    other = run.by_hardware["mi355x"].command or ()
    changed = [pair for pair in zip(run.roles[0].command, other, strict=True) if pair[0] != pair[1]]
    assert [text.replace("MI300X", "MI355X") for text, _ in changed] == [text for _, text in changed]
    assert len(changed) == 1


def test_observing_profiles_touch_nothing() -> None:
    observing = load.load_recovery("observe-only")
    assert (observing.mode, observing.in_place_restarts) == ("observe", 0)
    assert load.load_recovery("ask-first").mode == "ask"
