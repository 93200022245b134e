"""Probes that open GPUs, on made-up ones: sound ones tell what suites ask for, sick ones are found and hide nobody."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import pytest

from profiles.checks.catalogue import PROBES as WORDS
from tests.support.cases.rows import rows
from tests.support.fakes.made_gpus import MEMORY_BYTES, MadePlatform
from tests.support.running.waiting import patience
from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import gpus as probes_gpus
from workflows.programs.probes import one as probes_one
from workflows.programs.probes.call import LIMIT_VARIABLE
from workflows.programs.probes.gpu import children, kernels
from workflows.programs.probes.gpu.device import END_SECONDS
from workflows.programs.probes.gpu.sensors import Sensors
from workflows.programs.probes.gpus import loaded

OF_PLATFORM = probes_gpus.OF_PLATFORM
SMALL: dict[str, dict[str, str]] = {
    "gpu-smoke": {"seconds": "60"},
    "gpu-gemm": {"size": "32", "seconds": "0"},
    "gpu-memory": {"share": "0.5", "seconds": "0"},
    "gpu-copy": {"bytes": "4096"},
    "gpu-launch": {"launches": "100"},
    "gpu-overlap": {"size": "32", "bytes": "4096"},
    "collective": {"bytes": "4096", "iterations": "2"},
    "train-step": {"model": "tiny", "steps": "3"},
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "BLOCK_WORDS", 1 << 14)
    monkeypatch.setattr(probes_gpus, "SMOKE_SIZE", 32)


def granted(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Whoever started this process ends it then; a GPU that hangs is waited for until shortly before.

    `seconds` are those of a calm machine: the others must have begun and come to their stage by then.
    """
    monkeypatch.setattr(children, "_BEGAN", time.monotonic())
    monkeypatch.setenv(LIMIT_VARIABLE, str(patience(seconds) + END_SECONDS))


def unheard(_line: object, _name: str) -> None:
    """Stages that nobody is told of."""


def ask(name: str, faults: Mapping[int, str] | None = None, gpus: int = 2, **arguments: Any) -> ParsedOutput:
    return OF_PLATFORM[name]({**SMALL[name], **arguments}, MadePlatform(gpus, faults or {}))


def figures(parsed: ParsedOutput, quantity: str) -> dict[str, float | None]:
    return {one.subject: one.value for one in parsed.readings if one.quantity == quantity}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [*SMALL.items(), ("collective", {"operation": "all-to-all"}), ("gpu-overlap", {"transfer": "all-reduce"})],
)
def test_sound_gpus_tell_what_suites_ask_for_in_its_units(name: str, arguments: dict[str, Any]) -> None:
    found = ask(name, **arguments)
    assert (found.unknown, found.version) == ("", "made-up 1.0")
    assert {(one.quantity, one.unit) for one in found.readings} <= set(WORDS[name].quantities.items())
    wrong = [one for one in found.readings if one.unit == "count" and one.quantity != "gpus_bindable" and one.value]
    assert wrong == []
    assert all(one.value is not None and one.line for one in found.readings)


@pytest.mark.parametrize("kind", ["bf16", "fp16", "fp8", "fp32", "fp64"])
def test_products_are_rated_by_two_n_cubed(kind: str) -> None:
    found = ask("gpu-gemm", type=kind)
    assert figures(found, f"{kind}_gemm") == pytest.approx(
        {f"gpu {index}": 2 * 32**3 / 0.001 / 1e12 for index in (0, 1)}
    )


def test_a_slow_gpu_shows_in_its_figure() -> None:
    found = figures(ask("gpu-gemm", {1: "slow"}), "bf16_gemm")
    assert (found["gpu 0"] or 0) > 100 * (found["gpu 1"] or 1)


@rows("programs/probes/devices")
def test_wrong_results_are_found_on_the_gpu_that_gives_them(
    name: str, fault: str, quantity: str, arguments: dict[str, str]
) -> None:
    found = figures(ask(name, {1: fault}, gpus=3, **arguments), quantity)
    assert (found["gpu 1"] or 0) >= 1
    assert (found["gpu 0"], found["gpu 2"]) == (0, 0)


