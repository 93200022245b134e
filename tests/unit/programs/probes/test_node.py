"""Probes of a node's own files, on made-up nodes and on this one."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import node, services
from workflows.programs.probes.node import STORAGE_VARIABLE, disk_space, lasting, processes, settings, versions
from workflows.programs.probes.one import PROBES, answer
from workflows.programs.probes.services import clock, names, ssh, tool_time

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Makes a file of a made-up node."""
    monkeypatch.setattr(node, "ROOT", str(tmp_path))

    def make(path: str, text: str) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)

    return make


def words(parsed: ParsedOutput) -> dict[str, str]:
    return {one.quantity: one.word for one in parsed.readings if one.word}


def figures(parsed: ParsedOutput) -> dict[str, float]:
    return {one.quantity: one.value for one in parsed.readings if one.value is not None}


def test_boot_arguments_of_nodes_that_are_alike_are_alike() -> None:
    one = lasting("BOOT_IMAGE=/vmlinuz-6.8 root=UUID=1 iommu=pt quiet hostname=a api_token=1")
    other = lasting("BOOT_IMAGE=/vmlinuz-6.8 root=UUID=2 quiet iommu=pt hostname=b api_token=2")
    assert one == other == "iommu=pt quiet", "and nothing that looks like a secret is handed on"
    assert lasting("iommu=on quiet") != one


@pytest.mark.parametrize(
    ("types", "word"),
    [([], "off"), (["identity", "identity"], "passthrough"), (["identity", "DMA-FQ"], "translated"), ([""], "")],
)
def test_the_iommu_s_mode_is_that_of_all_groups(write: Write, types: list[str], word: str) -> None:
    for number, kind in enumerate(types):
        write(f"sys/kernel/iommu_groups/{number}/type", kind)
    write("proc/cmdline", "quiet")
    assert words(settings({})).get("iommu_mode", "") == word


@pytest.mark.parametrize(
    ("governors", "word"),
    [(["performance"] * 3, "performance"), (["performance", "powersave"], "performance, powersave"), ([None], "none")],
)
def test_the_governor_is_that_of_all_processors(write: Write, governors: list[str | None], word: str) -> None:
    for number, governor in enumerate(governors):
        write(f"sys/devices/system/cpu/cpu{number}/online", "1")
        if governor:
            write(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor", governor)
    write("sys/devices/system/cpu/cpufreq/boost", "1")
    assert words(settings({}))["cpu_governor"] == word


@pytest.mark.parametrize(
    ("ranges", "switches", "word"),
    [
        ([(1500, 3700)] * 2, {"cpufreq/boost": "1"}, "1500 to 3700 MHz; boost on"),
        ([(1500, 3700), (1500, 2400)], {}, "1500 to 2400 MHz, 1500 to 3700 MHz"),
        ([(800, 3800)], {"cpufreq/boost": "1", "intel_pstate/no_turbo": "1"}, "800 to 3800 MHz; boost off"),
        ([None], {}, "none"),
    ],
)
def test_clocks_of_processors_are_what_they_may_run_at(
    write: Write, ranges: list[tuple[int, int] | None], switches: dict[str, str], word: str
) -> None:
    for number, ends in enumerate(ranges):
        write(f"sys/devices/system/cpu/cpu{number}/online", "1")
        for name, megahertz in zip(("min", "max"), ends or (), strict=False):
            write(f"sys/devices/system/cpu/cpu{number}/cpufreq/scaling_{name}_freq", str(1000 * megahertz))
    for path, text in switches.items():
        write(f"sys/devices/system/cpu/{path}", text)
    assert words(settings({}))["cpu_clocks"] == word


def limit_memlock(monkeypatch: pytest.MonkeyPatch, hard: int) -> None:
    def getrlimit(_: int) -> tuple[int, int]:
        return 0, hard

    monkeypatch.setattr(resource, "getrlimit", getrlimit)


def test_memory_settings_are_told_in_units(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("proc/meminfo", "MemTotal:  2097152 kB\nHugePages_Total:  100\nHugepagesize:  2048 kB\n")
    write("proc/sys/kernel/numa_balancing", "1\n")
    write("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
    limit_memlock(monkeypatch, resource.RLIM_INFINITY)
    found = figures(settings({}))
    assert found["memlock"] == 2.0, "unlimited is all of the node's memory"
    assert found["hugepages_reserved"] == pytest.approx(100 * 200 / 2048)
    assert found["numa_balancing"] == 1.0
    assert words(settings({}))["transparent_hugepages"] == "madvise"
    limit_memlock(monkeypatch, 65536)
    assert figures(settings({}))["memlock"] == 65536 / (1 << 30)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"pid_max": "4194304", "threads-max": "2061578"}, 2061578.0),
        ({"pid_max": "32768", "threads-max": "2061578"}, 32768.0),
        ({"pid_max": "32768"}, None),
        ({"pid_max": "many", "threads-max": "1"}, None),
    ],
)
def test_the_smaller_limit_of_processes_and_threads_holds(
    write: Write, limits: dict[str, str], told: float | None
) -> None:
    for name, text in limits.items():
        write(f"proc/sys/kernel/{name}", f"{text}\n")
    assert figures(settings({})).get("process_ids") == told


