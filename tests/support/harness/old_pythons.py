"""Pythons that are too old for us, where this machine has some: what users' images may bring."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def old_python(version: str) -> Path | None:
    """The interpreter of a version such as `3.6`, None where there is none; a pyenv's count, in use or not."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [*sorted(root.glob(f"{version}.*/bin/python{version}")), shutil.which(f"python{version}")]
    return next((Path(path) for path in found if path and _runs(Path(path), version)), None)


def _runs(path: Path, version: str) -> bool:
    script = "import sys; print('%d.%d' % sys.version_info[:2])"
    told = subprocess.run([path, "-c", script], capture_output=True, text=True, check=False)
    return told.stdout.strip() == version
