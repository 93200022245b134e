"""Tables: what each format counts as complete, partial, corrupt or stale, and which checkpoint a resume takes."""

# ruff: noqa: E501 - a table reads better with one case a line

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.builders.checkpoint_samples import (
    SAMPLES,
    Files,
    dcp,
    huggingface,
    huggingface_sharded,
    megatron_dist,
    megatron_legacy,
    npy_file,
    numbered_file,
    old_torch_file,
    one_file,
    primus,
    put,
    safetensors_file,
    torch_file,
)
from tests.support.cases.rows import rows
from workflows.programs.checkpoints import integrity, kept_copies, manifest
from workflows.programs.checkpoints.formats import find_candidates
from workflows.programs.checkpoints.inventory import SurveyRequest, look_into, to_states
from workflows.programs.checkpoints.kept_copies import ResumeLimits
from workflows.programs.checkpoints.listing import list_files
from workflows.programs.checkpoints.surplus import Stored, surplus
from workflows.wire import CheckpointState


def states_of(folder: str, run: str, format: str = "auto", pattern: str = "", **more: Any) -> list[CheckpointState]:
    return to_states(look_into(SurveyRequest(folder, run, format, pattern, **more)).findings)


def word_of(folder: Path, **request: Any) -> tuple[str, str]:
    """Judgement of the newest checkpoint in a folder."""
    finding = look_into(SurveyRequest(str(folder / "ck"), str(folder / "run"), **request)).findings[0]
    assert finding.usable == (finding.judgement.word == "complete")
    return finding.judgement.word, finding.judgement.why


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_whole_checkpoint_of_each_kind_is_recognised_by_content(kind: str, tmp_path: Path) -> None:
    put(tmp_path / "ck", SAMPLES[kind](20))
    [state] = states_of(str(tmp_path / "ck"), str(tmp_path / "run"))
    assert (state.usable, state.would_resume, state.complete) == (True, True, True), state
    assert state.step == (20 if kind != "one_file" else -1)
    assert state.format == {
        "megatron_legacy": "megatron",
        "megatron_dist": "megatron",
        "huggingface_sharded": "huggingface",
        "numbered_file": "pattern",
        "one_file": "pattern",
    }.get(kind, kind)
    assert state.digest == ("ok" if kind == "primus" else "absent")


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize("change", ["delete", "empty", "cut"])
@pytest.mark.parametrize("kind", SAMPLES)
def test_each_file_of_each_kind_is_needed_whole(kind: str, change: str, tmp_path: Path) -> None:
    may_be_missing = ("/config.json", "/training_args.bin", "/rng_state.pth")
    no_harm_when_cut = ("latest_checkpointed_iteration.txt", "/training_args.bin")
    whole = SAMPLES[kind](20)
    for number, (name, data) in enumerate(whole.items()):
        tracked = kind == "megatron_dist" and name.endswith(".txt")  # .metadata says as well that the save has ended
        if (change == "delete" and (tracked or name.endswith(may_be_missing))) or (
            change != "delete" and name.endswith(no_harm_when_cut)
        ):
            continue
        damaged = {"delete": None, "empty": b"", "cut": cut(data)}[change]
        files = {**whole, name: damaged} if damaged is not None else {k: v for k, v in whole.items() if k != name}
        put(tmp_path / f"{number}", files)
        states = states_of(str(tmp_path / f"{number}"), str(tmp_path / "run"))
        assert not any(state.usable for state in states), (name, states)


def without(files: Files, ending: str) -> Files:
    return {name: data for name, data in files.items() if not name.endswith(ending)}


def replaced(files: Files, ending: str, data: bytes) -> Files:
    assert any(name.endswith(ending) for name in files)
    return {name: data if name.endswith(ending) else old for name, old in files.items()}


