"""The gate: pass, fail or unknown a check; what crashes or stays silent is unknown, and unknown is not healthy.

What the gate hands on of the kernel's log: telling lines since a moment, few and small, and no judgement on them.
"""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.decisions.diagnosis.matching import RULES
from tests.support.builders.damaged import damaged, reaches
from tests.support.cases.rows import rows
from workflows.programs.probes import gate, gpu_count, kernel_log
from workflows.programs.probes.kernel_log import KernelLine
from workflows.programs.probes.verdicts import Check, overall_verdict
from workflows.wire import GateReport, from_json, to_json


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


@rows("programs/probes/gate")
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


@rows("programs/probes/gate")
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


XID = "NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
CHATTER = "usb 1-1: new high-speed USB device number 2 using xhci_hcd"
BOOTED = 1_700_000_000.0
KERNEL_RULES = (
    "xid-off", "xid-double", "xid-remap", "xid-uncon", "xid-con", "xid-gsp", "xid-reset", "xid-nvlink", "xid-power",
    "xid-version", "xid-other", "sxid-fatal", "nvrm-init", "gpu-off-the-bus-no-xid", "amdgpu-un", "amdgpu-poison",
    "amdgpu-gone", "amdgpu-mes", "amdgpu-gpu-reset", "amdgpu-ring", "amdgpu-thermal", "amdgpu-xgmi",
    "aca-fatal", "kfd-eviction", "mlx5-", "nic-link", "bnxt-", "ionic-", "pcie-aer", "bond-down", "kernel-oom",
    "oom-invoked", "kernel-panic",
    "soft-lockup", "machine-check", "cpu-thermal", "hung-task", "memory-uncorrected", "nfs-", "lustre-",
    "block-device", "filesystem-error", "raid-", "ceph", "reboot",
)  # fmt: skip
"""Beginnings of the names of rules whose lines kernels print."""


def asked(folder: Path, since: float = 0.0) -> Check:
    return kernel_log.check("node-1", since, str(folder), 5.0)


def since_boot() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.name.startswith(KERNEL_RULES)], ids=lambda x: x.name)
def test_whatever_a_rule_knows_of_kernels_is_telling(rule: object) -> None:
    assert kernel_log.TELLING.search(rule.example)  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", [CHATTER, "Write protecting the kernel read-only data: 32768k", "bathroom of 3 zoom"])
def test_chatter_is_not_telling(text: str) -> None:
    assert not kernel_log.TELLING.search(text)


def test_lines_before_the_moment_are_left_out_but_for_the_drift_of_clocks() -> None:
    said = [KernelLine(float(second), f"{XID} {second}") for second in (0, 100, 139, 140, 200, 300)]
    kept = kernel_log.relevant_lines(said, BOOTED, since=BOOTED + 200)
    assert [at - BOOTED for at, _ in kept] == [140, 200, 300]


def test_of_equal_lines_the_first_counts() -> None:
    said = [KernelLine(1.0, XID), KernelLine(2.0, CHATTER), KernelLine(3.0, "mlx5_core: link"), KernelLine(4.0, XID)]
    assert kernel_log.relevant_lines(said, BOOTED, 0.0) == [(BOOTED + 1, XID), (BOOTED + 3, "mlx5_core: link")]


LONG = st.text(min_size=200, max_size=400) | st.just("\x01" * 400) | st.just("😀" * 400)


@given(st.lists(LONG, min_size=1, max_size=20), st.integers(1, 40))
def test_a_report_is_small_whatever_the_kernel_said(texts: list[str], times: int) -> None:
    said = [KernelLine(float(number), f"NVRM {number} {text}") for number, text in enumerate(texts * times)]
    kept = kernel_log.shorten(kernel_log.relevant_lines(said, BOOTED, 0.0))
    assert len(kept) <= kernel_log.LINES
    assert kept[-1][0] == BOOTED + len(said) - 1, "the newest is kept"
    checks = [gate.Check(name, "unknown", 1.5, 2.5, "bytes", "x" * 9999) for name in gate.CHECKS]
    checks.append(Check("kernel", "unknown", len(kept), None, "lines", "dmesg", kept))
    report = GateReport("node-1", "unknown", [one.plain() for one in checks], time.time())
    assert len(to_json(report).encode("utf-8", "replace")) <= 16 * 1024
    assert from_json(GateReport, to_json(report)) == report


def test_records_of_the_buffer_one_a_read_until_there_are_no_more() -> None:
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, kernels:
        ours.setblocking(False)
        kernels.send(f"4,1208,5140900,-;{XID}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:44:00.0\n".encode())
        kernels.send(b"nothing of the kind")
        kernels.send(b"6,1209,5150900,-,caller=T17;eth0: up; and running\n")
        found = [kernel_log.record(data) for data in kernel_log.records(ours.fileno())]
    assert found == [KernelLine(5.1409, XID), None, KernelLine(5.1509, "eth0: up; and running")]


