"""The demo trainer as torchrun would start it: real processes, real sockets, real faults."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases.rows import rows
from tests.support.running.waiting import patience
from workflows.programs.checkpoints import manifest
from workflows.programs.demo import checkpoint, model, train
from workflows.programs.runtime import flags

ROOT = Path(__file__).parents[4]
DEADLINE_SECONDS = patience(60.0)
SMALL = ("--steps=12", "--save-every=4", "--batch-windows=2", "--corpus-bytes=65536")


@dataclass
class Rank:
    process: subprocess.Popen[str]
    seen: list[str]

    def until(self, pattern: str) -> None:
        """Read output until a line matches."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(line)
            if re.search(pattern, line):
                return
        raise AssertionError(f"{pattern!r} never came: {''.join(self.seen)}")

    def until_it_waits(self) -> None:
        """Until the kernel says that it sleeps; a rank that never rests between steps does so for its peers alone."""
        deadline = time.monotonic() + 60
        while Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < deadline, "it never waits"
            time.sleep(0.01)

    def end(self) -> tuple[int, str]:
        """Exit code and everything printed."""
        rest, _ = self.process.communicate(timeout=DEADLINE_SECONDS)
        return self.process.returncode, "".join(self.seen) + rest


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(*argv: str, rank: int = 0, world_size: int = 1, port: int = 0) -> Rank:
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [sys.executable, "-m", "workflows.programs.demo.train", *argv]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, text=True, cwd=ROOT
    )
    return Rank(process, [])


def start_two(*argv: str, extra_for_rank_1: tuple[str, ...] = ()) -> tuple[Rank, Rank]:
    port = free_port()
    first = start(*argv, rank=0, world_size=2, port=port)
    return first, start(*argv, *extra_for_rank_1, rank=1, world_size=2, port=port)


def run_two(*argv: str) -> tuple[int, str, int, str]:
    first, second = start_two(*argv)
    return *first.end(), *second.end()


def weights(text: str) -> str:
    found = re.search(r"weights sha256 ([0-9a-f]{64})", text)
    assert found is not None, text
    return found.group(1)


def losses(text: str) -> dict[int, str]:
    return {int(step): loss for step, loss in re.findall(r"^step (\d+)/\d+ \| loss (\S+) ", text, re.MULTILINE)}


