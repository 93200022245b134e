"""`primus checkpoints` of anybody's folder: what it lists, and what it could not look into."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.builders.checkpoint_samples import numbered_file, put
from tests.support.harness.commands import primus_here


def test_a_link_to_itself_is_left_out_and_told_and_a_link_above_lists_nothing_twice(tmp_path: Path) -> None:
    put(tmp_path / "ck", numbered_file(20))
    (tmp_path / "ck" / "latest").symlink_to("latest")
    (tmp_path / "ck" / "all").symlink_to(".")
    done = primus_here("checkpoints", str(tmp_path / "ck"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("its header is readable") == 1
    assert done.stdout.endswith("could not look into latest: Too many levels of symbolic links\n")
    told = json.loads(primus_here("checkpoints", str(tmp_path / "ck"), "--json").stdout)
    assert [(one["step"], one["would_resume"]) for one in told] == [(20, True)]
