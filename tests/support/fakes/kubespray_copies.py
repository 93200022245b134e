"""A stand-in for Kubespray, as `kubespray_files.yaml` beside this file says: a folder, a repository, an archive."""

from __future__ import annotations

import hashlib
import subprocess
import tarfile
from pathlib import Path

from tests.support.cases.yaml_files import read_yaml

WHO = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org", "-c", "safe.directory=*")


def stand_in(folder: Path) -> Path:
    """The stand-in in a folder."""
    files: dict[str, str] = read_yaml(Path(__file__).with_name("kubespray_files.yaml").read_text(encoding="utf-8"))
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def repository_of(folder: Path) -> tuple[Path, str]:
    """A repository with the stand-in, and its only commit."""
    stand_in(folder)
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "a stand-in")):
        subprocess.run(["git", *WHO, *words], cwd=folder, check=True)
    told = subprocess.run(["git", *WHO, "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return folder, told.stdout.strip()


def archive_of(folder: Path) -> tuple[Path, str]:
    """An archive with the stand-in in one folder, and its digest."""
    path = folder / "kubespray.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(stand_in(folder / "inside"), "kubespray-2.32.0")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()
