"""The short look at a node: what it calls a fault, what it does not know, and that it never hangs."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.support.cases.rows import rows
from workflows.programs import main
from workflows.programs.probes import gpu_count, sweep
from workflows.programs.probes.sweep import Mount, Options, check_kernel, check_mounts, check_tools, judge_clock, mounts
from workflows.programs.runtime import flags

INFO = """\
29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
36 29 0:41 / /data rw,noatime shared:9 - nfs4 nas:/data rw,vers=4.2
37 29 0:42 / /data/old\\040sets ro,noatime - nfs4 nas:/old rw
38 29 0:43 / /broken rw - ext4 /dev/sdb ro,errors=remount-ro
"""


def test_options_round_trip() -> None:
    asked = Options(("/data", "/sets"), "amd", 8, 17.5, 19.0, out_dir="/out")
    assert sweep.parse(asked.argv()) == asked
    with pytest.raises(flags.UsageError, match="not one of amd, nvidia"):
        sweep.parse(["--gpu-vendor=acme"])
    assert main.PROGRAMS["sweep"] == "probes.sweep"


def test_mounts_are_read_as_the_kernel_tells_them() -> None:
    known = mounts(INFO + "nonsense\n")
    assert known["/data"] == Mount("/data", "nfs4", False)
    assert known["/data/old sets"] == Mount("/data/old sets", "nfs4", False), "only this view of it is read-only"
    assert known["/broken"].read_only
    assert sweep.mount_of("/data/runs/a", known) == known["/data"]
    assert sweep.mount_of("/database", known) == known["/"]
    assert sweep.mount_of("/x", {}) is None


@rows("programs/probes/sweep")
def test_a_clock_may_be_as_late_as_a_pod_starts(now: float, verdict: str, off: float) -> None:
    found = judge_clock(now, 1000.0, 600.0, 10.0)
    assert (found.verdict, found.measured) == (verdict, off)
    assert judge_clock(now, 0.0, 600.0, 10.0).verdict == "unknown"


def test_a_storage_that_is_read_only_gone_or_silent_is_a_fault(tmp_path: Path) -> None:
    here = Options((str(tmp_path),), timeout_seconds=10.0, stand_in=str(tmp_path))
    assert check_mounts(here, "n").verdict == "pass"
    (tmp_path / "n.mounts").write_text(f"38 29 0:43 / {tmp_path} rw - ext4 /dev/sdb ro\n")
    found = check_mounts(here, "n")
    assert (found.verdict, found.evidence) == ("fail", f"{tmp_path} lies on ext4, which is mounted read-only")
    assert check_mounts(here, "m").verdict == "pass", "another node"
    other = Options((str(tmp_path / "data"), str(tmp_path)), stand_in=str(tmp_path))
    gone = check_mounts(other, "m")
    assert gone.verdict == "fail"
    assert "FileNotFoundError" in gone.evidence
    assert check_mounts(Options(), "n").verdict == "unknown"


@rows("programs/probes/sweep")
def test_the_vendors_tool_must_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, verdict: str) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{says}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert check_tools(Options(gpu_vendor="nvidia", expected_gpus=2, timeout_seconds=1.0)).verdict == verdict


def test_a_missing_tool_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for vendor in gpu_count.VENDORS:
        found = check_tools(Options(gpu_vendor=vendor))
        assert (found.verdict, found.evidence[:17]) == ("unknown", "this image has no")
    assert check_tools(Options()).verdict == "pass"


def test_the_whole_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    since_boot = time.clock_gettime(time.CLOCK_MONOTONIC)
    lines = [f"<4>[{since_boot:12.6f}] NVRM: Xid (PCI:0000:44:00): 79, number {number}" for number in range(20)]
    (tmp_path / "node-1.log").write_text("\n".join(lines))
    monkeypatch.setenv("PRIMUS_NODE", "node-1")
    asked = Options((str(tmp_path),), asked_at=time.time(), stand_in=str(tmp_path), out_dir=str(tmp_path / "out"))
    assert len(check_kernel(asked, "node-1").lines) == sweep.KERNEL_LINES
    assert main.main(["sweep", *asked.argv()]) == 0
    report = json.loads((tmp_path / "out" / "report").read_text())
    assert report == json.loads(capsys.readouterr().out)
    assert (report["node"], report["verdict"]) == ("node-1", "pass"), "what the kernel said is for rules to judge"
    assert [check["check"] for check in report["checks"]] == ["kernel", "tools", "mounts", "clock"]
    assert (tmp_path / "out" / "verdict").read_text() == "pass"
    assert main.main(["sweep", "--no-such-flag=1"]) == 2