def test_lines_of_dmesg() -> None:
    text = f"<4>[    5.140900] {XID}\n[12345.000001][  T17] mlx5_core: x\n<6>no time\n[Tue Nov 18] odd\n"
    assert kernel_log.parse_text(text) == [KernelLine(5.1409, XID), KernelLine(12345.000001, "mlx5_core: x")]


@given(st.binary(max_size=60), st.text(max_size=60))
def test_no_bytes_crash_the_readers(data: bytes, text: str) -> None:
    kernel_log.record(data)
    kernel_log.parse_text(text)


def test_a_kernel_that_said_nothing_telling_passes(tmp_path: Path) -> None:
    (tmp_path / "node-1.log").write_text(f"[{since_boot():.6f}] {CHATTER}\n")
    found = asked(tmp_path)
    assert (found.verdict, found.measured, found.lines) == ("pass", 0, ())


def test_telling_lines_are_handed_on_and_not_judged(tmp_path: Path) -> None:
    now = time.time()
    (tmp_path / "node-1.log").write_text(f"[1.000000] {XID} once\n[{since_boot():.6f}] {XID}\n")
    found = asked(tmp_path, since=now - 5)
    assert found.verdict == "unknown"
    [[at, text]] = found.plain()["lines"]
    assert text == XID
    assert abs(at - now) < 5


def test_a_log_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    found = asked(tmp_path / "kernel")
    assert (found.verdict, found.measured) == ("unknown", None)
    assert "no kernel of their own" in found.evidence


@pytest.fixture
def without_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that lets nobody read its buffer; the folder of its `dmesg`."""
    monkeypatch.setattr(kernel_log, "DEVICE", str(tmp_path / "no-such-device"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def dmesg(folder: Path, script: str) -> None:
    path = folder / "dmesg"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_where_the_buffer_may_not_be_read_dmesg_is_asked(without_device: Path) -> None:
    dmesg(without_device, f'test "$*" = -r && echo "<4>[{since_boot():.6f}] {XID}"')
    found = kernel_log.check("node-1", time.time() - 60, "", 5.0)
    assert [text for _, text in found.lines] == [XID]
    assert found.evidence.startswith("dmesg")


@pytest.fixture
def silent_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(action: int, buffer: object = None, size: int = 0) -> int:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(kernel_log, "ask_kernel", refuse)


@pytest.mark.usefixtures("silent_kernel")
def test_where_nothing_may_be_read_it_is_unknown_and_says_why(without_device: Path) -> None:
    dmesg(without_device, "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    found = kernel_log.check("node-1", 0.0, "", 5.0)
    assert (found.verdict, found.lines) == ("unknown", ())
    assert "no-such-device: No such file or directory; dmesg: read kernel buffer failed" in found.evidence


@pytest.mark.usefixtures("silent_kernel")
def test_where_there_is_no_dmesg_it_is_unknown(without_device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(without_device))
    assert kernel_log.check("node-1", 0.0, "", 5.0).verdict == "unknown"


def test_an_examination_ends_well_and_leaves_the_kernel_to_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, out, logs = tmp_path / "runs" / "r", tmp_path / "out", tmp_path / "kernel"
    monkeypatch.setenv("PRIMUS_NODE", "node-1")
    run.mkdir(parents=True)
    logs.mkdir()
    (logs / "node-1.log").write_text(f"[{since_boot():.6f}] {XID}\n")
    options = gate.Options(str(run), out_dir=str(out), examination=True, kernel_folder=str(logs))
    assert gate.main(options.argv()) == 0
    report = from_json(GateReport, (out / "report").read_bytes())
    assert (report.node, report.verdict) == ("node-1", "pass")
    assert [check["verdict"] for check in report.checks if check["check"] == "kernel"] == ["unknown"]
    assert gate.main([*options.argv(), f"--minimum-disk-bytes={1 << 62}"]) == 0
    assert (out / "verdict").read_text() == "fail"
    assert gate.main(gate.Options(str(run), out_dir=str(out)).argv()) == 0
    assert "kernel" not in (out / "report").read_text(), "the gate before an attempt does not look there"
    capsys.readouterr()


def readable() -> bool:
    try:
        os.close(os.open(kernel_log.DEVICE, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


@pytest.mark.skipif(not readable(), reason="this machine's buffer may not be read")
def test_the_buffer_of_this_machine_is_read_to_its_end() -> None:
    assert kernel_log.check("node-1", 0.0, "", 5.0).evidence.startswith(kernel_log.DEVICE)
