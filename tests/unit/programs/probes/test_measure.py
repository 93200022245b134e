from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from workflows.programs.parsers.text import ParsedOutput
from workflows.programs.probes import measure
from workflows.programs.probes.measure import MIB, best_rate, pattern, process_all_reduce
from workflows.programs.probes.node import ArgumentError, number
from workflows.programs.probes.one import PROBES, answer

SMALL = {
    "memory-bandwidth": {"bytes": str(4 * MIB)},
    "cpu-gemm": {"size": "64"},
    "storage": {"bytes": str(2 * MIB)},
    "loopback": {"bytes": str(4 * MIB)},
    "process-all-reduce": {"bytes": str(MIB), "processes": "3"},
}
WRONG = ("cpu_gemm_wrong_values", "storage_wrong_bytes", "process_all_reduce_wrong_values")


def figures(parsed: ParsedOutput) -> dict[str, float]:
    assert parsed.unknown == ""
    return {one.quantity: one.value for one in parsed.readings if one.value is not None}


@pytest.mark.parametrize("name", SMALL)
def test_a_measurement_is_real_and_right(name: str, tmp_path: Path) -> None:
    found = figures(PROBES[name]({**SMALL[name], **({"path": str(tmp_path)} if name == "storage" else {})}))
    for quantity, value in found.items():
        assert math.isfinite(value)
        assert value == 0 if quantity in WRONG else value > 0
    assert list(tmp_path.iterdir()) == [], "nothing is left"


def test_every_measurement_is_measured_here() -> None:
    assert set(SMALL) == set(measure.PROBES) - {"volume"} <= set(PROBES)


def test_a_processor_without_numpy_is_measured_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    parsed = measure.cpu_gemm({"size": "12"})
    assert parsed.readings[0].line == "plain Python, 12 x 12, fp64"
    assert figures(parsed)["cpu_gemm_wrong_values"] == 0


def test_a_wrong_product_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    monkeypatch.setattr(measure.operator, "mul", lambda a, b: a * b + 0.5)  # pyright: ignore
    assert figures(measure.cpu_gemm({"size": "8"}))["cpu_gemm_wrong_values"] == 64


def test_a_disk_that_gives_back_something_else_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(path: str, block: bytes, blocks: int) -> tuple[float, float]:
        Path(path).write_bytes(bytes([block[0] ^ 1]) + block[1:] + block * (blocks - 2) + block[:-10])
        return 1.0, 1.0

    monkeypatch.setattr(measure, "_write", damaged)
    parsed = measure.storage({"bytes": str(3 * MIB), "path": str(tmp_path)})
    assert figures(parsed)["storage_wrong_bytes"] == 11, "one flipped, ten missing"


def test_a_rank_that_adds_wrongly_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pass_on: Callable[..., int] = measure.ExclusiveOrRing.pass_on

    def faulty(ring: measure.ExclusiveOrRing, value: int) -> int:
        got = pass_on(ring, value)
        return got ^ 1 if ring.rank == 1 else got

    monkeypatch.setattr(measure.ExclusiveOrRing, "pass_on", faulty)
    assert figures(process_all_reduce({"bytes": "3000", "processes": "3"}))["process_all_reduce_wrong_values"] > 0


def test_a_rank_that_dies_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    run = measure.ExclusiveOrRing.run

    def dies(ring: measure.ExclusiveOrRing) -> float:
        if ring.rank == 0:
            raise RuntimeError("no")
        return run(ring)

    monkeypatch.setattr(measure.ExclusiveOrRing, "run", dies)
    parsed = process_all_reduce({"bytes": "300", "processes": "3"})
    assert (parsed.readings, parsed.unknown) == ((), "only 0 of 3 processes came to the end")


def test_no_two_ranks_begin_alike() -> None:
    assert len({pattern(rank, 100) for rank in range(64)}) == 64
    assert len(pattern(3, 1000)) == 1000


def test_the_first_round_warms_up() -> None:
    amounts = iter((1e12, 1.0, 2.0))
    assert best_rate(lambda: next(amounts), 2) < 1e11


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"size": "many"}, "size: must be a whole number, got 'many'"),
        ({"size": "1"}, "size: must be at least 2, got 1"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(arguments: Mapping[str, str], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        number(arguments, "size", 4, least=2)
    assert answer("cpu-gemm", arguments).unknown.endswith(said)


def test_what_goes_wrong_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = answer("storage", {"path": str(tmp_path / "file" / "below")})
    assert (refused.readings, "Not a directory" in refused.unknown) == ((), True)
    assert answer("nosuch", {}).unknown == "these programs have no probe 'nosuch': use an image of the same version"
