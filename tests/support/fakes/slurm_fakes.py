"""Made-up commands of Slurm for tests: one small program that answers as a folder says, under each command's name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from profiles.admission import Slurm
from tasks.slurm.probe import Pace, run_by_slurm
from tests.support.builders.slurm_plans import plan_on
from workflows.model.node_results import NodeResult
from workflows.node_tests.preflight import PreflightPlan

HASTE = Pace(look_seconds=0.02, settle_seconds=0.1, kept_out_seconds=0.1, end_seconds=0.5)
PLAN = plan_on(["node-0"])

PROGRAM = """#!{python} -IS
import os, pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(here / "asked", "a") as asked:
    asked.write(" ".join([name, *words]) + "\\n")
with open(here / "environment", "a") as seen:
    seen.write("\\n".join(f"{{key}}={{value}}" for key, value in os.environ.items()) + "\\n")
if (here / "away").exists():
    sys.stderr.write(name + ": error: Unable to contact slurm controller (connect failure)\\n")
    sys.exit(1)
if (here / (name + ".no")).exists():
    sys.stderr.write((here / (name + ".no")).read_text())
    sys.exit(1)
said = here / (name + ".says")
if name == "sbatch":
    if (here / "runs").exists():
        subprocess.run(["/bin/sh", words[-1]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(said.read_text() if said.exists() else "7")
elif name == "squeue":
    chosen = next(word for word in words if word.startswith("--name=")).split("=", 1)[1]
    for job in chosen.split(","):
        if said.exists():
            print(said.read_text().replace("NAME", job), end="")
elif said.exists():
    print(said.read_text(), end="")
"""
COMMANDS = ("sbatch", "squeue", "sinfo", "scancel", "scontrol", "sacct")


class FakeSlurm:
    """Commands in a folder, alone on PATH but for the system's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        for name in COMMANDS:
            (folder / name).write_text(PROGRAM.format(python=sys.executable))
            (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def says(self, command: str, text: str) -> None:
        """What a command prints from now on; squeue: for each job that is asked for, NAME is its name."""
        (self.folder / f"{command}.says").write_text(text)

    def refuses(self, command: str, text: str) -> None:
        """A command says no with this on its standard error."""
        (self.folder / f"{command}.no").write_text(text)

    def away(self, *, gone: bool = True) -> None:
        """Nothing answers; or again."""
        if gone:
            (self.folder / "away").touch()
        else:
            (self.folder / "away").unlink()

    def runs_jobs(self) -> None:
        """Sbatch runs the script before it answers."""
        (self.folder / "runs").touch()

    def asked(self, command: str) -> list[str]:
        """How a command was called, a line a call."""
        path = self.folder / "asked"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.split()[0] == command]

    @property
    def environment(self) -> str:
        """What the commands saw of it."""
        return (self.folder / "environment").read_text()


class Stage:
    """A made-up Slurm, a shared folder, a home."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slurm = FakeSlurm(folder / "bin", monkeypatch)
        self.shared, self.home = folder / "shared", folder / "home"
        self.said: list[tuple[str, int]] = []

    def run(self, plan: PreflightPlan = PLAN, pace: Pace = HASTE, **settings: object) -> NodeResult:
        section = Slurm.model_validate({"python": sys.executable, "wait_seconds": 0.3, **settings})
        [told] = run_by_slurm(plan, section, self.shared, self.home, self._tell, pace=pace)
        return told

    def _tell(self, phase: str, told: int) -> None:
        self.said.append((phase, told))
        if self.said[-1][0] == "1 running" and (self.home / "interrupt").exists():
            raise KeyboardInterrupt

    @property
    def folders(self) -> list[str]:
        return [path.name for path in self.shared.glob(".primus-*")]