@pytest.mark.parametrize(
    "name", ["gpu-smoke", "gpu-gemm", "gpu-memory", "gpu-copy", "gpu-launch", "gpu-overlap", "train-step"]
)
@rows("programs/probes/devices")
def test_a_gpu_that_fails_hides_no_other(name: str, fault: str, said: str) -> None:
    found = ask(name, {1: fault}, gpus=3)
    assert found.unknown.startswith(said)
    told = {one.subject.split(" ->", 1)[0] for one in found.readings} - {""}
    assert told == {"gpu 0", "gpu 2"}


@pytest.mark.parametrize("name", ["gpu-smoke", "gpu-gemm", "gpu-launch", "train-step"])
def test_a_gpu_that_hangs_is_given_up_before_the_probe_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    granted(monkeypatch, 2.5)
    found = ask(name, {1: "hangs at opening"})
    assert found.unknown == "gpu 1: it did not answer in time, at stage opening"
    assert {one.subject for one in found.readings} - {""} == {"gpu 0"}


def test_gpus_that_cannot_be_opened_are_not_bindable(monkeypatch: pytest.MonkeyPatch) -> None:
    granted(monkeypatch, 2.5)
    found = ask("gpu-smoke", {0: "refuses", 2: "hangs at opening"}, gpus=4)
    assert figures(found, "gpus_bindable") == {"": 2.0}
    assert "gpu 0: RuntimeError" in found.readings[0].line
    assert "gpu 2: it did not answer in time" in found.readings[0].line


def test_nobody_knows_how_many_can_be_opened_where_one_was_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(index: int, line: object) -> None:
        os._exit(0)

    platform = MadePlatform(2)
    monkeypatch.setattr(platform, "open", dies)
    monkeypatch.setattr("workflows.programs.probes.gpu.children.ChildLine.stage", unheard)
    found = OF_PLATFORM["gpu-smoke"](SMALL["gpu-smoke"], platform)
    assert (found.readings, bool(found.unknown)) == ((), True)


def test_a_small_product_that_is_wrong_is_no_pass() -> None:
    found = ask("gpu-smoke", {1: "one wrong product"})
    assert found.unknown == "gpu 1: 1 values of a product are wrong: test it at depth device"


def test_two_processes_on_one_gpu_are_no_answer() -> None:
    found = ask("gpu-gemm", {1: "same as 0"}, gpus=3)
    assert found.unknown.count("its process was given a GPU that another one has, too") == 2
    assert figures(found, "gemm_wrong_values") == {"gpu 2": 0.0}


def test_copies_that_come_otherwise_have_no_rate() -> None:
    found = ask("gpu-copy", {0: "a word lost on the way"})
    names = ("to host", "from host", "gpu 0 -> gpu 1")
    assert found.unknown == "; ".join(f"gpu 0, {name}: other bytes came" for name in names)
    assert {one.subject for one in found.readings} == {"gpu 1", "gpu 1 -> gpu 0"}


def test_a_copy_that_does_not_happen_is_no_fast_one() -> None:
    found = ask("gpu-copy", {0: "nothing comes back from peers"})
    assert found.unknown == "gpu 0, gpu 0 -> gpu 1: other bytes came"
    assert {one.subject for one in found.readings} == {"gpu 0", "gpu 1", "gpu 1 -> gpu 0"}


def test_a_peer_that_cannot_be_reached_hides_no_other_copy() -> None:
    found = ask("gpu-copy", {0: "gpu 1 unreachable"}, gpus=3)
    assert found.unknown == "gpu 0, gpu 0 -> gpu 1: UnavailableError: gpu 1 cannot be reached"
    assert len(found.readings) == 2 * 3 + 3 * 2 - 1


def test_copies_go_between_host_and_every_gpu_and_each_two_gpus() -> None:
    found = ask("gpu-copy", gpus=3)
    assert set(figures(found, "gpu_to_gpu_bandwidth")) == {
        f"gpu {one} -> gpu {other}" for one in range(3) for other in range(3) if one != other
    }
    hosts = {"gpu 0", "gpu 1", "gpu 2"}
    assert set(figures(found, "host_to_gpu_bandwidth")) == set(figures(found, "gpu_to_host_bandwidth")) == hosts
    assert {one.value for one in found.readings} == {4096 / 0.001 / 1e9}


