"""What ranks use: real processes, made-up control groups, NICs and GPUs, and a meter whose look hangs."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.cases.rows import rows
from tests.support.harness.launcher_harness import GangOnLoopback, until
from workflows.programs.launcher import usage
from workflows.programs.launcher.meter import LifeSigns, Meter, UsageSampler
from workflows.programs.launcher.usage import NvmlLibrary, RankActivity, open_library

Write = Callable[[str, str], None]
MIB = 1 << 20
RANK = f"""
import subprocess, sys
loader = "import sys; print(flush=True); sys.stdin.read()"
child = subprocess.Popen([sys.executable, "-c", loader], stdin=subprocess.PIPE)
held, files = bytearray({64 * MIB}), [open("/dev/null") for _ in range(40)]
print("ready", flush=True)
for line in sys.stdin:
    total = sum(range(3_000_000))
    print(total, flush=True)
"""


def test_a_rank_is_counted_with_what_it_started() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdin is not None
        assert rank.stdout is not None
        assert {rank.stdout.readline(), rank.stdout.readline()} == {"ready\n", "\n"}
        before = usage.rank_usage({3: rank.pid})
        rank.stdin.write("work\n")
        rank.stdin.flush()
        assert rank.stdout.readline() == f"{sum(range(3_000_000))}\n"
        after = usage.rank_usage({3: rank.pid, 4: 2**22 + 1})
        rank.stdin.close()
    assert set(after) == {3}, "a rank that is gone uses nothing"
    assert after[3].processes == 2
    assert 64 * MIB < after[3].memory_bytes < 1024 * MIB
    assert 40 < after[3].open_files < 80
    assert after[3].open_files_limit
    assert after[3].cpu_seconds > before[3].cpu_seconds
    found = usage.to_json({3: after[3]._replace(cpu_seconds=before[3].cpu_seconds + 5)}, before, 10.0)
    assert found["3"]["cpu_cores"] == 0.5
    assert "cpu_cores" not in usage.to_json(after, {}, 10.0)["3"], "not known before the second look"
    assert usage.rank_usage({3: rank.pid}) == {}


@rows("programs/launcher/use")
def test_a_pods_memory_is_what_the_kernel_kills_by(
    write: Write, files: dict[str, str], memory: tuple[int | None, int | None]
) -> None:
    for name, text in files.items():
        write(f"sys/fs/cgroup/{name}", text)
    found = usage.pod_usage(shared="/nowhere")
    assert (found.get("memory_bytes"), found.get("memory_limit_bytes")) == memory
    assert usage.pod_usage()["shared_memory_limit_bytes"] >= usage.pod_usage()["shared_memory_bytes"] >= 0


def test_what_is_nearly_used_up_is_named() -> None:
    figures: dict[str, Any] = {
        "memory_bytes": 95 << 30,
        "memory_limit_bytes": 100 << 30,
        "shared_memory_bytes": 1 << 30,
        "shared_memory_limit_bytes": 8 << 30,
        "ranks": {"5": {"open_files": 1000, "open_files_limit": 1024}, "6": {"open_files": 10}},
    }
    assert usage.close_to_its_limit(figures) == {
        "memory": "the pod's memory is nearly used up: 95.00 of 100.00 GiB",
        "files of 5": "rank 5 has 1000 files open and may have 1024",
    }
    assert usage.close_to_its_limit({}) == {}


def test_nics_tell_traffic_and_errors(write: Write) -> None:
    for port, words in ((1, 1000), (2, 10)):
        counters = f"sys/class/infiniband/mlx5_0/ports/{port}/counters"
        write(f"{counters}/port_rcv_data", f"{words}\n")
        write(f"{counters}/port_xmit_data", f"{2 * words}\n")
        write(f"{counters}/symbol_error", "3\n")
        write(f"{counters}/link_downed", "N/A (no PMA)\n")
    for name, count in (("rx_bytes", 7), ("tx_bytes", 8), ("rx_errors", 1), ("tx_errors", 2)):
        write(f"sys/class/net/eth0/statistics/{name}", f"{count}\n")
        write(f"sys/class/net/lo/statistics/{name}", f"{count}\n")
    write("sys/class/net/odd/statistics/rx_bytes", "")
    assert usage.nic_usage() == {
        "mlx5_0": {"received_bytes": 4040, "sent_bytes": 8080, "errors": 6},
        "eth0": {"received_bytes": 7, "sent_bytes": 8, "errors": 3},
    }


def test_gpus_of_amd_tell_of_themselves(write: Write) -> None:
    for number, maker in enumerate(("0x1002", "0x1002", "0x8086")):
        folder = f"sys/bus/pci/devices/0000:{number:02x}:00.0"
        write(f"{folder}/vendor", f"{maker}\n")
        write(f"{folder}/class", "0x120000\n")
    folder = "sys/bus/pci/devices/0000:01:00.0"
    for name, text in (("mem_info_vram_used", "5"), ("mem_info_vram_total", "9"), ("gpu_busy_percent", "98")):
        write(f"{folder}/{name}", f"{text}\n")
    for name, text in (("temp1_input", "41000"), ("temp2_input", "87000"), ("power1_average", "750000000")):
        write(f"{folder}/hwmon/hwmon4/{name}", f"{text}\n")
    write(f"{folder}/ras/umc_err_count", "ue: 2\nce: 17\n")
    write(f"{folder}/ras/gfx_err_count", "ue: 1\nce: 0\n")
    write(f"{folder}/ras/features", "ue: 9\n")
    assert usage.gpu_usage(None) == {
        "1": {
            "memory_bytes": 5,
            "memory_limit_bytes": 9,
            "busy_percent": 98,
            "temperature_celsius": 87.0,
            "power_watts": 750.0,
            "uncorrected_errors": 3,
        }
    }


class Nvml:
    """A library of two GPUs, the second of which refuses most."""

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = 2
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, gpu: Any) -> int:  # noqa: N802
        gpu._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetMemoryInfo(self, gpu: Any, memory: Any) -> int:  # noqa: N802
        memory._obj.used, memory._obj.total = 30, 80
        return 0 if gpu.value == 1 else 15

    def nvmlDeviceGetTemperature(self, gpu: Any, sensor: Any, celsius: Any) -> int:  # noqa: N802
        celsius._obj.value = 60 + gpu.value + sensor.value
        return 0

    def nvmlDeviceGetPowerUsage(self, gpu: Any, milliwatts: Any) -> int:  # noqa: N802
        milliwatts._obj.value = 700_000
        return 0 if gpu.value == 1 else 3


def test_nvidias_library_is_asked_and_what_it_refuses_is_absent() -> None:
    assert usage.gpu_usage(NvmlLibrary(Nvml())) == {
        "0": {"memory_bytes": 30, "memory_limit_bytes": 80, "temperature_celsius": 61, "power_watts": 700.0},
        "1": {"temperature_celsius": 62},
    }
    assert NvmlLibrary(object()).gpus() == {}
    assert open_library("libnothing.so.9") is None
    assert open_library("libc.so.6") is None, "a library of something else"


def test_a_look_that_hangs_holds_up_nobody() -> None:
    looks: list[Mapping[int, int]] = []
    released, hung = threading.Event(), threading.Event()

    def look(pids: Mapping[int, int]) -> dict[str, Any]:
        looks.append(pids)
        if len(looks) == 2:
            hung.set()
            released.wait()
        if len(looks) == 3:
            raise ValueError("nobody has seen this before")
        return {"look": len(looks)}

    meter = Meter(lambda: look, seconds=0.001, first_seconds=0.001)
    assert meter.take_newest() is None
    meter.watch({"0": 11})
    assert hung.wait(30)
    assert meter.take_newest() == {"look": 1}
    assert meter.take_newest() is None, "each is given once"
    meter.watch({"0": 12})
    released.set()
    until(
        lambda: looks[-1] == {0: 12} and (meter.take_newest() or {}).get("look", 0) > 3,
        "a look after the one that failed",
    )
    assert looks[:2] == [{0: 11}, {0: 11}]


def test_a_limit_is_said_once_for_the_same_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    looks = UsageSampler(said.append)

    def full(_found: dict[str, Any]) -> dict[str, str]:
        return {"memory": "nearly full"}

    monkeypatch.setattr(usage, "close_to_its_limit", full)
    for pids in ({0: 1}, {0: 1}, {0: 2}):
        found = looks.sample(pids)
        assert {"at", "ranks", "nics", "gpus"} <= set(found)
    assert said == ["nearly full"] * 2


def active(cpu: float = 1.0, moved: int = 0, processes: tuple[int, ...] = (7,), stopped: bool = False) -> RankActivity:
    return RankActivity(cpu, moved, frozenset(processes), stopped)


@pytest.mark.parametrize(
    ("then", "printed", "alive", "stopped"),
    [
        ({0: active(), 1: active()}, False, False, []),
        ({0: active(), 1: active()}, True, True, []),
        ({0: active(), 1: active(1.02)}, False, False, []),  # half a percent of a core: a watchdog
        ({0: active(), 1: active(1.3)}, False, True, []),
        ({0: active(), 1: active(moved=1 << 20)}, False, True, []),
        ({0: active(), 1: active(moved=100)}, False, False, []),
        ({0: active(), 1: active(processes=(7, 8))}, False, True, []),
        ({0: active(), 1: active(stopped=True)}, False, False, [1]),
        ({0: active(9.0), 1: active(stopped=True)}, False, True, [1]),
        ({0: active(), 1: active(9.0, stopped=True)}, False, True, []),  # one of its helpers is stopped
    ],
)
def test_what_counts_as_a_sign_of_life(
    then: dict[int, RankActivity], printed: bool, alive: bool, stopped: list[int]
) -> None:
    looks, now = iter([{0: active(), 1: active()}, then]), [100.0]
    signs = LifeSigns(lambda _: next(looks), lambda: now[0])
    assert signs.take() is None, "no rank has started"
    signs.watch({"0": 7, "1": 8})
    assert signs.take() is None, "one look says nothing"
    now[0] += 1.0
    assert signs.take() is None, "not due"
    now[0] += 3.0
    if printed:
        signs.note_output()
    assert signs.take() == {"alive": alive, "stopped": stopped}


def test_a_stopped_process_and_one_that_works_are_told_apart() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdin is not None
        assert rank.stdout is not None
        assert {rank.stdout.readline(), rank.stdout.readline()} == {"ready\n", "\n"}
        before = usage.rank_activity({3: rank.pid})[3]
        rank.send_signal(signal.SIGSTOP)
        until(lambda: usage.rank_activity({3: rank.pid})[3].stopped, "the rank is stopped")
        rank.send_signal(signal.SIGCONT)
        rank.stdin.write("work\n")
        rank.stdin.flush()
        rank.stdout.readline()
        after = usage.rank_activity({3: rank.pid})[3]
        rank.stdin.close()
    assert (before.stopped, after.stopped, len(after.processes)) == (False, False, 2)
    assert after.cpu_seconds > before.cpu_seconds
    assert after.moved_bytes > before.moved_bytes > 0
    assert usage.rank_activity({3: rank.pid}) == {}


def test_what_ranks_use_reaches_the_coordinator(gang: GangOnLoopback) -> None:
    gang.coordinate()
    gang.launch(0, "--steps=100000", STEPS="100000")
    [pod] = until(lambda: gang.ask("/v1/use").get("pods"), "what the pod uses")
    assert (pod["role"], pod["pod_index"]) == ("trainer", 0)
    assert pod["ranks"]["0"]["memory_bytes"] > MIB
    assert pod["ranks"]["0"]["open_files"] >= 3
    assert pod["shared_memory_limit_bytes"] >= pod["shared_memory_bytes"]