CASES: list[tuple[str, Callable[[], Files], str, str]] = [
    ("ours without its manifest", lambda: without(primus(), "manifest.json"), "partial", "did not finish"),
    ("ours with a manifest of nonsense", lambda: replaced(primus(), "manifest.json", b"[]"), "corrupt", "JSON object"),
    ("ours with another step's manifest", lambda: replaced(primus(), "manifest.json", primus(30)["step-30/manifest.json"]), "corrupt", "says step 30"),
    ("ours without a shard", lambda: without(primus(), "shard-1.npz"), "partial", "shard-1.npz is missing"),
    ("ours with a flipped byte", lambda: replaced(primus(), "shard-1.npz", primus()["step-20/shard-1.npz"][:-1] + b"!"), "corrupt", "digest of shard-1.npz differs"),
    ("ours with a cut shard", lambda: replaced(primus(), "shard-0.npz", b"20"), "corrupt", "has 2 bytes"),
    ("an empty folder of ours", lambda: {"step-20/sub/x": b""} | primus(10), "partial", "manifest.json is missing"),
    ("distributed without metadata", lambda: without(dcp(), ".metadata"), "partial", "did not finish"),
    ("distributed without a shard", lambda: without(dcp(), "__1_0.distcp"), "partial", "__1_0.distcp is missing"),
    ("distributed with a cut shard", lambda: replaced(dcp(), "__1_0.distcp", cut(dcp()["step-20/__1_0.distcp"])), "corrupt", "was cut off"),
    ("distributed with a flipped byte in a tensor", lambda: replaced(dcp(), "__1_0.distcp", dcp()["step-20/__1_0.distcp"].replace(b"tensor 1", b"tenser 1", 1)), "corrupt", "checksum of its member"),
    ("distributed with cut metadata", lambda: replaced(dcp(), ".metadata", dcp()["step-20/.metadata"][:-5]), "corrupt", "not a whole pickle"),
    ("megatron without tracker", lambda: without(megatron_legacy(), ".txt"), "partial", "no tracker file"),
    ("megatron beyond its tracker", lambda: without(megatron_legacy(40), ".txt") | megatron_legacy(20), "partial", "names 20"),
    ("megatron with an unreadable tracker", lambda: replaced(megatron_legacy(), ".txt", b""), "complete", "2 model-parallel"),
    ("megatron without a tensor rank", lambda: without(without(megatron_legacy(20, 3), "mp_rank_01/model_optim_rng.pt"), "mp_rank_01/distrib_optim.pt"), "partial", "2 of 3"),
    ("megatron without a pipeline rank's optimizer", lambda: without(megatron_legacy(20, 2, 2), "mp_rank_01_001/distrib_optim.pt"), "partial", "distrib_optim.pt"),
    ("megatron distributed without common.pt", lambda: without(megatron_dist(), "common.pt"), "partial", "common.pt is missing"),
    ("megatron with an empty folder", lambda: {"iter_0000020/x": b"", "latest_checkpointed_iteration.txt": b"20"}, "partial", "neither"),
    ("hugging face without optimizer", lambda: without(huggingface(), "optimizer.pt"), "partial", "silently start it afresh"),
    ("hugging face without scheduler", lambda: without(huggingface(), "scheduler.pt"), "partial", "scheduler"),
    ("hugging face without weights", lambda: without(huggingface(), "model.safetensors"), "partial", "weights are missing"),
    ("hugging face without a weight shard", lambda: without(huggingface_sharded(), "00002-of-00002.safetensors"), "partial", "model-00002-of-00002.safetensors is missing"),
    ("hugging face without state", lambda: without(huggingface(), "trainer_state.json"), "partial", "did not finish"),
    ("hugging face with another step's state", lambda: replaced(huggingface(), "trainer_state.json", b'{"global_step": 7}'), "corrupt", "says step 7"),
    ("hugging face without the random state all others have", lambda: without(huggingface(60), "rng_state.pth") | huggingface(40) | huggingface(20), "partial", "rng_state.pth is missing, all others have it"),
    ("a cut torch file", lambda: {"model_000020.pt": torch_file()[:-30]}, "corrupt", "was cut off"),
    ("a flipped byte inside a torch file", lambda: {"model_000020.pt": torch_file().replace(b"weightsweights", b"weightsWeights", 1)}, "corrupt", "checksum of its member 'archive/data/0'"),
    ("a cut safetensors file", lambda: {"model-20.safetensors": safetensors_file()[:-1]}, "corrupt", "safetensors header says"),
    ("a cut array file", lambda: {"model-20.npz": torch_file()[:40]}, "corrupt", "cut off"),
    ("an empty file", lambda: {"model-20.pt": b""}, "corrupt", "is empty"),
    ("a file that only starts as an old torch file", lambda: {"model-20.pt": b"\x80\x02" + b"x" * 100}, "corrupt", "a pickle without its end"),
    ("an old torch file", lambda: {"model-20.pt": old_torch_file()}, "complete", "header is readable"),
    ("an old torch file cut inside a tensor", lambda: {"model-20.pt": old_torch_file()[:-1]}, "corrupt", "inside of its tensor 1"),
    ("an old torch file cut before a tensor", lambda: {"model-20.pt": old_torch_file()[:-20]}, "corrupt", "before its tensors"),
]  # fmt: skip


