"""The gate: pass, fail or unknown a check; what crashes or stays silent is unknown, and unknown is not healthy."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders.damaged import damaged, reaches
from workflows.programs.probes import gate, gpu_count
from workflows.programs.probes.verdicts import overall_verdict
from workflows.wire import GateReport, from_json


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "runs" / "r"
    path.mkdir(parents=True)
    return path


def verdicts(report: GateReport) -> dict[str, str]:
    return {check["check"]: check["verdict"] for check in report.checks}


def test_a_healthy_node_passes_and_leaves_nothing_behind(run: Path) -> None:
    report = gate.examine(gate.Options(str(run)), "node-0")
    assert report.verdict == "pass", report
    assert verdicts(report) == dict.fromkeys(gate.CHECKS, "pass")
    assert list(run.iterdir()) == []


def test_the_first_attempt_makes_the_runs_folder(run: Path) -> None:
    run.rmdir()
    assert gate.examine(gate.Options(str(run)), "node-0").verdict == "pass"
    assert run.is_dir()


def test_a_storage_that_is_not_mounted_fails_and_is_not_written_to(tmp_path: Path) -> None:
    run = tmp_path / "mount" / "runs" / "r"
    report = gate.examine(gate.Options(str(run)), "node-0")
    assert report.verdict == "fail"
    assert verdicts(report)["storage"] == "fail"
    assert verdicts(report)["clock"] == verdicts(report)["disk"] == "unknown"
    assert not (tmp_path / "mount").exists()


def test_a_storage_that_cannot_be_written_fails(run: Path) -> None:
    (run / "file").write_text("")
    report = gate.examine(gate.Options(str(run / "file")), "node-0")
    assert verdicts(report)["storage"] == "fail"
    [storage] = [check for check in report.checks if check["check"] == "storage"]
    assert "File exists" in storage["evidence"]


def test_too_little_room_fails(run: Path) -> None:
    options = gate.Options(str(run), minimum_disk_bytes=1 << 62, minimum_memory_bytes=1 << 62)
    found = verdicts(gate.examine(options, "node-0"))
    assert (found["memory"], found["disk"]) == ("fail", "fail")


def test_a_check_that_crashes_or_stays_silent_is_unknown_and_the_others_still_speak(run: Path) -> None:
    released = threading.Event()

    def crash(_: gate.Options) -> gate.Check:
        raise ZeroDivisionError("of all things")

    def silent(_: gate.Options) -> gate.Check:
        released.wait(60)
        return gate.Check("silent", "pass", None, None, "", "")

    def fine(_: gate.Options) -> gate.Check:
        return gate.at_least("fine", 2, 1, "things", "")

    checks: dict[str, Callable[[gate.Options], gate.Check]] = {"crash": crash, "silent": silent, "fine": fine}
    report = gate.examine(gate.Options(str(run), timeout_seconds=0.1), "node-0", checks)
    released.set()
    assert verdicts(report) == {"crash": "unknown", "silent": "unknown", "fine": "pass"}
    assert report.verdict == "unknown"
    assert "ZeroDivisionError: of all things" in report.checks[0]["evidence"]
    assert "no answer within 0.1 s" in report.checks[1]["evidence"]


WORDS = st.lists(st.sampled_from(["pass", "fail", "unknown"]), max_size=6)


@settings(deadline=None)
@given(WORDS)
def test_overall_is_pass_only_when_everything_passed(words: list[str]) -> None:
    found = overall_verdict([gate.Check("x", word, None, None, "", "") for word in words])
    assert (found == "pass") == (bool(words) and set(words) == {"pass"})
    assert (found == "fail") == ("fail" in words)


@pytest.mark.parametrize(
    ("now", "storage", "verdict"),
    [
        (1.8e9, 1.8e9 + 9, "pass"),
        (1.8e9, 1.8e9 - 11, "fail"),
        (1.8e9, 1.8e9 + 11, "fail"),
        (0.0, 0.0, "fail"),
        (5e9, 5e9, "fail"),
    ],
)
def test_clocks(now: float, storage: float, verdict: str) -> None:
    assert gate.judge_clock(now, storage, 10.0).verdict == verdict


@pytest.mark.parametrize(
    ("limit", "used", "available"),
    [("max", "100", 2048), ("", "", 2048), ("1500", "500", 1000), ("99999999", "1", 2048)],
)
def test_memory_is_the_least_of_machine_and_control_group(limit: str, used: str, available: int) -> None:
    assert gate.available_memory("MemTotal: 9 kB\nMemAvailable:   2 kB\n", limit, used) == available


def test_memory_that_nobody_states_is_an_error_and_so_unknown() -> None:
    with pytest.raises(ValueError, match="MemAvailable"):
        gate.available_memory("", "", "")


def test_fake_gpus_are_what_the_environment_says(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert verdicts(gate.examine(gate.Options(str(run), fake_gpus=True), "node-0"))["gpus"] == "pass"
    options = gate.Options(str(run), expected_gpus=8, fake_gpus=True)
    for said, verdict in (("8", "pass"), ("7", "fail"), ("", "unknown"), ("eight", "unknown")):
        monkeypatch.setenv(gpu_count.FAKE_VARIABLE, said)
        assert verdicts(gate.examine(options, "node-0"))["gpus"] == verdict


def tool(folder: Path, name: str, output: str, code: int = 0) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {code}\n")
    path.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root folder with `dev` and `sys`, and a PATH that starts with its `bin`."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "dev").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return tmp_path


def nvidia(machine: Path, count: int) -> None:
    for index in range(count):
        (machine / "dev" / f"nvidia{index}").touch()
    for other in ("nvidiactl", "nvidia-uvm", "nvidia-modeset"):
        (machine / "dev" / other).touch()


def amd(machine: Path, count: int) -> None:
    for index in range(count + 2):
        node = machine / "sys/class/kfd/kfd/topology/nodes" / str(index)
        node.mkdir(parents=True)
        simd = 0 if index < 2 else 304
        (node / "properties").write_text(f"cpu_cores_count {96 if index < 2 else 0}\nsimd_count {simd}\nmem_banks 1\n")


SMI = "".join(f"GPU {index}: NVIDIA H200 (UUID: GPU-0000-{index})\n" for index in range(8))


def test_nvidia_devices_and_tool_must_agree(machine: Path) -> None:
    nvidia(machine, 8)
    assert gpu_count.count("nvidia", False, {}, 5.0, str(machine)) == gpu_count.GpuCount(8, "nvidia: device files: 8")
    tool(machine / "bin", "nvidia-smi", SMI)
    found = gpu_count.count("nvidia", False, {}, 5.0, str(machine))
    assert found == gpu_count.GpuCount(8, "nvidia: device files: 8; nvidia-smi -L: 8")
    tool(machine / "bin", "nvidia-smi", SMI.replace("GPU 3: ", "lost 3: "))
    found = gpu_count.count("nvidia", False, {}, 5.0, str(machine))
    assert found is not None
    assert found.gpus == 7


def test_a_tool_that_fails_sees_no_gpu(machine: Path) -> None:
    nvidia(machine, 8)
    tool(machine / "bin", "nvidia-smi", "NVIDIA-SMI has failed because it couldn't communicate with the driver", 9)
    found = gpu_count.count("", False, {}, 5.0, str(machine))
    assert found is not None
    assert found.gpus == 0
    assert "no answer" in found.evidence


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("amd-smi", '[{"gpu": 0, "bdf": "0000:05:00.0"}, {"gpu": 1, "bdf": "0000:26:00.0"}]'),
        ("amd-smi", '{"gpu_data": [{"gpu": 0}, {"gpu": 1}]}'),
        ("rocm-smi", '{"card0": {"Device Name": "x"}, "card1": {"Device Name": "x"}, "system": {}}'),
    ],
)
def test_amd_devices_and_tools(name: str, output: str, machine: Path) -> None:
    amd(machine, 2)
    tool(machine / "bin", name, output)
    found = gpu_count.count("", False, {}, 5.0, str(machine))
    assert found is not None
    assert found.gpus == 2
    assert name in found.evidence


LISTINGS = damaged(
    [
        SMI,
        '[{"gpu": 0, "bdf": "0000:05:00.0"}, {"gpu": 1, "bdf": "0000:26:00.0"}]',
        '{"gpu_data": [{"gpu": 0}, {"gpu": 1}]}',
        '{"card0": {"Device Name": "x"}, "card1": {"Device Name": "x"}, "system": {}}',
    ],
    ["null", "[]", "{}", '"', "\n", "GPU ", "card", "(UUID: "],
)


def _counts(text: str) -> set[int | None]:
    return {read(text) for readers in gpu_count.TOOLS.values() for _, read in readers}


def test_damaged_listings_are_counted_otherwise_and_not_at_all() -> None:
    assert reaches(LISTINGS, lambda text: any(count and count > 2 and count != 8 for count in _counts(text)))
    assert reaches(LISTINGS, lambda text: '"gpu"' in text and not any(_counts(text)))


@settings(deadline=None)
@given(LISTINGS | st.text(max_size=80))
def test_no_output_of_a_tool_crashes_its_reader(text: str) -> None:
    for readers in gpu_count.TOOLS.values():
        for _, read in readers:
            found = read(text)
            assert found is None or found >= 0


def test_the_output_of_the_step(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert gate.main(gate.Options(str(run), out_dir=str(out)).argv()) == 0
    report = from_json(GateReport, (out / "report").read_bytes())
    assert (report.verdict, report.node) == ("pass", os.uname().nodename)
    assert (out / "verdict").read_text() == "pass"
    assert report == from_json(GateReport, capsys.readouterr().out)
    assert gate.main(replace(gate.Options(str(run)), minimum_disk_bytes=1 << 62).argv()) == 1
    capsys.readouterr()
    assert gate.main(["--run-dir=/x", "--gpu-vendor=voodoo"]) == 2
    assert "--gpu-vendor: 'voodoo' is not one of amd, nvidia" in capsys.readouterr().err


@settings(deadline=None)
@given(
    st.builds(
        gate.Options,
        run_dir=st.text(max_size=10),
        expected_gpus=st.integers(0, 16),
        gpu_vendor=st.sampled_from(["", "amd", "nvidia"]),
        fake_gpus=st.booleans(),
        minimum_memory_bytes=st.integers(0, 2**40),
        timeout_seconds=st.floats(0.1, 100),
        out_dir=st.text(max_size=10),
    )
)
def test_options_survive_the_command_line(wanted: gate.Options) -> None:
    assert gate.parse(wanted.argv()) == wanted
