"""What the gate hands on of the kernel's log: telling lines since a moment, few and small, and no judgement on them."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.matching import RULES
from workflows.programs.probes import gate, kernel_log
from workflows.programs.probes.kernel_log import KernelLine
from workflows.programs.probes.verdicts import Check
from workflows.wire import GateReport, from_json, to_json

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


def test_where_nothing_may_be_read_it_is_unknown_and_says_why(without_device: Path) -> None:
    dmesg(without_device, "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    found = kernel_log.check("node-1", 0.0, "", 5.0)
    assert (found.verdict, found.lines) == ("unknown", ())
    assert "no-such-device: No such file or directory; dmesg: read kernel buffer failed" in found.evidence


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
