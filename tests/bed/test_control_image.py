"""The image with the whole product: half a minute to build, so it is tried here and not with every change.

The first of the two that are compared is the one that `test_installation.py` installs.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from deployments.images.__main__ import build
from deployments.images.contents import chosen
from tests.bed.installed import control, images_of
from tests.bed.layout import cache
from tests.support.harness.image_files import Image, read

pytestmark = pytest.mark.bedless


def test_it_is_the_same_every_time_all_of_it_is_listed_and_it_starts(tmp_path: Path) -> None:
    with images_of(cache()) as folder:
        first = control(folder)
        image = read(first.archive)
        assert image.wrong() == []
        every_file_is_listed(image, first.components)
        it_starts(image.unpack(tmp_path / "root"))
    again = build("control", tmp_path)
    assert again.digest == first.digest


def every_file_is_listed(image: Image, path: Path) -> None:
    listed = json.loads(path.read_text(encoding="utf-8"))
    parts = [listed["metadata"]["component"], *listed["components"]]
    told = Counter(place["location"] for part in parts for place in part["evidence"]["occurrences"])
    assert set(told) == {f"/{entry.name}" for entry, _ in image.entries() if not entry.isdir()}
    assert set(told.values()) == {1}
    versions = {(part["name"], part["version"]) for part in listed["components"] if "pkg:pypi/" in part["purl"]}
    assert versions == {(one.metadata["Name"], one.version) for one in chosen()}


def it_starts(inside: Path) -> None:
    """As its user, with nothing of this machine but the null device."""
    for folder in (inside, *inside.parents):
        if folder.name and folder.stat().st_uid == os.geteuid() and "pytest" in str(folder):
            folder.chmod(0o755)
    (inside / "dev").mkdir()
    os.mknod(inside / "dev" / "null", 0o20666, os.makedev(1, 3))
    environment = {"PATH": "/usr/sbin:/usr/bin:/bin", "HOME": "/var/lib/primus", "PRIMUS_HOME": "/var/lib/primus"}
    for words, told in ((["--help"], "diagnose"), (["render", "train", "demo"], "kind: JobSet")):
        command = ["chroot", "--userspec=65532:65532", str(inside), "/usr/bin/primus", *words]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        assert told in ended.stdout
