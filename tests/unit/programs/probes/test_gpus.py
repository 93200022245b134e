"""GPUs of made-up nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import gpu_count
from workflows.programs.probes.gpu_count import gpu_devices

Write = Callable[[str, str], None]


def device(write: Write, number: int, maker: str, kind: str) -> str:
    folder = f"sys/bus/pci/devices/0000:{number:02x}:00.0"
    write(f"{folder}/vendor", maker)
    write(f"{folder}/class", kind)
    return folder


def amd(write: Write, bus: int, driver: int) -> None:
    write("sys/module/amdgpu/initstate", "live\n")
    write("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n")
    for number in range(bus):
        write(device(write, number, "0x1002", "0x120000") + "/mem_info_vram_used", str((number + 1) << 30))
    for number in range(driver):
        write(f"sys/class/kfd/kfd/topology/nodes/{number + 1}/gpu_id", f"{50000 + number}\n")


def figures(parsed: ParsedOutput) -> dict[str, float | None]:
    return {f"{one.quantity} {one.subject}".strip(): one.value for one in parsed.readings if one.value is not None}


def words(parsed: ParsedOutput) -> dict[str, str]:
    return {one.quantity: one.word for one in parsed.readings if one.word}


def test_gpus_of_amd(write: Write) -> None:
    amd(write, 2, 2)
    found = gpu_devices({})
    assert figures(found) == {
        "gpu_count": 2.0,
        "gpu_foreign_processes": 0.0,
        "gpu_memory_used gpu 0": 1.0,
        "gpu_memory_used gpu 1": 2.0,
    }
    assert words(found) == {"gpu_driver": "loaded"}


@pytest.mark.parametrize(("bus", "driver", "count"), [(8, 7, 7.0), (7, 8, 7.0), (8, 0, 0.0), (0, 0, 0.0)])
def test_the_smallest_count_holds(write: Write, bus: int, driver: int, count: float) -> None:
    amd(write, bus, driver)
    found = gpu_devices({})
    assert figures(found)["gpu_count"] == count
    assert found.readings[0].line == f"{bus} on the PCI bus, {driver} in the driver's topology"


def test_whoever_has_the_driver_s_device_open_is_counted(write: Write) -> None:
    amd(write, 1, 1)
    for pid in (4711, 4712):
        write(f"sys/class/kfd/kfd/proc/{pid}/pasid", "1")
    found = gpu_devices({})
    assert figures(found)["gpu_foreign_processes"] == 2.0
    assert "4711, 4712" in next(one.line for one in found.readings if one.quantity == "gpu_foreign_processes")


@pytest.mark.parametrize(("state", "word"), [("live", "loaded"), ("going", "going"), (None, "absent")])
def test_the_driver_is_loaded_or_not(write: Write, state: str | None, word: str) -> None:
    device(write, 1, "0x1002", "0x120000")
    if state:
        write("sys/module/amdgpu/initstate", state)
    assert words(gpu_devices({}))["gpu_driver"] == word


SMI = """#!/bin/sh
case "$1" in
  --query-compute-apps=pid) printf '{pids}' ;;
  --query-gpu=pci.bus_id,memory.used) printf '{used}' ;;
esac
exit {code}
"""


USED = "00000000:00:00.0, 4\\n00000000:01:00.0, [N/A]\\n"


def nvidia(write: Write, pids: str = "", used: str = USED, code: int = 0, gpus: int = 2) -> ParsedOutput:
    write("sys/module/nvidia/version", "550.54")
    for number in range(gpus):
        device(write, number, "0x10de", "0x030200")
        write(f"proc/driver/nvidia/gpus/0000:{number:02x}:00.0/information", "")
    device(write, 9, "0x10de", "0x068000")
    write("bin/nvidia-smi", SMI.format(pids=pids, used=used, code=code))
    return gpu_devices({})


def test_gpus_of_nvidia(write: Write) -> None:
    found = nvidia(write, pids="77\\n")
    assert words(found) == {"gpu_driver": "loaded"}
    assert figures(found) == {"gpu_count": 2.0, "gpu_foreign_processes": 1.0, "gpu_memory_used gpu 0": 4 / 1024}


@pytest.mark.parametrize(
    ("given", "count"), [("", 3.0), ("all", 3.0), ("GPU-a,GPU-b,GPU-c,GPU-d", 3.0), ("0,2,3", 4.0)]
)
def test_a_gpu_that_the_tool_does_not_reach_is_lost_and_the_others_keep_their_numbers(
    write: Write, monkeypatch: pytest.MonkeyPatch, given: str, count: float
) -> None:
    """Where the container was given fewer, the tool tells of those, and nothing is lost."""
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", given)
    rows = "".join(f"00000000:0{number}:00.0, {1024 * number}\\n" for number in (0, 2, 3))
    found = nvidia(write, used=rows, gpus=4)
    assert figures(found)["gpu_count"] == count
    assert [figures(found).get(f"gpu_memory_used gpu {index}") for index in range(4)] == [0.0, None, 2.0, 3.0]
    assert ("3 reached by the tool: 0000:01:00.0 lost" in found.readings[0].line) == (count == 3.0)


def test_a_tool_that_refuses_leaves_what_it_would_tell_unknown(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    assert figures(nvidia(write, code=9)) == {"gpu_count": 2.0}
    monkeypatch.setattr(gpu_count, "ANSWER_SECONDS", 0.1)
    write("bin/nvidia-smi", "#!/bin/sh\nexec sleep 60\n")
    assert figures(gpu_devices({})) == {"gpu_count": 2.0}


def test_a_driver_that_hides_from_the_pod_is_no_missing_gpu(write: Write) -> None:
    write("sys/module/nvidia/version", "550.54")
    device(write, 1, "0x10de", "0x030200")
    found = gpu_devices({})
    assert (figures(found), words(found)) == ({}, {"gpu_driver": "loaded"})
    assert found.unknown == "the driver is loaded, and what it lists is not to be seen from here"


def test_a_node_without_gpus_has_none(write: Write) -> None:
    device(write, 1, "0x1a03", "0x030000")
    found = gpu_devices({})
    assert (figures(found), words(found)) == ({"gpu_count": 0.0}, {"gpu_driver": "absent"})


@pytest.mark.parametrize(
    ("counted", "reached", "numbers"),
    [
        (4, (0, 1, 2, 3), (0, 1, 2, 3)),
        (3, (0, 2, 3), (0, 2, 3)),
        (3, (0, 1, 2, 3), (0, 1, 2)),  # the tool reaches all: nobody knows which one the library left out
        (3, (), (0, 1, 2)),
    ],
)
def test_a_library_that_lost_a_gpu_keeps_the_numbers_of_the_others(
    write: Write, counted: int, reached: tuple[int, ...], numbers: tuple[int, ...]
) -> None:
    rows = "".join(f"00000000:0{number}:00.0\\n" for number in reached)
    nvidia(write, gpus=4)
    write("bin/nvidia-smi", f"#!/bin/sh\nprintf '{rows}'\n")
    assert gpu_count.numbers_of(counted) == numbers