def test_bandwidth_of_memory_counts_bytes_read_and_bytes_written() -> None:
    found = figures(ask("gpu-memory"), "hbm_bandwidth")
    assert found == pytest.approx(dict.fromkeys(("gpu 0", "gpu 1"), 2 * MEMORY_BYTES / 8 / 0.001 / 1e9))


@pytest.mark.parametrize(
    ("fault", "stage", "known"),
    [("hangs at a copy", "to host", set[str]()), ("gpu 1 hangs", "gpu 0 -> gpu 1", {"gpu 0"})],
)
def test_a_copy_that_hangs_loses_its_turn_and_nothing_known(
    fault: str, stage: str, known: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes_gpus, "COPY_SECONDS", 1.0)
    found = ask("gpu-copy", {0: fault})
    assert found.unknown == f"gpu 0: it did not end within 1 s of its turn, at stage {stage}"
    assert {one.subject for one in found.readings} == {"gpu 1", "gpu 1 -> gpu 0"} | known


def test_a_collective_in_which_one_hangs_has_no_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    granted(monkeypatch, 2.5)
    found = ask("collective", {1: "hangs in the collective"})
    assert found.unknown == "gpu 1: it did not answer in time, at stage in the collective"
    assert {one.quantity for one in found.readings} == {"collective_wrong_values"}


@pytest.mark.parametrize(("gpus", "share"), [(2, 1.0), (8, 1.75)])
def test_bus_bandwidth_is_that_of_nccl_tests(gpus: int, share: float) -> None:
    [rate] = figures(ask("collective", gpus=gpus), "all_reduce_bus_bandwidth").values()
    assert rate == pytest.approx(share * 4096 / 0.001 / 1e9)
    [rate] = figures(ask("collective", gpus=gpus, operation="all-to-all"), "all_to_all_bus_bandwidth").values()
    assert rate == pytest.approx(share / 2 * 4096 / 0.001 / 1e9)


def test_a_collective_of_one_gpu_is_none() -> None:
    assert ask("collective", gpus=1).unknown == "a collective needs two GPUs, and there is one"


@pytest.mark.parametrize(("fault", "hidden"), [("", 100.0), ("one after the other", 0.0)])
def test_what_goes_on_side_by_side_is_told_in_per_cent_of_the_shorter_time(fault: str, hidden: float) -> None:
    for transfer in probes_gpus.TRANSFERS:
        found = ask("gpu-overlap", {0: fault, 1: fault}, transfer=transfer)
        quantity = f"{transfer.replace('-', '_')}_overlap"
        assert figures(found, quantity) == {"gpu 0": hidden, "gpu 1": hidden}
    assert "an all-reduce needs two GPUs" in ask("gpu-overlap", gpus=1, transfer="all-reduce").unknown


def test_a_kernel_that_did_nothing_is_no_sound_gpu() -> None:
    found = ask("gpu-launch", {1: "kernels are lost"})
    assert found.unknown == "gpu 1: 110 of its kernels did nothing: test it at depth device"
    assert all((one.value or 0) > 0 for one in found.readings)


def test_a_collective_that_does_not_fit_says_so() -> None:
    found = ask("collective", bytes=str(1 << 30))
    assert found.readings == ()
    assert "ask for fewer bytes" in found.unknown


def test_less_memory_is_tested_where_another_process_holds_it() -> None:
    found = ask("gpu-memory", {1: "memory is taken"})
    assert figures(found, "gpu_memory_wrong_bytes") == {"gpu 0": 0.0, "gpu 1": 0.0}


def test_a_kind_of_numbers_that_the_library_lacks_is_unknown() -> None:
    found = ask("gpu-gemm", {0: "no fp8"}, type="fp8")
    assert found.unknown == "gpu 0: UnavailableError: it has no products of fp8"