def test_a_node_that_tells_nothing_is_unknown(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "_iommu", lambda: ("", ""))
    limit_memlock(monkeypatch, resource.RLIM_INFINITY)
    assert settings({}) == ParsedOutput(unknown="neither /proc nor /sys can be read")
    assert versions({}) == ParsedOutput(unknown="no version can be read")
    assert processes({}) == ParsedOutput(unknown="/proc/uptime cannot be read")


def test_versions_are_read_from_files(write: Write) -> None:
    write("proc/sys/kernel/osrelease", "6.8.0-49-generic\n")
    write("sys/module/amdgpu/version", "6.12.12\n")
    write("opt/rocm/.info/version", "6.4.1-83\n")
    write("opt/rocm/lib/librccl.so.1", "")
    write("opt/rocm/lib/librccl.so.1.0.60401", "")
    assert words(versions({})) == {
        "kernel_version": "6.8.0-49-generic",
        "driver_version": "6.12.12",
        "gpu_library_version": "6.4.1-83",
        "collective_library_version": "rccl 1.0.60401",
    }


def test_the_toolkit_s_version_stands_in_a_list(write: Write) -> None:
    write("usr/local/cuda/version.json", '{"cuda": {"name": "CUDA SDK", "version": "12.9.1"}, "cuda_nvcc": {}}')
    assert words(versions({})) == {"gpu_library_version": "12.9.1"}


def test_a_disk_tells_how_full_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path / "not" / "made" / "yet"))
    parsed = disk_space({})
    assert {one.subject for one in parsed.readings} == {str(tmp_path)}
    assert all(0 <= value <= 100 for value in figures(parsed).values())
    assert (tmp_path / "not").exists() is False


@pytest.mark.parametrize(
    ("state", "ran_ms", "stuck"), [("D", 10_000, 1), ("Z", 10_000, 1), ("D", 900_000, 0), ("S", 10_000, 0)]
)
def test_a_process_is_stuck_when_it_has_not_run_for_long(write: Write, state: str, ran_ms: int, stuck: int) -> None:
    write("proc/uptime", "1000.00 1.0")
    write("proc/77/stat", f"77 (a (b) c) {state} 1 77 77 0")
    write("proc/77/sched", f"x (77, #threads: 1)\nse.exec_start   :   {ran_ms}.5\n")
    parsed = processes({"seconds": "300"})
    assert figures(parsed) == {"stuck_processes": float(stuck)}
    assert (" 990 s" in parsed.readings[0].line) == bool(stuck)


def test_a_kernel_that_does_not_tell_since_when_leaves_it_unknown(write: Write) -> None:
    write("proc/uptime", "1000.00 1.0")
    write("proc/77/stat", "77 (x) D 1 77 77 0")
    assert "does not tell since when" in processes({}).unknown


def test_a_clock_is_held_against_the_storage_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STORAGE_VARIABLE, raising=False)
    assert clock({}).unknown == "there is no shared storage to compare with"
    monkeypatch.setenv(STORAGE_VARIABLE, str(tmp_path))
    assert figures(clock({}))["clock_skew"] < 1.0
    assert list(tmp_path.iterdir()) == []
    real = services.time.time
    monkeypatch.setattr(services.time, "time", lambda: real() + 500.0)
    assert figures(clock({}))["clock_skew"] == pytest.approx(500.0, abs=5.0)


def test_names_that_are_not_found_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(name: str, _: object) -> list[object]:
        if name == "gone.example":
            raise socket.gaierror(-2, "Name or service not known")
        return []

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    parsed = names({"names": "here.example,gone.example"})
    assert (figures(parsed), parsed.readings[0].line) == (
        {"names_unresolved": 1.0},
        "gone.example: Name or service not known",
    )
    assert figures(names({})) == {"names_unresolved": 0.0}


@pytest.mark.parametrize(
    ("greeting", "silent"), [(b"SSH-2.0-OpenSSH_9.6\r\n", 0.0), (b"220 mail\r\n", 1.0), (b"", 1.0)]
)
def test_an_ssh_server_greets(greeting: bytes, silent: float) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall(greeting)

        thread = threading.Thread(target=serve)
        thread.start()
        port = str(server.getsockname()[1])
        assert figures(ssh({"port": port})) == {"ssh_silent": silent}
        thread.join()
    assert figures(ssh({"port": port})) == {"ssh_silent": 1.0}, "nobody listens any more"


def test_a_tool_is_timed_and_one_that_fails_or_is_not_there_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert tool_time({"tool": "nvidia-smi"}).unknown == "nvidia-smi is not there"
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\nsleep 0.05\n")
    tool.chmod(0o755)
    assert figures(tool_time({"tool": "nvidia-smi"}))["tool_seconds"] >= 0.05
    tool.write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
    assert tool_time({"tool": "nvidia-smi"}).unknown == "nvidia-smi -L ended with 9: NVIDIA-SMI has failed"
    assert tool_time({"tool": "rm"}).unknown.startswith("tool: must be one of")


@pytest.mark.parametrize("name", [*node.PROBES, "names", "ssh"])
def test_this_machine_answers(name: str) -> None:
    found = answer(name, {})
    assert found.readings or found.unknown
    assert not found.unknown.startswith("the probe crashed"), found.unknown
    assert name in PROBES


def test_an_argument_that_is_no_number_is_the_reason() -> None:
    assert "could not convert" in answer("processes", {"seconds": "many"}).unknown
