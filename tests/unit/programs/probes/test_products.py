"""How results of GPUs are judged: one wrong value anywhere is found, and no sound result is called wrong."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fakes.made_gpus import MadeDevice
from workflows.programs.probes.call import LIMIT_VARIABLE
from workflows.programs.probes.gpu import kernels
from workflows.programs.probes.gpu.children import ChildEnd
from workflows.programs.probes.gpu.collective import MODELS, digest, train, unlike
from workflows.programs.probes.gpu.device import END_SECONDS, MeasuringDeadline, median, own_limit
from workflows.programs.probes.gpu.kernels import KINDS, factors, pattern, wrong_bytes, wrong_values
from workflows.programs.probes.gpu.torch_device import TorchPlatform
from workflows.programs.probes.gpus import trained

DEVICE = MadeDevice(0)
PLACES = st.integers(0, 10**6)


def test_sums_of_whole_numbers_are_exact_in_any_order() -> None:
    for kind, how in KINDS.items():
        assert how.most**2 * how.size < 2**24, f"{kind}: 32 bits hold every sum exactly"
    assert KINDS["fp16"].most ** 2 * 8192**0.5 * 6 < 65504, "six deviations of any sum"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 7, 16, 33])
def test_a_sound_product_is_right_whatever_its_size(kind: str, size: int) -> None:
    left, right = factors(DEVICE, kind, size)
    assert wrong_values(DEVICE, DEVICE.multiply(left, right), left, right, kind) == 0


@given(kind=st.sampled_from(sorted(KINDS)), size=st.integers(2, 24), place=PLACES, data=st.data())
@settings(deadline=None)
def test_one_wrong_value_anywhere_is_found(kind: str, size: int, place: int, data: st.DataObject) -> None:
    left, right = factors(DEVICE, kind, size)
    product = DEVICE.multiply(left, right)
    row, column = divmod(place % (size * size), size)
    value = float(product[row, column])
    least = max(1.0, abs(value) * KINDS[kind].step * 2.0)
    wrong = data.draw(st.sampled_from([value + least, value - least, np.nan, np.inf, -np.inf]))
    product[row, column] = wrong
    assert wrong_values(DEVICE, product, left, right, kind) == 1


@given(st.integers(0, 3), st.integers(1, 300), st.integers(0, 9), st.sampled_from([0, -1]))
def test_every_address_has_a_word_of_its_own_and_its_complement_flips_every_bit(
    block: int, words: int, turn: int, flip: int
) -> None:
    plain = pattern(DEVICE, block, words, 0, turn)
    assert len(set(plain.tolist())) == words
    assert wrong_bytes(DEVICE, plain, pattern(DEVICE, block, words, flip, turn)) == (8 * words if flip else 0)


@given(st.dictionaries(st.tuples(st.integers(0, 63), st.integers(0, 63)), st.just(True), max_size=12))
def test_wrong_bytes_are_counted_one_by_one(flips: dict[tuple[int, int], bool]) -> None:
    wanted = pattern(DEVICE, 0, 64, 0, 0)
    found = wanted.copy()
    for word, bit in flips:
        found[word] ^= np.int64(-(2**63)) if bit == 63 else np.int64(1 << bit)
    assert wrong_bytes(DEVICE, found, wanted) == len(Counter((word, bit // 8) for word, bit in flips))


def test_a_word_that_lands_at_another_address_is_wrong_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second half of the memory is the first one again: whatever is written last stands in both."""
    monkeypatch.setattr(kernels, "BLOCK_WORDS", 64)
    shared = np.zeros(64, np.int64)
    device = MadeDevice(0)
    monkeypatch.setattr(device, "zeros", lambda count, kind: shared if count == 64 else np.zeros(count, np.int64))
    assert kernels.memory(device, 128 * 8 / device.free_bytes()[0], 0.0)["wrong"] >= 64


def test_a_model_trains_to_a_smaller_loss_and_the_same_one_again() -> None:
    one, other = train(DEVICE, "tiny", 20), train(MadeDevice(1), "tiny", 20)
    assert (one["losses"], one["weights"], one["unlike"], one["not_finite"]) == (
        other["losses"],
        other["weights"],
        0,
        0,
    )
    losses = [float(np.frombuffer(bytes.fromhex(word), ">f4")[0]) for word in one["losses"]]
    assert losses[-1] < 0.7 * losses[0]


def test_runs_that_end_with_other_weights_are_unlike_even_with_the_same_losses() -> None:
    assert train(MadeDevice(0, "ends otherwise"), "tiny", 2)["unlike"] == 1


def test_gradients_by_hand_are_those_of_small_changes() -> None:
    """A weight is moved a little: the loss changes by what its gradient says."""
    from workflows.programs.probes.gpu import collective

    model = collective.Model(blocks=2, width=8, hidden=16, tokens=4, rate=4.0)
    before = collective._Net(DEVICE, model)  # pyright: ignore[reportPrivateUsage]
    after = collective._Net(DEVICE, model)  # pyright: ignore[reportPrivateUsage]
    after.step()
    for block, side, row, column in [(0, 0, 1, 2), (0, 1, 3, 4), (1, 0, 5, 6), (1, 1, 7, 0)]:
        moved: list[float] = []
        for change in (-0.01, 0.01):
            net = collective._Net(DEVICE, model)  # pyright: ignore[reportPrivateUsage]
            net.weights[block][side][row, column] += change
            moved.append(float(net.step()))
        slope = (moved[1] - moved[0]) / 0.02
        taken = float(before.weights[block][side][row, column] - after.weights[block][side][row, column])
        # The loss is a mean over width x tokens of squares; the step leaves out that 2 / width.
        assert taken / model.rate * 2.0 / model.width == pytest.approx(slope, rel=0.05, abs=1e-4)