@pytest.fixture(scope="module")
def unfailed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Checkpoints and output of a run that nothing happened to."""
    folder = tmp_path_factory.mktemp("unfailed")
    code, text, other_code, other_text = run_two(*SMALL, f"--checkpoint-dir={folder}")
    assert (code, other_code) == (0, 0), text
    own = re.findall(r"^step (\d+)/12 \| compute \d\.\d{4} s$", other_text, re.MULTILINE)
    assert [int(step) for step in own] == list(range(1, 13)), other_text
    assert len(other_text.splitlines()) == 12
    return folder, text


def test_a_run_that_lost_a_rank_ends_with_the_bits_of_an_unfailed_one(
    unfailed: tuple[Path, str], tmp_path: Path
) -> None:
    folder, whole = unfailed
    fault = tmp_path / "fault"
    fault.write_text('{"fault": "exception", "rank": 1, "step": 6}')
    mine = (*SMALL, f"--checkpoint-dir={tmp_path / 'ck'}")
    code, text, other_code, other_text = run_two(*mine, f"--fault-file={fault}")
    assert code == other_code == 1
    assert "rank 0: all-reduce failed: rank 1 closed the connection" in text
    assert "DemoFaultError: asked for by the fault file, after step 6" in other_text
    assert (tmp_path / "fault.fired").exists()
    assert max(losses(text)) == 6
    code, text, _, _ = run_two(*mine, f"--fault-file={fault}", f"--resume={tmp_path / 'ck' / 'step-4'}")
    assert code == 0, text
    assert losses(text) == {step: loss for step, loss in losses(whole).items() if step > 4}
    assert weights(text) == weights(whole)
    last = manifest.parse((tmp_path / "ck" / "step-12" / "manifest.json").read_text())
    assert last.meta["weights_sha256"] == weights(whole)
    assert last == manifest.parse((folder / "step-12" / "manifest.json").read_text())


def test_loss_falls_below_the_entropy_of_single_bytes(tmp_path: Path) -> None:
    code, text = start("--steps=150", "--corpus-bytes=524288").end()
    assert code == 0, text
    found = re.search(r"held-out loss (\S+) \| unigram entropy (\S+) nats per byte", text)
    assert found is not None, text
    loss, entropy = float(found.group(1)), float(found.group(2))
    assert loss < entropy - 0.3


def test_nan_spreads_to_all_ranks_and_training_goes_on(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.write_text("nan-rank:1,step=3")
    code, text, other_code, _ = run_two(*SMALL, f"--fault-file={fault}")
    assert (code, other_code) == (0, 0)
    seen = losses(text)
    assert [step for step, loss in seen.items() if loss == "nan"] == list(range(4, 13))


def test_out_of_memory_is_a_memory_error(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.write_text("oom-rank:0")
    code, text = start(*SMALL, f"--fault-file={fault}").end()
    assert code == 1
    assert text.rstrip().endswith("MemoryError")


def test_a_fault_file_nobody_understands_is_said_once_and_training_goes_on(tmp_path: Path) -> None:
    fault = tmp_path / "fault"
    fault.write_text('{"fault": "earthquake"}')
    code, text = start(*SMALL, f"--fault-file={fault}").end()
    assert code == 0
    assert text.count("not understood") == 1
    assert "earthquake" in text


def test_sigterm_saves_and_ends_with_143_and_the_rest_has_the_same_bits(
    unfailed: tuple[Path, str], tmp_path: Path
) -> None:
    mine = (*SMALL, f"--checkpoint-dir={tmp_path}")
    first, second = start_two(*mine, "--step-seconds=0.05")
    first.until(r"^step 2/")
    first.process.send_signal(signal.SIGTERM)  # one rank is enough: the vote travels with the gradient
    code, text = first.end()
    assert (code, second.end()[0]) == (143, 143)
    step = max(losses(text))
    assert step < 12
    assert f"stopped by SIGTERM after step {step}, saved: True" in text
    code, text, _, _ = run_two(*mine, f"--resume={tmp_path / f'step-{step}'}")
    assert code == 0, text
    assert weights(text) == weights(unfailed[1])


def test_sigterm_with_a_silent_peer_gives_up_saving_after_the_grace() -> None:
    first, second = start_two(*SMALL, "--steps=100000", "--save-grace-seconds=0.2")
    first.until(r"^step 2/")
    second.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, second.process.pid, os.WSTOPPED)
    try:
        first.until_it_waits()  # what the peer had sent before may be enough for one step more, vote and all
        first.process.send_signal(signal.SIGTERM)
        code, text = first.end()
    finally:
        second.process.kill()
        second.end()
    assert code == 143
    assert "not saved" in text


def test_started_again_after_its_end_it_says_so(unfailed: tuple[Path, str]) -> None:
    folder, whole = unfailed
    code, text, other_code, _ = run_two(*SMALL, f"--checkpoint-dir={folder}", f"--resume={folder / 'step-12'}")
    assert (code, other_code) == (0, 0)
    assert "nothing to do: all 12 steps are done" in text
    assert losses(text) == {}
    assert weights(text) == weights(whole)


def test_a_missing_shard_or_a_changed_one_is_refused(unfailed: tuple[Path, str], tmp_path: Path) -> None:
    import shutil

    broken = tmp_path / "step-8"
    shutil.copytree(unfailed[0] / "step-8", broken)
    shard = broken / "shard-1.npz"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(bytes(data))
    code, text, _, _ = run_two(*SMALL, f"--resume={broken}")
    assert code == 1
    assert "shard-1.npz is not what was saved" in text
    shard.unlink()
    code, text, _, _ = run_two(*SMALL, f"--resume={broken}")
    assert code == 1
    assert "shard-1.npz: No such file" in text


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("--resume=/nonexistent/step-4",), "no usable manifest.json"),
        (("--corpus=/nonexistent",), "--corpus: cannot read /nonexistent"),
    ],
)
def test_a_wrong_path_is_one_clear_line(argv: tuple[str, ...], says: str) -> None:
    code, text = start(*SMALL, *argv).end()
    assert code == 1
    assert says in text
    assert "Traceback" not in text


def test_another_number_of_ranks_or_another_seed_is_refused(unfailed: tuple[Path, str]) -> None:
    resume = f"--resume={unfailed[0] / 'step-4'}"
    code, text = start(*SMALL, resume).end()
    assert code == 1
    assert "saved by 2 ranks, this run has 1" in text
    first, second = start_two(*SMALL, resume, "--seed=7")
    assert "seed is 0 there and 7 here" in first.end()[1]
    second.end()


def test_ranks_that_do_not_belong_together_say_what_differs(unfailed: tuple[Path, str]) -> None:
    resume = (f"--resume={unfailed[0] / 'step-4'}",)
    first, second = start_two(*SMALL, extra_for_rank_1=resume)
    (code, text), (other_code, other_text) = first.end(), second.end()
    assert (code, other_code) == (1, 1)
    assert "step is 4 instead of 0" in text
    assert "step is 4 instead of 0" in other_text


def test_a_full_disk_is_named_and_leaves_no_checkpoint_behind(tmp_path: Path) -> None:
    limited = ["/bin/sh", "-c", 'ulimit -f 64; exec "$@"', "sh"]  # 32 KiB a file
    command = [*limited, sys.executable, "-m", "workflows.programs.demo.train", *SMALL, f"--checkpoint-dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=DEADLINE_SECONDS)
    assert done.returncode == 1
    assert re.search(r"rank 0: .*File too large: .*shard-0.npz", done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == [".step-4.unfinished"]


def test_a_step_takes_at_least_its_minimum_time() -> None:
    began = time.monotonic()
    code, _ = start(*SMALL, "--steps=5", "--step-seconds=0.05").end()
    assert code == 0
    assert time.monotonic() - began >= 0.25


@pytest.mark.parametrize("argv", [["--steps=0"], ["--steps"], ["--steps=many"], ["--seed=-1"], ["--no-such=1"], ["--"]])
def test_wrong_flags_are_named(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert train.main(argv) == 2
    assert "demo-train: --" in capsys.readouterr().err


options = st.builds(
    train.Options,
    steps=st.integers(1, 10**6),
    seed=st.integers(0, 2**31),
    checkpoint_dir=st.text(max_size=20),
    resume=st.text(max_size=20),
    step_seconds=st.floats(0, 10),
    fault_file=st.text(max_size=20),
    checkpoint_mib=st.integers(0, 4096),
)


@settings(deadline=None)
@given(options)
def test_options_survive_the_command_line(wanted: train.Options) -> None:
    assert train.parse(wanted.argv()) == wanted


@rows("programs/demo/train")
def test_requests_for_faults(text: str, fault: checkpoint.Fault) -> None:
    assert checkpoint.parse(text) == fault


@settings(deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"(nan|oom|hang)-rank:.{0,4}(,step=.{0,3})?", fullmatch=True))
def test_no_request_crashes_the_reader(text: str) -> None:
    try:
        found = checkpoint.parse(text)
    except ValueError:
        return
    assert found.fault in checkpoint.FAULTS


def test_a_hold_lasts_until_the_file_says_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "fault.json"
    file.write_text('{"fault": "hold", "step": 12}')
    looks: list[float] = []

    def asleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            file.write_text("nan-rank:1")

    monkeypatch.setattr(checkpoint.time, "sleep", asleep)
    assert checkpoint.due(str(file), 1, 11) is None, "it is not there yet"
    assert looks == []
    assert checkpoint.due(str(file), 0, 12) is None, "what comes after the hold is meant for another rank"
    assert checkpoint.due(str(file), 1, 12) == "nan"
    assert looks == [checkpoint.HOLD_LOOK_SECONDS] * 3
    assert not file.exists()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 5), st.integers(0, 40), st.integers(1, 9))
def test_a_restored_reader_goes_on_exactly_where_it_was(seed: int, world_size: int, before: int, windows: int) -> None:
    import numpy as np

    corpus = model.Corpus(np.arange(2000, dtype=np.uint8) % 128, 1900, "x")
    rank = seed % world_size
    first = model.BatchReader(corpus, seed, rank, world_size)
    for _ in range(before):
        first.batch(windows)
    second = model.BatchReader(corpus, seed + 1, rank, world_size)
    second.restore(first.state())
    for _ in range(20):
        assert all(np.array_equal(a, b) for a, b in zip(first.batch(windows), second.batch(windows), strict=True))


def test_flags_leave_defaults_out_and_take_a_command() -> None:
    assert train.Options().argv() == []
    with pytest.raises(flags.UsageError, match="takes no command"):
        train.parse(["--", "x"])
