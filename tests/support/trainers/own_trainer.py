"""The trainer that knows nothing of us, as docs/bring-your-own-trainer.md shows it: files, data, and a run by hand."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "bring-your-own-trainer.md").read_text(encoding="utf-8")
PROFILE = ROOT / "tests" / "support" / "profiles" / "vowpal-wabbit.yaml"
RESTARTS = ROOT / "tests" / "support" / "profiles" / "vowpal-wabbit-restarts.yaml"


def blocks(language: str) -> list[str]:
    """The page's code blocks in `language`, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def put_files(folder: Path) -> None:
    """What a reader has after copying the page's files into `folder`."""
    (folder / "make_data.py").write_text(blocks("python")[0])
    (folder / "vowpal-wabbit.yaml").write_text(blocks("yaml")[0])
    (folder / "vowpal-wabbit-restarts.yaml").write_text(blocks("yaml")[1])


def shell(script: str, folder: Path, **environment: str) -> str:
    """What `script` prints when it is typed into a shell in `folder`, where primus' own environment is active."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    typed = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert typed.returncode == 0, f"{script}\n{typed.stdout[-2000:]}\n{typed.stderr[-2000:]}"
    return typed.stdout + typed.stderr


def by_hand(folder: Path, passes: int, resume: str = "") -> Path:
    """The model of an uninterrupted training of `passes` passes, without anything of ours."""
    put_files(folder)
    script = blocks("bash")[1].replace("--passes=5", f"--passes={passes}")
    assert f"--passes={passes} " in script
    shell(script, folder)
    return folder / "models" / f"model.{passes}"
