"""What the prover deletes while a run lives: proven ones that nobody needs, and nothing on half of the way."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.builders.checkpoint_samples import Files, huggingface, megatron_dist, numbered_file, primus, put
from workflows.programs.checkpoints import choose, surplus
from workflows.programs.checkpoints.prover import Options, Prover
from workflows.wire import REMOVED, CheckpointSeen

LEDGER = "5f1c9d7e"
STEPS = (10, 20, 30, 40, 50)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "runs" / "r"
    (path / "checkpoints").mkdir(parents=True)
    (path / "ledger").write_text(f"{LEDGER}\n")
    return path


def proven(run: Path, sample: Callable[[int], Files] = primus, **changes: object) -> Prover:
    """A prover that has read one checkpoint of each of `STEPS`."""
    for step in STEPS:
        put(run / "checkpoints", sample(step))
    told = {"keep": 2, "remove_surplus": True, **changes}
    prover = Prover(Options(str(run / "checkpoints"), str(run), **told))  # type: ignore[arg-type]
    for _ in range(3):
        prover.look()
    return prover


def left(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "checkpoints").iterdir())


def steps(gone: list[CheckpointSeen]) -> list[int]:
    assert {(one.verdict, one.format) for one in gone} <= {("unknown", REMOVED)}
    return [one.step for one in gone]


def test_what_is_older_than_the_newest_goes_with_its_proof_once_it_may(run: Path) -> None:
    prover = proven(run)
    assert left(run) == [f"step-{step}" for step in STEPS], "not before somebody says so"
    gone = prover.take_line(f"surplus {LEDGER} ")
    assert steps(gone) == [10, 20, 30]
    assert gone[0].bytes == sum(map(len, primus(10).values()))
    assert left(run) == ["step-40", "step-50"]
    assert sorted(path.stem for path in (run / "proofs").iterdir()) == ["step-40", "step-50"]
    assert prover.take_line(f"surplus {LEDGER} ") == prover.look() == []
    assert prover.take_line("nan 5") != [], "what is left is withdrawn, and nothing of what is gone comes back"
    assert sorted(path.stem for path in (run / "proofs").iterdir()) == ["step-40", "step-50"]


@pytest.mark.parametrize("change", ["by_hand", "other", "nobody", "no owner"])
def test_nothing_goes_that_nobody_asked_for_or_that_is_another_ledgers(run: Path, change: str) -> None:
    prover = proven(run, remove_surplus=change != "by_hand")
    if change == "no owner":
        (run / "ledger").unlink()
    said = {"other": "0a0a0a", "nobody": ""}.get(change, LEDGER)
    assert prover.take_line(f"surplus {said}") == []
    assert len(left(run)) == len(STEPS)


def test_damaged_ones_changed_ones_and_nans_do_not_count_and_stay(run: Path) -> None:
    for step in STEPS:
        put(run / "checkpoints", primus(step))
    broken = dict(primus(50))
    broken["step-50/shard-0.npz"] = broken["step-50/shard-0.npz"].replace(b"50 0", b"50 9", 1)
    put(run / "checkpoints", broken)
    prover = Prover(Options(str(run / "checkpoints"), str(run), keep=2, remove_surplus=True))
    for _ in range(5):
        prover.look()
    (run / "checkpoints" / "step-10" / "shard-1.npz").write_bytes(b"written again")
    prover.look()
    assert steps(prover.take_line(f"surplus {LEDGER}")) == [20], "40 and 30 are the newest two that are good"
    prover.take_line("nan 40")
    assert prover.take_line(f"surplus {LEDGER}") == []
    assert left(run) == ["step-10", "step-30", "step-40", "step-50"]


def test_what_the_ranks_resumed_from_and_one_of_each_so_many_steps_stay(run: Path) -> None:
    prover = proven(run, keep_every_steps=20)
    assert steps(prover.take_line(f"surplus {LEDGER} {run}/checkpoints/step-30/")) == []
    assert steps(prover.take_line(f"surplus {LEDGER} {run}/checkpoints/step-3")) == [30]
    assert left(run) == ["step-10", "step-20", "step-40", "step-50"], "10 is of 0 to 19, 20 of 20 to 39"


@pytest.mark.parametrize(
    ("sample", "place", "text", "stays"),
    [
        (primus, "checkpoints/latest", "->step-20", "step-20"),
        (primus, "best", "->checkpoints/step-20", "step-20"),
        (primus, "checkpoints/pointer.json", '{"resume": "/elsewhere/step-20"}', "step-20"),
        (primus, "last_checkpoint.txt", "20\n", "step-20"),
        (megatron_dist, "checkpoints/latest_checkpointed_iteration.txt", "20", "iter_0000020"),
        (huggingface, "checkpoints/checkpoint-50/trainer_state.json",
         '{"global_step": 50, "best_model_checkpoint": "out/checkpoint-20", "log_history": []}', "checkpoint-20"),
        (numbered_file, "checkpoints/last.pt", "->model_000020.pt", "model_000020.pt"),
    ],
)  # fmt: skip
def test_what_a_tracker_or_a_link_names_stays(
    run: Path, sample: Callable[[int], Files], place: str, text: str, stays: str
) -> None:
    inside = "checkpoint-50/" in place  # of which nothing may change any more once it is proven
    prover = proven(run, lambda step: sample(step) | ({place.partition("/")[2]: text.encode()} if inside else {}))
    if text.startswith("->"):
        (run / place).symlink_to(text.removeprefix("->"))
    elif not inside:
        (run / place).write_text(text)
    gone = steps(prover.take_line(f"surplus {LEDGER}"))
    assert 20 not in gone
    assert 10 in gone
    assert stays in left(run)


def test_a_number_in_another_file_names_nothing(run: Path) -> None:
    prover = proven(run)
    (run / "checkpoints" / "train.log").write_text("saved step-10, step-20 and step-30")
    (run / "checkpoints" / "config.json").write_text('{"batch": 10, "elastic": 20, "of": "xstep-30"}')
    assert steps(prover.take_line(f"surplus {LEDGER}")) == [10, 20, 30]


def test_what_lies_elsewhere_and_what_is_overwritten_stays(run: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    put(tmp_path / "elsewhere", primus(10))
    (run / "checkpoints" / "step-10").symlink_to(tmp_path / "elsewhere" / "step-10")
    prover = proven(run, lambda step: {} if step == 10 else primus(step))
    assert steps(prover.take_line(f"surplus {LEDGER}")) == [20, 30]
    assert (tmp_path / "elsewhere" / "step-10" / "manifest.json").exists()


@pytest.mark.parametrize("sample", [primus, numbered_file], ids=["folder", "file"])
@pytest.mark.parametrize("call", range(1, 4))
def test_a_removal_that_is_killed_leaves_no_half_and_is_ended_later(
    run: Path, sample: Callable[[int], Files], call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prover = proven(run, sample)
    dies_at(monkeypatch, call)
    with suppress(KeyboardInterrupt):
        prover.take_line(f"surplus {LEDGER}")
    monkeypatch.undo()
    chosen = choose.choose(choose.Options(str(run / "checkpoints"), str(run)))
    assert (chosen.verdict, chosen.resume_step) == ("pass", 50)
    assert all(one.complete for one in chosen.looked_at), "nobody takes half of one for whole, or for damaged"
    again = proven(run, lambda _: {})
    again.take_line(f"surplus {LEDGER}")
    surplus.finish_removals([str(run / "checkpoints")])
    assert left(run) == sorted({name.split("/")[0] for step in (40, 50) for name in sample(step)})


@pytest.mark.parametrize("call", range(1, 9))
def test_one_of_several_files_goes_as_a_whole_and_not_with_a_later_one_of_its_names(
    tmp_path: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["ckpt-10.data-0", "ckpt-10.data-1", "ckpt-10.index"]
    put(tmp_path, {name: b"old" for name in names} | {"ckpt-20.index": b"stays"})
    dies_at(monkeypatch, call)
    with suppress(KeyboardInterrupt):
        surplus.remove(str(tmp_path), names)
    monkeypatch.undo()
    untouched = all((tmp_path / name).exists() for name in names)
    if not untouched:
        put(tmp_path, {"ckpt-10.index": b"saved anew"})
    surplus.finish_removals([str(tmp_path)])
    there = sorted(path.name for path in tmp_path.iterdir())
    assert there in (["ckpt-10.index", "ckpt-20.index"], [*names, "ckpt-20.index"], ["ckpt-20.index"]), call
    if not untouched:
        assert (tmp_path / "ckpt-10.index").read_bytes() == b"saved anew"


def dies_at(monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """The process is killed right before so many changes of the file system."""
    done = 0

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def change(*words: object, **more: object) -> object:
            nonlocal done
            done += 1
            if done == call:
                raise KeyboardInterrupt
            return real(*words, **more)

        return change

    for name in ("rename", "unlink", "rmdir", "mkdir"):
        monkeypatch.setattr(os, name, counted(getattr(os, name)))
