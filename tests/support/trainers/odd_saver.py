"""A trainer that names and leaves its checkpoints as programs of other people do, and kills itself once.

    python odd_saver.py --directory=D --steps=30 --way=overwritten [--resume=PATH]

Every way loads what it finds by itself unless it is given a path; each step prints `step N loss X`.
"""

from __future__ import annotations

import argparse
import os
import pickle
import signal
import time
from pathlib import Path

SAVE_EVERY = 5
DIES_AFTER = 12
STEP_SECONDS = 0.05
OWN_LATEST = ("own-latest", "own-latest-link", "own-latest-tracker")


def name_of(way: str, step: int) -> str:
    return {
        "overwritten": "ckpt.pt",
        "loss-in-the-name": f"epoch=0-step={step}-val_loss={1 / (step + 1):.4f}.ckpt",
        "unknown": f"state-{step}.xyz",
    }.get(way, f"model_{step:06d}.pt")


def save(folder: Path, way: str, step: int) -> None:
    written = folder / ".saving"
    written.write_bytes(pickle.dumps({"step": step, "weights": [step] * 2000}))
    written.rename(folder / name_of(way, step))
    if way == "own-latest-link":
        (folder / ".link").symlink_to(name_of(way, step))
        (folder / ".link").rename(folder / "latest")
    if way == "own-latest-tracker":
        (folder / "latest").write_text(name_of(way, step))


def leave_behind(folder: Path, way: str) -> None:
    """What a kill in the middle of a save, other tools and administrators leave."""
    whole = pickle.dumps({"step": 999, "weights": [999] * 2000})
    if way == "overwritten":
        (folder / "ckpt.pt").write_bytes(whole[:500])
    if way in OWN_LATEST:
        (folder / name_of(way, 15)).write_bytes(whole[:500])
        latest = folder / "latest"
        if way == "own-latest-link":
            latest.unlink()
            latest.symlink_to(name_of(way, 15))
        if way == "own-latest-tracker":
            latest.write_text(name_of(way, 15))
    if way == "left-overs":
        for name in (
            "model_000015.pt.tmp",
            "tmp-model_000300.pt",
            "wandb/run-1/model_000999.pt",
            "old/model_000900.pt",
        ):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(whole)
        (folder / "latest").symlink_to("latest")
        (folder / "all").symlink_to(".")
        (folder / "above").symlink_to("..")


def newest(folder: Path, way: str) -> str:
    """As such programs look for it themselves: a file that is always called the same, the highest number, what a link
    or a file beside them names."""
    if way == "overwritten":
        return str(folder / "ckpt.pt") if (folder / "ckpt.pt").exists() else ""
    if way == "own-latest":
        return max(map(str, folder.glob("*.pt")), default="")
    latest = folder / "latest"
    if way == "own-latest-link":
        return str(latest) if latest.is_symlink() else ""
    if way == "own-latest-tracker":
        return str(folder / latest.read_text()) if latest.exists() else ""
    return ""


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--directory", type=Path)
    asked.add_argument("--steps", type=int)
    asked.add_argument("--way")
    asked.add_argument("--resume", default="")
    given = asked.parse_args()
    died = given.directory.parent / "died"
    begun = 0
    taken = given.resume or newest(given.directory, given.way)
    if taken:
        with open(taken, "rb") as file:
            begun = pickle.load(file)["step"]
        print(f"resumed from {taken} at step {begun}", flush=True)
    for step in range(begun + 1, given.steps + 1):
        time.sleep(STEP_SECONDS)
        print(f"step {step} loss {1 / step:.4f}", flush=True)
        if step % SAVE_EVERY == 0 and step < given.steps:
            save(given.directory, given.way, step)
        while given.way == "unknown" and step == DIES_AFTER and not (given.directory.parent / "go-on").exists():
            time.sleep(STEP_SECONDS)
        if step == DIES_AFTER and given.way != "unknown" and not died.exists():
            # What was saved last must be proven: a kill right after the save is another story.
            # Its step is read off the reports where the name tells none, and a busy machine may read those late.
            while not any((given.directory.parent / "proofs" / f"step-{proven}.json").exists() for proven in (9, 10)):
                time.sleep(STEP_SECONDS)
            died.touch()
            leave_behind(given.directory, given.way)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