def runs(*losses: list[str], unlike_itself: int = 0) -> list[ChildEnd]:
    return [
        ChildEnd(index, {"losses": own, "weights": 1, "unlike": unlike_itself, "not_finite": 0, "step_seconds": 1.0})
        for index, own in enumerate(losses)
    ]


A, B, C = ["00", "01", "02"], ["00", "01", "ff"], ["00", "ee", "ff"]


@pytest.mark.parametrize(
    ("found", "proven", "differ"),
    [
        (runs(A), "", [0]),
        (runs(A, A), "", [0, 0]),
        (runs(A, A, B), "", [0, 0, 1]),
        (runs(A, A, C), "", [0, 0, 2]),
        (runs(A, B), "", [1, 1]),
        (runs(A, B, C), "", [1, 1, 1]),
        (runs(A, A, unlike_itself=3), "", [3, 3]),
        (runs(A, B), digest(A, 1), [0, 1]),
        (runs(B, B, A), digest(A, 1), [1, 1, 0]),
    ],
)
def test_who_differs_from_most_or_from_the_proven_run_is_named(
    found: list[ChildEnd], proven: str, differ: list[int]
) -> None:
    told = [one.value for one in trained(found, MODELS["tiny"], proven) if one.quantity == "loss_differences"]
    assert told == differ


def test_weights_that_end_otherwise_differ_even_with_the_same_losses() -> None:
    found = runs(A, A, A)
    other = ChildEnd(2, {**found[2].facts, "weights": 2})
    told = [one.value for one in trained([*found[:2], other], MODELS["tiny"], "") if one.quantity == "loss_differences"]
    assert told == [0, 0, 1]


def test_rates_of_training_are_those_of_its_products() -> None:
    model = MODELS["small"]
    told = {one.quantity: one.value for one in trained(runs(A), model, "")}
    assert told["tokens_per_second"] == 8192
    assert told["model_rate"] == pytest.approx(6 * 8192 * model.blocks * 2 * model.width * model.hidden / 1e12)


@given(st.lists(st.sampled_from(["a", "b"])), st.lists(st.sampled_from(["a", "b"])))
def test_unlike_steps_are_none_exactly_of_equal_runs(one: list[str], other: list[str]) -> None:
    assert (unlike(one, other) == 0) == (one == other)
    assert unlike(one, other) == unlike(other, one) <= max(len(one), len(other))


@given(st.lists(st.floats(0, 1e9), min_size=1))
def test_the_median_is_one_of_them_and_splits_them(figures: list[float]) -> None:
    found = median(figures)
    assert found in figures
    assert sum(one < found for one in figures) <= len(figures) // 2
    assert sum(one > found for one in figures) <= len(figures) // 2


@pytest.mark.parametrize(
    ("granted", "limit"), [("", 60.0), ("no number", 60.0), ("20", 20.0 - END_SECONDS), ("0.1", 0.5), ("900", 60.0)]
)
def test_a_probe_gives_up_before_it_is_ended(granted: str, limit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workflows.programs.probes.gpu.device.time.monotonic", lambda: 1000.0)
    monkeypatch.setenv(LIMIT_VARIABLE, granted)
    assert own_limit(60.0, process_began=1000.0) == pytest.approx(1000.0 + limit)
    assert MeasuringDeadline.of(0.0).is_up


class FakeTorch:
    """As much of torch as choosing a GPU needs."""

    __version__ = "2.9"

    def __init__(self, hip: str | None) -> None:
        self.version, self.cuda = self, self
        self.hip = hip


@pytest.mark.parametrize(
    ("hip", "given", "index", "name", "seen"),
    [
        (None, {}, 3, "CUDA_VISIBLE_DEVICES", "3"),
        (None, {"CUDA_VISIBLE_DEVICES": "4,6"}, 1, "CUDA_VISIBLE_DEVICES", "6"),
        (None, {"CUDA_VISIBLE_DEVICES": "GPU-a, GPU-b"}, 0, "CUDA_VISIBLE_DEVICES", "GPU-a"),
        (None, {"HIP_VISIBLE_DEVICES": "7"}, 0, "CUDA_VISIBLE_DEVICES", "0"),
        ("6.4", {}, 5, "HIP_VISIBLE_DEVICES", "5"),
        ("6.4", {"HIP_VISIBLE_DEVICES": "2,3"}, 1, "HIP_VISIBLE_DEVICES", "3"),
        ("6.4", {"CUDA_VISIBLE_DEVICES": "2,3"}, 0, "HIP_VISIBLE_DEVICES", "2"),
    ],
)
def test_a_process_sees_its_own_gpu_of_those_that_the_pod_may_see(
    hip: str | None, given: dict[str, str], index: int, name: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for known in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(known, raising=False)
    for known, value in given.items():
        monkeypatch.setenv(known, value)
    monkeypatch.setenv(name, given.get(name, ""))
    TorchPlatform(FakeTorch(hip))._see_only(index)  # pyright: ignore[reportPrivateUsage]
    assert os.environ[name] == seen
