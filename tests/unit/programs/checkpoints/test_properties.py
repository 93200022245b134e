"""Whatever lies in a checkpoint folder, there is a verdict: never an exception, never a bad one taken for good."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.builders.checkpoint_samples import (
    SAMPLES,
    Files,
    npy_file,
    primus,
    put,
    safetensors_file,
    torch_file,
)
from workflows.programs.checkpoints import choose, integrity, manifest, prover, zip_files
from workflows.programs.checkpoints.integrity import PickleError, storage_needs
from workflows.programs.checkpoints.inventory import SurveyRequest, look_into, to_states
from workflows.programs.checkpoints.kept_copies import ResumeLimits
from workflows.programs.checkpoints.surplus import Stored, surplus

WORDS = {"pass", "fail", "unknown"}
SEVERAL = settings(max_examples=260, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@contextmanager
def folder() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    try:
        (path / "runs" / "r").mkdir(parents=True)
        yield path / "runs" / "r"
    finally:
        shutil.rmtree(path)


@st.composite
def damaged(draw: st.DrawFn, kind: str) -> Files:
    """Two checkpoints of a kind, the newer with up to three files cut, flipped, emptied, deleted or renamed."""
    files = dict(SAMPLES[kind](40))
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(sorted(files)))
        data = files[name]
        how = draw(st.sampled_from(["cut", "flip", "empty", "delete", "grow", "random"]))
        at = draw(st.integers(0, max(0, len(data) - 1)))
        flipped = data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :] if data else b"x"
        changed = {
            "cut": data[:at],
            "flip": flipped,
            "empty": b"",
            "grow": data + b"\0" * 7,
            "random": draw(st.binary(max_size=80)),
        }
        if how == "delete":
            del files[name]
            if not files:
                break
        else:
            files[name] = changed[how]
    return files


@pytest.mark.parametrize("kind", SAMPLES)
@SEVERAL
@given(data=st.data())
def test_a_damaged_checkpoint_always_gets_a_verdict(kind: str, data: st.DataObject) -> None:
    """8 kinds, 260 each: 2,080 damaged checkpoints. Ours must also never be taken for good with another content."""
    files = data.draw(damaged(kind))
    with folder() as run:
        put(run / "checkpoints", files)
        options = choose.Options(str(run / "checkpoints"), str(run))
        choice = choose.choose(options)
        assert choice.verdict in WORDS
        assert choice.verdict != "unknown", choice
        assert (choice.resume_from != "") == any(one.usable for one in choice.looked_at)
        anew = choice.verdict == "pass" and bool(choice.looked_at) and not choice.resume_from
        assert anew == ("none was ever proven: training begins anew" in choice.why)
        if kind == "primus" and choice.resume_from:
            whole = SAMPLES[kind](40)
            assert manifest.parse(files["step-40/manifest.json"]) == manifest.parse(whole["step-40/manifest.json"])
            assert all(files[name] == data for name, data in whole.items() if name.endswith(".npz"))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 12), unique=True, max_size=5), st.integers(-1, 13), st.sets(st.integers(1, 12)))
def test_a_roll_back_never_goes_forward(steps: list[int], max_step: int, excluded: set[int]) -> None:
    with folder() as run:
        for step in steps:
            put(run / "checkpoints", SAMPLES["primus"](step))
        limits = ResumeLimits(max_step, tuple(str(step) for step in excluded))
        found = look_into(SurveyRequest(str(run / "checkpoints"), str(run), limits=limits))
        states = to_states(found.findings)
    allowed = [step for step in steps if (max_step == -1 or step <= max_step) and step not in excluded]
    assert [one.step for one in states if one.would_resume] == sorted(allowed, reverse=True)[:1]
    assert [one.step for one in states] == sorted(steps, reverse=True)


STORED = st.builds(Stored, st.integers(-1, 30), st.booleans(), st.booleans(), st.booleans())


@settings(deadline=None)
@given(st.lists(STORED, max_size=12), st.integers(0, 6), st.integers(0, 12))
def test_what_remains_is_enough_and_a_resume_takes_the_same(stored: list[Stored], keep: int, every: int) -> None:
    gone = surplus(stored, keep, every)
    left = [one for index, one in enumerate(stored) if index not in gone]
    usable = sorted({one.step for one in stored if one.usable and one.step >= 0}, reverse=True)
    newest = set(usable[: max(2, keep)])
    assert [one for one in left if one.step in newest] == [one for one in stored if one.step in newest]
    assert all(stored[index].whole and not stored[index].needed for index in gone)
    assert all(stored[index].step < min(newest) for index in gone)
    assert not gone or len(newest) == max(2, keep)
    assert surplus(left, keep, every) == [], "once is enough: what stays for good stays so"


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from("gbd"), min_size=1, max_size=7), st.integers(1, 4), st.booleans())
def test_after_a_removal_a_resume_takes_what_it_would_have_taken(kinds: list[str], keep: int, alone: bool) -> None:
    """`g`: good, `b`: a byte flipped, `d`: a file deleted."""
    with folder() as run:
        (run / "ledger").write_text("mine")
        wanted = prover.Options(str(run / "checkpoints"), str(run), keep=keep, remove_surplus=True)
        for number, kind in enumerate(kinds, start=1):
            files = dict(primus(10 * number))
            name = f"step-{10 * number}/shard-0.npz"
            if kind == "d":
                del files[name]
            elif kind == "b":
                files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
            put(run / "checkpoints", files)
        watching = prover.Prover(wanted)
        for _ in range(5):
            watching.look()
        resume = choose.Options(str(run / "checkpoints"), str(run), chooses_itself=False)
        before = choose.choose(resume)
        good = [10 * number for number, kind in enumerate(kinds, start=1) if kind == "g"]
        gone = [one.step for one in watching.remove_surplus("mine", before.resume_from if alone else "")]
        after = choose.choose(resume)
        left = {int(path.name[5:]) for path in (run / "checkpoints").glob("step-*")}
    told = [(one.resume_from, one.resume_step, one.verdict) for one in (before, after)]
    assert told[0] == told[1]
    assert gone == good[: -max(2, keep)]
    assert left == {10 * number for number, _ in enumerate(kinds, start=1)} - set(gone)


FILES = [("x.pt", torch_file()), ("x.npz", torch_file()), ("x.safetensors", safetensors_file()), ("x.npy", npy_file())]


@pytest.mark.parametrize(("name", "whole"), FILES, ids=[name for name, _ in FILES])
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_bytes_crash_a_header_probe(name: str, whole: bytes, data: st.DataObject, tmp_path: Path) -> None:
    start = data.draw(st.integers(0, len(whole)))
    length = data.draw(st.integers(0, 40))
    content = whole[:start] + data.draw(st.binary(max_size=40)) + whole[start + length :]
    path = tmp_path / name
    path.write_bytes(content)
    said = integrity.probe(str(path))
    if said == "":
        try:
            zip_files.checksummed_parts(str(path))
        except zip_files.UnsoundFileError as error:
            said = str(error)
    assert isinstance(said, str)


@pytest.mark.parametrize(("name", "whole"), FILES, ids=[name for name, _ in FILES])
def test_every_cut_is_seen(name: str, whole: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert integrity.probe(str(path)) != "", length


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_no_bytes_crash_the_reader_of_pickles(data: bytes) -> None:
    with suppress(PickleError):
        storage_needs(data)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_text_crashes_the_reader_of_manifests(data: bytes) -> None:
    with suppress(manifest.ManifestError):
        manifest.parse(data)


class Storage:
    """A run's storage on which things happen, and what of it is whole."""

    def __init__(self, run: Path, kind: str) -> None:
        self.run = run
        self.kind = kind
        self.whole: dict[int, Files] = {}
        self.at = 1_000.0
        self.prover = prover.Prover(prover.Options(str(run / "checkpoints"), str(run)))
        self.nan_from: int | None = None
        self.bad: set[int] = set()

    def save(self, step: int) -> None:
        """The trainer writes a step, as a whole new folder or over its one file."""
        files = SAMPLES[self.kind](step)
        for path in {(self.run / "checkpoints" / name).parent for name in files}:
            if path.name != "checkpoints":
                shutil.rmtree(path, ignore_errors=True)
        put(self.run / "checkpoints", files)
        self.at += 1
        for name in files:
            os.utime(self.run / "checkpoints" / name, (self.at, self.at))
        put_line(self.run, step, self.at - 0.5)
        if self.kind == "one_file":
            self.whole.clear()
            self.bad.clear()
        self.whole[step] = files
        self.bad.discard(step)

    def damage(self, step: int, pick: int) -> None:
        """Something flips a byte in the middle of a data file."""
        if step not in self.whole:
            return
        names = [name for name in sorted(self.whole[step]) if name.endswith((".npz", ".distcp", ".pt"))]
        path = self.run / "checkpoints" / names[pick % len(names)]
        data = bytearray(path.read_bytes())
        original = self.whole[step][names[pick % len(names)]]
        at = original.find(DATA_MARK.get(self.kind, str(step).encode() * 3))
        assert at > 0
        data[at] ^= 0x20
        path.write_bytes(bytes(data))
        self.at += 1
        os.utime(path, (self.at, self.at))
        self.bad.symmetric_difference_update({step})  # the same byte twice is whole again

    def look(self) -> None:
        self.prover.look()
        self.prover.look()


