"""Lines of the kernel that no node may train with, held against the rules of the diagnosis."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.decisions.diagnosis.clues import Rule
from flows.decisions.diagnosis.rules import amd, host, nvidia
from tests.support.builders.damaged import damaged, reaches
from tests.support.cases.rows import rows
from tests.support.cases.tool_samples import whole
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import kernel_log
from workflows.programs.probes import one as probes_one
from workflows.programs.probes.kernel_log import FATAL, LOCKUPS, KernelLine, count_readings

BOOTED = 1_700_000_000.0
RULES: dict[str, Rule] = {
    rule.name: rule for book in (amd.AMD_RULES, host.NODE_RULES, nvidia.NVIDIA_RULES, nvidia.XID_RULES) for rule in book
}
DEADLY = (
    *("xid-off-the-bus", "xid-double-bit", "xid-remap-failure", "xid-row-remap", "xid-uncontained", "sxid-fatal"),
    *("amdgpu-uncorrectable", "amdgpu-poison", "amdgpu-bad-pages", "amdgpu-boot-failed", "amdgpu-reset-failed"),
    *("amdgpu-gone", "aca-fatal", "machine-check"),
)
STUCK = ("kernel-panic", "soft-lockup")


def counts(*texts: str) -> dict[str, float | None]:
    """Of these lines, one a second after boot: quantity and port -> count."""
    said = [KernelLine(float(second), text) for second, text in enumerate(texts)]
    return {
        f"{one.quantity} {one.subject}".strip(): one.value for one in count_readings(said, BOOTED, since=BOOTED - 1.0)
    }


@pytest.mark.parametrize("name", DEADLY)
def test_a_line_that_the_rules_call_deadly_counts_and_its_near_miss_does_not(name: str) -> None:
    rule = RULES[name]
    assert counts(rule.example)["kernel_fatal_lines"] == 1
    if name != "xid-remap-failure":  # its near miss is a remap that went well, by which Azure's NHC fails a node, too
        assert counts(rule.near_miss)["kernel_fatal_lines"] == 0


def test_what_the_driver_says_as_it_starts_on_a_sound_gpu_counts_for_nothing() -> None:
    texts = [one.word for one in whole("kernel-log", "6-h100-boot.txt").readings]
    assert any("Interrupt detected" in text for text in texts), "it sounds worse than it is"
    assert set(counts(*texts).values()) == {0}


@pytest.mark.parametrize("name", STUCK)
def test_a_kernel_that_is_stuck_counts_as_locked_up(name: str) -> None:
    rule = RULES[name]
    assert counts(rule.example)["kernel_lockups"] == 1
    assert counts(rule.near_miss) == {"kernel_fatal_lines": 0, "kernel_lockups": 0, "kernel_link_losses": 0}


@pytest.mark.parametrize("number", [13, 31, 43, 45, 94, 480, 799])
def test_faults_of_programs_are_no_fault_of_the_node(number: int) -> None:
    assert counts(f"NVRM: Xid (PCI:0000:4f:00): {number}, pid=1, name=python")["kernel_fatal_lines"] == 0


@rows("programs/probes/kernel")
def test_a_link_that_goes_down_is_counted_for_its_port_each_time(text: str, port: str) -> None:
    again = counts(text, "bnxt_en 0000:a6:00.0 ens21np0: NIC Link is Up, 400000 Mbps", text, "hung task: none", text)
    assert again[f"kernel_link_losses {port}"] == 3
    assert counts("mlx5_core 0000:ab:00.0 eth2: Link up", "shutting Link downing") == {
        "kernel_fatal_lines": 0,
        "kernel_lockups": 0,
        "kernel_link_losses": 0,
    }


@given(st.lists(st.sampled_from([0.0, 50.0, 3000.0, 3040.0, 9000.0]), max_size=9))
def test_only_lines_that_are_young_enough_count(ages: list[float]) -> None:
    """A minute of drift between the kernel's clock and the day's is allowed for."""
    now = 20_000.0
    text = RULES["xid-off-the-bus"].example
    said = [KernelLine(now - age, text) for age in ages]
    [fatal, *_] = count_readings(said, BOOTED, since=BOOTED + now - 3000.0)
    assert fatal.value == sum(age <= 3060.0 for age in ages)


SPOKEN = damaged([RULES[name].example for name in (*DEADLY, *STUCK)], ["Xid", "NVRM: ", ": 79", "amdgpu", "9" * 30])


def test_damaged_lines_count_and_do_not() -> None:
    whole = {rule.example for rule in RULES.values()}
    assert reaches(SPOKEN, lambda text: text not in whole and any(counts(text).values()))
    assert reaches(SPOKEN, lambda text: "Xid" in text and not any(counts(text).values()))


@given(st.lists(SPOKEN | st.text(max_size=300), max_size=6))
def test_any_lines_are_counted_without_a_crash(texts: list[str]) -> None:
    found = count_readings([KernelLine(1.0, text) for text in texts], BOOTED, BOOTED)
    assert {one.quantity for one in found} == {"kernel_fatal_lines", "kernel_lockups", "kernel_link_losses"}
    assert all(one.value is not None and one.value <= len(texts) for one in found)


def test_the_newest_lines_are_the_evidence() -> None:
    texts = [f"NVRM: Xid (PCI:0000:4f:00): 79, pid={number}, GPU has fallen off the bus." for number in range(9)]
    [fatal, *_] = count_readings([KernelLine(1.0, text) for text in texts], BOOTED, BOOTED)
    assert fatal.value == 9
    assert fatal.line.startswith("NVRM: Xid (PCI:0000:4f:00): 79, pid=8")


OTHERS = (
    "NVRM: GPU 0000:4f:00.0: RmInitAdapter failed! (0x24:0xffff:1250)",
    "amdgpu 0000:c3:00.0: amdgpu: 4 uncorrectable hardware errors detected in umc block",
    "EDAC MC0: 1 UE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0",
    "INFO: task python:4121 blocked for more than 120 seconds.",
    "rcu: INFO: rcu_sched self-detected stall on CPU",
)


@pytest.mark.parametrize("pattern", [*FATAL, *LOCKUPS])
def test_every_pattern_is_that_of_a_line_which_kernels_print(pattern: str) -> None:
    lines = [*(RULES[name].example for name in (*DEADLY, *STUCK)), *OTHERS]
    assert any(re.search(pattern, line) for line in lines)


Dmesg = Callable[[str], ParsedOutput]


@pytest.fixture
def dmesg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dmesg:
    """Asks the probe on a machine whose `dmesg` is that script, and whose buffer may not be opened."""
    monkeypatch.setattr(kernel_log, "DEVICE", str(tmp_path / "kmsg"))

    def ask(script: str) -> ParsedOutput:
        (tmp_path / "dmesg").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "dmesg").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        return probes_one.answer("kernel-log", {"hours": "2"})

    return ask


def now_since_boot() -> float:
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def test_the_log_is_read_by_dmesg_where_the_buffer_may_not_be_opened(dmesg: Dmesg) -> None:
    at = now_since_boot()
    found = dmesg(
        f"echo '<6>[    0.000000] Linux version 6.1'\n"
        f"echo '<3>[{at:12.6f}] NVRM: Xid (PCI:0000:4f:00): 79, pid=1, GPU has fallen off the bus.'"
    )
    assert found.unknown == ""
    assert [one.value for one in found.readings] == [1.0, 0.0, 0.0]


def refuse_all(action: int, buffer: object = None, size: int = 0) -> int:
    raise PermissionError(errno.EPERM, "Operation not permitted")


def test_a_log_that_may_not_be_read_is_unknown(dmesg: Dmesg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "ask_kernel", refuse_all)
    found = dmesg("echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    assert found.readings == ()
    assert "Operation not permitted" in found.unknown
    assert "read_kernel_log" in found.unknown


def test_where_there_is_neither_device_nor_command_the_kernel_itself_is_asked(
    dmesg: Dmesg, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = b"<6>[%.6f] watchdog: BUG: soft lockup - CPU#3 stuck for 22s!\n" % time.clock_gettime(time.CLOCK_MONOTONIC)

    def answer(action: int, buffer: Any = None, size: int = 0) -> int:
        if action == kernel_log.SIZE_BUFFER:
            return 1 << 14
        assert size == 1 << 14
        buffer[: len(said)] = said
        return len(said)

    monkeypatch.setattr(kernel_log, "ask_kernel", answer)
    found = dmesg("exit 127")
    assert [one.value for one in found.readings] == [0.0, 1.0, 0.0]


def test_an_empty_log_is_unknown(dmesg: Dmesg) -> None:
    assert dmesg("true").unknown == "dmesg is empty: a kernel says something when it boots"


def long_up(_clock: int) -> float:
    return 1_000_000.0


def test_a_buffer_that_lost_the_older_lines_is_not_called_quiet(dmesg: Dmesg, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its oldest line is ten minutes old, and the machine is long up."""
    monkeypatch.setattr("workflows.programs.probes.kernel_log.time.clock_gettime", long_up)
    found = dmesg("echo '<6>[999400.000000] eth0: promiscuous mode'")
    assert [one.value for one in found.readings] == [0.0, 0.0, 0.0]
    assert found.unknown.startswith("the kernel's buffer reaches back 0.17 h of 2 h")
    assert dmesg("echo '<6>[990000.000000] eth0: promiscuous mode'").unknown == ""


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "two", "inf"])
def test_hours_that_are_none_are_named(hours: str) -> None:
    assert (
        f"hours: must be a number above 0, got '{hours}'" in probes_one.answer("kernel-log", {"hours": hours}).unknown
    )
