"""Checkpoints of 2 GiB: verifying against `cat` of the same files, cold; restarting on records; proving at save.

Run it by itself (`python -m tests.benchmarks.checkpoints [MIB]`). Cold means that the kernel was told to forget the
files' pages first. `cat` and ours take turns, so a disk that has a slow minute has it for both.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support.builders import checkpoint_samples
from tests.support.builders.checkpoint_samples import put
from workflows.programs.checkpoints import choose, manifest
from workflows.programs.checkpoints import prover as checkpoints_prover

MIB = 2048
RATIO_GOAL = 0.5
RECORDS_GOAL_SECONDS = 0.1
TURNS = 3
BLOCK = 1 << 20


def main() -> int:
    """Print each figure beside its goal; 1 where one is missed."""
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else MIB
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name, files in (("8 shards", 8), ("1 file", 1)):
            run = Path(folder) / name.replace(" ", "-") / "runs" / "r"
            write(run / "checkpoints" / "step-20", files, mib)
            good &= compare(name, run, mib)
        run = Path(folder) / "torch" / "runs" / "r"
        put(run / "checkpoints", {"model_000020.pt": torch_file(mib // 4)})
        good &= compare("1 torch file, by the checksums inside it", run, mib // 4)
    return 0 if good else 1


def compare(name: str, run: Path, mib: int) -> bool:
    """One checkpoint: cold `cat`, cold verification, records only."""
    command = ["/bin/sh", "-c", 'cat "$@" >/dev/null', "cat"]
    files = [path for path in (run / "checkpoints").rglob("*") if path.is_file()]
    options = choose.Options(str(run / "checkpoints"), str(run))
    cat = verified = float("inf")
    for _ in range(TURNS):
        cat = min(cat, timed(files, lambda: subprocess.check_call([*command, *map(str, files)])))
        verified = min(verified, timed(files, lambda: passed(options, reads=True)))
    prover = checkpoints_prover.Prover(checkpoints_prover.Options(str(run / "checkpoints"), str(run)))
    began = time.perf_counter()
    seen = [*prover.look(), *prover.look()]
    proven = time.perf_counter() - began
    assert [one.verdict for one in seen] == ["pass"], seen
    began = time.perf_counter()
    passed(options, reads=False)
    records = time.perf_counter() - began
    ratio = cat / verified
    print(f"checkpoint of {mib} MiB, {name}:")
    print(
        f"  cold cat {cat:.2f} s ({mib / cat:.0f} MiB/s), "
        f"cold verification {verified:.2f} s ({mib / verified:.0f} MiB/s), ratio {ratio:.2f} (goal >= {RATIO_GOAL})"
    )
    print(
        f"  proof at save, read back from the storage: {proven:.2f} s; restart on its record: {records * 1e3:.1f} ms "
        f"(goal <= {RECORDS_GOAL_SECONDS * 1e3:.0f} ms)"
    )
    return ratio >= RATIO_GOAL and records <= RECORDS_GOAL_SECONDS


def passed(options: choose.Options, reads: bool) -> None:
    """Verify, and make sure that it did what is measured."""
    choice = choose.choose(options)
    assert choice.verdict == "pass", choice
    assert (choice.bytes_read > 0) == reads, choice


def timed(files: list[Path], action: Callable[[], object]) -> float:
    """Seconds of `action` after the kernel forgot the files."""
    os.sync()
    for path in files:
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def write(folder: Path, files: int, mib: int) -> None:
    """A checkpoint of ours with random content."""
    folder.mkdir(parents=True)
    entries: list[manifest.FileEntry] = []
    for index in range(files):
        running = hashlib.sha256()
        with (folder / f"shard-{index}.npz").open("wb") as file:
            for _ in range(mib // files):
                block = os.urandom(BLOCK)
                running.update(block)
                file.write(block)
        entries.append(manifest.FileEntry(f"shard-{index}.npz", mib // files * BLOCK, running.hexdigest()))
    (folder / manifest.MANIFEST).write_text(manifest.Manifest(20, files, tuple(entries), {}).to_json())


def torch_file(mib: int) -> bytes:
    """A zip as `torch.save` writes it, with one large member."""
    return checkpoint_samples.torch_file(os.urandom(BLOCK) * mib)


if __name__ == "__main__":
    sys.exit(main())