@pytest.mark.parametrize("name", list(SMALL))
def test_without_gpus_or_where_they_cannot_be_counted_all_is_unknown(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    platforms = (MadePlatform(0), MadePlatform(counting="driver is older than the library"))
    said: list[str] = []
    for platform in platforms:
        monkeypatch.setattr(probes_gpus, "torch_platform", lambda platform=platform: platform)
        found = probes_one.answer(name, SMALL[name])
        assert found.readings == ()
        said.append(found.unknown)
    assert said[0] == "there is no GPU: give the pod some"
    assert said[1] == "made-up 1.0 cannot count the GPUs: RuntimeError: driver is older than the library"


@pytest.mark.parametrize(
    ("name", "argument", "value", "said"),
    [
        ("gpu-gemm", "type", "int4", "type: must be one of bf16, fp16, fp8, fp32, fp64, got 'int4'"),
        ("gpu-gemm", "size", "8", "size: must be at least 16, got 8"),
        ("gpu-gemm", "seconds", "ten", "seconds: must be a whole number, got 'ten'"),
        ("gpu-memory", "share", "1.5", "share: must be a number above 0 and at most 0.95, got '1.5'"),
        ("gpu-memory", "share", "nan", "share: must be a number above 0 and at most 0.95, got 'nan'"),
        ("collective", "operation", "gather", "operation: must be one of all-reduce, all-to-all, got 'gather'"),
        ("gpu-launch", "launches", "1", "launches: must be at least 10, got 1"),
        ("gpu-overlap", "transfer", "gossip", "transfer: must be one of copy, all-reduce, got 'gossip'"),
        ("train-step", "model", "huge", "model: must be one of small, tiny, got 'huge'"),
    ],
)
def test_arguments_that_are_wrong_are_named(
    name: str, argument: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes_gpus, "torch_platform", MadePlatform)
    assert said in probes_one.answer(name, {argument: value}).unknown


def test_gpus_that_disagree_are_held_against_the_proven_run() -> None:
    alike = ask("train-step", gpus=2)
    proven = alike.readings[0].line.split()[1].rstrip(";")
    found = ask("train-step", {1: "trains otherwise"}, gpus=2)
    assert set(figures(found, "loss_differences").values()) != {0.0}, "of two, nobody can say who is wrong"
    assert 0.0 not in figures(found, "loss_differences").values()
    judged = figures(ask("train-step", {1: "trains otherwise"}, gpus=2, digest=proven), "loss_differences")
    assert (judged["gpu 0"], (judged["gpu 1"] or 0) >= 1) == (0.0, True)
    other = figures(ask("train-step", gpus=2, digest="0123456789abcdef"), "loss_differences")
    assert other == {"gpu 0": 1.0, "gpu 1": 1.0}


def test_the_load_tells_what_the_sensors_saw_and_nothing_of_gpus_that_stood_idle() -> None:
    table = (
        "index, power.draw [W], temperature.gpu, clocks.sm [MHz], clocks_throttle_reasons.hw_slowdown\n"
        "0, 690.00 W, 61, 1500 MHz, Not Active\n1, 90.00 W, 33, 300 MHz, Active\n"
    )
    from workflows.programs.parsers.nvidia import parse

    sensors = Sensors(((("printf", table.replace("\n", "\\n")), parse),))
    found = loaded(1, MadePlatform(2, {1: "refuses"}), sensors, 32)
    assert figures(found, "power") == {"gpu 0": 690.0}
    assert figures(found, "gpus_throttled") == {"": 1.0}
    assert "gpu 1: RuntimeError" in found.unknown


def test_every_probe_that_opens_gpus_is_known_by_its_name() -> None:
    assert set(probes_one.GPU_PROBES) == set(probes_gpus.OF_PLATFORM) == set(probes_gpus.PROBES)
    assert set(WORDS) - set(probes_one.PROBES) <= {"kubernetes-node", "gang-sockets", "pair-sockets"}


def test_gpus_are_called_by_their_numbers_where_the_library_has_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def numbers(_counted: int) -> tuple[int, ...]:
        return (0, 2)

    monkeypatch.setattr(children, "numbers_of", numbers)
    assert list(figures(ask("gpu-gemm"), "bf16_gemm")) == ["gpu 0", "gpu 2"]
    assert set(figures(ask("gpu-copy"), "gpu_to_gpu_bandwidth")) == {"gpu 0 -> gpu 2", "gpu 2 -> gpu 0"}