@pytest.mark.parametrize(("files", "word", "why"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_what_is_wrong_is_said(files: Callable[[], Files], word: str, why: str, tmp_path: Path) -> None:
    put(tmp_path / "ck", files())
    found, said = word_of(tmp_path)
    assert found == word, said
    assert why in said


def test_a_bad_newest_one_is_passed_over_with_its_reason(tmp_path: Path) -> None:
    put(tmp_path / "ck", primus(20) | primus(40) | without(primus(60), "shard-0.npz"))
    states = states_of(str(tmp_path / "ck"), str(tmp_path / "run"))
    assert [(one.step, one.would_resume) for one in states] == [(60, False), (40, True), (20, False)]
    assert states[0].why == "shard-0.npz is missing"


def test_limits_never_let_a_resume_go_forward(tmp_path: Path) -> None:
    put(tmp_path / "ck", primus(20) | primus(40) | primus(60) | primus(80))
    states = states_of(str(tmp_path / "ck"), str(tmp_path / "run"), limits=ResumeLimits(65, ("60", "x/step-40")))
    assert [one.step for one in states if one.would_resume] == [40]
    assert "rolled back" in states[0].why
    assert "could not resume" in states[1].why


def test_an_unfinished_save_of_ours_is_no_candidate(tmp_path: Path) -> None:
    put(tmp_path / "ck", {".step-40.unfinished/shard-0.npz": b"x"} | primus(20))
    assert [one.step for one in states_of(str(tmp_path / "ck"), str(tmp_path / "run"))] == [20]


@rows("programs/checkpoints/checkpoints")
def test_single_files_by_pattern(name: str, pattern: str, step: int | None, tmp_path: Path) -> None:
    put(tmp_path, {name: torch_file()})
    found = find_candidates(list_files(str(tmp_path)), "pattern", pattern)
    assert [one.step for one in found] == ([] if step is None else [step])
    assert all(one.path == name and one.overwritten == (step == -1) for one in found)


def test_a_wrong_pattern_or_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="pattern: not a regular expression"):
        states_of(str(tmp_path), str(tmp_path), "pattern", "(")
    with pytest.raises(ValueError, match="format: 'zip' is not one of auto, none, primus"):
        states_of(str(tmp_path), str(tmp_path), "zip")
    assert states_of(str(tmp_path), str(tmp_path), "none") == []


def test_files_beside_folders_are_no_checkpoints_unless_a_pattern_says_so(tmp_path: Path) -> None:
    put(tmp_path / "ck", primus(20) | numbered_file(99))
    assert [one.step for one in states_of(str(tmp_path / "ck"), str(tmp_path / "run"))] == [20]
    both = states_of(str(tmp_path / "ck"), str(tmp_path / "run"), pattern=r"model_(?P<step>\d+)\.pt")
    assert [one.step for one in both] == [99, 20]


def test_the_step_of_an_overwritten_file_is_the_last_one_reported_before_it_was_written(tmp_path: Path) -> None:
    put(tmp_path / "ck", one_file())
    os.utime(tmp_path / "ck" / "ckpt.pt", (1000.5, 1000.5))
    put(tmp_path / "run", {
        "a1/trainer-0/steps.jsonl": b'{"step": 10, "at": 999.0}\n{"step": 20, "at": 1000.0}\n{"step": 30, "at": 1001.0}\n',
        "a2/trainer-0/steps.jsonl": b'{"step": 21, "at": 1500.0}\nnonsense\n',
    })  # fmt: skip
    assert states_of(str(tmp_path / "ck"), str(tmp_path / "run"))[0].step == 20


def test_counters_that_start_again_are_mapped_by_what_was_reported(tmp_path: Path) -> None:
    put(tmp_path / "ck", numbered_file(100) | numbered_file(5))
    os.utime(tmp_path / "ck" / "model_000100.pt", (1000.0, 1000.0))
    os.utime(tmp_path / "ck" / "model_000005.pt", (2000.0, 2000.0))
    put(tmp_path / "run", {
        "a1/t-0/steps.jsonl": b'{"step": 100, "at": 999.0}\n',
        "a2/t-0/steps.jsonl": b'{"step": 105, "at": 1999.0}\n',
    })  # fmt: skip
    request = SurveyRequest(str(tmp_path / "ck"), str(tmp_path / "run"), counter_restarts=True)
    findings = look_into(request).findings
    assert [(one.step, one.candidate.path) for one in findings] == [(105, "model_000005.pt"), (100, "model_000100.pt")]


@rows("programs/checkpoints/checkpoints")
def test_retention_keeps_the_newest_two_usable_ones(kept: str, keep: int, gone: str, every: int = 0) -> None:
    """`+`: usable, `-`: whole, but not read or not good, `!`: damaged, `n`: usable and somebody needs it."""
    words = kept.split()
    stored = [Stored(int(word[:-1]), word[-1] in "+n", word[-1] != "!", word[-1] == "n") for word in words]
    assert [words[index][:-1] for index in surplus(stored, keep, every)] == gone.split()


def test_limits_forbid_an_unknown_step_after_a_roll_back() -> None:
    assert "not known" in kept_copies.why_not(-1, "/ck/ckpt.pt", ResumeLimits(max_step=10))
    assert kept_copies.why_not(-1, "/ck/ckpt.pt", ResumeLimits()) == ""


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_metadata_is_read_without_unpickling_it(protocol: int) -> None:
    from tests.support.builders.checkpoint_samples import dcp_metadata

    shards = {f"__{rank}_0.distcp": 100 + rank for rank in range(300)}
    assert integrity.storage_needs(dcp_metadata(shards, protocol)) == shards


def test_a_pickle_that_would_run_code_runs_none(tmp_path: Path) -> None:
    import pickle

    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return os.mkdir, (str(tmp_path / "sprung"),)

    integrity.storage_needs(pickle.dumps(Trap()))
    put(tmp_path / "ck", replaced(dcp(), ".metadata", pickle.dumps(Trap())))
    assert word_of(tmp_path)[0] == "complete"
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("data", [npy_file(), npy_file(128)])
def test_array_files_say_their_length(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(data)
    assert integrity.probe(str(path)) == ""
    path.write_bytes(data + b"x")
    assert "array header says" in integrity.probe(str(path))


@rows("programs/checkpoints/checkpoints")
def test_a_manifest_names_the_key_that_is_wrong(change: dict[str, object], says: str) -> None:
    text = primus()["step-20/manifest.json"].decode()
    assert manifest.parse(text).to_json() == text
    with pytest.raises(manifest.ManifestError, match=says):
        manifest.parse(json.dumps({**json.loads(text), **change}))
