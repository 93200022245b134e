"""Folders of training frameworks, as they are left by a save that ends and by one that is killed: what is resumed."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.builders.checkpoint_listings import put_listing
from tests.support.cases.rows import rows
from workflows.programs.checkpoints import choose


@rows("programs/checkpoints/layouts")
def test_the_newest_whole_checkpoint_of_each_layout(  # noqa: PLR0917 - columns of a table
    case: str,
    files: str,
    tmp_path: Path,
    newest: str | None = None,
    step: int | None = None,
    never: tuple[str, ...] = (),
    units: int | None = None,
    verdict: str = "",
) -> None:
    """`newest` is a path or several of equal worth, `never` what is no candidate, `units` how many candidates are."""
    run = tmp_path / "runs" / "r"
    folder = run / "checkpoints"
    folder.mkdir(parents=True)
    put_listing(folder, files, run)
    choice = choose.choose(choose.Options(str(folder), str(run)))
    seen = [os.path.relpath(one.path, folder) for one in choice.looked_at]
    taken = [path for path, one in zip(seen, choice.looked_at, strict=True) if one.would_resume]
    told = (
        f"{case}: {choice.why}; {[(path, one.step, one.why) for path, one in zip(seen, choice.looked_at, strict=True)]}"
    )
    assert taken == taken[:1], told
    assert (taken[0] if taken else None) in (newest.split(" | ") if newest else [None]), told
    assert choice.resume_step == step, told
    assert choice.verdict == (verdict or ("pass" if newest else "fail")), told
    assert bool(choice.resume_from) == bool(newest), told
    assert not [path for path in seen for one in never if path == one or path.startswith(f"{one}/")], told
    assert units is None or len(seen) == units, told