DATA_MARK = {"primus": b" ", "dcp": b"tensor"}
"""Where a kind's data lies in its files; the others repeat their step."""


def put_line(run: Path, step: int, at: float) -> None:
    path = run / "a1" / "t-0" / "steps.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(f'{{"step": {step}, "at": {at}}}\n')


EVENTS = st.lists(
    st.tuples(st.sampled_from(["save", "damage", "look"]), st.sampled_from([10, 20, 30]), st.integers(0, 5)),
    max_size=12,
)


@pytest.mark.parametrize("kind", ["primus", "dcp", "numbered_file"])
@settings(max_examples=30, deadline=None)
@given(events=EVENTS, max_step=st.sampled_from([-1, 25]))
def test_whatever_happened_a_resume_takes_the_newest_whole_one(
    kind: str, events: list[tuple[str, int, int]], max_step: int
) -> None:
    """Saves, damage and proofs in any order: the newest undamaged one within the limit is taken, or none."""
    with folder() as run:
        storage = Storage(run, kind)
        for what, step, _ in events:
            if what == "save":
                storage.save(step)
            elif what == "damage":
                storage.damage(step, 0)
            else:
                storage.look()
        choice = choose.choose(choose.Options(str(run / "checkpoints"), str(run), max_step=max_step))
    good = [step for step in storage.whole if step not in storage.bad and (max_step == -1 or step <= max_step)]
    assert choice.resume_step == max(good, default=None), choice
    assert choice.verdict == ("pass" if good or not storage.whole else "fail")


@settings(max_examples=30, deadline=None)
@given(events=EVENTS)
def test_an_overwritten_file_or_a_proven_copy_of_it_is_resumed_from(events: list[tuple[str, int, int]]) -> None:
    """The file itself while it is whole; once it is damaged the newest copy that was proven; never the damaged one."""
    with folder() as run:
        storage = Storage(run, "one_file")
        kept: set[int] = set()
        for what, step, _ in events:
            if what == "save":
                storage.save(step)
            elif what == "damage":
                storage.damage(next(iter(storage.whole), 0), 0)
            else:
                storage.look()
                kept |= set(storage.whole) - storage.bad
        choice = choose.choose(choose.Options(str(run / "checkpoints"), str(run)))
        if choice.resume_from:
            taken = Path(choice.resume_from).read_bytes()
            assert choice.resume_step is not None
            assert taken == SAMPLES["one_file"](choice.resume_step)["ckpt.pt"]
    assert (choice.verdict == "pass") == bool(kept or set(storage.whole) - storage.bad or not storage.whole)
