"""What several lines of kernels, diagnostics and controllers say together."""

from __future__ import annotations

import pytest

from flows.decisions.diagnosis.observers import collectives, hardware, stacks
from profiles.vocabulary import FaultClass
from tests.support.cases.rows import rows
from workflows.model.attempt import LogLine

F = FaultClass


def lines(*texts: str, source: str = "kernel", node: str = "gpu-3") -> list[LogLine]:
    return [LogLine(text, source, None, node, None, "kernel.log", number) for number, text in enumerate(texts, 1)]


BLOCKED = "INFO: task python:4121 blocked for more than 120 seconds."
PLAIN = ("Call Trace:", " <TASK>", " __schedule+0x23d/0x590", " ? __mutex_lock.constprop.0+0x263/0x490")


@rows("diagnosis/observers/kernels")
def test_a_task_that_does_not_come_back_is_its_first_module_s_fault(head: str, frame: str, owner: FaultClass) -> None:
    found = list(stacks.stuck_in_kernel(lines(head, *PLAIN, frame, " entry_SYSCALL_64+0x1/0x2")))
    assert [(clue.fault_class, clue.node, clue.blames) for clue in found] == [(owner, "gpu-3", "node")]


@pytest.mark.parametrize(
    "texts",
    [
        (BLOCKED, *PLAIN),
        (BLOCKED, *PLAIN, " kvm_vcpu_block+0x24/0xb0 [kvm]"),
        ("usb 1-1: new device", " uvm_ioctl+0x13e0/0x16f0 [nvidia_uvm]"),
        (BLOCKED, *PLAIN, "task:bash  state:S stack: 0 pid:7", " nv_open+0x1/0x2 [nvidia]"),
    ],
)
def test_a_stack_without_a_known_module_tells_nothing(texts: tuple[str, ...]) -> None:
    assert list(stacks.stuck_in_kernel(lines(*texts))) == []


def test_a_boot_in_the_middle_of_a_kernel_log_is_a_lost_node() -> None:
    boot = "Linux version 5.15.0-1042-nvidia (buildd@lcy02) (gcc) #42"
    (clue,) = stacks.rebooted(lines("perf: interrupt took too long", boot, "Command line: BOOT_IMAGE=/vmlinuz"))
    assert (clue.fault_class, clue.node, clue.line) == (F.NODE_LOST, "gpu-3", 2)
    assert list(stacks.rebooted(lines(boot, "Command line: BOOT_IMAGE=/vmlinuz"))) == []
    assert list(stacks.rebooted(lines("training starts", boot, source="rank"))) == []


def table(said: str, width: int = 45) -> tuple[str, ...]:
    """A cell as `dcgmi diag` prints it: cut wherever the column ends."""
    cut = [said[at : at + width] for at in range(0, len(said), width)]
    rows = [f"| {'Warning' if not number else '':26}| {part:<{width}}  |" for number, part in enumerate(cut)]
    return ("| GPU Memory                | Pass - GPUs: 1, 2, 3, 4, 5, 6, 7               |", *rows, "+----+----+")


def test_a_wrapped_cell_is_read_as_one_line() -> None:
    said = "GPU 0 had trouble in this test. Detected 2 volatile double-bit ECC error(s) in GPU 0. Drain the GPU."
    (clue,) = hardware.wrapped(lines(*table(said), source=""))
    assert (clue.rule, clue.text, clue.line) == ("gpu-double-bit", said, 2)


def test_what_a_single_row_says_is_left_to_the_rules_for_lines() -> None:
    said = "Found 12 faulty memory elements on GPU 3.     Run a field diagnostic on the GPU."
    assert list(hardware.wrapped(lines(*table(said), source=""))) == []
    assert (
        list(hardware.wrapped(lines(*table("all is well with this GPU, and it was so before, too"), source=""))) == []
    )


def test_a_job_that_a_signal_ended_is_looked_for_on_its_one_node() -> None:
    log = lines(
        "sched: Allocate JobId=127441 NodeList=c014 #CPUs=2 Partition=gpu",
        "sched: Allocate JobId=127442 NodeList=c[015-016] #CPUs=4 Partition=gpu",
        "_job_complete: JobId=127441 WTERMSIG 9",
        "_job_complete: JobId=127442 WTERMSIG 9",
        "_job_complete: JobId=127443 WTERMSIG 9",
        source="",
        node="",
    )
    assert [(clue.node, clue.line) for clue in collectives.killed(log)] == [("c014", 3)]


OOPS = "BUG: unable to handle kernel NULL pointer dereference at 00000000000000b1"


@pytest.mark.parametrize(
    ("pointer", "owner"),
    [
        ("RIP: 0010:_nv031695rm+0x79/0x940 [nvidia]", [F.GPU_DRIVER]),
        ("RIP: 0010:ll_file_read+0x79/0x940 [lustre]", [F.STORAGE]),
        ("RIP: 0010:native_queued_spin_lock+0x79/0x940", []),
    ],
)
def test_a_kernel_falls_by_the_module_that_it_stood_in(pointer: str, owner: list[FaultClass]) -> None:
    found = list(stacks.fallen(lines(OOPS, "PGD 0 P4D 0", "Oops: 0000 [#1] SMP NOPTI", pointer)))
    assert [clue.fault_class for clue in found] == owner
